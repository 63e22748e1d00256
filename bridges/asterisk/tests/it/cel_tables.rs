//! Tests of CEL tables written by a database client or a spreadsheet.

use callbridge_call::{ChannelEvent, EventTime, PbxEvent};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames};

/// Describes an event, with its time in whole seconds.
fn describe(event: &ChannelEvent<'_>) -> String {
    let second = event.at.map(EventTime::floor_seconds);
    format!("{second:?} {:?} {:?}", event.channel, event.kind)
}

/// Returns the kind of each event in a CEL table, or why its row can't be read.
fn table_events(names: &str, rows: &[[&str; 6]]) -> Vec<String> {
    let mut decoder = Decoder::new(Format::CelCsv, DecoderSettings::default());
    assert_eq!(decoder.decode(names.as_bytes()), Decoded::Skipped);
    let decoded = rows
        .iter()
        .map(|row| match decoder.decode(row.join("|").as_bytes()) {
            Decoded::Event { received, .. } => match received.event {
                PbxEvent::Channel(event) => describe(&event),
                other => panic!("{other:?}"),
            },
            Decoded::Unreadable(why) => format!("{why:?}"),
            other => panic!("{other:?}"),
        });
    decoded.collect()
}

const NUMBERED: &str = "eventtype|eventtime|channame|uniqueid|linkedid|extra";

fn numbered<'a>(number: &'a str, channel: &'a str, extra: &'a str) -> [&'a str; 6] {
    let id = "1795151317.146";
    [number, "1795151317", channel, id, id, extra]
}

#[test]
fn numbered_cel_events_are_named_by_the_release_of_their_rows() {
    let json = r#"{"bridge_id":"b-1","bridge_technology":"simple_bridge"}"#;
    for (channel, extra, hangup) in [
        ("PJSIP/city-00000001", json, r#"{"hangupcause":16}"#),
        ("SIP/city-00000001", json, ""),
        ("PJSIP/city-00000001", "", ""),
    ] {
        let rows = [
            numbered("1", channel, ""),
            numbered("7", channel, extra),
            numbered("3", channel, hangup),
            numbered("14", channel, ""),
        ];
        let events = table_events(NUMBERED, &rows);
        assert!(events[0].contains("Born"), "{events:?}");
        assert!(events[1].contains("BridgeEnter"), "{events:?}");
        assert!(events[2].contains("Hangup"), "{events:?}");
        assert!(events[3].contains("LinkedidEnd"), "{events:?}");
    }
    let old = [
        numbered("1", "SIP/city-00000001", ""),
        numbered("7", "SIP/city-00000001", ""),
        numbered("3", "SIP/city-00000001", "16,SIP/city-00000001,ANSWER"),
        numbered("22", "SIP/city-00000001", ""),
    ];
    let events = table_events(NUMBERED, &old);
    assert!(
        !events[1].contains("technology: \"simple_bridge\""),
        "{events:?}"
    );
    assert!(events[3].contains("LinkedidEnd"), "{events:?}");
}

#[test]
fn numbered_cel_event_is_unreadable_if_no_row_shows_the_release() {
    let names = NUMBERED.replace("|extra", "|userfield");
    let events = table_events(
        &names,
        &[
            numbered("1", "SIP/city-00000001", ""),
            numbered("7", "SIP/city-00000001", ""),
            numbered("14", "SIP/city-00000001", ""),
        ],
    );
    assert!(events[0].contains("Born"), "{events:?}");
    assert_eq!(events[1..], ["EventNumber", "EventNumber"]);
}

#[test]
fn cel_row_that_a_spreadsheet_damaged_is_unreadable() {
    let mut minute = numbered("1", "PJSIP/city-00000001", "");
    minute[1] = "02.03.2026 15:00";
    let mut rounded = numbered("1", "PJSIP/city-00000001", "");
    rounded[3] = "1,79515E+09";
    let mut lost = numbered("3", "PJSIP/city-00000001", "");
    lost[1] = "0000-00-00 00:00:00";
    let events = table_events(NUMBERED, &[minute, rounded, lost]);
    assert_eq!(events, ["NoSeconds", "RoundedId", "NoTime"]);
    // The time of a channel's creation is in its ID.
    lost[0] = "1";
    let events = table_events(NUMBERED, &[lost]);
    assert!(
        events[0].starts_with("Some(EpochSeconds(1795151317))"),
        "{events:?}"
    );
}

#[test]
fn cel_table_of_psql_is_read_without_its_frame() {
    let rows = " eventtype   |      eventtime      |     channame       |    uniqueid    |    \
                linkedid    | extra\n\
                -------------+---------------------+--------------------+----------------+-----\
                -----------+-------\n \
                CHAN_START  | 2026-11-20 05:08:37 | PJSIP/city-0000001 | 1795151317.146 | \
                1795151317.146 |\n(1 row)\n\n";
    let mut decoder = Decoder::new(Format::CelCsv, DecoderSettings::default());
    let mut count = 0;
    for frame in Frames::new(Format::CelCsv, rows.as_bytes()) {
        let Frame::Message(row) = frame else {
            panic!("{frame:?}")
        };
        let received = match decoder.decode(row) {
            Decoded::Event { received, .. } => received,
            decoded => {
                assert_eq!(decoded, Decoded::Skipped);
                continue;
            }
        };
        let PbxEvent::Channel(event) = received.event else {
            panic!("not a channel event")
        };
        count += 1;
        assert_eq!(event.at, Some(EventTime::from_seconds(1_795_151_317)));
        assert_eq!(event.channel.name, "PJSIP/city-0000001");
        assert_eq!(event.channel.uniqueid, "1795151317.146");
    }
    assert_eq!(count, 1);
}
