//! Tests of channel event logging in all formats.

use callbridge_asterisk::MissingColumn;
use callbridge_call::{ChannelEvent, ChannelState, EventTime, Kind, Origin, PbxEvent, UniqueId};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Frames, Unreadable};
use std::collections::BTreeSet;
use std::path::Path;

fn recordings() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/recordings")
}

/// Decodes all messages, passing each channel event to `on_event`.
fn for_each_event(format: Format, bytes: &[u8], mut on_event: impl FnMut(&ChannelEvent<'_>)) {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    for frame in Frames::new(format, bytes) {
        let Frame::Message(message) = frame else {
            panic!("a recorded message is too long")
        };
        match decoder.decode(message) {
            Decoded::Event { received, .. } => {
                if let PbxEvent::Channel(event) = &received.event {
                    on_event(event);
                }
            }
            Decoded::Skipped | Decoded::Call(_) => {}
            Decoded::Unreadable(why) => panic!("{why}: {}", String::from_utf8_lossy(message)),
        }
    }
}

/// Describes an event, with its time in whole seconds.
fn describe(event: &ChannelEvent<'_>) -> String {
    let second = event.at.map(EventTime::floor_seconds);
    format!("{second:?} {:?} {:?}", event.channel, event.kind)
}

#[test]
fn cel_file_and_cel_events_of_ami_decode_alike() {
    let mut ami = BTreeSet::new();
    let mut ids = BTreeSet::new();
    for entry in std::fs::read_dir(recordings()).expect("the recordings are there") {
        let path = entry.expect("an entry").path().join("ami.raw");
        let Ok(bytes) = std::fs::read(path) else {
            continue;
        };
        for_each_event(Format::Ami, &bytes, |event| {
            if event.origin == Origin::Cel {
                ids.insert(event.channel.uniqueid.to_string());
                ami.insert(describe(event));
            }
        });
    }
    let bytes = std::fs::read(recordings().join("cel-custom/local-time.csv")).expect("a file");
    let mut compared = 0;
    for_each_event(Format::CelCsv, &bytes, |event| {
        assert_eq!(event.origin, Origin::Cel);
        if ids.contains(&*event.channel.uniqueid) {
            compared += 1;
            assert!(ami.contains(&describe(event)), "{}", describe(event));
        }
    });
    assert!(compared > 100, "{compared} rows compared");
}

#[test]
fn times_with_microseconds_are_exact() {
    let bytes = std::fs::read(recordings().join("cel-custom/epoch.csv")).expect("a file");
    let mut times = Vec::new();
    for_each_event(Format::CelCsv, &bytes, |event| {
        let at = event.at.expect("each row has a time");
        if matches!(event.kind, Kind::Born { .. }) {
            let id = UniqueId::new(&*event.channel.uniqueid).expect("each row has an id");
            let late = at.floor_seconds().get() - i64::try_from(id.age().0).expect("an epoch");
            assert!((0..=1).contains(&late), "{event:?}");
        }
        times.push(at.to_string());
    });
    assert!(times.len() > 100);
    let text = String::from_utf8(bytes).expect("text");
    assert!(times.iter().all(|time| text.contains(time)), "{times:?}");
}

/// Checks a message's only event.
fn check_event(format: Format, message: &str, check: impl FnOnce(&ChannelEvent<'_>)) {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    match decoder.decode(message.as_bytes()) {
        Decoded::Event {
            received,
            repaired: false,
        } => match &received.event {
            PbxEvent::Channel(event) => check(event),
            PbxEvent::Cdr(_) | PbxEvent::Mark(_) => panic!("{received:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn amqp_body(event_name: &str, extra: &str) -> String {
    format!(
        r#"{{"event_name":"{event_name}","account_code":"","caller_id":{{"num":"101",
        "name":"Aziza","ani":"","rdnis":"","dnid":""}},"extension":"s","context":"internal",
        "channel":"PJSIP/101-00000050","application":"","app_data":"","event_time":
        "2026-11-20T10:08:38.842+0500","ama_flags":"DOCUMENTATION","unique_id":"1795151317.147",
        "linked_id":"1795151317.146","user_field":"lead=4001","peer":"","peer_acount":"",
        "extra":{extra}}}"#
    )
}

