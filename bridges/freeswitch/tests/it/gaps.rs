//! Tests of connections that are lost during a call. The call must be either correct or marked as
//! incomplete.

use crate::expected::{
    Ended, Expected, ExpectedCall, bodies, faults, finished_calls, finished_calls_when,
    finished_calls_with_gap, recordings, settings, split,
};
use crate::recordings::slack;
use crate::switch::{Switch, line};
use callbridge_call::{Assembler, Decoded, Direction, EventTime, Mark, PbxEvent};
use callbridge_freeswitch::Decoder;
use serde_json::json;
use std::collections::HashMap;

/// Tries every gap of `length` messages in every recording. Returns the number of gaps after which
/// all calls are right, and the number after which a call is incomplete or missing. Panics if a
/// call is wrong.
fn count_calls_with_gaps(length: usize) -> (usize, usize) {
    let (mut right, mut incomplete) = (0, 0);
    for recording in recordings() {
        let messages = split(&recording.read("esl.jsonl"));
        let expected = recording.expected();
        for from in 1..messages.len().saturating_sub(length) {
            let missed = from..from + length;
            let calls = finished_calls_with_gap(&messages, missed.clone(), Ended::Recording);
            let faults = faults(&calls, &expected, slack(&recording));
            if faults.is_empty() {
                right += 1;
                continue;
            }
            // A call that's still open isn't in `calls`, and an incomplete call isn't wrong.
            let are_incomplete = calls.iter().all(|call| call.incomplete.is_some());
            assert!(
                are_incomplete,
                "{}, without {missed:?}: {faults:?}",
                recording.name
            );
            incomplete += 1;
        }
    }
    (right, incomplete)
}

#[test]
fn missed_events_make_calls_incomplete_but_not_wrong() {
    for length in [1, 5] {
        let (right, incomplete) = count_calls_with_gaps(length);
        println!("{length}: {right} right, {incomplete} incomplete");
        assert!(right > 0 && incomplete > 0);
    }
}

#[test]
fn listener_starting_late_gets_correct_or_incomplete_calls() {
    let (mut right, mut incomplete) = (0, 0);
    for recording in recordings() {
        let messages = split(&recording.read("esl.jsonl"));
        let expected = recording.expected();
        let creations = creation_indexes(&messages);
        for from in 1..messages.len() {
            for call in finished_calls_when(&messages[from..], Ended::Recording) {
                if call.incomplete.is_some() {
                    incomplete += 1;
                    continue;
                }
                let wanted = expected
                    .calls
                    .iter()
                    .filter(|other| call.linkedid.as_str() == linkedid(other))
                    .cloned();
                // The dialed number is only reported when the channel is created.
                let creation_received = creations[call.linkedid.as_str()] >= from;
                let wanted = wanted.map(|call| ExpectedCall {
                    did: if creation_received { call.did } else { None },
                    ..call
                });
                let wanted = Expected {
                    calls: wanted.collect(),
                };
                let faults = faults(std::slice::from_ref(&call), &wanted, slack(&recording));
                let name = &recording.name;
                assert!(faults.is_empty(), "{name} from {from} on: {faults:?}");
                right += 1;
            }
        }
    }
    println!("{right} right, {incomplete} incomplete");
    assert!(right > 50 && incomplete > 50);
}

/// Returns the index of the message that reports each channel's creation.
fn creation_indexes(messages: &[Vec<u8>]) -> HashMap<String, usize> {
    let creations = messages.iter().enumerate().filter_map(|(at, message)| {
        let message: serde_json::Value = serde_json::from_slice(message).ok()?;
        let id = message["Unique-ID"].as_str()?.to_owned();
        (message["Event-Name"] == "CHANNEL_CREATE").then_some((id, at))
    });
    creations.collect()
}

fn linkedid(call: &ExpectedCall) -> &str {
    &call.linkedid
}

