//! Tests Asterisk 1.8, 11, 13, and 16 with chan_sip, recorded live, using every call in
//! `tests/recordings/asterisk-old` as reported by `explain` from AMI, from CEL, and from CDRs.
//! Values that a release doesn't report are listed. A call without such a value is `incomplete`, or
//! the value is empty, but no value may be wrong.

use crate::replay::told;
use callbridge::{Command, read};
use callbridge_model::Environment;
use callbridge_testbed::agents;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Releases with all scenarios.
const RELEASES: [&str; 4] = ["1.8", "11", "13", "16"];
const SCENARIOS: usize = 24;

/// The result for a call that a release doesn't report completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownDifference {
    Incomplete,
    /// These values are empty.
    Without(&'static [&'static str]),
}

/// Values that old releases don't report, given by the scenario, the directories, the source, and
/// the result.
const KNOWN_DIFFERENCES: [(&str, &[&str], &str, KnownDifference); 6] = [
    // The queue's phones are reported in a class that the recording account didn't request.
    (
        "queue_abandoned",
        &["1.8", "11"],
        "ami",
        KnownDifference::Without(&["employee"]),
    ),
    // ConfBridge doesn't send any AMI events before Asterisk 11, or any CEL events before 12.
    ("conference", OF_1_8, "ami", KnownDifference::Incomplete),
    ("conference", BEFORE_12, "cel", KnownDifference::Incomplete),
    // No row shows when the transferrer left.
    (
        "blonde_transfer_dtmf",
        BEFORE_12,
        "cel",
        KnownDifference::Incomplete,
    ),
    // No bridge is reported. The call's reason contains the fix.
    (
        "*",
        &["11-shipped-cel-conf"],
        "cel",
        KnownDifference::Incomplete,
    ),
    // No AMI 1.x event has the dialed number. If the number shown by the channel isn't in any list,
    // it may be the company's own.
    (
        "callback_customer_first",
        &["1.8", "11"],
        "ami",
        KnownDifference::Without(&["clientPhone"]),
    ),
];
const OF_1_8: &[&str] = &["1.8", "1.8-cel-on-ami"];
const BEFORE_12: &[&str] = &["1.8", "11", "1.8-cel-on-ami"];

/// Scenarios that aren't described by the records, by release. For `pickup`, whole seconds differ
/// by 1.01 s.
const BEYOND_RECORDS: [(&str, &[&str]); 4] = [
    (
        "1.8",
        &[
            "callback_customer_first",
            "queue_abandoned",
            "queue_second_agent",
        ],
    ),
    (
        "11",
        &[
            "callback_customer_first",
            "queue_abandoned",
            "queue_second_agent",
        ],
    ),
    (
        "13",
        &[
            "callback_customer_first",
            "click_to_call",
            "ivr_then_agent",
            "park_refer",
            "pickup",
        ],
    ),
    (
        "16",
        &[
            "callback_customer_first",
            "ivr_then_agent",
            "park_refer",
            "pickup",
        ],
    ),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/asterisk-old")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the recordings");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

/// Returns the calls from `explain --json` for a file, without internal ones.
fn explained_calls(source: &str, file: &Path) -> Vec<Value> {
    let text = explain(source, file, &["--json"]);
    let calls = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    calls
        .filter(|call: &Value| call["direction"] != "INTERNAL")
        .collect()
}

/// Returns the output of `explain`.
fn explain(source: &str, file: &Path, more: &[&str]) -> String {
    let leads = folder().join("leads.csv");
    let (format, lead) = match source {
        "ami" => ("ami", "var:LEAD_ID".to_owned()),
        "cel" => ("cel-csv", format!("csv:{}", leads.display())),
        _ => ("cdr-csv", "userfield:lead=([0-9]+)".to_owned()),
    };
    let mut all: Vec<OsString> = ["callbridge", "explain", "--format", format]
        .iter()
        .chain(more)
        .map(OsString::from)
        .collect();
    all.push(file.into());
    all.extend(["--pbx-timezone", "UTC", "--country", "UZ"].map(OsString::from));
    for trunk in ["city=SIP/city,strip=9", "gsm=SIP/gsm,strip=8"] {
        all.extend(["--trunk".into(), format!("{trunk},lead={lead}").into()]);
    }
    let environment = Environment::default();
    let command = read(all, &environment).expect("good flags");
    let Command::Explain(explain) = command else {
        panic!("{command:?}")
    };
    let (mut out, mut notes) = (Vec::new(), Vec::new());
    callbridge::run_explain(&explain, &environment, &mut out, &mut notes).expect("explained");
    String::from_utf8(out).expect("UTF-8")
}

/// Returns the calls that took place.
fn actual_calls(scenario: &Path) -> Vec<Value> {
    let text = fs::read_to_string(scenario.join("expected.json")).expect("what is expected");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    expected["calls"].as_array().expect("calls").clone()
}

/// Returns the reported call that matches `call`, which is the only one, or else the one with the
/// same number or the same ID.
fn find_match<'t>(call: &Value, reported: &'t [Value]) -> Option<&'t Value> {
    let mut by_id = reported
        .iter()
        .filter(|other| other["linkedid"] == call["linkedid"]);
    let mut by_number = reported
        .iter()
        .filter(|other| other["clientPhone"] == call["clientPhone"]);
    match reported {
        [one] => Some(one),
        _ => by_number.next().or_else(|| by_id.next()),
    }
}