#[test]
fn amqp_body_decodes_to_all_values_of_a_row() {
    let body = amqp_body(
        "HANGUP",
        r#"{"hangupcause":17,"hangupsource":"","dialstatus":"BUSY"}"#,
    );
    check_event(Format::CelAmqp, &body, |event| {
        assert_eq!(
            event.at,
            Some(EventTime::from_micros(1_795_151_318_842_000))
        );
        assert_eq!(event.kind, Kind::Hangup { cause: Some(17) });
        assert_eq!(event.channel.name, "PJSIP/101-00000050");
        assert_eq!(event.channel.uniqueid, "1795151317.147");
        assert_eq!(event.channel.linkedid, "1795151317.146");
        assert_eq!(event.channel.caller_number, "101");
        assert_eq!(event.channel.userfield, "lead=4001");
    });
}

#[test]
fn extra_field_is_read_as_object_and_as_string() {
    for extra in [
        r#"{"bridge_id":"b-1","bridge_technology":"holding_bridge"}"#,
        r#""{\"bridge_id\":\"b-1\",\"bridge_technology\":\"holding_bridge\"}""#,
    ] {
        check_event(
            Format::CelAmqp,
            &amqp_body("BRIDGE_ENTER", extra),
            |event| {
                let (bridge, technology) = ("b-1".into(), "holding_bridge".into());
                assert_eq!(event.kind, Kind::BridgeEnter { bridge, technology });
            },
        );
    }
    for broken in [r#""""#, "null", r#""{torn""#, "[1]"] {
        check_event(
            Format::CelAmqp,
            &amqp_body("BRIDGE_EXIT", broken),
            |event| {
                let (bridge, technology) = ("?".into(), "".into());
                assert_eq!(
                    event.kind,
                    Kind::BridgeLeave { bridge, technology },
                    "{broken}"
                );
            },
        );
    }
}

#[test]
fn join_events_list_the_other_channels() {
    for (name, extra, with) in [
        (
            "PICKUP",
            r#"{"pickup_channel":"PJSIP/102-1","pickup_channel_uniqueid":"5.2"}"#,
            "5.2",
        ),
        (
            "ATTENDEDTRANSFER",
            r#"{"bridge1_id":"x","channel2_name":"PJSIP/1","channel2_uniqueid":"5.3",
                "transferee_channel_uniqueid":"5.1","transfer_target_channel_uniqueid":"5.4"}"#,
            "5.3 5.1 5.4",
        ),
        (
            "BLINDTRANSFER",
            r#"{"extension":"102","transferee_channel_uniqueid":"5.1"}"#,
            "5.1",
        ),
        (
            "LOCAL_OPTIMIZE",
            r#"{"local_two":"Local/1;2","local_two_id":"5.9"}"#,
            "5.9",
        ),
    ] {
        check_event(Format::CelAmqp, &amqp_body(name, extra), |event| {
            let Kind::Joined { with: others } = &event.kind else {
                panic!("{event:?}")
            };
            assert_eq!(others.join(" "), with);
        });
    }
    check_event(
        Format::CelAmqp,
        &amqp_body("BLINDTRANSFER", r#"{"extension":"102"}"#),
        |event| {
            assert_eq!(event.kind, Kind::Seen);
        },
    );
}

#[test]
fn cel_event_names_map_to_their_kinds() {
    let born = Kind::Born {
        state: ChannelState::Unknown,
    };
    let up = Kind::State {
        state: ChannelState::Up,
    };
    let app = Kind::App {
        name: "".into(),
        data: "".into(),
    };
    for (name, kind) in [
        ("CHAN_START", born),
        ("ANSWER", up),
        ("APP_START", app),
        ("CHAN_END", Kind::Gone),
        ("LINKEDID_END", Kind::LinkedidEnd),
        ("APP_END", Kind::Seen),
        ("PARK_START", Kind::Seen),
        ("FORWARD", Kind::Seen),
        ("USER_DEFINED", Kind::Seen),
        ("OF_A_LATER_RELEASE", Kind::Seen),
    ] {
        check_event(Format::CelAmqp, &amqp_body(name, r#""""#), |event| {
            assert_eq!(event.kind, kind)
        });
    }
}

