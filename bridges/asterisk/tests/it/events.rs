//! Tests of AMI events.

use callbridge_call::{Cdr, ChannelEvent, ChannelState, EventTime, Kind, Mark, Origin, PbxEvent};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Unreadable};
use std::time::Duration;

fn check_decoded(message: &str, check: impl FnOnce(Decoded<'_>)) {
    let message = message.replace('\n', "\r\n");
    check(Decoder::new(Format::Ami, DecoderSettings::default()).decode(message.as_bytes()));
}

fn check_channel_event(message: &str, check: impl FnOnce(&ChannelEvent<'_>)) {
    check_decoded(message, |decoded| match &decoded {
        Decoded::Event {
            received,
            repaired: false,
        } => match &received.event {
            PbxEvent::Channel(event) => check(event),
            PbxEvent::Cdr(_) | PbxEvent::Mark(_) => panic!("{received:?}"),
        },
        _ => panic!("{decoded:?}"),
    });
}

#[test]
fn channel_event_keeps_variables_and_drops_unknown_values() {
    let message = "Event: Newchannel\nPrivilege: call,all\nTimestamp: 1795151317.833600\n\
        SystemName: pbx1\nChannel: PJSIP/city-0000004f\nChannelState: 4\n\
        ChannelStateDesc: Ring\nCallerIDNum: <unknown>\nCallerIDName: O\\'Neil\n\
        Context: from-city\nExten: 7001\nUniqueid: pbx1-1795151317.146\n\
        LinkedID: pbx1-1795151317.146\nChanVariable: LEAD_ID=4001\nChanVariable: EMPLOYEE_ID=\n\
        ChanVariable: WHO=O\\'Neil=x\\n\nChanVariable(PJSIP/city-0000004f): OLD=1\n";
    check_channel_event(message, |event| {
        assert_eq!(
            event.at,
            Some(EventTime::from_micros(1_795_151_317_833_600))
        );
        assert_eq!(event.origin, Origin::Channel);
        assert_eq!(
            event.kind,
            Kind::Born {
                state: ChannelState::Ring
            }
        );
        let channel = &event.channel;
        assert_eq!(
            (&*channel.name, &*channel.caller_number),
            ("PJSIP/city-0000004f", "")
        );
        assert_eq!((&*channel.exten, &*channel.context), ("7001", "from-city"));
        assert_eq!(channel.uniqueid, "pbx1-1795151317.146");
        assert_eq!(channel.linkedid, "pbx1-1795151317.146");
        let variables = [("LEAD_ID", "4001"), ("WHO", "O'Neil=x\n"), ("OLD", "1")]
            .map(|(n, v)| (n.into(), v.into()));
        assert_eq!(channel.variables, variables);
    });
}

#[test]
fn channel_states_are_read_from_text_and_from_number() {
    for (line, state) in [
        ("ChannelStateDesc: Down", ChannelState::Down),
        ("ChannelStateDesc: Rsrvd", ChannelState::Down),
        ("ChannelStateDesc: Ring", ChannelState::Ring),
        ("ChannelStateDesc: Pre-ring", ChannelState::PreRing),
        ("ChannelStateDesc: Ringing", ChannelState::Ringing),
        ("ChannelStateDesc: Dialing Offhook", ChannelState::Ringing),
        ("ChannelStateDesc: Up", ChannelState::Up),
        ("ChannelStateDesc: Busy", ChannelState::Unknown),
        ("ChannelState: 9", ChannelState::PreRing),
        ("ChannelState: 6", ChannelState::Up),
        ("ChannelState: 77", ChannelState::Unknown),
        ("X: y", ChannelState::Unknown),
    ] {
        check_channel_event(
            &format!("Event: Newstate\nUniqueid: 5.1\n{line}\n"),
            |event| {
                assert_eq!(event.kind, Kind::State { state }, "{line}");
            },
        );
    }
}

#[test]
fn dial_events_belong_to_the_dialed_channel() {
    let begin = "Event: DialBegin\nChannel: PJSIP/101-1\nUniqueid: 5.1\nLinkedid: 5.1\n\
        ChanVariable: LEAD_ID=4001\nDestChannel: PJSIP/city-2\nDestUniqueid: 5.2\n\
        DestLinkedid: 5.1\nDestCallerIDNum: 998901110001\nDestChanVariable: LEAD_ID=4002\n\
        DialString: 998901110001@city\n";
    check_channel_event(begin, |event| {
        assert_eq!(
            (&*event.channel.name, &*event.channel.uniqueid),
            ("PJSIP/city-2", "5.2")
        );
        assert_eq!(event.channel.variables, [("LEAD_ID".into(), "4002".into())]);
        let Kind::DialBegin {
            by: Some(by),
            dial_string,
        } = &event.kind
        else {
            panic!("{event:?}")
        };
        assert_eq!(
            (&*by.uniqueid, &**dial_string),
            ("5.1", "998901110001@city")
        );
        assert_eq!(by.variables, [("LEAD_ID".into(), "4001".into())]);
    });
    let originated = "Event: DialEnd\nDestChannel: PJSIP/101-1\nDestUniqueid: 5.1\n\
        DestLinkedid: 5.1\nDialStatus: ANSWER\n";
    check_channel_event(originated, |event| {
        assert_eq!(
            event.kind,
            Kind::DialEnd {
                by: None,
                status: "ANSWER".into()
            }
        );
    });
}

#[test]
fn bridge_and_hangup_events_are_decoded() {
    let bridge = "Uniqueid: 5.1\nBridgeUniqueid: b\nBridgeType: basic\n\
        BridgeTechnology: holding_bridge\n";
    check_channel_event(&format!("Event: BridgeEnter\n{bridge}"), |event| {
        let (bridge, technology) = ("b".into(), "holding_bridge".into());
        assert_eq!(event.kind, Kind::BridgeEnter { bridge, technology });
    });
    check_channel_event(&format!("Event: BridgeLeave\n{bridge}"), |event| {
        let (bridge, technology) = ("b".into(), "holding_bridge".into());
        assert_eq!(event.kind, Kind::BridgeLeave { bridge, technology });
    });
    for (cause, expected) in [
        ("Cause: 16\nCause-txt: Normal Clearing\n", Some(16)),
        ("", None),
    ] {
        check_channel_event(&format!("Event: Hangup\nUniqueid: 5.1\n{cause}"), |event| {
            assert_eq!(event.kind, Kind::Hangup { cause: expected });
        });
    }
}

#[test]
fn transfers_and_pickups_join_the_channels_they_name() {
    let attended = "OrigTransfererChannel: PJSIP/101-1\nOrigTransfererUniqueid: 5.1\n\
        OrigTransfererLinkedid: 5.0\nSecondTransfererUniqueid: 5.2\nTransfereeUniqueid: 5.0\n\
        TransferTargetUniqueid: 5.3\nOrigBridgeUniqueid: b\n";
    for (message, main, with) in [
        (
            format!("Event: AttendedTransfer\nResult: Success\n{attended}"),
            "5.1",
            "5.2 5.0 5.3",
        ),
        (
            format!("Event: AttendedTransfer\nResult: Fail\n{attended}"),
            "5.1",
            "",
        ),
        (
            "Event: Pickup\nUniqueid: 5.2\nTargetUniqueid: 5.1\n".to_owned(),
            "5.2",
            "5.1",
        ),
        (
            "Event: BlindTransfer\nResult: Success\nTransfererUniqueid: 5.2\n\
             TransfereeUniqueid: 5.1\nExtension: 102\n"
                .to_owned(),
            "5.2",
            "5.1",
        ),
        (
            "Event: LocalBridge\nLocalOneUniqueid: 5.4\nLocalTwoUniqueid: 5.5\n".to_owned(),
            "5.4",
            "5.5",
        ),
    ] {
        check_channel_event(&message, |event| {
            assert_eq!(event.channel.uniqueid, main, "{message}");
            match &event.kind {
                Kind::Joined { with: others } => assert_eq!(others.join(" "), with, "{message}"),
                kind => assert!(*kind == Kind::Seen && with.is_empty(), "{message}"),
            }
        });
    }
}

#[test]
fn listed_channel_has_its_ids_and_its_bridge() {
    let message = "Event: CoreShowChannel\nActionID: callbridge-3\nChannel: PJSIP/city-0000004f\n\
                   ChannelStateDesc: Up\nCallerIDNum: +998901110001\nUniqueid: 1795151317.146\n\
                   Linkedid: 1795151316.145\nApplication: Dial\n\
                   ApplicationData: PJSIP/101,20\nDuration: 00:01:05\nBridgeId: b-7\n";
    check_decoded(message, |decoded| {
        let Decoded::Event { received, .. } = decoded else {
            panic!("{decoded:?}")
        };
        let PbxEvent::Channel(event) = received.event else {
            panic!("{:?}", received.event)
        };
        assert_eq!(event.channel.uniqueid, "1795151317.146");
        assert_eq!(event.channel.linkedid, "1795151316.145");
        assert_eq!(event.channel.name, "PJSIP/city-0000004f");
        assert_eq!(event.channel.caller_number, "+998901110001");
        assert_eq!(event.channel.application, "Dial");
        assert_eq!(event.channel.app_data, "PJSIP/101,20");
        let bridge = "b-7".into();
        let state = ChannelState::Up;
        let age = Some(Duration::from_secs(65));
        let kind = Kind::Listed { bridge, state, age };
        assert_eq!((event.at, event.kind), (None, kind));
    });
}

/// AMI 1.x reports the other channel in a bridge instead of the bridge itself.
#[test]
fn listed_channels_of_an_old_release_share_their_bridge() {
    let city = "Event: CoreShowChannel\nChannel: SIP/city-1\nUniqueID: 1795151317.146\n\
                Extension: 7001\nApplication: Dial\nCallerIDnum: 998901110001\nDuration: 65\n\
                BridgedChannel: SIP/101-2\nBridgedUniqueID: 1795151318.147\n";
    let phone = "Event: CoreShowChannel\nChannel: SIP/101-2\nUniqueID: 1795151318.147\n\
                 Extension: \nApplication: AppDial\nCallerIDnum: 101\nDuration: 00:01:04\n\
                 BridgedChannel: SIP/city-1\nBridgedUniqueID: 1795151317.146\n";
    let mut bridges = Vec::new();
    for (message, exten, seconds) in [(city, "7001", 65), (phone, "", 64)] {
        check_decoded(message, |decoded| {
            let Decoded::Event { received, .. } = decoded else {
                panic!("{decoded:?}")
            };
            let PbxEvent::Channel(event) = received.event else {
                panic!("{:?}", received.event)
            };
            let Kind::Listed { bridge, age, .. } = event.kind else {
                panic!("{:?}", event.kind)
            };
            assert_eq!(event.channel.exten, exten);
            assert_eq!(age, Some(Duration::from_secs(seconds)));
            bridges.push(bridge.into_owned());
        });
    }
    assert!(!bridges[0].is_empty());
    assert_eq!(bridges[0], bridges[1]);
}

#[test]
fn event_through_a_proxy_names_its_server() {
    for (line, server) in [
        ("Server: 10.0.0.2\n", Some("10.0.0.2")),
        ("Server: \n", None),
        ("", None),
    ] {
        let message = format!("Event: Hangup\nUniqueid: 5.1\n{line}Cause: 16\n");
        check_decoded(&message, |decoded| {
            let Decoded::Event { received, .. } = decoded else {
                panic!("{decoded:?}")
            };
            assert_eq!(received.server.as_deref(), server);
        });
    }
}

#[test]
fn boot_list_end_shutdown_and_login_become_marks() {
    for (message, mark) in [
        (
            "Event: FullyBooted\nStatus: Fully Booted\n",
            Mark::FullyBooted { uptime: None },
        ),
        (
            "Event: FullyBooted\nUptime: 443\nLastReload: 39\nStatus: Fully Booted\n",
            Mark::FullyBooted {
                uptime: Some(Duration::from_secs(443)),
            },
        ),
        (
            "Event: CoreShowChannelsComplete\nEventList: Complete\nListItems: 0\n",
            Mark::ListEnd { channels: Some(0) },
        ),
        (
            "Event: Shutdown\nShutdown: Cleanly\nRestart: False\n",
            Mark::Shutdown { at: None },
        ),
        (
            "Event: Shutdown\nTimestamp: 1795151317.5\nShutdown: Cleanly\n",
            Mark::Shutdown {
                at: Some(EventTime::from_micros(1_795_151_317_500_000)),
            },
        ),
        (
            "Response: Success\nActionID: 1\nMessage: Authentication accepted\n",
            Mark::LoggedIn,
        ),
        (
            "Asterisk Call Manager/11.0.0\nResponse: Success\nMessage: Authentication accepted\n",
            Mark::LoggedIn,
        ),
    ] {
        check_decoded(message, |decoded| {
            let Decoded::Event { received, .. } = decoded else {
                panic!("{decoded:?}")
            };
            assert_eq!(received.event, PbxEvent::Mark(mark));
        });
    }
}

/// AMI reports applications the way CEL does, if the account may read the `dialplan` class.
#[test]
fn application_is_read_from_newexten() {
    let message = "Event: Newexten\nPrivilege: dialplan,all\nChannel: SIP/101-00000001\n\
                   Context: office\nExtension: s\nPriority: 2\nApplication: RetryDial\n\
                   AppData: busy,10,3,PJSIP/998901110001@city\nUniqueid: 5.1\n";
    check_decoded(message, |decoded| {
        let Decoded::Event { received, .. } = decoded else {
            panic!("{decoded:?}")
        };
        let PbxEvent::Channel(event) = received.event else {
            panic!("{received:?}")
        };
        assert_eq!(event.kind, Kind::Seen);
        assert_eq!(event.channel.application, "RetryDial");
        assert_eq!(event.channel.app_data, "busy,10,3,PJSIP/998901110001@city");
    });
}

#[test]
fn unneeded_message_is_skipped_and_malformed_is_unreadable() {
    for skipped in [
        "Event: VarSet\nUniqueid: 5.1\nVariable: LEAD_ID\nValue: 4001\n",
        "Event: OriginateResponse\nResponse: Failure\nUniqueid: <null>\n",
        "Response: Error\nMessage: Authentication failed\n",
        "Response: Success\nPing: Pong\n",
        "Asterisk Call Manager/11.0.0\n",
    ] {
        check_decoded(skipped, |decoded| {
            assert_eq!(decoded, Decoded::Skipped, "{skipped}")
        });
    }
    for (message, why) in [
        ("Uniqueid: 5.1\nChannel: PJSIP/1-1\n", Unreadable::NoEvent),
        ("no colon at all\n", Unreadable::NoEvent),
        ("Event: Hangup\nCause: 16\n", Unreadable::NoChannel),
        (
            "Event: Hangup\nChannel: <unknown>\nUniqueid: \n",
            Unreadable::NoChannel,
        ),
        (
            "Event: Hangup\nChannel: PJSIP/1-1\nUniqueid: 5.1\u{1b}[2J\n",
            Unreadable::NoId,
        ),
        (
            "Event: DialBegin\nChannel: a\nUniqueid: 5.1\nDestUniqueid: 5.2\n\
             DestLinkedid: \u{9b}5.1\n",
            Unreadable::NoId,
        ),
        (
            "Event: Cdr\nChannel: a\nUniqueID: 5.1\u{7}\n",
            Unreadable::NoId,
        ),
    ] {
        check_decoded(message, |decoded| {
            assert_eq!(decoded, Decoded::Unreadable(why), "{message}")
        });
    }
}

fn check_cdr(format: Format, message: &str, check: impl FnOnce(&Cdr<'_>)) {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    match &decoder.decode(message.as_bytes()) {
        Decoded::Event {
            received,
            repaired: false,
        } => match &received.event {
            PbxEvent::Cdr(cdr) => check(cdr),
            PbxEvent::Channel(_) | PbxEvent::Mark(_) => panic!("{received:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn cdr_fields_are_mapped_in_any_case_and_not_unescaped() {
    let message = "Event: Cdr\nTimestamp: 1795151322.1\nSource: 101\nDestination: 102\n\
        DestinationContext: internal\nCallerID: \"O'Neil\" <101>\nChannel: PJSIP/101-1\n\
        DestinationChannel: PJSIP/102-2\nLastApplication: Dial\nLastData: PJSIP/102,15\\n\n\
        StartTime: 2026-11-20 05:08:37\nAnswerTime: \nEndTime: 2026-11-20 05:08:42\n\
        Duration: 5\nBillableSeconds: 0\nDisposition: NO ANSWER\nUniqueID: 5.1\n\
        UserField: lead=4001\nLINKEDID: 5.0\n";
    check_cdr(Format::Ami, message, |cdr| {
        assert_eq!(cdr.at, Some(EventTime::from_micros(1_795_151_322_100_000)));
        assert_eq!((&*cdr.uniqueid, &*cdr.linkedid), ("5.1", "5.0"));
        assert_eq!((&*cdr.source, &*cdr.destination), ("101", "102"));
        assert_eq!(
            (&*cdr.channel, &*cdr.dest_channel),
            ("PJSIP/101-1", "PJSIP/102-2")
        );
        assert_eq!(
            (&*cdr.last_app, &*cdr.last_data),
            ("Dial", "PJSIP/102,15\\n")
        );
        assert_eq!((&*cdr.start, &*cdr.answer), ("2026-11-20 05:08:37", ""));
        assert_eq!(
            (cdr.duration_micros, cdr.billed_micros),
            (Some(5_000_000), Some(0))
        );
        assert_eq!(
            (&*cdr.disposition, &*cdr.userfield),
            ("NO ANSWER", "lead=4001")
        );
    });
}

#[test]
fn amqp_cdr_answer_time_of_1970_is_read_as_empty() {
    let body = r#"{"clid":"\"A\" <101>","src":"101","dst":"102","dcontext":"internal",
        "channel":"PJSIP/101-1","dstchannel":"","lastapp":"Dial","lastdata":"PJSIP/102",
        "start":"2026-11-20T05:08:37.000+0000","answer":"1970-01-01T00:00:00.000+0000",
        "end":"2026-11-20T05:08:42.000+0000","durationsec":5,"billsec":"0",
        "disposition":"NO ANSWER","linkedid":"5.0","uniqueid":"5.1","userfield":null}"#;
    check_cdr(Format::CdrAmqp, body, |cdr| {
        assert_eq!((&*cdr.uniqueid, &*cdr.linkedid), ("5.1", "5.0"));
        assert_eq!(
            (cdr.duration_micros, cdr.billed_micros),
            (Some(5_000_000), Some(0))
        );
        assert_eq!(
            (&*cdr.answer, &*cdr.dest_channel, &*cdr.userfield),
            ("", "", "")
        );
        assert_eq!(cdr.context, "internal");
    });
}
