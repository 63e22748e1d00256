//! Tests of numbers that one command dials repeatedly (`originate_retries`).

use crate::expected::{finished_calls, settings};
use crate::switch::{Switch, line};
use callbridge_call::{Assembler, Decoded, FinishedCall, PbxEvent, Settings};
use callbridge_freeswitch::Decoder;

const CUSTOMER: &str = "998901110001";
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
    for (retries, reason) in [
        ("1", None),
        (
            "3",
            Some("its number may have been redialed, and --max-open-calls were open"),
        ),
    ] {
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
