//! Tests with messages that no switch should send, but some do. The decoder must neither panic nor
//! misread any of them.

use crate::expected::{Ended, describe_call, finished_calls_when, recordings, settings, split};
use callbridge_call::{Assembler, Decoded, EventTime, FinishedCall, Kind, PbxEvent, Unreadable};
use callbridge_freeswitch::Decoder;
use proptest::prelude::*;

/// Returns the result of decoding one message, as text.
fn decode_as_text(message: &[u8]) -> String {
    let mut decoder = Decoder::new(None);
    format!("{:?}", decoder.decode(message))
}

fn check_channel_event(message: &[u8], look: impl Fn(&callbridge_call::ChannelEvent<'_>)) {
    let mut decoder = Decoder::new(None);
    let Decoded::Event { received, .. } = decoder.decode(message) else {
        panic!("{}", String::from_utf8_lossy(message));
    };
    let PbxEvent::Channel(event) = &received.event else {
        panic!("{:?}", received.event);
    };
    look(event);
}

#[test]
fn event_without_channel_or_name_is_reported_as_unreadable() {
    let mut decoder = Decoder::new(None);
    for (message, why) in [
        (r#"{"Event-Name":"CHANNEL_ANSWER"}"#, Unreadable::NoChannel),
        ("Event-Name: CHANNEL_HANGUP\n\n", Unreadable::NoChannel),
        (r#"{"Unique-ID":"a"}"#, Unreadable::NoEvent),
        ("Unique-ID: a\n\n", Unreadable::NoEvent),
        (
            r#"{"Event-Name":"CHANNEL_ANSWER","Unique-ID":"#,
            Unreadable::NotJson,
        ),
        (
            r#"{"Event-Name":"CHANNEL_ANSWER","Unique-ID":"a\u0000b"}"#,
            Unreadable::NoId,
        ),
    ] {
        let decoded = decoder.decode(message.as_bytes());
        assert_eq!(decoded, Decoded::Unreadable(why), "{message}");
    }
}

#[test]
fn unused_event_is_skipped_by_name_despite_torn_rest() {
    for message in [
        r#"{"Event-Name":"CODEC","Unique-ID":"#,
        r#"{"Event-Subclass":"sofia::register","Event-Name":"#,
        r#"{"Event-Name":"CUSTOM","Core-UUID":"c","Event-Subclass":"callcenter::info","#,
        r#"{"Event-Name":"CHANNEL_EXECUTE","Application":"set"}"#,
        "Event-Name: PRESENCE_IN\nUnique-ID: %",
        "Content-Type: api/response\nContent-Length: 4\n\n+OK\n",
        "Content-Type: text/disconnect-notice\nContent-Length: 4\n\nbye\n",
    ] {
        assert_eq!(decode_as_text(message.as_bytes()), "Skipped", "{message}");
    }
    assert!(
        decode_as_text(b"Content-Type: command/reply\nReply-Text: +OK accepted\n\n")
            .contains("LoggedIn")
    );
    let refused = b"Content-Type: command/reply\nReply-Text: -ERR invalid\n\n";
    assert_eq!(decode_as_text(refused), "Skipped");
}

#[test]
fn envelope_survives_repeated_keys_and_same_named_variables() {
    let message = r#"{"Event-Name":"CHANNEL_HANGUP","Event-Date-Timestamp":"1795211858000000",
        "Event-Sequence":"7","Unique-ID":"a","Event-Name":"CHANNEL_CREATE",
        "Hangup-Cause":"USER_BUSY",
        "Hangup-Cause":"NORMAL_CLEARING","variable_Event-Name":"CHANNEL_BRIDGE",
        "variable_Unique-ID":"b","variable_Event-Date-Timestamp":"1"}"#;
    check_channel_event(message.as_bytes(), |event| {
        assert_eq!(event.kind, Kind::Hangup { cause: Some(17) });
        assert_eq!(event.channel.uniqueid, "a");
        assert_eq!(
            event.at,
            Some(EventTime::from_micros(1_795_211_858_000_007))
        );
        assert_eq!(event.channel.variables.len(), 3);
    });
}

#[test]
fn list_variable_is_equal_from_plain_and_json_events() {
    let plain =
        b"Event-Name: CHANNEL_ANSWER\nUnique-ID: a\nvariable_x: ARRAY%3A%3Aone%7C%3Atwo\n\n";
    let json = br#"{"Event-Name":"CHANNEL_ANSWER","Unique-ID":"a","variable_x":["one","two"]}"#;
    for message in [plain.as_slice(), json.as_slice()] {
        check_channel_event(message, |event| {
            let expected = [("x".into(), "ARRAY::one|:two".into())];
            assert_eq!(event.channel.variables, expected);
        });
    }
}

#[test]
fn events_carry_the_name_of_their_switch() {
    let message = br#"{"FreeSWITCH-Switchname":"pbx2","Event-Name":"CHANNEL_ANSWER",
        "Unique-ID":"a"}"#;
    let mut decoder = Decoder::new(None);
    let Decoded::Event { received, .. } = decoder.decode(message) else {
        panic!("no event");
    };
    assert_eq!(received.server.as_deref(), Some("pbx2"));
}

#[test]
fn zero_and_negative_times_are_absent() {
    let message = r#"{"Event-Name":"CHANNEL_CREATE","Call-Direction":"inbound","Unique-ID":"a",
        "Event-Date-Timestamp":"0","Caller-Channel-Created-Time":"0",
        "Caller-Channel-Answered-Time":"-5"}"#;
    check_channel_event(message.as_bytes(), |event| {
        let traits = event.channel.traits.as_ref().expect("traits");
        assert_eq!(
            (event.at, traits.created, traits.answered),
            (None, None, None)
        );
    });
}