/// Returns how a reported call differs from the real one. If several calls took place at the same
/// time, the story may have a different ID. The talk time may also be the one that includes the
/// dialing of a feature code.
fn differences(call: &Value, reported: &Value) -> Vec<String> {
    let mut call = call.clone();
    call["linkedid"] = reported["linkedid"].clone();
    let mut other = call.clone();
    other["talkTimeSec"] = call["talkTimeSecByBridgeRule"].clone();
    let plain = told::differences(&call, reported);
    match call.get("talkTimeSecByBridgeRule") {
        Some(_) if told::differences(&other, reported).is_empty() => Vec::new(),
        Some(_) | None => plain,
    }
}

fn known_difference(scenario: &str, release: &str, source: &str) -> Option<KnownDifference> {
    let found = KNOWN_DIFFERENCES.iter().find(|(name, releases, by, _)| {
        [scenario, "*"].contains(name) && releases.contains(&release) && *by == source
    });
    found.map(|(.., difference)| *difference)
}

/// Returns how the reported calls differ from the real ones.
fn faults(expected: &[Value], reported: &[Value], known: Option<KnownDifference>) -> Vec<String> {
    let mut wrong = Vec::new();
    if reported.len() != expected.len() {
        wrong.push(format!("{} calls, not {}", reported.len(), expected.len()));
    }
    for call in expected {
        let Some(reported) = find_match(call, reported) else {
            wrong.push(format!("{} is missing", call["linkedid"]));
            continue;
        };
        let incomplete = reported["incomplete"] == true;
        if incomplete != (known == Some(KnownDifference::Incomplete)) {
            wrong.push(format!("incomplete: {incomplete} {}", reported["message"]));
        }
        match known {
            Some(KnownDifference::Incomplete) => {}
            None => wrong.extend(differences(call, reported)),
            Some(KnownDifference::Without(keys)) => {
                let mut call = call.clone();
                for key in keys {
                    call[*key] = Value::Null;
                }
                wrong.extend(differences(&call, reported));
            }
        }
    }
    wrong
}

/// Checks one source in these directories, and reports all errors.
fn check(releases: &[&str], source: &str, scenarios: usize) {
    let mut wrong = String::new();
    for release in releases {
        let scenes = names(&folder().join(release));
        assert!(scenes.len() >= scenarios, "{release}: {scenes:?}");
        for scene in &scenes {
            let scenario = folder().join(release).join(scene);
            let file = match source {
                "ami" => "ami.raw",
                _ => "cel.csv",
            };
            let reported = explained_calls(source, &scenario.join(file));
            let known = known_difference(scene, release, source);
            for fault in faults(&actual_calls(&scenario), &reported, known) {
                wrong += &format!("{release} {source} {scene}: {fault}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn ami_yields_every_call_apart_from_known_limits() {
    check(&RELEASES, "ami", SCENARIOS);
}

/// `queues.conf` sets `eventwhencalled`, and the account may receive the `agent` class.
#[test]
fn queues_that_report_called_agents_yield_complete_calls() {
    let mut told_of = 0;
    for release in BEFORE_12 {
        for scene in names(&folder().join(release)) {
            let scenario = folder().join(release).join(&scene);
            let recorded = fs::read(scenario.join("ami.raw")).expect("a recording");
            let ami = agents::called(&recorded);
            if ami == recorded {
                continue;
            }
            told_of += 1;
            let file = Path::new(env!("CARGO_TARGET_TMPDIR"));
            let file = file.join(format!("agents-{release}-{scene}.raw"));
            fs::write(&file, ami).expect("written");
            let text = explain("ami", &file, &["--json"]);
            assert!(!text.contains("INTERNAL"), "{release} {scene}: {text}");
            let reported = explained_calls("ami", &file);
            let wrong = faults(&actual_calls(&scenario), &reported, None);
            assert!(wrong.is_empty(), "{release} {scene}: {wrong:?}");
        }
    }
    assert!(told_of >= 7, "only {told_of}");
}

#[test]
fn cel_yields_every_call_apart_from_known_limits() {
    check(&RELEASES, "cel", SCENARIOS);
}

#[test]
fn cel_and_ami_events_together_yield_the_same_calls() {
    check(&["1.8-cel-on-ami"], "ami", 20);
    check(&["1.8-cel-on-ami"], "cel", 20);
}

#[test]
fn cel_without_bridges_is_incomplete_not_missed_and_names_fix() {
    check(&["11-shipped-cel-conf"], "cel", 3);
    for scene in names(&folder().join("11-shipped-cel-conf")) {
        let file = folder().join("11-shipped-cel-conf").join(scene);
        let text = explain("cel", &file.join("cel.csv"), &[]);
        assert!(text.contains("dead letter incomplete"), "{text}");
        assert!(text.contains("BRIDGE_START,BRIDGE_END"), "{text}");
        assert!(text.contains("in cel.conf"), "{text}");
    }
}

#[test]
fn cdrs_yield_every_call_apart_from_known_limits() {
    let mut wrong = String::new();
    for release in RELEASES {
        let mut differ = Vec::new();
        for scene in names(&folder().join(release)) {
            let scenario = folder().join(release).join(&scene);
            let reported = explained_calls("cdr", &scenario.join("cdr.csv"));
            let all = faults(&actual_calls(&scenario), &reported, None);
            if !all.is_empty() {
                wrong += &format!("{release} {scene}: {all:?}\n");
                differ.push(scene);
            }
        }
        let beyond = BEYOND_RECORDS.iter().find(|(of, _)| *of == release);
        let (_, beyond) = beyond.expect("each release");
        let differ: Vec<&str> = differ.iter().map(String::as_str).collect();
        assert_eq!(&differ, beyond, "\n{wrong}");
    }
}
