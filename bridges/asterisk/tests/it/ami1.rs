//! Tests of AMI 1.x events (Asterisk 1.4 to 11).

use callbridge_call::{ChannelEvent, ChannelRef, ChannelState, Kind, PbxEvent};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format};

fn check_channel_event(message: &str, check: impl FnOnce(&ChannelEvent<'_>)) {
    let message = message.replace('\n', "\r\n");
    let mut decoder = Decoder::new(Format::Ami, DecoderSettings::default());
    match decoder.decode(message.as_bytes()) {
        Decoded::Event { received, .. } => match &received.event {
            PbxEvent::Channel(event) => check(event),
            PbxEvent::Cdr(_) | PbxEvent::Mark(_) => panic!("{received:?}"),
        },
        decoded => panic!("{decoded:?}"),
    }
}

fn channel_ref<'a>(name: &'a str, id: &'a str, number: &'a str) -> ChannelRef<'a> {
    ChannelRef {
        name: name.into(),
        uniqueid: id.into(),
        caller_number: number.into(),
        ..ChannelRef::default()
    }
}

#[test]
fn dial_event_of_every_release_names_both_channels() {
    let since_1_6 = "Event: Dial\nPrivilege: call,all\nSubEvent: Begin\nChannel: SIP/101-0000001a\n\
        Destination: SIP/city-0000001b\nCallerIDNum: 101\nCallerIDName: Anna\n\
        ConnectedLineNum: <unknown>\nUniqueID: 17.1\nDestUniqueID: 17.2\n\
        Dialstring: city/998901110001\n";
    check_channel_event(since_1_6, |event| {
        assert_eq!(event.channel, channel_ref("SIP/city-0000001b", "17.2", ""));
        let by = Some(Box::new(channel_ref("SIP/101-0000001a", "17.1", "101")));
        let dial_string = "city/998901110001".into();
        assert_eq!(event.kind, Kind::DialBegin { by, dial_string });
    });
    let in_1_4 = "Event: Dial\nSource: Zap/1-1\nDestination: Zap/25-1\nCallerID: 101\n\
        CallerIDName: Anna\nSrcUniqueID: pbx-1-17.1\nDestUniqueID: pbx-1-17.2\n";
    check_channel_event(in_1_4, |event| {
        assert_eq!(event.channel, channel_ref("Zap/25-1", "pbx-1-17.2", ""));
        let by = Some(Box::new(channel_ref("Zap/1-1", "pbx-1-17.1", "101")));
        let dial_string = "".into();
        assert_eq!(event.kind, Kind::DialBegin { by, dial_string });
    });
    let end = "Event: Dial\nSubEvent: End\nChannel: SIP/101-0000001a\nUniqueID: 17.1\n\
        DialStatus: ANSWER\n";
    check_channel_event(end, |event| {
        assert_eq!(event.channel.name, "SIP/101-0000001a");
        assert_eq!(event.channel.dial_status, "ANSWER");
        assert_eq!(event.kind, Kind::Seen);
    });
}

#[test]
fn caller_who_leaves_a_queue_is_decoded_in_both_forms() {
    for more in ["", "Channel: SIP/city-0000001a\nLinkedid: 17.1\n"] {
        let event = format!("Event: QueueCallerAbandon\nQueue: sales\nUniqueid: 17.1\n{more}");
        check_channel_event(&event, |event| {
            assert_eq!(event.channel.uniqueid, "17.1");
            assert_eq!(event.kind, Kind::GaveUp);
        });
    }
}

#[test]
fn link_and_unlink_events_of_every_release_are_decoded() {
    let pair = "Channel1: SIP/city-0000001a\nChannel2: Local/101@in-00000001;1\n\
        Uniqueid1: 17.1\nUniqueid2: 17.2\nCallerID1: 998901110001\nCallerID2: <unknown>\n";
    let with = Box::new(channel_ref("Local/101@in-00000001;1", "17.2", ""));
    for (head, begins) in [
        (
            "Event: Bridge\nPrivilege: call,all\nBridgestate: Link\nBridgetype: core\n",
            true,
        ),
        (
            "Event: Bridge\nBridgestate: Unlink\nBridgetype: native\n",
            false,
        ),
        ("Event: Link\n", true),
        ("Event: Unlink\n", false),
    ] {
        check_channel_event(&format!("{head}{pair}"), |event| {
            let customer = channel_ref("SIP/city-0000001a", "17.1", "998901110001");
            assert_eq!(event.channel, customer);
            let with = with.clone();
            let kind = if begins {
                Kind::Linked { with }
            } else {
                Kind::Unlinked { with }
            };
            assert_eq!(event.kind, kind, "{head}");
        });
    }
}

#[test]
fn masquerade_and_rename_events_change_the_channel_name() {
    for (message, id) in [
        (
            "Event: Rename\nChannel: SIP/101-2\nNewname: SIP/city-1\nUniqueid: 17.2\n",
            "17.2",
        ),
        (
            "Event: Rename\nOldname: SIP/101-2\nNewname: SIP/city-1\nUniqueid: 17.2\n",
            "17.2",
        ),
        (
            "Event: Masquerade\nClone: SIP/city-1\nCloneState: Up\nOriginal: SIP/101-2\n\
             OriginalState: Up\n",
            "",
        ),
    ] {
        check_channel_event(message, |event| {
            assert_eq!(event.channel, channel_ref("SIP/101-2", id, ""), "{message}");
            let (to, holder) = ("SIP/city-1".into(), "".into());
            assert_eq!(event.kind, Kind::Renamed { to, holder });
        });
    }
}

