//! Tests with bytes that no PBX should send, but some do.

use callbridge_asterisk::Pairs;
use callbridge_call::{Kind, PbxEvent};
use callbridge_formats::{
    Decoded, Decoder, DecoderSettings, Format, Frame, Framer, Frames, MESSAGE_BYTES_MAX, Unreadable,
};
use proptest::prelude::*;

/// A frame that owns its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OwnedFrame {
    Message(Vec<u8>),
    TooLong { bytes: u64, start: u64 },
}

impl From<Frame<'_>> for OwnedFrame {
    fn from(frame: Frame<'_>) -> Self {
        match frame {
            Frame::Message(message) => Self::Message(message.to_vec()),
            Frame::TooLong { bytes, start } => Self::TooLong { bytes, start },
        }
    }
}

/// Returns the frames in bytes that arrive in pieces. The pieces repeatedly go through these
/// lengths.
fn frames_of_pieces(format: Format, bytes: &[u8], lengths: &[usize]) -> Vec<OwnedFrame> {
    let mut framer = Framer::new(format);
    let mut kept = Vec::new();
    let mut rest = bytes;
    for &length in lengths.iter().cycle() {
        let (piece, later) = rest.split_at(length.clamp(1, rest.len().max(1)).min(rest.len()));
        framer.push(piece);
        while let Some(frame) = framer.next() {
            kept.push(frame.into());
        }
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    while let Some(frame) = framer.finish() {
        kept.push(frame.into());
    }
    assert_eq!(
        framer.position(),
        bytes.len() as u64,
        "every byte is accounted for"
    );
    kept
}

fn frames_of_whole(format: Format, bytes: &[u8]) -> Vec<OwnedFrame> {
    Frames::new(format, bytes).map(OwnedFrame::from).collect()
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|window| window == text.as_bytes())
}

