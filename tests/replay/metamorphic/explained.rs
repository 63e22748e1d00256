//! Runs some changed recordings through `callbridge explain`, and compares the results with
//! `expected.json`.

use super::change::Chance;
use super::recording::{self, Message, Recording};
use crate::replay::told;
use callbridge::{Command, read};
use callbridge_formats::Format;
use callbridge_model::Environment;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Recordings that are changed and explained, each in both formats (AMI and amiws).
const CHANGED_RECORDINGS: [&str; 16] = [
    "blind_transfer",
    "click_to_call",
    "conference",
    "forwarded_to_mobile",
    "inbound_answered",
    "inbound_busy",
    "inbound_cancelled",
    "inbound_no_answer",
    "internal_call",
    "ivr_only",
    "outbound_answered",
    "outbound_no_answer",
    "park",
    "queue_second_agent",
    "ring_group",
    "unknown_customer",
];

type Change = fn(&mut Vec<Message>);

const CHANGES: [(&str, Change); 6] = [
    ("doubled", |messages| {
        let twice = messages.iter().flat_map(|m| [m.clone(), m.clone()]);
        *messages = twice.collect();
    }),
    ("shuffled", |messages| Chance::new(7).shuffle(messages)),
    ("without END", |messages| {
        messages.retain(|message| message.event() != "CEL LINKEDID_END");
    }),
    ("without CEL", |messages| {
        messages.retain(|message| !message.event().starts_with("CEL"));
    }),
    ("with broken names", |messages| {
        let names = messages.iter_mut();
        names.for_each(|message| message.set_caller_name(b"\xc0\xe7\\v\xd0"));
    }),
    ("by CEL alone", |messages| {
        messages.retain(|message| message.event().starts_with("CEL"));
    }),
];

fn explained_calls(recording: &Recording, messages: &[Message], lead: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("recording");
    let end: &[u8] = if recording.is_json() {
        b"\n"
    } else {
        b"\r\n\r\n"
    };
    let bytes = messages.iter().flat_map(|m| [m.bytes.as_slice(), end]);
    fs::write(&file, bytes.collect::<Vec<_>>().concat()).expect("written");
    let format = if recording.format == Format::Ami {
        "ami"
    } else {
        "ami-json"
    };
    let arguments = [
        "callbridge".to_owned(),
        "explain".to_owned(),
        "--json".to_owned(),
        format!("--format={format}"),
        "--country=UZ".to_owned(),
        "--strip=9".to_owned(),
        format!("--lead={lead}"),
        "--trunk=city=PJSIP/city".to_owned(),
        "--trunk=gsm=PJSIP/gsm".to_owned(),
        file.display().to_string(),
    ];
    let environment = Environment::default();
    let command = read(arguments.map(OsString::from), &environment).expect("good flags");
    let Command::Explain(explain) = command else {
        panic!("not explain");
    };
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    callbridge::run_explain(&explain, &environment, &mut out, &mut notes).expect("explained");
    let text = String::from_utf8(out).expect("UTF-8");
    let calls = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    calls
        .filter(|call: &Value| call["outcome"] != "internal")
        .collect()
}

fn is_as_expected(reported: &Value, expected: &Value) -> bool {
    told::differences(expected, reported).is_empty() && reported["incomplete"] == false
}

#[test]
fn explain_yields_expected_calls_for_changed_recordings() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let leads = format!("csv:{}", root.join("cel-custom/leads.csv").display());
    let mut wrong = Vec::new();
    let mut checked = 0;
    for recording in recording::all()
        .iter()
        .filter(|recording| CHANGED_RECORDINGS.contains(&recording.folder.as_str()))
    {
        let file = root.join(&recording.folder).join("expected.json");
        let text = fs::read_to_string(file).expect("what is expected");
        let expected: Value = serde_json::from_str(&text).expect("JSON");
        let expected = expected["calls"].as_array().expect("calls");
        for (what, change) in CHANGES {
            let mut messages = recording.messages.clone();
            change(&mut messages);
            let lead = if what == "by CEL alone" {
                &leads
            } else {
                "var:LEAD_ID"
            };
            let reported = explained_calls(recording, &messages, lead);
            checked += 1;
            let right = reported.len() == expected.len()
                && expected
                    .iter()
                    .all(|call| reported.iter().any(|report| is_as_expected(report, call)));
            if !right {
                let (name, format) = (&recording.folder, recording.format);
                wrong.push(format!("{name} {format:?} {what}: {reported:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Each recording is in two formats.
    assert_eq!(checked, 2 * CHANGED_RECORDINGS.len() * CHANGES.len());
}
