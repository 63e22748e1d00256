//! Tests calls on Asterisk 1.4 to 11 (AMI 1.x), as described in `tests/ami1/calls.json`, from AMI
//! text, with each event duplicated, and from flat JSON. The events were written manually. Their
//! kinds and their order come from those releases' sources and from public recordings (XiVO's CTI
//! server, VoIPGRID's cacofonisk).

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Deserialize)]
struct Case {
    story: String,
    calls: Vec<Call>,
}

/// A call's expected values. Missing ones aren't compared.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Call {
    linkedid: String,
    direction: Option<String>,
    answered: bool,
    started_at: i64,
    duration_sec: Option<i64>,
    talk_time_sec: Option<i64>,
    employee: Option<String>,
    employees_in_order: Vec<String>,
    client_phone: Option<String>,
    trunk: Option<String>,
    incomplete: bool,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ami1")
}

fn cases() -> BTreeMap<String, Case> {
    let text = fs::read_to_string(folder().join("calls.json")).expect("the stories");
    let cases: BTreeMap<String, Case> = serde_json::from_str(&text).expect("stories");
    let files = fs::read_dir(folder()).expect("the recordings").count();
    assert_eq!(cases.len() + 1, files, "each recording has its story");
    cases
}

/// Returns the calls from `explain --json` without internal ones, oldest first.
fn explain(format: &str, file: &Path, country: &[&str]) -> Vec<serde_json::Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .args(["explain", "--json", "--format", format])
        .args(["--trunk", "city=SIP/city", "--trunk", "span=DAHDI/i1"])
        .args(["--trunk", "zap=Zap/25", "--trunk", "gsm=Dongle/gsm"])
        .args(country)
        .arg(file)
        .env_clear()
        .output()
        .expect("callbridge runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stderr}", file.display());
    let lines = String::from_utf8(output.stdout).expect("text");
    let calls = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("a call"));
    let mut calls: Vec<serde_json::Value> = calls.collect();
    calls.retain(|call| call["direction"] != "INTERNAL");
    calls.sort_by_key(|call| call["linkedid"].to_string());
    calls
}

fn compare(calls: &[serde_json::Value], case: &Case, phones: bool, shown: &str) {
    let shown = format!("{shown}: {}\n{calls:#?}", case.story);
    assert_eq!(calls.len(), case.calls.len(), "{shown}");
    for (call, expected) in calls.iter().zip(&case.calls) {
        let mut values: Vec<(&str, serde_json::Value)> = vec![
            ("linkedid", expected.linkedid.as_str().into()),
            ("answered", expected.answered.into()),
            ("employee", expected.employee.clone().into()),
            (
                "employeesInOrder",
                expected.employees_in_order.clone().into(),
            ),
            ("trunk", expected.trunk.clone().into()),
            ("incomplete", expected.incomplete.into()),
        ];
        if phones {
            let phone = expected.client_phone.as_ref().map(|n| format!("+{n}"));
            values.push(("clientPhone", phone.into()));
        }
        if let Some(direction) = &expected.direction {
            values.push(("direction", direction.as_str().into()));
            values.push(("startedAt", expected.started_at.into()));
        }
        for (key, value) in values {
            assert_eq!(call[key], value, "{shown}");
        }
        for (key, seconds) in [
            ("durationSec", expected.duration_sec),
            ("talkTimeSec", expected.talk_time_sec),
        ] {
            let reported = call[key].as_i64().expect("seconds");
            let near = seconds.is_none_or(|seconds| (reported - seconds).abs() <= 1);
            assert!(near, "{key} {reported}: {shown}");
        }
    }
}

#[test]
fn calls_of_ami_1_match_their_expected_values() {
    for (name, case) in cases() {
        let file = folder().join(format!("{name}.ami"));
        let country = ["--country", "UZ", "--strip", "9"];
        compare(&explain("ami", &file, &country), &case, true, &name);
    }
}

#[test]
fn doubled_messages_change_no_call() {
    let made = tempfile::tempdir().expect("a folder");
    for (name, case) in cases() {
        let bytes = fs::read(folder().join(format!("{name}.ami"))).expect("a recording");
        let text = String::from_utf8(bytes).expect("text");
        let end = if text.contains("\r\n") {
            "\r\n\r\n"
        } else {
            "\n\n"
        };
        let twice: String = text
            .split_inclusive(end)
            .flat_map(|message| [message, message])
            .collect();
        let file = made.path().join(&name);
        fs::write(&file, twice).expect("written");
        compare(
            &explain("ami", &file, &[]),
            &case,
            false,
            &format!("{name}, doubled"),
        );
    }
}

#[test]
fn ami_events_as_flat_json_yield_the_same_calls() {
    let made = tempfile::tempdir().expect("a folder");
    for (name, case) in cases() {
        let text = fs::read_to_string(folder().join(format!("{name}.ami"))).expect("text");
        let text = text.replace("\r\n", "\n");
        let mut lines = String::new();
        for message in text.split("\n\n") {
            let pairs = message.lines().filter_map(|line| line.split_once(": "));
            let object: serde_json::Map<String, serde_json::Value> = pairs
                .map(|(key, value)| (key.to_owned(), value.into()))
                .collect();
            lines += &format!("{}\n", serde_json::Value::Object(object));
        }
        let file = made.path().join(&name);
        fs::write(&file, lines).expect("written");
        compare(
            &explain("ami-json", &file, &[]),
            &case,
            false,
            &format!("{name}, as JSON"),
        );
    }
}
