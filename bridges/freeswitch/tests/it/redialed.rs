//! Tests of numbers that one command dials repeatedly (`originate_retries`).

use crate::cdr::file_of_unanswered;
use crate::expected::{finished_calls, finished_calls_by, fold_with_wait, settings};
use crate::switch::{Switch, line};
use callbridge_call::{Assembler, Decoded, EventTime, FinishedCall, Folder, PbxEvent, Settings};
use callbridge_freeswitch::Decoder;
use std::time::Duration;

const CUSTOMER: &str = "998901110001";
/// Why a call is incomplete that ends at the limit although its number may be redialed.
const AT_LIMIT: &str =
    "its number might have been redialed, but more than --max-open-calls calls were open";
const OTHER: &str = "998901110002";

/// Returns the calls that have finished by the last message if only one call may be open.
fn calls_at_limit(messages: &[Vec<u8>]) -> Vec<FinishedCall> {
    let mut decoder = Decoder::new(None);
    let mut assembler = Assembler::new(Settings {
        max_open_calls: 1,
        ..settings()
    });
    for message in messages {
        let Decoded::Event { received, .. } = decoder.decode(message) else {
            panic!("{}", String::from_utf8_lossy(message));
        };
        let PbxEvent::Channel(event) = &received.event else {
            panic!("{:?}", received.event);
        };
        assembler.on_event(&received.event, event.at.expect("a time"));
    }
    assembler.take_finished()
}

#[test]
fn call_that_may_be_redialed_is_incomplete_at_the_limit() {
    let sleep = ("variable_originate_retry_sleep_ms", "20000");
    for (retries, reason) in [("1", None), ("3", Some(AT_LIMIT))] {
        let mut switch = Switch::default();
        let headers = [("variable_originate_retries", retries), sleep];
        switch.at(0);
        switch.dial_out_with("one", ("city", CUSTOMER), ("", ""), &headers);
        switch.at(4000).hang_up("one");
        switch.at(4200).call_in("two", OTHER);
        let calls = calls_at_limit(&switch.messages);
        let reasons: Vec<_> = calls
            .iter()
            .map(|call| call.incomplete.as_deref())
            .collect();
        assert_eq!(reasons, [reason], "{retries}");
        assert_eq!(calls[0].linkedid.as_str(), "one", "{retries}");
    }
}

/// A phone dials the customer's two numbers, and the command that dials the second one redials it.
#[test]
fn second_number_that_is_redialed_stays_in_the_attempt() {
    let sleep = ("variable_originate_retry_sleep_ms", "20000");
    for (retries, wanted) in [("2", 1), ("1", 2)] {
        let mut switch = Switch::default();
        let headers = [("variable_originate_retries", retries), sleep];
        let by = ("p101", "p101");
        switch.at(0).dial("p101", "101").answer("p101");
        switch.at(1000).dial_out("one", ("city", CUSTOMER), by);
        switch.at(4000).hang_up("one");
        for (far, at) in [("two", 6000), ("three", 29_000)] {
            switch.at(at);
            switch.dial_out_with(far, ("city", OTHER), by, &headers);
            switch.at(at + 3000).hang_up(far);
        }
        switch.at(300_000).hang_up("p101");
        let calls: Vec<String> = finished_calls(&switch.messages).iter().map(line).collect();
        assert_eq!(calls.len(), wanted, "{retries} {calls:?}");
    }
}

/// Each line's file arrives when the line ends, long after a call has otherwise stopped waiting.
#[test]
fn events_and_files_of_a_redialed_number_are_the_same_calls() {
    let sleep = "originate_retry_sleep_ms";
    for (retries, lines, wanted) in [
        ("3", vec![(0, 30), (50, 110)], 1),
        ("3", vec![(0, 30), (50, 110), (130, 190)], 1),
        ("2", vec![(0, 30), (50, 110)], 1),
        ("1", vec![(0, 30), (50, 110)], 2),
    ] {
        let mut switch = Switch::default();
        let mut files = Vec::new();
        for (id, &(from, to)) in ["one", "two", "three"].into_iter().zip(&lines) {
            let headers = [
                ("variable_originate_retries", retries),
                ("variable_originate_retry_sleep_ms", "20000"),
            ];
            switch.at(from * 1000);
            switch.dial_out_with(id, ("city", CUSTOMER), ("", ""), &headers);
            switch.at(to * 1000).hang_up(id);
            let variables = [("originate_retries", retries), (sleep, "20000")];
            let times = (from * 1000, to * 1000);
            files.push(file_of_unanswered(
                id,
                ("city", CUSTOMER),
                times,
                &variables,
            ));
        }
        let by_files = fold_with_wait(files.iter().map(Vec::as_slice), Duration::from_secs(10));
        let by_files: Vec<String> = by_files.iter().map(line).collect();
        let by_events = finished_calls_by(&switch.messages, 600_000);
        let by_events: Vec<String> = by_events.iter().map(line).collect();
        assert_eq!(by_files, by_events, "{retries} {lines:?}");
        assert_eq!(by_files.len(), wanted, "{retries} {by_files:?}");
    }
}

/// Gives the folder a file that arrives when its channel ends, and returns that time.
fn fold_file(folder: &mut Folder, file: &[u8]) -> EventTime {
    let Decoded::Event { received, .. } = Decoder::new(None).decode_cdr(file) else {
        panic!("{}", String::from_utf8_lossy(file));
    };
    let PbxEvent::Cdr(cdr) = &received.event else {
        panic!("{:?}", received.event);
    };
    let now = cdr.ended_at.expect("an end");
    folder.on_cdr(cdr, now);
    now
}

/// Only a command that may dial again delays its call beyond `--cdr-wait`, and by ten minutes at
/// most, since it may also have given up.
#[test]
fn files_of_a_redialed_number_wait_for_ten_minutes() {
    for (retries, wanted) in [("1", 0), ("2", 1), ("101", 0)] {
        let mut folder = Folder::new(Settings {
            cdr_wait: Some(Duration::from_secs(10)),
            ..settings()
        });
        let variables = [("originate_retries", retries)];
        let file = file_of_unanswered("leg", ("city", CUSTOMER), (0, 4000), &variables);
        let now = fold_file(&mut folder, &file);
        folder.tick(now.plus(Duration::from_secs(599)));
        assert_eq!(folder.open_calls(), wanted, "{retries}");
        assert_eq!(folder.next_deadline().is_some(), wanted > 0, "{retries}");
        folder.tick(now.plus(Duration::from_secs(600)));
        assert_eq!(folder.open_calls(), 0, "{retries}");
    }
}

#[test]
fn files_of_a_redialed_number_are_incomplete_at_the_limit() {
    let mut folder = Folder::new(Settings {
        max_open_calls: 1,
        ..settings()
    });
    let variables = [("originate_retries", "2")];
    let one = file_of_unanswered("one", ("city", CUSTOMER), (0, 4000), &variables);
    let two = file_of_unanswered("two", ("city", OTHER), (0, 4100), &[]);
    for file in [one, two] {
        fold_file(&mut folder, &file);
    }
    let calls = folder.take_finished();
    let reasons: Vec<_> = calls
        .iter()
        .map(|call| call.incomplete.as_deref())
        .collect();
    assert_eq!(reasons, [Some(AT_LIMIT)]);
}