#[test]
fn invalid_utf8_is_repaired_and_newline_in_name_is_kept() {
    let head = b"{\"Event-Name\":\"CHANNEL_ANSWER\",\"Unique-ID\":\"a\",\"Channel-Name\":";
    let json = &[head.as_slice(), b"\"sofia/x/\xff\"}"].concat();
    assert!(
        decode_as_text(json).contains("repaired: true"),
        "{}",
        decode_as_text(json)
    );
    let plain = b"Event-Name: CHANNEL_ANSWER\nUnique-ID: a\nChannel-Name: x%0AUnique-ID%3A b\n\n";
    check_channel_event(plain, |event| {
        assert_eq!(event.channel.uniqueid, "a");
        assert_eq!(event.channel.name, "x\nUnique-ID: b");
    });
}

#[test]
fn only_the_variables_that_rules_name_are_kept() {
    let variables = Some(["lead_id".to_owned()].into());
    let mut decoder = Decoder::new(variables);
    let message = br#"{"Event-Name":"CHANNEL_ANSWER","Unique-ID":"a",
        "variable_lead_id":"7","variable_x":"1"}"#;
    let Decoded::Event { received, .. } = decoder.decode(message) else {
        panic!("no event");
    };
    let PbxEvent::Channel(event) = &received.event else {
        panic!("{:?}", received.event);
    };
    assert_eq!(event.channel.variables, [("lead_id".into(), "7".into())]);
}

/// Formats the facts of the finished calls as text, in a fixed order.
fn describe_calls(calls: &[FinishedCall]) -> Vec<String> {
    let mut texts = Vec::new();
    for call in calls {
        let facts = describe_call(call);
        texts.push(format!(
            "{facts:?}, talk {:?}, ended {:?}",
            call.talk, call.ended
        ));
    }
    texts.sort();
    texts
}

/// Removes calls that merely repeat the end of an earlier one. After a restart, the assembler
/// doesn't know the IDs of finished calls, so a late hangup may turn into such an incomplete call.
fn remove_repeated_ends(calls: Vec<FinishedCall>) -> Vec<FinishedCall> {
    let mut kept: Vec<FinishedCall> = Vec::new();
    for call in calls {
        let is_known = kept
            .iter()
            .any(|earlier| earlier.ids().any(|id| *id == call.linkedid));
        if call.incomplete.is_none() || !is_known {
            kept.push(call);
        }
    }
    kept
}

#[test]
fn restart_after_every_event_changes_no_call() {
    for recording in recordings() {
        let messages = split(&recording.read("esl.jsonl"));
        let whole = finished_calls_when(&messages, Ended::Everything);
        assert!(!whole.is_empty(), "{}", recording.name);
        let mut decoder = Decoder::new(None);
        let mut assembler = Assembler::new(settings());
        let mut finished = Vec::new();
        let mut held = std::collections::BTreeMap::new();
        let mut now = EventTime::from_seconds(0);
        for message in &messages {
            if let Decoded::Event { received, .. } = decoder.decode(message) {
                if let PbxEvent::Channel(event) = &received.event {
                    now = now.max(event.at.unwrap_or(now));
                }
                assembler.on_event(&received.event, now);
            }
            finished.extend(assembler.take_finished());
            for change in assembler.take_changes() {
                match change.snapshot {
                    Some(snapshot) => held.insert(change.key, snapshot),
                    None => held.remove(&change.key),
                };
            }
            assembler = Assembler::new(settings());
            for (&key, snapshot) in &held {
                assembler.restore(key, snapshot).expect("a snapshot");
            }
        }
        assembler.tick(now.plus(std::time::Duration::from_secs(2)));
        finished.extend(assembler.take_finished());
        assert_eq!(
            describe_calls(&remove_repeated_ends(finished)),
            describe_calls(&whole),
            "{}",
            recording.name
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn recording_with_wrong_bytes_causes_no_panic(
        which in 0..25_usize,
        wrong in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let all = recordings();
        let mut bytes = all[which % all.len()].read("esl.txt");
        for (place, byte) in wrong {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        let mut decoder = Decoder::new(None);
        let mut assembler = Assembler::new(settings());
        let mut now = EventTime::from_seconds(1_795_211_000);
        for message in split(&bytes) {
            if let Decoded::Event { received, .. } = decoder.decode(&message) {
                now = now.plus(std::time::Duration::from_millis(10));
                assembler.on_event(&received.event, now);
            }
            let _ = decoder.decode_cdr(&message);
        }
        assembler.finish_all(now);
        for call in assembler.take_finished() {
            prop_assert!(call.talk <= call.ended.since(call.started));
        }
    }
}
