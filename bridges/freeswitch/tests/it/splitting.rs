//! Tests of streams that arrive in pieces, are cut off, or start in the middle. The splitter must
//! return the same messages, none of which may contain another message's bytes.

use crate::expected::{faults, finished_calls, recordings, split};
use callbridge_call::framing::{FrameStep, MESSAGE_BYTES_MAX};
use callbridge_freeswitch::Splitter;
use proptest::prelude::*;

/// Returns the messages in a stream that arrives in pieces of `piece` bytes.
fn split_in_pieces(bytes: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let mut splitter = Splitter::default();
    let (mut held, mut messages) = (Vec::new(), Vec::new());
    let mut pieces = bytes.chunks(piece).peekable();
    while let Some(piece) = pieces.next() {
        held.extend_from_slice(piece);
        let at_end = pieces.peek().is_none();
        loop {
            let step = splitter.step(&held, at_end);
            if let FrameStep::Message { from, to, .. } = step {
                messages.push(held[from..to].to_vec());
            }
            held.drain(..step.used());
            if matches!(step, FrameStep::More { .. }) {
                break;
            }
        }
        assert!(held.len() <= 2 * MESSAGE_BYTES_MAX + piece.len());
    }
    messages
}

fn recorded_bytes(file: &str) -> Vec<u8> {
    let all = recordings();
    let recording = all.iter().find(|other| other.name == "attended_transfer");
    recording.expect("a recording").read(file)
}

#[test]
fn stream_in_pieces_of_any_size_yields_the_same_messages() {
    let bytes = recorded_bytes("esl.all.txt");
    let whole = split(&bytes);
    assert_eq!(whole.len(), 134);
    for piece in [1, 7, 512, 4096, 65_536] {
        assert_eq!(split_in_pieces(&bytes, piece), whole, "{piece}");
    }
}

#[test]
fn full_event_stream_reproduces_the_recorded_calls() {
    let all = recordings();
    let found = all.iter().find(|other| other.name == "attended_transfer");
    let recording = found.expect("a recording");
    let calls = finished_calls(&split(&recording.read("esl.all.txt")));
    let faults = faults(&calls, &recording.expected(), 0.6);
    assert!(faults.is_empty(), "{faults:?}");
}

/// Returns the index at which each message's frame starts.
fn frame_starts(bytes: &[u8]) -> Vec<usize> {
    let mut splitter = Splitter::default();
    let mut starts = Vec::new();
    let mut start = 0;
    loop {
        let step = splitter.step(&bytes[start..], true);
        match step {
            FrameStep::Message { .. } => starts.push(start),
            FrameStep::TooLong { .. } => {}
            FrameStep::More { .. } => return starts,
        }
        start += step.used();
    }
}

#[test]
fn recording_cut_at_its_start_keeps_all_later_messages() {
    let bytes = recorded_bytes("esl.all.txt");
    let whole = split(&bytes);
    let starts = frame_starts(&bytes);
    assert_eq!(starts.len(), whole.len());
    for from in (0..bytes.len()).step_by(4_999) {
        let rest = split(&bytes[from..]);
        let later = starts.iter().filter(|start| **start >= from).count();
        let same = rest.iter().rev().zip(whole.iter().rev());
        let same = same.take_while(|(a, b)| a == b).count();
        assert!(same >= later, "from {from}: {same} of {later}");
        // The rest of the message that was cut off may be read as an additional message.
        assert!(
            rest.len() <= later + 1,
            "from {from}: {} messages",
            rest.len()
        );
    }
}

fn frame(kind: &str, body: &str) -> String {
    format!(
        "Content-Length: {}\nContent-Type: {kind}\n\n{body}",
        body.len()
    )
}

fn texts(stream: &str) -> Vec<String> {
    let messages = split(stream.as_bytes()).into_iter();
    messages
        .map(|message| String::from_utf8(message).expect("text"))
        .collect()
}

#[test]
fn replies_between_events_are_split_without_blank_lines() {
    let event = "Event-Name: HEARTBEAT\n\n";
    let json = r#"{"Event-Name":"HEARTBEAT"}"#;
    let stream = [
        "Content-Type: auth/request\n\n".to_owned(),
        frame("text/event-plain", event),
        "Content-Type: command/reply\nReply-Text: +OK\n\n".to_owned(),
        frame("text/event-json", json),
        frame("api/response", "+OK\n"),
        frame("api/response", r#"{"row_count":0}"#),
        frame("text/disconnect-notice", "bye\n"),
    ];
    let messages = texts(&stream.concat());
    assert_eq!(messages.len(), 7, "{messages:?}");
    assert_eq!((messages[1].as_str(), messages[3].as_str()), (event, json));
    assert_eq!(messages[5], r#"{"row_count":0}"#);
    assert!(messages[6].ends_with("bye\n"));
}

#[test]
fn event_with_a_body_is_split_as_one_event() {
    let inner = "Content-Length: 40\nContent-Type: text/event-plain";
    let event = format!(
        "Event-Name: RECV_INFO\nContent-Length: {}\n\n{inner}",
        inner.len()
    );
    let stream =
        frame("text/event-plain", &event) + &frame("text/event-plain", "Event-Name: A\n\n");
    assert_eq!(texts(&stream), [event.as_str(), "Event-Name: A\n\n"]);
    // The result is the same without outer headers, as in a file.
    let bare = format!("{event}Event-Name: A\n\n");
    assert_eq!(texts(&bare), [event.as_str(), "Event-Name: A\n\n"]);
}

#[test]
fn short_body_does_not_swallow_the_next_message() {
    let next = frame("text/event-plain", "Event-Name: B\n\n");
    let torn = format!(
        "Content-Length: 400\nContent-Type: text/event-plain\n\nEvent-Name: A\nX: 1\n{next}"
    );
    assert_eq!(texts(&torn), ["Event-Name: A\nX: 1\n", "Event-Name: B\n\n"]);
    let next = frame("text/event-json", r#"{"Event-Name":"B"}"#);
    let torn = format!("Content-Length: 400\nContent-Type: text/event-json\n\n{{\"Event-N{next}");
    assert_eq!(texts(&torn), ["{\"Event-N", r#"{"Event-Name":"B"}"#]);
}

#[test]
fn header_of_64_mb_is_skipped_in_bounded_memory() {
    let next = frame("text/event-plain", "Event-Name: B\n\n");
    let long = "x".repeat(64 << 20);
    let stream = format!("Content-Length: 20\nContent-Type: text/event-plain\nX: {long}\n\n{next}");
    let messages = split_in_pieces(stream.as_bytes(), 65_536);
    assert_eq!(messages, [b"Event-Name: B\n\n".to_vec()]);
    let lied =
        format!("Content-Length: 99999999999999999999\nContent-Type: text/event-plain\n\n{next}");
    assert_eq!(texts(&lied), ["Event-Name: B\n\n"]);
}

proptest! {
    #[test]
    fn splitter_never_panics_on_any_bytes_in_any_pieces(
        texts in proptest::collection::vec(
            prop_oneof![
                "Content-Length: [0-9]{1,3}\n", Just("Content-Type: text/event-plain\n".to_owned()),
                Just("\n".to_owned()), "Event-Name: [A-Z]{1,4}\n",
                "\\{[a-z\"]{0,6}\\}?\n?", "[ -~]{0,8}",
            ],
            0..24,
        ),
        piece in 1..40_usize,
    ) {
        let stream = texts.concat();
        let whole = split(stream.as_bytes());
        let given: usize = whole.iter().map(Vec::len).sum();
        prop_assert!(given <= stream.len());
        split_in_pieces(stream.as_bytes(), piece);
    }
}