/// A customer is waiting in a queue. She's only visible in the switch's list, and leaves during the
/// next gap.
#[test]
fn call_known_only_from_a_list_is_incomplete_after_the_next_gap() {
    let dump = json!({
        "Event-Name": "CHANNEL_DATA",
        "Core-UUID": "68256a54-825c-4dc8-8e6f-d581bf68ae0c",
        "Event-Sequence": "19922",
        "Event-Date-Timestamp": "1795300030000000",
        "Unique-ID": "f441a702",
        "Channel-Name": "sofia/external/998902220790@127.0.0.1",
        "Call-Direction": "inbound",
        "Caller-ANI": "998902220790",
        "Caller-Channel-Created-Time": "1795300010000000",
        "Caller-Channel-Answered-Time": "1795300010000000",
        "variable_sip_network_ip": "127.0.0.1",
        "variable_sip_network_port": "16000",
    });
    let at = |second: i64| EventTime::from_seconds(1_795_300_000 + second);
    for is_known in [true, false] {
        let mut decoder = Decoder::new(None);
        let mut assembler = Assembler::new(settings());
        let end = PbxEvent::Mark(Mark::ListEnd { channels: None });
        assembler.on_event(&PbxEvent::Mark(Mark::LoggedIn), at(30));
        let message = dump.to_string();
        if is_known {
            let Decoded::Event { received, .. } = decoder.decode(message.as_bytes()) else {
                panic!("an event")
            };
            assembler.on_event(&received.event, at(30));
        }
        assembler.on_event(&end, at(30));
        assembler.begin_gap(at(36));
        assembler.end_gap(at(40));
        assembler.on_event(&end, at(40));
        assembler.tick(at(50));
        let calls = assembler.take_finished();
        assert_eq!(calls.len(), usize::from(is_known));
        assert_eq!(assembler.open_calls(), 0);
        if let [call] = &calls[..] {
            assert_eq!(call.direction, Direction::Inbound);
            let ended = call.ended.floor_seconds();
            assert_eq!((call.started, ended), (at(10), at(36).floor_seconds()));
            assert!(call.incomplete.is_some() && !call.answered);
        }
    }
}

const RECOVERED: &str =
    "the switch was restarted and recovered the call, so part of it was not reported";

/// Plays a conversation during which the switch is killed, at second 10. If `is_recovered` is set,
/// its next process recovers the channels at second 17.
fn talk_over_a_crash(is_recovered: bool) -> Switch {
    let mut switch = Switch::default();
    switch.at(0).call_in("c", "998901110001");
    switch.at(0).ring("p", "101", ("c", "c"));
    switch.at(2_000).answer("p").answer("c").bridge("c", "p");
    switch.at(10_000).send_heartbeat(2);
    if is_recovered {
        for id in ["c", "p"] {
            switch.add_header(id, "Core-UUID", "core of the next process");
            switch.add_header(id, "variable_recovered", "true");
        }
        switch.at(17_000).bridge("c", "p");
    }
    switch.at(32_000).hang_up("c").hang_up("p");
    switch
}

#[test]
fn recovered_call_is_one_incomplete_call_without_the_outage() {
    for (is_recovered, talk, whole) in [(true, "23.0", RECOVERED), (false, "30.0", "whole")] {
        let switch = talk_over_a_crash(is_recovered);
        let calls = finished_calls_when(&switch.messages, Ended::Recording);
        let wanted = format!("c in city 998901110001 [101] 101 talk {talk} of 32.0, {whole}");
        assert_eq!(calls.iter().map(line).collect::<Vec<_>>(), [wanted]);
    }
}

/// Makes another process of the switch, or the other node of a pair, recover channels at `millis`.
fn recover(scene: &mut Switch, millis: u64, channels: &[&str], core: &str, node: &str) {
    scene.at(millis);
    for id in channels {
        scene.recover(id, (core, node));
    }
}

