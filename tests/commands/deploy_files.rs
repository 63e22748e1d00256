//! Tests that every file under `deploy/` that another program reads is well-formed, and that the
//! FreeSWITCH dialplan of the lookup sets and removes the right variables.

use quick_xml::Reader;
use quick_xml::events::Event;
use std::fs;
use std::path::{Path, PathBuf};

/// Extensions and names of files that no parser here reads: texts, scripts, and files that
/// promtool, dpkg, or podman check.
const OTHERS: [&str; 14] = [
    "advisories",
    "certificates",
    "md",
    "build",
    "Containerfile",
    "sysusers",
    "changelog",
    "copyright",
    "postinst",
    "postrm",
    "sql",
    "prerm",
    "txt",
    "yml",
];

fn deploy_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy")
}

/// Returns the paths of all files in a folder and its subfolders.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// An XML element: its name, and its attributes with entities resolved.
type Element = (String, Vec<(String, String)>);

/// Parses an XML document, and returns its elements in order. The document must have one root
/// element, and no `--` in its comments.
fn elements(text: &str) -> Result<Vec<Element>, String> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_comments = true;
    let mut elements = Vec::new();
    let mut depth = 0;
    let mut roots = 0;
    loop {
        let event = reader.read_event().map_err(|error| error.to_string())?;
        let opened = match &event {
            Event::Start(start) | Event::Empty(start) => start,
            Event::End(_) => {
                depth -= 1;
                continue;
            }
            Event::Text(text) if depth == 0 && !text.trim_ascii().is_empty() => {
                return Err("text outside of the root element".to_owned());
            }
            Event::Eof if depth == 0 && roots == 1 => return Ok(elements),
            Event::Eof => return Err(format!("{roots} roots, {depth} elements open at the end")),
            _ => continue,
        };
        if depth == 0 {
            roots += 1;
        }
        let mut attributes = Vec::new();
        for attribute in opened.attributes() {
            let attribute = attribute.map_err(|error| error.to_string())?;
            let value = attribute
                .normalized_value(quick_xml::XmlVersion::Implicit1_0)
                .map_err(|error| error.to_string())?;
            let name = String::from_utf8_lossy(attribute.key.as_ref()).into_owned();
            attributes.push((name, value.into_owned()));
        }
        let name = String::from_utf8_lossy(opened.name().as_ref()).into_owned();
        elements.push((name, attributes));
        if matches!(event, Event::Start(_)) {
            depth += 1;
        }
    }
}

fn is_key_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_.-".contains(c)
}

/// Checks that each line of an ini file is a section, a setting, or a comment. A line that ends in
/// `\` continues on the next line.
fn check_ini(text: &str) -> Result<(), String> {
    for line in text.replace("\\\n", " ").lines() {
        let code = line.split(';').next().unwrap_or_default().trim();
        if code.is_empty() || code.starts_with('#') {
            continue;
        }
        let is_section = code.starts_with('[') && code.contains(']');
        let key = code.split('=').next().unwrap_or_default().trim();
        let is_setting = code.contains('=') && !key.is_empty() && key.chars().all(is_key_character);
        let opened = code.matches('(').count();
        if !(is_section || is_setting) || opened != code.matches(')').count() {
            return Err(format!("not a section or setting: {line}"));
        }
    }
    Ok(())
}

#[test]
fn every_deployed_file_is_well_formed() {
    let mut parsed = 0;
    for path in files(&deploy_folder()) {
        let text = fs::read_to_string(&path).expect("a text");
        let extension = path.extension().or(path.file_name()).unwrap_or_default();
        let result = match extension.to_str().unwrap_or_default() {
            "xml" => elements(&text).map(drop),
            "conf" | "service" | "timer" | "target" => check_ini(&text),
            "json" => serde_json::from_str::<serde_json::Value>(&text)
                .map(drop)
                .map_err(|error| error.to_string()),
            "mail" | "telegram" if text.starts_with("#!/bin/sh") => continue,
            "flags" | "env" => continue,
            other if OTHERS.contains(&other) => continue,
            _ => Err("no parser is known for this file".to_owned()),
        };
        assert_eq!(result, Ok(()), "{}", path.display());
        parsed += 1;
    }
    assert!(parsed >= 18, "{parsed} files");
}

#[test]
fn xml_parser_refuses_malformed_xml_as_reloadxml_does() {
    for wrong in [
        "<a><!-- two -- dashes --></a>",
        "<a><b></a>",
        "<a/><a/>",
        "<a x=\"1\" x=\"2\"/>",
        "<a x=\"&unknown;\"/>",
        "text<a/>",
    ] {
        assert!(elements(wrong).is_err(), "{wrong}");
    }
}

/// Returns the value of an attribute, or an empty text if the element does not have the attribute.
fn attribute<'a>(element: &'a Element, name: &str) -> &'a str {
    let found = element.1.iter().find(|(key, _)| key == name);
    found.map_or("", |(_, value)| value)
}

#[test]
fn freeswitch_lookup_dialplan_sets_and_unsets_its_limits() {
    let text = fs::read_to_string(deploy_folder().join("freeswitch/caller.xml")).expect("the file");
    let document = elements(&text).expect("well-formed");
    let mut actions = Vec::new();
    let mut fields = Vec::new();
    for element in &document {
        match element.0.as_str() {
            "action" => {
                let application = attribute(element, "application");
                actions.push(format!("{application} {}", attribute(element, "data")));
            }
            "condition" => fields.push(attribute(element, "field")),
            _ => {}
        }
    }
    assert_eq!(
        actions,
        [
            "set callbridge_asked=yes",
            "set curl_connect_timeout=1",
            "set curl_timeout=1",
            "curl http://127.0.0.1:4573/caller?trunk=city&phone=\
             ${url_encode(${caller_id_number})} get",
            "unset curl_connect_timeout",
            "unset curl_timeout",
            "transfer $1 XML ${context}",
            "set effective_caller_id_name=$1",
            "set hangup_after_bridge=true",
            "set continue_on_fail=true",
            "set force_transfer_context=default",
            "bridge [leg_timeout=15]user/$1@$${domain}",
            "unset hangup_after_bridge",
            "unset continue_on_fail",
            "unset force_transfer_context",
        ]
    );
    assert!(fields.contains(&"${module_exists(mod_curl)}"));
    let name = text
        .split("dialplan/public/")
        .nth(1)
        .expect("the path to install the file at");
    let name = name.split_whitespace().next().unwrap_or_default();
    assert!(
        name < "00_inbound_did.xml" && name.ends_with(".xml"),
        "{name}"
    );
}