fn check_hangup(event: &ChannelEvent<'_>) {
    assert_eq!(event.kind, Kind::Hangup { cause: None });
    assert_eq!(event.channel.linkedid, "5.0");
    assert_eq!(event.channel.userfield, "a \"b\",\nc");
}

#[test]
fn columns_come_from_a_header_or_from_the_settings() {
    let header = "eventtype,eventtime,channame,uniqueid,linkedid,userfield\n";
    let row = "\"HANGUP\",\"1795151317.5\",\"PJSIP/1-1\",\"5.1\",\"5.0\",\"a \"\"b\"\",\nc\"\n";
    let mut rows = 0;
    for_each_event(
        Format::CelCsv,
        format!("{header}{row}{row}").as_bytes(),
        |event| {
            rows += 1;
            check_hangup(event);
        },
    );
    assert_eq!(rows, 2);
    let columns = header.trim().parse().expect("columns");
    let settings = DecoderSettings {
        columns: Some(columns),
        ..DecoderSettings::default()
    };
    let mut decoder = Decoder::new(Format::CelCsv, settings);
    let Decoded::Event { received, .. } = decoder.decode(row.trim().as_bytes()) else {
        panic!()
    };
    let PbxEvent::Channel(event) = &received.event else {
        panic!()
    };
    check_hangup(event);
    let missing: Result<callbridge_asterisk::CsvColumns, MissingColumn> = "eventtype,exten".parse();
    assert_eq!(
        missing.unwrap_err().to_string(),
        "a CEL file needs the column eventtime"
    );
}

#[test]
fn torn_row_is_unreadable_and_other_rows_are_read() {
    let bytes = std::fs::read(recordings().join("cel-custom/epoch.csv")).expect("a file");
    let lines: Vec<&[u8]> = bytes
        .split_inclusive(|&byte| byte == b'\n')
        .take(6)
        .collect();
    // The second row is cut off in the middle, and the next row follows on a separate line.
    let mut torn: Vec<u8> = lines.concat();
    let at = lines[0].len();
    torn.splice(
        at..at + lines[1].len(),
        lines[1][..40].iter().copied().chain(*b"\n"),
    );
    let mut decoder = Decoder::new(Format::CelCsv, DecoderSettings::default());
    let mut verdicts = Vec::new();
    for frame in Frames::new(Format::CelCsv, &torn) {
        let Frame::Message(message) = frame else {
            panic!("no row is too long")
        };
        verdicts.push(match decoder.decode(message) {
            Decoded::Event { .. } => None,
            Decoded::Skipped | Decoded::Call(_) => panic!("a row was skipped"),
            Decoded::Unreadable(why) => Some(why),
        });
    }
    let short = Some(Unreadable::TooFewColumns);
    assert_eq!(verdicts, [None, short, None, None, None, None]);
}

fn row_with_peer(event: &str, peer: &str) -> String {
    format!(
        "{event},1795151320.5,,998901110001,,,,7001,from-city,SIP/city-00000001,Dial,\
         \"SIP/101,20\",3,,17.1,17.1,{peer},\n"
    )
}

