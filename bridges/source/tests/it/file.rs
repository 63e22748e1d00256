//! Tests of a file in a running source: states, positions, restart, and pause. The tests of the
//! follower check changes to log files.

use crate::stage::{Stage, settings};
use callbridge_source::{FilePosition, Item, Limits, Outage};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

struct Log {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Log {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cel.csv");
        Self {
            _folder: folder,
            path,
        }
    }

    fn write(&self, text: &str) {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path);
        file.expect("opens")
            .write_all(text.as_bytes())
            .expect("written");
    }

    fn url(&self, from: &str) -> String {
        format!("file://{}?format=cel-csv&from={from}", self.path.display())
    }
}

async fn next_idle_position(stage: &mut Stage) -> FilePosition {
    match stage.next().await {
        Item::Idle { position } => position,
        other => panic!("{other:?} before the end"),
    }
}

#[tokio::test]
async fn file_is_idle_at_its_end_and_then_followed() {
    let log = Log::new();
    log.write("a\nb\n");
    let mut stage = Stage::start(&log.url("start"), settings());
    stage.expect_up().await;
    assert_eq!(stage.text().await, "a");
    let frame = stage.frame().await;
    let Some(position) = frame.position else {
        panic!("a frame of a file has a place in it");
    };
    assert_eq!(
        (&frame.bytes[..], frame.seq, position.offset),
        (&b"b"[..], 2, 4)
    );
    assert_eq!(next_idle_position(&mut stage).await, position);
    log.write("c\n");
    assert_eq!(stage.text().await, "c");
    assert_eq!(next_idle_position(&mut stage).await.offset, 6);
    assert_eq!(stage.stop().await, []);
}

#[tokio::test]
async fn missing_file_is_reported_once_and_read_when_created() {
    let log = Log::new();
    let mut stage = Stage::start(&log.url("end"), settings());
    assert!(
        stage
            .next_outage_reason()
            .await
            .contains("no such file; callbridge waits for it")
    );
    // Another source waits for at least one poll per line, so the missing file is polled, too.
    let other = Log::new();
    other.write("x\n");
    let mut witness = Stage::start(&other.url("start"), settings());
    witness.expect_up().await;
    for _ in 0..5 {
        assert_eq!(witness.text().await, "x");
        next_idle_position(&mut witness).await;
        other.write("x\n");
    }
    log.write("a\n");
    stage.expect_up().await;
    assert_eq!(stage.text().await, "a");
}

#[tokio::test]
async fn renamed_file_is_still_read_and_up_when_renamed_back() {
    let log = Log::new();
    log.write("a\n");
    let mut stage = Stage::start(&log.url("start"), settings());
    stage.expect_up().await;
    assert_eq!(stage.text().await, "a");
    next_idle_position(&mut stage).await;
    let away = log.path.with_extension("away");
    std::fs::rename(&log.path, &away).expect("renamed");
    let item = stage.next().await;
    let Item::Down(Outage { is_absent, .. }) = item else {
        panic!("{item:?} instead of the reason");
    };
    assert!(is_absent);
    let file = OpenOptions::new().append(true).open(&away);
    file.expect("opens").write_all(b"b\n").expect("written");
    assert_eq!(stage.text().await, "b");
    std::fs::rename(&away, &log.path).expect("renamed");
    stage.expect_up().await;
    assert_eq!(next_idle_position(&mut stage).await.offset, 4);
}

#[tokio::test]
async fn restart_from_a_stored_position_reads_only_the_rest() {
    let log = Log::new();
    log.write("a\nb\nc\n");
    let mut stage = Stage::start(&log.url("start"), settings());
    stage.expect_up().await;
    stage.text().await;
    let committed = stage.frame().await.position;
    drop(stage);
    let again = Stage::start_at(&log.url("start"), settings(), Limits::default(), committed);
    let mut stage = again;
    stage.expect_up().await;
    assert_eq!(stage.text().await, "c");
}

#[tokio::test]
async fn pause_stops_reading_until_it_ends() {
    let log = Log::new();
    let mut stage = Stage::start(&log.url("start"), settings());
    stage.next_outage_reason().await;
    stage.verdicts.pause(true);
    log.write("a\n");
    let other = Log::new();
    other.write("x\n");
    // During the pause, another source reads its whole file.
    let mut witness = Stage::start(&other.url("start"), settings());
    witness.expect_up().await;
    witness.text().await;
    next_idle_position(&mut witness).await;
    assert_eq!(stage.counts.now().frames, 0);
    stage.verdicts.pause(false);
    loop {
        match stage.next().await {
            Item::Frame(frame) => break assert_eq!(&frame.bytes[..], b"a"),
            Item::Up => {}
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn folder_in_place_of_a_file_is_reported() {
    let log = Log::new();
    std::fs::create_dir(&log.path).expect("made");
    let mut stage = Stage::start(&log.url("start"), settings());
    let why = stage.next_outage_reason().await;
    assert!(
        why.contains(Path::new("cel.csv").to_str().expect("text")),
        "{why}"
    );
    assert!(why.contains("not a regular file"), "{why}");
}