/// No matter how a call continues after its recovery, the result is a single incomplete call whose
/// talk time doesn't include the outage.
#[test]
fn recovered_call_is_incomplete_whatever_it_does_next() {
    type Next = fn(&mut Switch);
    let cases: [(&str, Next, &[&str], &str); 8] = [
        (
            "by the other node",
            |scene| {
                recover(
                    scene,
                    17_000,
                    &["c", "p"],
                    "core of the other node",
                    "node2",
                );
                scene.at(17_000).bridge("c", "p");
            },
            &["c", "p"],
            "[101] 101 talk 23.0 of 32.0",
        ),
        (
            "twice",
            |scene| {
                recover(scene, 15_000, &["c", "p"], "second core", "node1");
                scene.bridge("c", "p");
                recover(scene, 25_000, &["c", "p"], "third core", "node1");
                scene.at(25_000).bridge("c", "p");
            },
            &["c", "p"],
            "[101] 101 talk 15.0 of 32.0",
        ),
        (
            "without the phone",
            |scene| {
                recover(scene, 17_000, &["c"], "second core", "node1");
                scene.ring("q", "102", ("c", "c"));
                scene.add_header("q", "Core-UUID", "second core");
                scene.at(20_000).answer("q").bridge("c", "q");
            },
            &["c", "q"],
            "[101 102] 102 talk 20.0 of 32.0",
        ),
        (
            "and transferred",
            |scene| {
                recover(scene, 17_000, &["c", "p"], "second core", "node1");
                scene.at(17_000).bridge("c", "p");
                scene.at(20_000).unbridge("c", "p");
                scene.ring("q", "102", ("c", "c"));
                scene.at(21_000).answer("q").bridge("c", "q").hang_up("p");
            },
            &["c", "q"],
            "[101 102] 102 talk 22.0 of 32.0",
        ),
        (
            "and left by the agent",
            |scene| {
                recover(scene, 17_000, &["c", "p"], "second core", "node1");
                scene.at(17_000).hang_up("p");
            },
            &["c"],
            "[101] 101 talk 8.0 of 32.0",
        ),
        (
            "and put into a room",
            |scene| {
                recover(scene, 17_000, &["c", "p"], "second core", "node1");
                scene.at(17_000).bridge("c", "p");
                scene.at(20_000).unbridge("c", "p");
                scene.enter_or_leave_room("c", "room", true);
                scene.enter_or_leave_room("p", "room", true);
            },
            &["c", "p"],
            "[101] 101 talk 23.0 of 32.0",
        ),
        (
            "without a new bridge",
            |scene| recover(scene, 17_000, &["c", "p"], "second core", "node1"),
            &["c", "p"],
            "[101] 101 talk 8.0 of 32.0",
        ),
        (
            "long after the crash",
            |scene| {
                recover(scene, 30_000, &["c", "p"], "second core", "node1");
                scene.at(30_000).bridge("c", "p");
            },
            &["c", "p"],
            "[101] 101 talk 10.0 of 32.0",
        ),
    ];
    for (how, next, ended, wanted) in cases {
        let mut scene = Switch::default();
        scene.at(0).call_in("c", "998901110001");
        scene.at(0).ring("p", "101", ("c", "c"));
        scene.at(2_000).answer("p").answer("c").bridge("c", "p");
        scene.at(10_000).send_heartbeat(2);
        next(&mut scene);
        scene.at(32_000);
        for channel in ended {
            scene.hang_up(channel);
        }
        let calls = finished_calls_when(&scene.messages, Ended::Recording);
        let lines: Vec<String> = calls.iter().map(line).collect();
        let wanted = format!("c in city 998901110001 {wanted}, {RECOVERED}");
        assert_eq!(lines, [wanted], "recovered {how}");
    }
}

/// A colleague leaves the conference long after the customer, so only other events show that they
/// were in it.
#[test]
fn lost_entry_of_a_colleague_makes_a_conference_incomplete() {
    let mut all = recordings().into_iter();
    let conference = all.find(|recording| recording.name == "conference");
    let messages = bodies(&conference.expect("a recording").read("amqp.jsonl"));
    let entries: Vec<usize> = (0..messages.len())
        .filter(|&i| String::from_utf8_lossy(&messages[i]).contains("add-member"))
        .collect();
    assert_eq!(entries.len(), 3);
    for lost in entries {
        let mut received = messages.clone();
        received.remove(lost);
        let calls = finished_calls(&received);
        let reasons: Vec<_> = calls.iter().map(|call| &call.incomplete).collect();
        assert!(
            !calls.is_empty() && calls.iter().all(|call| call.incomplete.is_some()),
            "without message {lost}: {reasons:?}"
        );
    }
    let calls = finished_calls(&messages);
    assert!(calls.iter().all(|call| call.incomplete.is_none()));
}

/// The colleague left the room and came back. If the second entry was lost, the only sign of it is
/// that they talk. Otherwise, it doesn't matter how often members talk.
#[test]
fn lost_return_of_a_colleague_makes_a_conference_incomplete() {
    for is_return_lost in [false, true] {
        let mut switch = Switch::default();
        switch.at(0).call_in("cust", "998901110001").answer("cust");
        switch.ring("p101", "101", ("", "")).answer("p101");
        switch
            .enter_or_leave_room("cust", "room", true)
            .talk_in_room("cust", "room");
        switch.at(1000).enter_or_leave_room("p101", "room", true);
        switch
            .talk_in_room("p101", "room")
            .at(2000)
            .talk_in_room("p101", "room");
        switch.at(5000).enter_or_leave_room("p101", "room", false);
        switch.at(10_000);
        if !is_return_lost {
            switch.enter_or_leave_room("p101", "room", true);
        }
        switch.at(11_000).talk_in_room("p101", "room");
        switch.at(30_000).enter_or_leave_room("cust", "room", false);
        switch.hang_up("cust");
        switch
            .at(100_000)
            .enter_or_leave_room("p101", "room", false)
            .hang_up("p101");
        let calls = finished_calls(&switch.messages);
        let incomplete: Vec<bool> = calls.iter().map(|call| call.incomplete.is_some()).collect();
        assert_eq!(incomplete, [is_return_lost], "{calls:?}");
    }
}
