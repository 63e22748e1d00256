//! Tests edge cases of a switch and its connections. Each call must be either correct or marked as
//! incomplete.

use crate::expected::{Ended, bodies, finished_calls_when, special_recording, split};
use crate::switch::line;

fn lines(messages: &[Vec<u8>]) -> Vec<String> {
    let calls = finished_calls_when(messages, Ended::Recording);
    calls.iter().map(line).collect()
}

/// Creates a heartbeat of the process `core`, which has been up for five seconds.
fn heartbeat(core: &str, micros: u64) -> Vec<u8> {
    let beat = serde_json::json!({
        "Event-Name": "HEARTBEAT",
        "Core-UUID": core,
        "FreeSWITCH-Switchname": "vm",
        "Event-Date-Timestamp": micros.to_string(),
        "Uptime-msec": "5000",
    });
    serde_json::to_vec(&beat).expect("JSON")
}

/// Returns the process that sent the message, and the message's time in microseconds.
fn sender(message: &[u8]) -> (String, u64) {
    let event: serde_json::Value = serde_json::from_slice(message).expect("an event");
    let core = event["Core-UUID"].as_str().expect("text");
    let time = event["Event-Date-Timestamp"].as_str().expect("text");
    (core.to_owned(), time.parse().expect("microseconds"))
}

#[test]
fn fully_received_call_with_narrow_subscription_is_complete() {
    let wanted = [
        "2dd14324-4c8e-44fe-9321-d223f4141da6 in city 998901110005 [102] 102 talk 3.0 of \
                   4.1, whole",
    ];
    assert_eq!(
        lines(&split(&special_recording("narrow_listener/esl.jsonl"))),
        wanted
    );
}

#[test]
fn late_listener_reports_whole_call_with_one_bridge() {
    let wanted = [
        "8998fa96-1749-49af-a889-9b67451b0625 in city 998901110001 [101] 101 talk 4.0 of \
                   5.1, whole",
    ];
    assert_eq!(
        lines(&split(&special_recording("late_listener/esl.jsonl"))),
        wanted
    );
    let broken_off = special_recording("late_listener/esl.broken_off.jsonl");
    assert_eq!(lines(&split(&broken_off)), [] as [&str; 0]);
    let dump = special_recording("late_listener/uuid_dump.json");
    let mut listed = vec![dump];
    listed.extend(split(&special_recording("late_listener/esl.jsonl")));
    assert_eq!(lines(&listed), wanted);
}

#[test]
fn call_is_complete_if_the_broker_kept_only_its_end() {
    let call =
        "b3a21398-cb13-4cb8-bda7-86ac56bd7299 in city 998901110001 [101] 101 talk 7.0 of 8.0";
    let whole = lines(&split(&special_recording("broker_away/esl.jsonl")));
    assert_eq!(whole, [format!("{call}, whole")]);
    let rest = lines(&bodies(&special_recording("broker_away/amqp.jsonl")));
    // The times reported with the channels show that nothing else happened.
    assert_eq!(rest, [format!("{call}, whole")]);
}

#[test]
fn orderly_stop_of_the_switch_ends_its_calls() {
    let wanted = [
        "019bdf86-5f2a-45d2-84a5-c53712b40cb4 in city 998901110001 [101] 101 talk 3.4 of \
                   4.4, whole",
    ];
    assert_eq!(
        lines(&split(&special_recording("switch_stopped/esl.jsonl"))),
        wanted
    );
    assert_eq!(
        lines(&bodies(&special_recording("switch_stopped/amqp.jsonl"))),
        wanted
    );
}

/// If the switch is killed, neither interface reports the end of the process, but the heartbeats
/// over AMQP stop.
#[test]
fn calls_of_killed_switch_end_at_last_heartbeat() {
    for messages in [
        split(&special_recording("switch_killed/esl.jsonl")),
        bodies(&special_recording("switch_killed/amqp.jsonl")),
    ] {
        let (core, last) = sender(messages.last().expect("a message"));
        assert_eq!(lines(&messages), [] as [&str; 0]);
        for (beats, talk) in [(1, 20.0), (3, 60.0)] {
            let mut messages = messages.clone();
            messages.extend((1..=beats).map(|n| heartbeat(&core, last + n * 20_000_000)));
            let killed = last + beats * 20_000_000;
            // Another process's first heartbeat doesn't end any call, because a second switch may
            // have the same name.
            messages.push(heartbeat("another", killed + 30_000_000));
            assert_eq!(lines(&messages), [] as [&str; 0]);
            messages.push(heartbeat("another", killed + 60_000_000));
            let calls = lines(&messages);
            let call = "9e9c86ad-67c6-40f6-859f-aff427ca9117 in city 998901110001 [101] 101 talk ";
            let [reported] = calls.as_slice() else {
                panic!("{calls:?}")
            };
            let rest = reported.strip_prefix(call).expect("the call");
            let seconds: f64 = rest[..rest.find(' ').expect("a space")]
                .parse()
                .expect("talk");
            assert!((seconds - talk).abs() < 0.2, "{beats}: {reported}");
            assert!(reported.contains("events may be missing"), "{reported}");
        }
    }
}

#[test]
fn single_heartbeat_of_another_process_ends_no_call() {
    let mut messages = split(&special_recording("narrow_listener/esl.jsonl"));
    let whole = lines(&messages);
    assert!(whole.len() == 1 && whole[0].ends_with("whole"), "{whole:?}");
    let (_, at) = sender(&messages[0]);
    messages.insert(messages.len() / 2, heartbeat("another", at + 2_000_000));
    assert_eq!(lines(&messages), whole);
}

/// Two switches with the same name send to the same queue, and one of them is restarted over and
/// over.
#[test]
fn second_switch_in_the_queue_ends_no_calls_of_the_first() {
    let mut messages = bodies(&special_recording("switch_stopped/amqp.jsonl"));
    let whole = lines(&messages);
    let (core, at) = sender(&messages[0]);
    let middle = messages.len() / 2;
    let rest = messages.split_off(middle);
    for n in 1..=5 {
        let at = at + n * 20_000_000;
        messages.push(heartbeat(&core, at));
        messages.push(heartbeat(&format!("other-{n}"), at + 9_000_000));
    }
    messages.extend(rest);
    assert_eq!(lines(&messages), whole);
    assert!(whole[0].ends_with("whole"), "{whole:?}");
}
