//! Properties that hold for any bytes and any events.

pub mod peer;
pub mod script;

use callbridge_call::{
    Assembler, Endpoints, EventTime, FinishedCall, PbxEvent, Settings, TrunkEndpoint, trunk,
};
use callbridge_formats::{Decoded, Decoder, DecoderSettings, Format, Frame, Framer, Frames};
use std::time::Duration;

/// The time at which all bytes arrive, in epoch seconds.
pub const NOW: i64 = 1_795_000_000;

/// An assembler with the trunks of the recordings.
pub fn assembler() -> Assembler {
    let trunks = [("city", "PJSIP/city"), ("gsm", "PJSIP/gsm")];
    let trunks = trunks.map(|(trunk, endpoint)| TrunkEndpoint::new(trunk, endpoint));
    Assembler::new(Settings::new(
        Endpoints::new(trunks.to_vec()).expect("no conflict"),
    ))
}

/// Checks that the bytes of a format become calls with valid figures, or no calls.
pub fn check_calls(format: Format, bytes: &[u8]) {
    let mut decoder = Decoder::new(format, DecoderSettings::default());
    let mut assembler = assembler();
    let mut now = EventTime::from_seconds(NOW);
    for frame in Frames::new(format, bytes) {
        let Frame::Message(message) = frame else {
            continue;
        };
        let Decoded::Event { received, .. } = decoder.decode(message) else {
            continue;
        };
        if let PbxEvent::Channel(event) = &received.event {
            let named = !event.channel.name.is_empty() || !event.channel.uniqueid.is_empty();
            assert!(named, "an event of no channel: {event:?}");
        }
        now = now.plus(Duration::from_millis(1));
        assembler.on_event(&received.event, now);
    }
    finish(&mut assembler, now);
}

/// Lets all time pass, and checks that no call stays open and that each has valid figures.
pub fn finish(assembler: &mut Assembler, now: EventTime) -> Vec<FinishedCall> {
    let mut now = now;
    while let Some(next) = assembler.next_deadline() {
        now = now.max(next);
        assembler.tick(now);
    }
    assert_eq!(assembler.open_calls(), 0, "calls stay open for ever");
    let calls = assembler.take_finished();
    for call in &calls {
        assert!(call.ended >= call.started, "{call:?}");
        assert!(call.talk <= call.ended.since(call.started), "{call:?}");
        let talked = call.talk >= Duration::from_millis(500);
        assert!(call.estimate || call.answered == talked, "{call:?}");
        assert!(!call.also_known_as.contains(&call.linkedid), "{call:?}");
    }
    calls
}

/// Checks that the messages are the same for pieces of any size.
pub fn check_framing(bytes: &[u8]) {
    let [format, size, bytes @ ..] = bytes else {
        return;
    };
    let format = Format::ALL[usize::from(*format) % Format::ALL.len()];
    let whole: Vec<String> = Frames::new(format, bytes)
        .map(|frame| format!("{frame:?}"))
        .collect();
    let mut framer = Framer::new(format);
    let mut pieces = Vec::new();
    for piece in bytes.chunks(usize::from(*size).max(1)) {
        framer.push(piece);
        while let Some(frame) = framer.next() {
            pieces.push(format!("{frame:?}"));
        }
    }
    while let Some(frame) = framer.finish() {
        pieces.push(format!("{frame:?}"));
    }
    assert_eq!(whole, pieces);
}

/// Checks that endpoints that do not conflict give a channel the same endpoint, in any order.
pub fn check_endpoints((a, b, name): (&str, &str, &str)) {
    let (a, b) = (TrunkEndpoint::new("a", a), TrunkEndpoint::new("b", b));
    let Ok(endpoints) = Endpoints::new(vec![a.clone(), b.clone()]) else {
        return;
    };
    let turned = Endpoints::new(vec![b, a]).expect("no conflict either");
    assert_eq!(endpoints.find(name), turned.find(name));
    let _ = trunk::party(name, &endpoints);
}