#[test]
fn bridge_before_asterisk_12_is_derived_from_the_peer() {
    let mut count = 0;
    for (event, begins) in [
        ("BRIDGE_START", true),
        ("BRIDGE_UPDATE", true),
        ("BRIDGE_END", false),
    ] {
        let rows = row_with_peer(event, "SIP/101-00000002");
        for_each_event(Format::CelCsv, rows.as_bytes(), |event| {
            count += 1;
            let (Kind::Linked { with } | Kind::Unlinked { with }) = &event.kind else {
                panic!("{event:?}");
            };
            assert_eq!((&*with.name, &*with.uniqueid), ("SIP/101-00000002", ""));
            assert_eq!(matches!(event.kind, Kind::Linked { .. }), begins);
        });
    }
    // The channel that picks up the call continues under the unique ID of the phone that was
    // ringing.
    let pickup = row_with_peer("PICKUP", "SIP/102-00000003");
    for_each_event(Format::CelCsv, pickup.as_bytes(), |event| {
        count += 1;
        let (to, holder) = ("SIP/102-00000003".into(), "".into());
        assert_eq!(event.kind, Kind::Renamed { to, holder });
    });
    for event in ["ATTENDEDTRANSFER", "BLINDTRANSFER"] {
        for_each_event(
            Format::CelCsv,
            row_with_peer(event, "SIP/102-00000003").as_bytes(),
            |event| {
                count += 1;
                let with = vec!["SIP/102-00000003".into()];
                assert_eq!(event.kind, Kind::Joined { with });
            },
        );
    }
    assert_eq!(count, 6, "each row is an event");
}

const ENTERING_CHANNEL: &str = "PJSIP/city-0000004f";
const ENTERING_ID: &str = "1795151317.146";

/// Returns a CEL row in which a channel enters a bridge. `columns` lists the column names,
/// separated by commas, and `extra` is the value of the column with the details.
fn row_of_columns(columns: &str, extra: &str) -> String {
    let fields = columns.split(',').map(|column| match column {
        "eventtype" => "BRIDGE_ENTER",
        "eventtime" => "2026-11-20 10:08:38",
        "cid_num" => "998901110001",
        "exten" => "7001",
        "channame" => ENTERING_CHANNEL,
        "uniqueid" | "linkedid" => ENTERING_ID,
        "extra" | "eventextra" => extra,
        "id" => "4711",
        "call_log_id" => "NULL",
        _ => "",
    });
    fields.collect::<Vec<_>>().join(",")
}

/// A channel enters a bridge. The row is in the layouts used by FreePBX's `asteriskcdrdb.cel`,
/// Wazo's and cel_odbc's tables, and Asterisk's sample.
#[test]
fn cel_layouts_are_recognized_with_and_without_header() {
    let extra = r#""{""bridge_id"":""b-1"",""bridge_technology"":""simple_bridge""}""#;
    let mysql = r#""{\"bridge_id\":\"b-1\",\"bridge_technology\":\"simple_bridge\"}""#;
    let freepbx = "eventtype,eventtime,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,exten,context,\
                   channame,src,dst,channel,dstchannel,appname,appdata,amaflags,accountcode,\
                   uniqueid,linkedid,peer,userdeftype,extra,userfield";
    let wazo = "id,eventtype,eventtime,userdeftype,cid_name,cid_num,cid_ani,cid_rdnis,cid_dnid,\
                exten,context,channame,appname,appdata,amaflags,accountcode,peeraccount,uniqueid,\
                linkedid,userfield,peer,call_log_id,extra";
    let odd = "linkedid,uniqueid,extra,channame,exten,cid_num,eventtime,eventtype";
    let semicolons = format!("{}\n{}", odd.replace(',', ";"), {
        let row = row_of_columns(odd, "@").replace(',', ";");
        row.replace('@', extra)
    });
    for file in [
        row_of_columns(freepbx, extra),
        row_of_columns(freepbx, mysql),
        row_of_columns(&format!("id,{freepbx}"), extra),
        format!("{freepbx}\n{}", row_of_columns(freepbx, extra)),
        format!("\u{feff}{odd}\r\n{}\r\n", row_of_columns(odd, extra)),
        row_of_columns(wazo, extra),
        semicolons,
    ] {
        let mut rows = 0;
        for_each_event(Format::CelCsv, file.as_bytes(), |event| {
            rows += 1;
            let (bridge, technology) = ("b-1".into(), "simple_bridge".into());
            assert_eq!(
                event.kind,
                Kind::BridgeEnter { bridge, technology },
                "{file}"
            );
            assert_eq!(event.channel.name, ENTERING_CHANNEL);
            assert_eq!(
                (&*event.channel.uniqueid, &*event.channel.linkedid),
                (ENTERING_ID, ENTERING_ID)
            );
            assert_eq!(event.channel.caller_number, "998901110001");
            assert_eq!(event.channel.exten, "7001");
        });
        assert_eq!(rows, 1, "{file}");
    }
}

