//! Tests of a source whose intake is too slow.

use crate::listener::{Listener, send};
use crate::stage::{Stage, settings, wait_until};
use callbridge_source::{EventTime, Item, Limits, Secret, Source, SourceId, SourceUrl, verdicts};
use std::fmt::Write;

fn small_limits() -> Limits {
    Limits {
        live_frames: 4,
        live_bytes: 1 << 20,
        patient_frames: 4,
        patient_bytes: 1 << 20,
    }
}

fn events(range: std::ops::Range<u32>) -> String {
    range.fold(String::new(), |mut text, n| {
        let _ = write!(text, "Event: E{n}\r\n\r\n");
        text
    })
}

#[tokio::test]
async fn live_connection_never_waits_and_dropped_frames_are_one_gap() {
    let listener = Listener::plain().await;
    let url = format!("ami://bridge@127.0.0.1:{}", listener.port());
    let mut stage = Stage::start_at(&url, settings(), small_limits(), None);
    let mut line = listener.accept_ami().await;
    // The login's answer and three events fill the ring, which has no room for seven more events.
    send(&mut line, events(0..10).as_bytes()).await;
    let counts = stage.counts.clone();
    wait_until("the overflow", || counts.now().overflow == 7).await;
    stage.expect_up().await;
    for wanted in [
        "Response: Success\r\nMessage: Authentication accepted",
        "Event: E0",
    ] {
        assert_eq!(stage.text().await, wanted);
    }
    // When the ring has room, the gap is reported, although no more bytes arrive.
    assert_eq!(stage.text().await, "Event: E1");
    assert_eq!(stage.text().await, "Event: E2");
    let why = stage.next_gap_reason().await;
    assert!(
        why.starts_with("frames were dropped") && why.ends_with(": 7"),
        "{why}"
    );
    send(&mut line, events(10..11).as_bytes()).await;
    let frame = stage.frame().await;
    assert_eq!((&frame.bytes[..], frame.seq), (&b"Event: E10"[..], 5));
    assert_eq!(stage.counts.now().frames, 5);
}

/// Nothing is taken from the ring until both have sent their events.
#[tokio::test]
async fn flood_of_one_live_source_leaves_room_for_another() {
    let limits = Limits {
        live_frames: 8,
        live_bytes: 2 << 20,
        ..small_limits()
    };
    let (ends, mut intake) = callbridge_source::ring(limits, 2);
    let mut counts = Vec::new();
    let mut lines = Vec::new();
    for id in 0..2 {
        let listener = Listener::plain().await;
        let url = format!("ami://bridge@127.0.0.1:{}", listener.port());
        let source = Source::new(
            SourceId(id),
            SourceUrl::parse(&url).expect("good"),
            Secret::Value("bridgesecret".into()),
            None,
            settings(),
            || EventTime::from_seconds(0),
        );
        assert!(source.is_live());
        counts.push(source.counts());
        let (_verdicts, reader) = verdicts();
        let never = std::future::pending();
        tokio::spawn(source.run(ends.open(), reader, never));
        lines.push(listener.accept_ami().await);
    }
    send(&mut lines[0], events(0..100).as_bytes()).await;
    wait_until("the flood", || counts[0].now().overflow == 97).await;
    // The answer to the login takes the fourth place.
    send(&mut lines[1], events(0..3).as_bytes()).await;
    wait_until("the other PBX's events", || counts[1].now().frames == 4).await;
    assert_eq!(counts[1].now().overflow, 0);
    let mut texts = Vec::new();
    while let Some((source, item)) = intake.try_next() {
        if let (SourceId(1), Item::Frame(frame)) = (source, item) {
            texts.push(String::from_utf8_lossy(&frame.bytes).into_owned());
        }
    }
    assert_eq!(texts[1..], ["Event: E0", "Event: E1", "Event: E2"]);
}

#[tokio::test]
async fn ring_is_bounded_in_bytes_as_well_as_frames() {
    let listener = Listener::plain().await;
    let url = format!("ami://bridge@127.0.0.1:{}", listener.port());
    let limits = Limits {
        live_frames: 1_000,
        live_bytes: 100,
        ..small_limits()
    };
    let mut stage = Stage::start_at(&url, settings(), limits, None);
    let mut line = listener.accept_ami().await;
    send(&mut line, events(0..10).as_bytes()).await;
    let counts = stage.counts.clone();
    // The login's answer has 51 bytes, and an event has 9. Only five events have room.
    wait_until("the overflow", || counts.now().overflow == 5).await;
    stage.expect_up().await;
    stage.text().await;
    assert_eq!(stage.text().await, "Event: E0");
}

#[tokio::test]
async fn file_waits_for_room_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ami.raw");
    std::fs::write(&path, events(0..500)).expect("written");
    let url = format!("file://{}?format=ami&from=start", path.display());
    let mut stage = Stage::start_at(&url, settings(), small_limits(), None);
    stage.expect_up().await;
    let counts = stage.counts.clone();
    wait_until("a full ring", || counts.now().frames >= 4).await;
    for n in 0..500 {
        assert_eq!(stage.text().await, format!("Event: E{n}"));
    }
    assert!(matches!(stage.next().await, Item::Idle { .. }));
    assert_eq!(stage.counts.now().overflow, 0);
}

#[tokio::test]
async fn dropped_intake_ends_the_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("ami.raw");
    std::fs::write(&path, events(0..500)).expect("written");
    let url = format!("file://{}?format=ami&from=start", path.display());
    let (ends, intake) = callbridge_source::ring(small_limits(), 1);
    let (_verdicts, reader) = callbridge_source::verdicts();
    let source = callbridge_source::Source::new(
        callbridge_source::SourceId(0),
        callbridge_source::SourceUrl::parse(&url).expect("good"),
        callbridge_source::Secret::None,
        None,
        settings(),
        || callbridge_source::EventTime::from_seconds(0),
    );
    drop(intake);
    let never = std::future::pending();
    crate::stage::within_deadline("the end", source.run(ends.open(), reader, never)).await;
}
