//! Tests `callbridge explain` as a program. Every recording must result in the calls in its
//! `expected.json`, and unreadable input in the exit status that scripts rely on.

use crate::replay::told;
use callbridge::{Command as Checked, read};
use callbridge_model::Environment;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const TRUNKS: [&str; 4] = [
    "--trunk",
    "city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID",
    "--trunk",
    "gsm=PJSIP/gsm,country=UZ,strip=9,lead=var:LEAD_ID",
];

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/recordings")
        .join(name)
}

/// Runs `explain` without the test's environment.
fn explain(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .env_clear()
        .arg("explain")
        .args(arguments)
        .output()
        .expect("the program runs")
}

fn calls(output: &Output) -> Vec<Value> {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout.clone()).expect("UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// Runs `explain` in this process, so that the numbering plan tables are only loaded once.
fn explained_calls(arguments: &[&str]) -> Vec<Value> {
    let environment = Environment::default();
    let all = ["callbridge", "explain", "--json"]
        .iter()
        .chain(arguments)
        .map(OsString::from);
    let command = read(all, &environment).expect("good flags");
    let Checked::Explain(explain) = command else {
        panic!("{command:?}")
    };
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    callbridge::run_explain(&explain, &environment, &mut out, &mut notes).expect("explained");
    let text = String::from_utf8(out).expect("UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

/// Returns the errors in one recording's calls.
fn faults(expected: &Value, reported: &[Value]) -> Vec<String> {
    let expected = expected["calls"].as_array().expect("calls");
    let mut wrong = Vec::new();
    if reported.len() != expected.len() {
        wrong.push(format!(
            "{} calls instead of {}",
            reported.len(),
            expected.len()
        ));
    }
    for call in expected {
        match reported
            .iter()
            .find(|report| report["linkedid"] == call["linkedid"])
        {
            None => wrong.push(format!("{} is missing", call["linkedid"])),
            Some(reported) => wrong.extend(told::differences(call, reported)),
        }
    }
    wrong
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("readable");
    serde_json::from_str(&text).expect("JSON")
}

/// Returns the names of all recordings that consist of whole lines.
fn recordings() -> Vec<String> {
    let entries = fs::read_dir(recording("")).expect("the recordings");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .filter(|name| recording(name).join("expected.json").exists())
        .collect();
    names.sort();
    assert!(names.len() >= 16, "only {} recordings", names.len());
    names
}

#[test]
fn recordings_match_expected_calls_in_both_formats() {
    // Frames that were cut off in the caller's name don't have any variables, but the CDR's user
    // field does.
    let cut = TRUNKS.map(|text| text.replace("var:LEAD_ID", r"var:LEAD_ID;userfield:lead=(\d+)"));
    let cut: Vec<&str> = cut.iter().map(String::as_str).collect();
    let names = recordings();
    let mut wrong = Vec::new();
    for name in &names {
        let expected = json(&recording(name).join("expected.json"));
        for (format, file) in [("ami", "ami.raw"), ("ami-json", "amiws.jsonl")] {
            let hostile = format == "ami-json" && name.starts_with("hostile_name_c");
            let path = recording(name).join(file);
            let path = path.to_str().expect("UTF-8");
            let trunks = if hostile { &cut[..] } else { &TRUNKS[..] };
            let mut reported = explained_calls(&[&["--format", format, path], trunks].concat());
            reported.retain(|call| call["outcome"] != "internal");
            let faults = faults(&expected, &reported);
            wrong.extend(
                faults
                    .iter()
                    .map(|words| format!("{name} {format}: {words}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn is_time(line: &[u8]) -> bool {
    line.starts_with(b"Timestamp:") || line.starts_with(b"EventTime:")
}

/// Returns the values that don't depend on times.
fn timeless_values(call: &Value) -> [String; 6] {
    [
        "linkedid",
        "direction",
        "answered",
        "trunk",
        "employee",
        "employeesInOrder",
    ]
    .map(|key| call[key].to_string())
}

/// With `timestampevents=no`, neither events nor CEL fields have times, so the durations are
/// unknown, but not who talked to whom.
#[test]
fn untimed_calls_are_incomplete_but_keep_direction_and_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let timeless = folder.path().join("ami.raw");
    let mut wrong = Vec::new();
    // In that recording, two channels are joined for less than half a second. If there are no
    // times, that counts as an answer.
    let mut names = recordings();
    names.retain(|name| name != "missed_by_a_hair");
    for name in &names {
        let bytes = fs::read(recording(name).join("ami.raw")).expect("readable");
        let lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let kept: Vec<u8> = lines
            .filter(|line| !is_time(line))
            .flatten()
            .copied()
            .collect();
        fs::write(&timeless, kept).expect("written");
        let path = timeless.to_str().expect("UTF-8");
        let mut reported = explained_calls(&[&["--format=ami", path], &TRUNKS[..]].concat());
        reported.retain(|call| call["outcome"] != "internal");
        let expected = json(&recording(name).join("expected.json"));
        let expected = expected["calls"].as_array().expect("calls");
        let wanted: BTreeSet<_> = expected.iter().map(timeless_values).collect();
        let got: BTreeSet<_> = reported.iter().map(timeless_values).collect();
        if got != wanted {
            wrong.push(format!("{name}: {wanted:?}\n  is told as {got:?}"));
        }
        let whole = reported.iter().find(|call| call["incomplete"] != true);
        wrong.extend(whole.map(|call| format!("{name}: not incomplete: {call}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn cel_recording_gets_its_leads_from_a_csv_list() {
    let leads = recording("cel-custom/leads.csv");
    let lead = format!("--lead=csv:{}", leads.display());
    for (file, expected) in [
        ("epoch.csv", "epoch.expected.json"),
        ("local-time.csv", "local-time.expected.json"),
    ] {
        let path = recording("cel-custom").join(file);
        let path = path.to_str().expect("UTF-8");
        let mut reported = explained_calls(&[
            "--format=cel-csv",
            "--country=UZ",
            "--strip=9",
            "--pbx-timezone=UTC",
            &lead,
            "--trunk=city=PJSIP/city",
            "--trunk=gsm=PJSIP/gsm",
            path,
        ]);
        reported.retain(|call| call["outcome"] != "internal");
        let expected = json(&recording("cel-custom").join(expected));
        let wrong = faults(&expected, &reported);
        assert!(wrong.is_empty(), "{file}:\n{}", wrong.join("\n"));
    }
}

/// Asterisk is killed during a conversation, and the next process's first channel appears 45 s
/// later.
#[test]
fn incomplete_call_names_missing_span_by_recording_times() {
    let rows = fs::read_to_string(recording("cel-custom/epoch.csv")).expect("readable");
    let received_rows: Vec<&str> = rows.lines().take(7).collect();
    let next = rows.lines().next().expect("a row");
    let next = next.replace("1795164250.431908", "1795164296.5");
    let next = next.replace("1795164250.326", "1795164296.0");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("killed.csv");
    fs::write(&path, format!("{}\n{next}\n", received_rows.join("\n"))).expect("written");
    let path = path.to_str().expect("UTF-8");
    let reported = explained_calls(&[&["--format=cel-csv", path], &TRUNKS[..]].concat());
    assert_eq!(reported[0]["linkedid"], "1795164250.326");
    let message = reported[0]["message"].as_str().expect("a message");
    let span = "may be missing: none arrived for 45 s from second 1 of the call on";
    assert!(message.contains(span), "{message}");
}

#[test]
fn explain_selects_one_call_by_linkedid_or_uuid() {
    let path = recording("attended_transfer/ami.raw");
    let path = path.to_str().expect("UTF-8");
    let base = [
        &["--json", "--format=ami", "--pbx-id=pbx1", path],
        &TRUNKS[..],
    ]
    .concat();
    let all = calls(&explain(&base));
    let linkedid = all[0]["linkedid"].as_str().expect("a linkedid");
    let uuid = all[0]["uuid"].as_str().expect("a uuid");
    for id in [linkedid, uuid] {
        let mut one = calls(&explain(&[&base[..], &["--call", id]].concat()));
        let story = one[0]
            .as_object_mut()
            .expect("an object")
            .remove("timeline");
        assert!(
            story.is_some(),
            "a call that is asked for is told with its timeline"
        );
        assert_eq!(one, [all[0].clone()]);
    }
    let none = explain(&[&base[..], &["--call", "1.1"]].concat());
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("no finished call has 1.1"));
}

fn path_in(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("UTF-8").to_owned()
}

#[test]
fn unreadable_file_exits_65_and_missing_file_66() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = path_in(folder.path(), "missing");
    let directory = path_in(folder.path(), "");
    let noise = path_in(folder.path(), "noise");
    fs::write(&noise, [0x89, b'P', b'N', b'G', 0, 1, 2, b'\n', 0xff]).expect("written");
    let frames = recording("inbound_answered/amiws.jsonl");
    let frames = frames.to_str().expect("UTF-8");
    for (file, format, code, words) in [
        (missing.as_str(), "ami", 66, "cannot be read"),
        (directory.as_str(), "ami", 65, "cannot be read"),
        (
            noise.as_str(),
            "ami",
            65,
            "it has nothing in the format ami or in another format",
        ),
        (
            noise.as_str(),
            "ami-json",
            65,
            "it has nothing in the format ami-json",
        ),
        (frames, "ami", 65, "use --format ami-json"),
        (frames, "cel-csv", 65, "use --format ami-json"),
    ] {
        let output = explain(&["--format", format, file]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{file} {format}: {stderr}"
        );
        assert!(stderr.contains(words), "{file} {format}: {stderr}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn piped_input_in_another_format_exits_65_like_a_file() {
    for place in ["-", "/dev/stdin"] {
        let frames = recording("inbound_answered/amiws.jsonl");
        let mut cat = Command::new("cat")
            .arg(frames)
            .stdout(Stdio::piped())
            .spawn()
            .expect("cat runs");
        let piped = cat.stdout.take().expect("a pipe");
        let output = Command::new(env!("CARGO_BIN_EXE_callbridge"))
            .env_clear()
            .args(["explain", "--format", "cel-csv", place])
            .stdin(piped)
            .output()
            .expect("the program runs");
        cat.wait().expect("cat ends");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(65), "{place}: {stderr}");
        assert!(
            stderr.contains("use --format ami-json"),
            "{place}: {stderr}"
        );
    }
}

#[test]
fn bad_lead_list_is_reported_with_its_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("leads.csv");
    fs::write(&list, "phone,leadId\n901110001,x\n").expect("written");
    let path = recording("inbound_answered/ami.raw");
    let lead = format!("--lead=csv:{}", list.display());
    let path = path.to_str().expect("UTF-8");
    let output = explain(&[
        "--format=ami",
        "--country=UZ",
        "--trunk=city=PJSIP/city",
        &lead,
        path,
    ]);
    assert_eq!(output.status.code(), Some(65));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("leads.csv: no row of it can be used; line 2: `x` is not a lead id"),
        "{stderr}"
    );
}

#[test]
fn piped_explain_text_has_no_escapes_and_counts_go_to_stderr() {
    let path = recording("hostile_name_control/ami.raw");
    let path = path.to_str().expect("UTF-8");
    let output = explain(&[&["--format=ami", path], &TRUNKS[..]].concat());
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(
        text.contains("leadId") && text.contains("variable LEAD_ID"),
        "{text}"
    );
    assert!(
        !text.chars().any(|c| c.is_control() && c != '\n'),
        "{text:?}"
    );
    let notes = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        notes.contains("events read (") && notes.contains("unreadable"),
        "{notes}"
    );
}

/// Rows from FreePBX's `cdr` table in a file without its header.
const TABLE_ROW: &str = concat!(
    r#""2026-03-02 10:00:00","""998901110001"" <998901110001>","998901110001","101","ext-local","#,
    r#""PJSIP/city-00000001","PJSIP/101-00000002","Dial","PJSIP/101,20,tT","60","40","ANSWERED","#,
    r#""3","","1772427600.1","""#
);
const TABLE_COLUMNS: &str = "calldate,clid,src,dst,dcontext,channel,dstchannel,lastapp,lastdata,\
                             duration,billsec,disposition,amaflags,accountcode,uniqueid,userfield";

#[test]
fn csv_without_header_is_read_with_the_columns_flag() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cdr.csv");
    let file = file.to_str().expect("UTF-8");
    let flags = [&["--format", "cdr-csv", "--json", file], &TRUNKS[..2]].concat();
    fs::write(file, format!("{TABLE_ROW}\n")).expect("written");
    let output = explain(&flags);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(65), "{message}");
    for part in [
        "no header",
        "\n   6  PJSIP/city-00000001\n",
        "--columns calldate,clid",
    ] {
        assert!(message.contains(part), "{message}");
    }
    let named = explain(&[&flags[..], &["--columns", TABLE_COLUMNS]].concat());
    assert_eq!(calls(&named)[0]["talkTimeSec"], 40);
    let text = format!("\u{feff}{TABLE_COLUMNS}\r\n{TABLE_ROW}\r\n");
    let utf16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(file, utf16).expect("written");
    assert_eq!(calls(&explain(&flags))[0]["talkTimeSec"], 40);
}

#[test]
fn unreadable_rows_and_empty_files_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("cdr.csv");
    let file = file.to_str().expect("UTF-8");
    let torn = &TABLE_ROW[..100];
    for (text, note) in [
        (
            format!("{TABLE_COLUMNS}\n{TABLE_ROW}\n{torn}\n"),
            "1 row is no call: the row has more or fewer fields than the header",
        ),
        (
            format!(
                "{}\n{TABLE_ROW}\n",
                TABLE_COLUMNS.replace("dstchannel", "peer")
            ),
            "1 row is no call: the file's header has no column dstchannel",
        ),
        (
            format!("{TABLE_COLUMNS}\n"),
            "nothing in the file is about a call",
        ),
        (String::new(), "the file is empty"),
    ] {
        fs::write(file, text).expect("written");
        let output = explain(&["--format", "cdr-csv", file]);
        let notes = String::from_utf8_lossy(&output.stderr);
        assert!(notes.contains(note), "{notes}");
    }
}

fn ami_calls(file: &Path) -> Vec<Value> {
    let file = file.to_str().expect("UTF-8");
    explained_calls(&[&["--format", "ami", file], &TRUNKS[..]].concat())
}

#[test]
fn doubled_carriage_returns_yield_the_same_calls() {
    let plain = recording("inbound_answered/ami.raw");
    let bytes = fs::read_to_string(&plain).expect("a recording");
    let folder = tempfile::tempdir().expect("a folder");
    let doubled = folder.path().join("ami.raw");
    let text = bytes.replace("\r\n", "\n").replace('\n', "\r\r\n");
    fs::write(&doubled, text).expect("written");
    let calls = ami_calls(&plain);
    assert!(!calls.is_empty());
    assert_eq!(ami_calls(&doubled), calls);
}

#[test]
fn call_named_by_an_unreadable_message_is_incomplete() {
    let whole = recording("inbound_answered/amiws.jsonl");
    let lines = fs::read_to_string(whole).expect("a recording");
    let lines: Vec<&str> = lines.lines().collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("amiws.jsonl");
    let expected = json(&recording("inbound_answered/expected.json"));
    let linkedid = expected["calls"][0]["linkedid"].as_str().expect("an id");
    for (id, incomplete) in [(linkedid, true), ("1.2", false)] {
        let torn = format!("{{\"Event\":\"BridgeLeave\",\"Uniqueid\":\"{id}\",\"Cha");
        let (first, second) = lines.split_at(lines.len() / 2);
        fs::write(&file, [first, &[torn.as_str()], second].concat().join("\n")).expect("written");
        let file = file.to_str().expect("UTF-8");
        let calls = explained_calls(&[&["--format", "ami-json", file], &TRUNKS[..]].concat());
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0]["incomplete"] == true, incomplete, "{id}");
    }
}