#[test]
fn unknown_column_order_is_reported_as_unknown_columns() {
    let mut decoder = Decoder::new(Format::CelCsv, DecoderSettings::default());
    let row = vec!["1795151317.146"; 20].join(",");
    let why = decoder.decode(row.as_bytes());
    assert_eq!(why, Decoded::Unreadable(Unreadable::UnknownColumns));
    let columns = "${CSV_QUOTE(${CHANNEL(linkedid)})},${CHANNEL(uniqueid)},-,eventtype,eventtime,\
                   CHANNEL(channame)";
    let columns: callbridge_asterisk::CsvColumns = columns.parse().expect("all there");
    let settings = DecoderSettings {
        columns: Some(columns),
        ..DecoderSettings::default()
    };
    let mut decoder = Decoder::new(Format::CelCsv, settings);
    let row = b"1795151317.146,1795151317.147,x,HANGUP,1795151320.5,PJSIP/101-00000050";
    let Decoded::Event { received, .. } = decoder.decode(row) else {
        panic!("no event")
    };
    let PbxEvent::Channel(event) = &received.event else {
        panic!("{received:?}")
    };
    assert_eq!(event.channel.linkedid, "1795151317.146");
    assert_eq!(event.channel.uniqueid, "1795151317.147");
    assert_eq!(event.kind, Kind::Hangup { cause: None });
}

#[test]
fn header_decides_the_delimiter_of_a_cel_file() {
    let header = "eventtype;eventtime;channame;appname;appdata;uniqueid;linkedid";
    let row = "APP_START;1795151320.5;PJSIP/city-00000001;Queue;400,t,,,,,,,,;1795151317.1;\
               1795151317.1";
    let mut decoder = Decoder::new(Format::CelCsv, DecoderSettings::default());
    assert_eq!(decoder.decode(header.as_bytes()), Decoded::Skipped);
    let Decoded::Event { received, .. } = decoder.decode(row.as_bytes()) else {
        panic!("no event")
    };
    let PbxEvent::Channel(event) = &received.event else {
        panic!("{received:?}")
    };
    assert_eq!(event.channel.uniqueid, "1795151317.1");
    let name = "Queue".into();
    let data = "400,t,,,,,,,,".into();
    assert_eq!(event.kind, Kind::App { name, data });
    let moved = row.replace("400,t", "400;t");
    let why = decoder.decode(moved.as_bytes());
    assert_eq!(why, Decoded::Unreadable(Unreadable::OtherColumns));
}

fn custom_row(event: &str, channel: &str, id: &str) -> String {
    let what = format!("{event},1795251588.226360,,,,,,s,default");
    format!("{what},{channel},Stasis,live,3,,{id},{id},,,,")
}

/// These rows are from Asterisk 16 with callbridge's `cel_custom.conf`. An earlier decoder couldn't
/// read the rows of the channel `recorder`, which was created through ARI.
#[test]
fn cel_row_with_custom_channel_id_is_read_like_other_rows() {
    let rows = [
        custom_row("CHAN_START", "Snoop/1795251588.1797-00000000", "recorder"),
        custom_row("CHAN_START", "SIP/city-00000084", "1795251588.1797"),
        custom_row("ANSWER", "SIP/101-00000085", "crm-call-17"),
    ];
    let mut channels = Vec::new();
    for_each_event(Format::CelCsv, rows.join("\n").as_bytes(), |event| {
        let channel = &event.channel;
        channels.push((channel.name.to_string(), channel.linkedid.to_string()));
    });
    let expected = [
        ("Snoop/1795251588.1797-00000000", "recorder"),
        ("SIP/city-00000084", "1795251588.1797"),
        ("SIP/101-00000085", "crm-call-17"),
    ];
    let expected = expected.map(|(name, id)| (name.to_owned(), id.to_owned()));
    assert_eq!(channels, expected);
}
