//! Tests of Wazo's bus, which has AMI events in an envelope, as published by wazo-amid.

use callbridge_call::{ChannelEvent, EventTime, Kind, PbxEvent};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Unreadable};

fn check_decoded(format: Format, body: &str, check: impl FnOnce(Option<&str>, &ChannelEvent<'_>)) {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    match decoder.decode(body.as_bytes()) {
        Decoded::Event {
            received,
            repaired: false,
        } => match &received.event {
            PbxEvent::Channel(event) => check(received.server.as_deref(), event),
            PbxEvent::Cdr(_) | PbxEvent::Mark(_) => panic!("{received:?}"),
        },
        other => panic!("{other:?}: {body}"),
    }
}

const HANGUP: &str = r#"{"name": "Hangup", "origin_uuid": "7a6f", "timestamp":
    "2026-11-20T05:08:42.5", "data": {"Event": "Hangup", "Privilege": "call,all",
    "Channel": "PJSIP/dev_7-0000001c", "Uniqueid": "1795151317.28", "Linkedid": "1795151317.28",
    "ChanVariable": {"XIVO_USERUUID": "", "LEAD_ID": "4001"}, "Cause": "16",
    "Timestamp": "1795151322.500000"}}"#;

#[test]
fn wazo_event_has_its_variables_time_and_server() {
    for format in [Format::Wazo, Format::AmiJson] {
        check_decoded(format, HANGUP, |server, event| {
            assert_eq!(server, Some("7a6f"));
            assert_eq!(event.kind, Kind::Hangup { cause: Some(16) });
            assert_eq!(event.channel.variables, [("LEAD_ID".into(), "4001".into())]);
            assert_eq!(
                event.at,
                Some(EventTime::from_micros(1_795_151_322_500_000))
            );
        });
    }
}

#[test]
fn wazo_envelope_supplies_missing_event_name_and_time() {
    let body = r#"{"data": {"EventName": "CHAN_START", "Channel": "PJSIP/dev_7-0000001c",
        "UniqueID": "1795151317.28", "LinkedID": "1795151317.28", "Extra": ""},
        "timestamp": "2026-11-20T10:08:37.831530", "name": "CEL"}"#;
    check_decoded(Format::Wazo, body, |_, event| {
        assert!(matches!(event.kind, Kind::Born { .. }), "{event:?}");
        // This is the server's local time, whose offset from UTC is found in the unique ID.
        assert_eq!(
            event.at,
            Some(EventTime::from_micros(1_795_151_317_831_530))
        );
    });
}

#[test]
fn unused_wazo_message_is_skipped_and_other_json_is_unreadable() {
    let mut decoder = Decoder::new(Format::Wazo, DecoderSettings::default());
    for other in [
        r#"{"name": "call_log_created", "data": {"id": 5, "recordings": [{"a": {}}]}}"#,
        r#"{"data": {"Event": "VarSet", "Channel": "PJSIP/7-1"}, "name": "VarSet"}"#,
        r#"{"name": "agent_status_update", "origin_uuid": "7a6f", "data": {}}"#,
    ] {
        assert_eq!(
            decoder.decode(other.as_bytes()),
            Decoded::Skipped,
            "{other}"
        );
    }
    for none in [
        r#"{"type":3,"server_name":"pbx1","data":{"Event":"Hangup","Channel":"PJSIP/7-1"}}"#,
        r#"{"type":3,"server_name":"pbx1","data":{"Event":"VarSet","Channel":"PJSIP/7-1"}}"#,
        r#"{"Event":"Hangup","Channel":"PJSIP/7-1","Uniqueid":"5.1"}"#,
        r#"{"event_name":"HANGUP","channel":"PJSIP/7-1"}"#,
        "{}",
    ] {
        let why = decoder.decode(none.as_bytes());
        assert_eq!(why, Decoded::Unreadable(Unreadable::NoEvent), "{none}");
    }
}
