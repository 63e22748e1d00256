//! Asterisk 1.8, 11, 13 and 16 with chan_sip, recorded live: every call of
//! `tests/recordings/asterisk-old` as `explain` tells it from AMI, from CEL and from CDRs. What a
//! release does not tell at all is listed by name: there a call is `incomplete`, or the value is
//! left empty. It is never wrong.

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

/// How a call is told that this release does not tell whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Incomplete,
    /// Nothing is said of these values.
    Without(&'static [&'static str]),
}

/// What old releases do not tell: the scenario, in which folders, by which source.
const UNTOLD: [(&str, &[&str], &str, Told); 6] = [
    // The queue's telephones are told of in a class that the recording account did not ask for.
    (
        "queue_abandoned",
        &["1.8", "11"],
        "ami",
        Told::Without(&["employee"]),
    ),
    // ConfBridge tells AMI nothing before Asterisk 11, and CEL nothing before 12.
    ("conference", OF_1_8, "ami", Told::Incomplete),
    ("conference", BEFORE_12, "cel", Told::Incomplete),
    // When the transferer left stands in no row.
    ("blonde_transfer_dtmf", BEFORE_12, "cel", Told::Incomplete),
    // No bridge is told: the fix is in the call's reason.
    ("*", &["11-shipped-cel-conf"], "cel", Told::Incomplete),
    // The number that was dialed is told by no event of AMI 1.x: where no list has the one that
    // the channel shows, it may be the company's own.
    (
        "callback_customer_first",
        &["1.8", "11"],
        "ami",
        Told::Without(&["clientPhone"]),
    ),
];
const OF_1_8: &[&str] = &["1.8", "1.8-cel-on-ami"];
const BEFORE_12: &[&str] = &["1.8", "11", "1.8-cel-on-ami"];

/// Records that do not tell it, by release; of `pickup` whole seconds lie 1.01 s from the truth.
const BEYOND_RECORDS: [(&str, &[&str]); 4] = [
    (
        "1.8",
        &[
            "callback_customer_first",
            "conference",
            "queue_abandoned",
            "queue_second_agent",
        ],
    ),
    (
        "11",
        &[
            "callback_customer_first",
            "conference",
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

/// What `explain --json` tells of a file, without internal calls.
fn explained(source: &str, file: &Path) -> Vec<Value> {
    let text = explain(source, file, &["--json"]);
    let calls = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    calls
        .filter(|call: &Value| call["direction"] != "INTERNAL")
        .collect()
}

/// What `explain` prints.
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

/// The calls that took place.
fn took_place(scenario: &Path) -> Vec<Value> {
    let text = fs::read_to_string(scenario.join("expected.json")).expect("what is expected");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    expected["calls"].as_array().expect("calls").clone()
}

/// The told call that is this one: by its id, and of calls of one moment by its number.
fn same<'t>(call: &Value, told: &'t [Value]) -> Option<&'t Value> {
    let mut by_id = told.iter().filter(|it| it["linkedid"] == call["linkedid"]);
    let by_number = |it: &&Value| it["clientPhone"] == call["clientPhone"];
    match told {
        [one] => Some(one),
        _ => told.iter().find(by_number).or_else(|| by_id.next()),
    }
}

/// How a told call differs from what took place; the story's ids name one of several calls of a
/// moment, and its talk may be told by the rule that dialing a feature code counts.
fn differences(call: &Value, told: &Value) -> Vec<String> {
    let mut call = call.clone();
    call["linkedid"] = told["linkedid"].clone();
    let mut other = call.clone();
    other["talkTimeSec"] = call["talkTimeSecByBridgeRule"].clone();
    let plain = told::differences(&call, told);
    match call.get("talkTimeSecByBridgeRule") {
        Some(_) if told::differences(&other, told).is_empty() => Vec::new(),
        Some(_) | None => plain,
    }
}

fn untold(scenario: &str, release: &str, source: &str) -> Option<Told> {
    let found = UNTOLD.iter().find(|(name, releases, by, _)| {
        [scenario, "*"].contains(name) && releases.contains(&release) && *by == source
    });
    found.map(|(.., told)| *told)
}

/// How what is told differs from what took place.
fn faults(expected: &[Value], told: &[Value], untold: Option<Told>) -> Vec<String> {
    let mut wrong = Vec::new();
    if told.len() != expected.len() {
        wrong.push(format!("{} calls, not {}", told.len(), expected.len()));
    }
    for call in expected {
        let Some(told) = same(call, told) else {
            wrong.push(format!("{} is missing", call["linkedid"]));
            continue;
        };
        let incomplete = told["incomplete"] == true;
        if incomplete != (untold == Some(Told::Incomplete)) {
            wrong.push(format!("incomplete: {incomplete} {}", told["message"]));
        }
        match untold {
            Some(Told::Incomplete) => {}
            None => wrong.extend(differences(call, told)),
            Some(Told::Without(keys)) => {
                let mut call = call.clone();
                for key in keys {
                    call[*key] = Value::Null;
                }
                wrong.extend(differences(&call, told));
            }
        }
    }
    wrong
}

/// All that is wrong in these folders by one source.
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
            let told = explained(source, &scenario.join(file));
            let untold = untold(scene, release, source);
            for fault in faults(&took_place(&scenario), &told, untold) {
                wrong += &format!("{release} {source} {scene}: {fault}\n");
            }
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn ami_tells_every_call_or_says_what_it_cannot_tell() {
    check(&RELEASES, "ami", SCENARIOS);
}

/// Where `eventwhencalled` is set, in `queues.conf`, and the account may hear the class `agent`.
#[test]
fn queues_that_tell_of_their_telephones_are_told_whole() {
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
            let told = explain("ami", &file, &["--json"]);
            assert!(!told.contains("INTERNAL"), "{release} {scene}: {told}");
            let told = explained("ami", &file);
            let wrong = faults(&took_place(&scenario), &told, None);
            assert!(wrong.is_empty(), "{release} {scene}: {wrong:?}");
        }
    }
    assert!(told_of >= 7, "only {told_of}");
}

#[test]
fn cel_tells_every_call_or_says_what_it_cannot_tell() {
    check(&RELEASES, "cel", SCENARIOS);
}

#[test]
fn cel_beside_the_events_of_ami_tells_no_other_call() {
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
fn records_tell_every_call_but_for_what_is_beyond_them() {
    let mut wrong = String::new();
    for release in RELEASES {
        let mut differ = Vec::new();
        for scene in names(&folder().join(release)) {
            let scenario = folder().join(release).join(&scene);
            let told = explained("cdr", &scenario.join("cdr.csv"));
            let all = faults(&took_place(&scenario), &told, None);
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
