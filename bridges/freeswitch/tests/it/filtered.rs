//! Tests with recordings reduced to the events that the docs recommend, which are those that the
//! event socket subscribes to and those that pass the filter in `deploy/freeswitch/amqp.conf.xml`.
//!
//! With `FREESWITCH_RECORDINGS=DIR`, the tests use other recordings, which contain all events.

use crate::expected::{Recording, bodies, faults, finished_calls, recordings, split};
use crate::recordings::slack;
use std::collections::BTreeSet;
use std::path::Path;

/// Returns the value of a header in a plain or JSON event, with `%3A` decoded.
fn header(event: &[u8], name: &str) -> String {
    let text = format!("\n{}", String::from_utf8_lossy(event));
    let [plain, json] = [format!("\n{name}: "), format!("\"{name}\":\"")];
    let found = if text.trim_start().starts_with('{') {
        text.split_once(&json).map(|(_, rest)| (rest, '"'))
    } else {
        text.split_once(&plain).map(|(_, rest)| (rest, '\n'))
    };
    let value = found.and_then(|(rest, end)| rest.split(end).next());
    value.unwrap_or_default().replace("%3A", ":")
}

/// Returns the messages with one of the event names in `names`, as well as CUSTOM events with this
/// subclass.
fn filter_messages(
    messages: &[Vec<u8>],
    names: &BTreeSet<String>,
    subclass: Option<&str>,
) -> Vec<Vec<u8>> {
    let mut kept = messages.to_vec();
    kept.retain(|message| match header(message, "Event-Name").as_str() {
        "CUSTOM" => {
            let all = names.contains("CUSTOM");
            all || subclass == Some(header(message, "Event-Subclass").as_str())
        }
        name => names.contains(name),
    });
    kept
}

/// Checks the calls of all recordings. `messages` returns the messages that are received.
fn check_recordings(messages: impl Fn(&Recording) -> Vec<Vec<u8>>) {
    let mut wrong = Vec::new();
    for recording in recordings() {
        let calls = finished_calls(&messages(&recording));
        let faults = faults(&calls, &recording.expected(), slack(&recording));
        let name = &recording.name;
        wrong.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns the events and the subclass that callbridge subscribes to.
fn subscribed_events() -> (BTreeSet<String>, String) {
    let command = callbridge_freeswitch::subscription();
    let words = command.strip_prefix("event json ").expect("a subscription");
    let (events, subclass) = words.split_once(" CUSTOM ").expect("one of a module");
    let events = events.split(' ').map(str::to_owned).collect();
    (events, subclass.to_owned())
}

#[test]
fn subscribed_plain_events_suffice_for_every_recording() {
    let (events, subclass) = subscribed_events();
    check_recordings(|recording| {
        filter_messages(&split(&recording.read("esl.txt")), &events, Some(&subclass))
    });
}

#[test]
fn subscribed_json_events_suffice_for_every_recording() {
    let (events, subclass) = subscribed_events();
    check_recordings(|recording| {
        filter_messages(
            &split(&recording.read("esl.jsonl")),
            &events,
            Some(&subclass),
        )
    });
}

#[test]
fn mod_amqp_filter_publishes_enough_for_every_recording() {
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/freeswitch/amqp.conf.xml");
    let conf = std::fs::read_to_string(conf).expect("the page's file");
    let (_, rest) = conf
        .split_once("name=\"event_filter\" value=\"")
        .expect("a filter");
    let filter = rest.split('"').next().unwrap_or_default();
    let events = filter
        .split(',')
        .map(|name| name.strip_prefix("SWITCH_EVENT_").expect("an event"));
    let events: BTreeSet<String> = events.map(str::to_owned).collect();
    check_recordings(|recording| {
        filter_messages(&bodies(&recording.read("amqp.jsonl")), &events, None)
    });
}

#[test]
fn filter_omits_events_it_does_not_name() {
    let event = b"\nEvent-Name: CUSTOM\nEvent-Subclass: callcenter%3A%3Ainfo\n".to_vec();
    let only = BTreeSet::new();
    assert!(
        filter_messages(
            std::slice::from_ref(&event),
            &only,
            Some("conference::maintenance")
        )
        .is_empty()
    );
    assert_eq!(
        filter_messages(
            std::slice::from_ref(&event),
            &only,
            Some("callcenter::info")
        )
        .len(),
        1
    );
}