#[test]
fn states_and_numbers_of_asterisk_1_4_are_read() {
    let born = "Event: Newchannel\nChannel: Zap/25-1\nState: Ring\nCallerIDNum: 998901110001\n\
        CallerIDName: <unknown>\nUniqueid: 17.1\n";
    check_channel_event(born, |event| {
        let state = ChannelState::Ring;
        assert_eq!(event.kind, Kind::Born { state });
    });
    let named = "Event: Newcallerid\nChannel: Zap/25-1\nCallerID: 998901110001\nUniqueid: 17.1\n";
    check_channel_event(named, |event| {
        assert_eq!(event.channel.caller_number, "998901110001")
    });
}

#[test]
fn variable_belongs_to_channel_named_in_parentheses() {
    let message = "Event: Bridge\nBridgestate: Link\nChannel1: SIP/a-1\nChannel2: SIP/b-2\n\
        Uniqueid1: 17.1\nUniqueid2: 17.2\nChanVariable(SIP/a-1): LEAD_ID=4001\n\
        ChanVariable(SIP/b-2): LEAD_ID=4002\n";
    check_channel_event(message, |event| {
        assert_eq!(event.channel.variables, [("LEAD_ID".into(), "4001".into())]);
        let Kind::Linked { with } = &event.kind else {
            panic!("{event:?}");
        };
        assert_eq!(with.variables, [("LEAD_ID".into(), "4002".into())]);
    });
}

#[test]
fn room_agent_and_transfer_events_get_right_channels() {
    let room = "Event: MeetmeJoin\nChannel: SIP/101-1\nUniqueid: 17.1\nMeetme: 600\nUsernum: 1\n";
    check_channel_event(room, |event| {
        let (bridge, technology) = ("room 600".into(), "softmix".into());
        assert_eq!(event.kind, Kind::BridgeEnter { bridge, technology });
    });
    let new = "Event: ConfbridgeJoin\nConference: 600\nBridgeUniqueid: b-1\nChannel: PJSIP/101-1\n\
        Uniqueid: 17.1\nLinkedid: 17.1\n";
    check_channel_event(new, |event| {
        let bridge = "b-1".into();
        assert_eq!(event.kind, Kind::Sits { bridge });
    });
    let called = "Event: AgentCalled\nQueue: q\nAgentCalled: SIP/101\nAgentName: Anna\n\
        ChannelCalling: SIP/city-1\nDestinationChannel: SIP/101-2\nUniqueid: 17.1\n";
    check_channel_event(called, |event| {
        assert_eq!(event.channel, channel_ref("SIP/101-2", "", ""));
        let by = Some(Box::new(channel_ref("SIP/city-1", "17.1", "")));
        let dial_string = "SIP/101".into();
        assert_eq!(event.kind, Kind::DialBegin { by, dial_string });
    });
    let connected = "Event: AgentConnect\nQueue: q\nUniqueid: 17.1\nChannel: SIP/101\n\
        Member: SIP/101\nHoldtime: 4\nBridgedChannel: 17.2\n";
    check_channel_event(connected, |event| {
        assert_eq!(event.channel, channel_ref("", "17.1", ""));
        let with = vec!["17.2".into()];
        assert_eq!(event.kind, Kind::Joined { with });
    });
    let transferred = "Event: Transfer\nTransferMethod: SIP\nTransferType: Attended\n\
        Channel: SIP/101-2\nUniqueid: 17.2\nTargetChannel: SIP/101-3\nTargetUniqueid: 17.3\n";
    check_channel_event(transferred, |event| {
        let with = vec!["17.3".into()];
        assert_eq!(event.kind, Kind::Joined { with });
    });
    let locals = "Event: LocalBridge\nChannel1: Local/101@in-1;1\nChannel2: Local/101@in-1;2\n\
        Uniqueid1: 17.2\nUniqueid2: 17.3\nContext: in\nExten: 101\nLocalOptimization: Yes\n";
    check_channel_event(locals, |event| {
        assert_eq!(event.channel, channel_ref("Local/101@in-1;1", "17.2", ""));
        let with = vec!["17.3".into()];
        assert_eq!(event.kind, Kind::Joined { with });
    });
}

#[test]
fn failed_originate_is_skipped_and_success_begins_dial() {
    let failed = b"Event: OriginateResponse\r\nResponse: Failure\r\n\
        Channel: SIP/city/998901110001\r\nUniqueid: <null>\r\n";
    let mut decoder = Decoder::new(Format::Ami, DecoderSettings::default());
    assert_eq!(decoder.decode(failed), Decoded::Skipped);
    let placed = "Event: OriginateResponse\nResponse: Success\nChannel: SIP/city/998901110001\n\
        Context: in\nExten: 101\nReason: 4\nUniqueid: 17.1\n";
    check_channel_event(placed, |event| {
        assert_eq!(event.channel.uniqueid, "17.1");
        let (by, dial_string) = (None, "SIP/city/998901110001".into());
        assert_eq!(event.kind, Kind::DialBegin { by, dial_string });
    });
}
