//! What the files of `mod_json_cdr` alone tell: an estimate, and said to be one.

use crate::expected::{ExpectedCall, Recording, faults, folded, moment, recordings};
use crate::switch::line;
use callbridge_call::{Decoded, Direction, Unreadable};
use callbridge_freeswitch::Decoder;

/// The consultation by feature code begins where the switch plays music.
const SLACK: f64 = 0.6;

fn files(lines: &[u8]) -> Vec<&[u8]> {
    let lines = lines.split(|&byte| byte == b'\n');
    lines.filter(|line| !line.is_empty()).collect()
}

fn all_are_told(change: impl Fn(&mut Vec<&[u8]>)) {
    let mut wrong = Vec::new();
    let told = |recording: &Recording, wrong: &mut Vec<String>| {
        let lines = recording.read("json_cdr.jsonl");
        let mut files = files(&lines);
        change(&mut files);
        let calls = folded(files.into_iter());
        assert!(calls.iter().all(|call| call.estimate));
        let faults = faults(&calls, &recording.expected(), SLACK);
        let name = &recording.name;
        wrong.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
    };
    for recording in recordings() {
        told(&recording, &mut wrong);
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn each_recording_is_told_by_its_files_alone() {
    all_are_told(|_| {});
}

#[test]
fn the_order_of_the_files_and_one_that_comes_twice_make_no_difference() {
    all_are_told(|files| files.reverse());
    all_are_told(|files| {
        let twice = files.clone();
        files.extend(twice);
    });
}

#[test]
fn values_may_stand_there_without_an_encoding() {
    let lines = moment("json_cdr_unencoded/json_cdr.jsonl");
    let told: Vec<String> = folded(files(&lines).into_iter()).iter().map(line).collect();
    let wanted = [
        "in city 998901110001 [101] 101 talk 2.0 of 3.1, whole",
        "out city 998901110003 [101] 101 talk 3.0 of 5.0, whole",
    ];
    let of = |told: &String| told.split_once(' ').map_or("", |(_, rest)| rest).to_owned();
    assert_eq!(told.iter().map(of).collect::<Vec<_>>(), wanted);
}

#[test]
fn of_the_customers_own_file_alone_the_talk_and_the_other_side_are_known() {
    let of_customer = |files: &mut Vec<&[u8]>| {
        files.retain(|file| String::from_utf8_lossy(file).contains("sofia/external/"));
        files.retain(|file| {
            let file: serde_json::Value = serde_json::from_slice(file).expect("a file");
            file["variables"]["direction"] == "inbound"
        });
    };
    let recordings = recordings();
    for name in ["inbound_answered", "blind_transfer", "queue_second_agent"] {
        let recording = recordings.iter().find(|it| it.name == name);
        let recording = recording.expect("a recording");
        let lines = recording.read("json_cdr.jsonl");
        let mut files = files(&lines);
        of_customer(&mut files);
        assert_eq!(files.len(), 1, "{name}");
        let calls = folded(files.into_iter());
        let faults = faults(&calls, &recording.expected(), SLACK);
        assert!(faults.is_empty(), "{name}: {faults:?}");
    }
}

#[test]
fn what_is_no_file_of_a_leg_is_refused_by_name() {
    let mut decoder = Decoder::new(None);
    for (text, why) in [
        ("", Unreadable::NotJson),
        ("{\"variables\":{", Unreadable::NotJson),
        ("{}", Unreadable::NoLeg),
        ("{\"variables\":{\"uuid\":\"a\"}}", Unreadable::NoLeg),
        ("{\"variables\":{},\"callflow\":[{}]}", Unreadable::NoLeg),
        (
            "{\"variables\":{\"uuid\":\"a\\u0007\",\"start_uepoch\":\"1\",\"channel_name\":\"x\"},\
             \"callflow\":[{}]}",
            Unreadable::NoId,
        ),
    ] {
        let decoded = decoder.decode_cdr(text.as_bytes());
        assert_eq!(decoded, Decoded::Unreadable(why), "{text}");
    }
}

/// `log-b-leg` is off: legs that the switch dialled write no file.
#[test]
fn of_an_outbound_call_the_file_of_who_dialled_says_that_it_was_one() {
    let mut told_of = 0;
    for recording in recordings() {
        let mut expected = recording.expected();
        let outbound = |call: &ExpectedCall| call.direction == Direction::Outbound;
        if !expected.calls.iter().all(outbound) {
            continue;
        }
        let lines = recording.read("json_cdr.jsonl");
        let is_own = |file: &&[u8]| {
            let file: serde_json::Value = serde_json::from_slice(file).expect("a leg");
            file["variables"]["direction"] == "inbound"
        };
        let own: Vec<&[u8]> = files(&lines).into_iter().filter(is_own).collect();
        let Some(call) = expected.calls.first_mut().filter(|_| !own.is_empty()) else {
            continue;
        };
        let calls = folded(own.into_iter());
        // Its lead may stand in the file of the other leg alone.
        call.lead_id = None;
        let plain = calls.iter().cloned().map(|mut call| {
            call.variables.clear();
            call
        });
        let plain: Vec<_> = plain.collect();
        let faults = faults(&plain, &expected, SLACK);
        assert!(faults.is_empty(), "{}: {faults:?}", recording.name);
        told_of += 1;
    }
    assert!(told_of >= 4, "only {told_of}");
}