/// Generates bytes, many of which have a special meaning in the formats.
fn torn_bytes() -> impl Strategy<Value = Vec<u8>> {
    let bits = prop::sample::select(vec![
        "\r\n",
        "\n",
        "\r",
        "\r\n\r\n",
        "\n\n",
        ":",
        ": ",
        "\"",
        "\"\"",
        ",",
        "\\",
        "\\v",
        "{",
        "}",
        "[",
        "]",
        "Event",
        "Event: Hangup\r\n",
        "Uniqueid: 5.1\r\n",
        "\"data\":{",
        "\"Event\":",
        "\"CEL\"",
        "Asterisk Call Manager/1.1\r\n",
        "=",
        "\u{0}",
        "\"CHAN_START\",",
        "ChanVariable(",
        "):",
        "x",
        "\"Extra\":\"{",
        "null",
        "12",
        "\\ud800",
        "Д",
    ]);
    let bad = prop::collection::vec(any::<u8>(), 0..4);
    let piece = prop_oneof![8 => bits.prop_map(|bit| bit.as_bytes().to_vec()), 1 => bad];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn formats() -> impl Strategy<Value = Format> {
    prop::sample::select(Format::ALL.to_vec())
}

proptest! {
    /// Promise: No input makes a decoder panic.
    #[test]
    fn decoder_never_panics_on_any_bytes(format in formats(), bytes in torn_bytes()) {
        let mut decoder = Decoder::new(format, DecoderSettings::default());
        let _ = decoder.decode(&bytes);
        for frame in Frames::new(format, &bytes) {
            if let Frame::Message(message) = frame {
                prop_assert!(!message.is_empty());
                let _ = decoder.decode(message);
            }
        }
    }

    #[test]
    fn frames_are_the_same_for_pieces_of_any_size(
        format in formats(),
        bytes in torn_bytes(),
        lengths in prop::collection::vec(1_usize..20, 1..8),
    ) {
        let pieces = frames_of_pieces(format, &bytes, &lengths);
        prop_assert_eq!(pieces, frames_of_whole(format, &bytes));
    }

    #[test]
    fn pairs_match_a_plain_split_into_lines(bytes in torn_bytes()) {
        let lines = bytes.split_inclusive(|&byte| byte == b'\n');
        let plain = lines.filter_map(|line| {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let mut colon = line.iter().position(|&byte| byte == b':')?;
            // `ChanVariable(SIP/1:2): a=b`
            if line[..colon].get(12) == Some(&b'(') {
                colon = line.windows(2).position(|w| w == b"):").map_or(colon, |at| at + 1);
            }
            let (key, value) = (&line[..colon], &line[colon + 1..]);
            let ends = value.iter().rposition(|&byte| byte != b'\r');
            let value = &value[..ends.map_or(0, |last| last + 1)];
            Some((key, value.strip_prefix(b" ").unwrap_or(value)))
        });
        prop_assert!(Pairs::new(&bytes).eq(plain));
    }

    #[test]
    fn repeated_variables_are_all_kept_in_text_and_json(
        values in prop::collection::vec("[a-z0-9 :=\"\\\\{}']{1,12}", 1..6),
    ) {
        let mut text = "Event: Hangup\r\nUniqueid: 5.1\r\n".to_owned();
        let mut members = vec![r#""Event":"Hangup""#.to_owned(), r#""Uniqueid":"5.1""#.to_owned()];
        for value in &values {
            let escaped = value.replace('\\', "\\\\");
            text.push_str(&format!("ChanVariable: NAME={escaped}\r\n"));
            let json = serde_json::to_string(&format!("NAME={escaped}")).expect("a text");
            members.push(format!(r#""ChanVariable":{json}"#));
        }
        let json = format!(r#"{{"type":3,"data":{{{}}}}}"#, members.join(","));
        for (format, message) in [(Format::Ami, text), (Format::AmiJson, json)] {
            let mut decoder = Decoder::new(format, DecoderSettings::default());
            let decoded = decoder.decode(message.as_bytes());
            let Decoded::Event { received, repaired: false } = decoded else {
                panic!("{decoded:?}")
            };
            let PbxEvent::Channel(event) = &received.event else { panic!("{received:?}") };
            let received: Vec<&str> =
                event.channel.variables.iter().map(|(_, value)| value.as_ref()).collect();
            prop_assert_eq!(received, values.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    #[test]
    fn frame_cut_anywhere_keeps_its_whole_pairs(cut in 0_usize..400) {
        let frame = concat!(
            r#"{ "type": 3, "server_id": 1, "server_name": "pbx1.lab", "#,
            r#""data": {"Event": "Hangup","#,
            r#""Channel": "PJSIP/city-1","CallerIDName": "О\vн","Uniqueid": "5.1","#,
            r#""Linkedid": "5.0","ChanVariable": "A=1","ChanVariable": "A=2"}}"#,
        );
        let bytes = &frame.as_bytes()[..cut.min(frame.len())];
        let mut decoder = Decoder::new(Format::AmiJson, DecoderSettings::default());
        match decoder.decode(bytes) {
            Decoded::Event { received, repaired } => {
                prop_assert!(repaired && contains(bytes, r#""PJSIP/city-1""#));
                prop_assert_eq!(received.server.as_deref(), Some("pbx1.lab"));
                let PbxEvent::Channel(event) = &received.event else { panic!("{received:?}") };
                prop_assert_eq!(&event.channel.name, "PJSIP/city-1");
                prop_assert_eq!(event.channel.uniqueid == "5.1", contains(bytes, r#""5.1""#));
                prop_assert_eq!(event.channel.linkedid == "5.0", contains(bytes, r#""5.0""#));
                let [one, two] = [r#""A=1""#, r#""A=2""#].map(|pair| contains(bytes, pair));
                let variables = usize::from(one) + usize::from(two);
                prop_assert_eq!(event.channel.variables.len(), variables);
            }
            Decoded::Unreadable(_) => prop_assert!(!contains(bytes, r#""PJSIP/city-1""#)),
            Decoded::Skipped | Decoded::Call(_) => panic!("a cut frame was skipped"),
        }
    }
}

/// An earlier search for `\n\r\n` missed a `\n\n` that started one byte before it.
#[test]
fn message_ends_at_the_first_empty_line_of_either_kind() {
    let bytes = b"A: b\n\n\r\nC: d\r\n\r\n\nE: f";
    let messages = ["A: b", "C: d", "E: f"].map(|m| OwnedFrame::Message(m.as_bytes().to_vec()));
    assert_eq!(frames_of_whole(Format::Ami, bytes), messages);
    assert_eq!(frames_of_pieces(Format::Ami, bytes, &[1]), messages);
}

#[test]
fn overlong_line_is_reported_and_the_next_message_is_read() {
    for (format, closing, next) in [
        (Format::Ami, "\r\n\r\n", "Event: Shutdown\r\n\r\n"),
        (Format::Ami, "\n\n", "Event: Shutdown\n\n"),
        (Format::AmiJson, "\n", "{\"Event\":\"Shutdown\"}\n"),
    ] {
        let mut bytes = b"Event: Hangup\r\nX: ".to_vec();
        bytes.truncate(if format == Format::Ami {
            bytes.len()
        } else {
            0
        });
        bytes.resize(MESSAGE_BYTES_MAX + 70_000, b'a');
        let length = bytes.len() as u64;
        bytes.extend(closing.as_bytes());
        bytes.extend(next.as_bytes());
        let expected = vec![
            OwnedFrame::TooLong {
                bytes: length,
                start: 0,
            },
            OwnedFrame::Message(next.trim_end().as_bytes().to_vec()),
        ];
        assert_eq!(frames_of_whole(format, &bytes), expected, "{format}");
        assert_eq!(
            frames_of_pieces(format, &bytes, &[65_536]),
            expected,
            "{format}"
        );
        assert_eq!(
            frames_of_pieces(format, &bytes, &[4_093]),
            expected,
            "{format}"
        );
    }
}

#[test]
fn message_of_many_lines_below_the_size_limit_is_read() {
    let line = "ChanVariable: A=1\r\n";
    let head = "Event: Hangup\r\nUniqueid: 5.1\r\n";
    let message = format!(
        "{head}{}",
        line.repeat((MESSAGE_BYTES_MAX - 100) / line.len())
    );
    let kept = frames_of_whole(
        Format::Ami,
        format!("{message}\r\nEvent: Shutdown\r\n\r\n").as_bytes(),
    );
    assert_eq!(kept.len(), 2);
    assert_eq!(
        kept[0],
        OwnedFrame::Message(message.trim_end().as_bytes().to_vec())
    );
}

#[test]
fn banner_without_empty_line_is_separate_message() {
    let mut framer = Framer::new(Format::Ami);
    framer.push(b"Asterisk Call Manager/11.0.0\r\n");
    assert_eq!(
        framer.next(),
        Some(Frame::Message(b"Asterisk Call Manager/11.0.0"))
    );
    assert_eq!(framer.next(), None);
    assert_eq!(framer.buffer().len(), 0);
    framer.push(b"\r\n\r\nResponse: Success\r\nMessage: Authentication accepted\r\n");
    assert_eq!(framer.next(), None);
    framer.push(b"\r\n");
    let response = b"Response: Success\r\nMessage: Authentication accepted";
    assert_eq!(framer.next(), Some(Frame::Message(response)));
}

fn hangup(id: &str) -> String {
    format!(r#"{{"Event":"Hangup","Channel":"a","Uniqueid":"{id}"}}"#)
}

#[test]
fn id_with_control_characters_or_too_long_is_refused() {
    let mut decoder = Decoder::new(Format::AmiJson, DecoderSettings::default());
    let long = "5".repeat(257);
    for id in [r"5.1\nid=9", r"5.1\u0085", r"\u001b[2J", &long] {
        let decoded =
            decoder.decode(hangup(id).as_bytes()) == Decoded::Unreadable(Unreadable::NoId);
        assert!(decoded, "{id}");
    }
    let server = r#"{"Event":"Hangup","Uniqueid":"5.1","server_name":"a\nb"}"#;
    let decoded = decoder.decode(server.as_bytes());
    assert_eq!(decoded, Decoded::Unreadable(Unreadable::NoId));
    let valid = hangup(&long[..256]);
    let good = decoder.decode(valid.as_bytes());
    assert!(matches!(good, Decoded::Event { .. }), "{good:?}");
}

#[test]
fn variable_is_kept_if_selected_and_name_is_short() {
    let long = "V".repeat(81);
    let message = format!(
        "Event: DialBegin\r\nChannel: a\r\nUniqueid: 5.1\r\nChanVariable: LEAD_ID=4001\r\n\
         ChanVariable: OTHER=1\r\nChanVariable: {long}=1\r\nDestChannel: b\r\n\
         DestUniqueid: 5.2\r\nDestChanVariable: OTHER=2\r\nDestChanVariable: LEAD_ID=4002\r\n"
    );
    let all = ["OTHER=2", "LEAD_ID=4002", "LEAD_ID=4001", "OTHER=1"];
    assert_eq!(kept_variables(&message, None), all);
    assert_eq!(
        kept_variables(&message, Some(&["LEAD_ID"])),
        ["LEAD_ID=4002", "LEAD_ID=4001"]
    );
    assert!(kept_variables(&message, Some(&[])).is_empty());
}

/// Returns the variables that a decoder keeps from the message, which are those listed in `names`,
/// or all of them if it's `None`.
fn kept_variables(message: &str, names: Option<&[&str]>) -> Vec<String> {
    let names = names.map(|names| names.iter().map(ToString::to_string).collect());
    let settings = DecoderSettings {
        variables: names,
        ..DecoderSettings::default()
    };
    let mut decoder = Decoder::new(Format::Ami, settings);
    let Decoded::Event { received, .. } = decoder.decode(message.as_bytes()) else {
        panic!("an event");
    };
    let PbxEvent::Channel(event) = &received.event else {
        panic!("of a channel");
    };
    let by = event.kind.other().expect("who dials");
    let all = event.channel.variables.iter().chain(&by.variables);
    all.map(|(name, value)| format!("{name}={value}")).collect()
}

#[test]
fn windows_1251_name_damages_no_other_field() {
    let message = b"Event: Newchannel\r\nChannel: PJSIP/city-1\r\nCallerIDNum: 998901110001\r\n\
        CallerIDName: \xc0\xe7\xe8\xe7\xe0: \"\xd0\r\nUniqueid: 5.1\r\nChanVariable: N=\xc0\r\n";
    let mut decoder = Decoder::new(Format::Ami, DecoderSettings::default());
    let Decoded::Event {
        received,
        repaired: true,
    } = decoder.decode(message)
    else {
        panic!()
    };
    let PbxEvent::Channel(event) = &received.event else {
        panic!("{received:?}")
    };
    assert_eq!(event.channel.name, "PJSIP/city-1");
    assert_eq!(event.channel.caller_number, "998901110001");
    assert_eq!(event.channel.uniqueid, "5.1");
    assert_eq!(event.channel.variables, [("N".into(), "\u{fffd}".into())]);
    assert_eq!(
        Pairs::new(message).get("calleridname"),
        Some(&b"\xc0\xe7\xe8\xe7\xe0: \"\xd0"[..])
    );
}

#[test]
fn server_name_of_each_frame_is_kept() {
    let mut decoder = Decoder::new(Format::AmiJson, DecoderSettings::default());
    for (frame, server) in [
        (
            r#"{"type":3,"server_name":"a","data":{"Event":"Hangup","Uniqueid":"5.1"}}"#,
            Some("a"),
        ),
        (
            r#"{"data":{"Event":"Hangup","Uniqueid":"5.1"},"server_name":"b","type":3}"#,
            Some("b"),
        ),
        (r#"{"Event":"Hangup","Uniqueid":"5.1","Cause":16}"#, None),
        (
            r#"{"name":"Hangup","data":{"Event":"Hangup","Uniqueid":"5.1"}}"#,
            None,
        ),
    ] {
        let decoded = decoder.decode(frame.as_bytes());
        let Decoded::Event {
            received,
            repaired: false,
        } = decoded
        else {
            panic!("{decoded:?}")
        };
        assert_eq!(received.server.as_deref(), server);
        let PbxEvent::Channel(event) = &received.event else {
            panic!("{received:?}")
        };
        assert_eq!(event.channel.uniqueid, "5.1");
        assert!(matches!(event.kind, Kind::Hangup { .. }));
    }
}

#[test]
fn gateway_response_is_marked_only_for_accepted_login() {
    let mut decoder = Decoder::new(Format::AmiJson, DecoderSettings::default());
    let accepted = r#"{"Response":"Success","ActionID":"1","Message":"Authentication accepted"}"#;
    assert_eq!(
        decode_response(&mut decoder, accepted).as_deref(),
        Some("Mark(LoggedIn)")
    );
    assert_eq!(
        decode_response(&mut decoder, r#"{"Event":"FullyBooted"}"#).as_deref(),
        Some("Mark(FullyBooted { uptime: None })")
    );
    let pong = r#"{"Response":"Success","Ping":"Pong"}"#;
    assert_eq!(decode_response(&mut decoder, pong), None);
    let denied = r#"{"Response":"Error","Message":"Authentication accepted"}"#;
    assert_eq!(decode_response(&mut decoder, denied), None);
}

/// Decodes a gateway's frame of type 4, and returns the event as text.
fn decode_response(decoder: &mut Decoder, data: &str) -> Option<String> {
    let frame = format!(r#"{{"type":4,"server_id":1,"server_name":"a","data":{data}}}"#);
    match decoder.decode(frame.as_bytes()) {
        Decoded::Event { received, .. } => Some(format!("{:?}", received.event)),
        Decoded::Skipped | Decoded::Call(_) => None,
        Decoded::Unreadable(why) => panic!("{why}"),
    }
}
