//! Tests that every file under `deploy/` that another program reads is well-formed, and that the
//! FreeSWITCH dialplan of the lookup leaves the variables of other dialplans alone.

use quick_xml::Reader;
use quick_xml::events::Event;
use std::collections::BTreeMap;
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

/// Returns FreeSWITCH's dialplan for the lookup, as text and as XML elements.
fn lookup_dialplan() -> (String, Vec<Element>) {
    let text = fs::read_to_string(deploy_folder().join("freeswitch/caller.xml")).expect("the file");
    let document = elements(&text).expect("well-formed");
    (text, document)
}

/// Channel variables by name.
type Variables = BTreeMap<String, String>;

/// Applies an action to a call's variables as FreeSWITCH does. Setting a variable to an empty value
/// removes it.
fn execute(application: &str, data: &str, variables: &mut Variables) {
    let (name, value) = match application {
        "set" => data.split_once('=').expect("NAME=VALUE"),
        "unset" => (data, ""),
        _ => return,
    };
    let value = match value
        .strip_prefix("${")
        .and_then(|rest| rest.strip_suffix('}'))
    {
        Some(other) => variables.get(other).cloned().unwrap_or_default(),
        None => value.to_owned(),
    };
    variables.remove(name);
    if !value.is_empty() {
        variables.insert(name.to_owned(), value);
    }
}

#[test]
fn freeswitch_lookup_dialplan_keeps_the_variables_of_others() {
    let (_, document) = lookup_dialplan();
    let others = [
        "curl_connect_timeout",
        "curl_timeout",
        "hangup_after_bridge",
        "continue_on_fail",
        "force_transfer_context",
    ];
    let set_by_administrator: Variables = others
        .map(|name| (name.to_owned(), "USER_BUSY".to_owned()))
        .into();
    for before in [set_by_administrator, Variables::new()] {
        let mut variables = before.clone();
        let mut applications = Vec::new();
        for action in document.iter().filter(|element| element.0 == "action") {
            let application = attribute(action, "application");
            let limits = others.map(|name| variables.get(name).map(String::as_str));
            match application {
                "curl" => assert_eq!(limits[..2], [Some("1"), Some("1")]),
                "bridge" => assert_eq!(limits[2..], [Some("true"), Some("true"), Some("default")]),
                _ => {}
            }
            execute(application, attribute(action, "data"), &mut variables);
            applications.push(application);
        }
        let used = applications.iter().filter(|name| **name != "set");
        assert!(used.eq(&["curl", "transfer", "bridge"]), "{applications:?}");
        variables.retain(|name, _| {
            !name.starts_with("callbridge_") && name != "effective_caller_id_name"
        });
        assert_eq!(variables, before);
    }
}

#[test]
fn lookup_dialplan_runs_before_the_dids_and_needs_mod_curl() {
    let (text, document) = lookup_dialplan();
    let conditions = document.iter().filter(|element| element.0 == "condition");
    let fields: Vec<&str> = conditions
        .map(|element| attribute(element, "field"))
        .collect();
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
