//! Tests of records that a source can't read, and of gaps in its connection.

use super::tests::{FRAMES, SOURCE, finished_calls, intake, send_line, take_to_end};
use super::{Batch, Intake};
use callbridge_call::EventTime;
use callbridge_mapping::People;
use callbridge_model::Reason;
use callbridge_source::{Frame, RecordDetails};
use callbridge_spool::Op;

/// Creates a frame for a file that contains a single record.
fn frame_of_file(seq: u64, bytes: &str, details: RecordDetails) -> Frame {
    Frame {
        seq,
        arrived: EventTime::from_seconds(1_795_151_400),
        bytes: bytes.as_bytes().to_vec().into(),
        position: None,
        content_type: None,
        details: Some(Box::new(details)),
    }
}

fn take_frame(intake: &mut Intake, frame: &Frame) -> Batch {
    intake
        .frame(SOURCE, frame, &mut |_, _| None)
        .expect("taken");
    intake.take(&People::default(), frame.arrived)
}

fn unreadable_bytes(batch: &Batch) -> Vec<&callbridge_spool::UnreadableBytes> {
    let unread = batch.ops.iter().filter_map(|op| match op {
        Op::Unreadable(unread) => Some(unread),
        _ => None,
    });
    unread.collect()
}

#[test]
fn record_over_size_limit_is_a_dead_letter_naming_its_file() {
    let mut intake = intake();
    let details = RecordDetails {
        file: Some("/cdr/long.json".into()),
        cut_from: Some(1_258_291),
        fault: None,
    };
    // The bytes look like an event, but they aren't decoded, because the end of the record is
    // missing.
    let line = FRAMES.lines().next().expect("a frame");
    let batch = take_frame(&mut intake, &frame_of_file(1, line, details));
    let [unread] = unreadable_bytes(&batch)[..] else {
        panic!("{:?}", batch.ops)
    };
    assert_eq!(unread.file.as_deref(), Some("/cdr/long.json"));
    assert_eq!(
        (&unread.bytes[..], unread.cut_from),
        (line.as_bytes(), Some(1_258_291))
    );
    let why = "the record has 1258291 bytes, more than the limit of 1048576";
    assert!(unread.why.starts_with(why), "{}", unread.why);
    assert_eq!(intake.statuses()[0].unreadable, 1);
}

fn details_of_file() -> RecordDetails {
    RecordDetails {
        file: Some("/cdr/a.json".into()),
        ..RecordDetails::default()
    }
}

fn is_file_read(op: &Op) -> bool {
    matches!(op, Op::FileRead { file, .. } if file == "/cdr/a.json")
}

fn count_reads(batch: &Batch) -> usize {
    let reads = batch.ops.iter().filter(|op| is_file_read(op));
    reads.count()
}

#[test]
fn file_read_successfully_later_settles_its_dead_letter() {
    let mut intake = intake();
    let torn_frame = frame_of_file(1, "{\"Event\":", details_of_file());
    let torn = take_frame(&mut intake, &torn_frame);
    assert_eq!((unreadable_bytes(&torn).len(), count_reads(&torn)), (1, 0));
    let line = FRAMES.lines().next().expect("a frame");
    let whole_frame = frame_of_file(2, line, details_of_file());
    let read = take_frame(&mut intake, &whole_frame);
    assert_eq!((unreadable_bytes(&read).len(), count_reads(&read)), (0, 1));
}

#[test]
fn gap_soon_after_the_first_connection_is_counted() {
    let mut intake = intake();
    let now = EventTime::from_seconds(1_795_151_300);
    intake.up(SOURCE, now);
    intake.gap(SOURCE, "a message was discarded", now);
    assert_eq!(intake.statuses()[0].gaps, 1);
}

/// Sends the recording, with a frame in the middle that's cut off after the unique ID `id`. Returns
/// `true` if the call is an `incomplete` dead letter.
fn is_incomplete_after(id: &str) -> bool {
    let lines: Vec<&str> = FRAMES.lines().collect();
    let mut intake = intake();
    for (seq, line) in (1..).zip(&lines) {
        if seq == lines.len() as u64 / 2 {
            let torn = format!("{{\"Event\":\"BridgeLeave\",\"Uniqueid\":\"{id}\",\"Cha");
            send_line(&mut intake, 2 * seq - 1, &torn);
        }
        send_line(&mut intake, 2 * seq, line);
    }
    let batch = take_to_end(&mut intake);
    let calls = finished_calls(&batch);
    assert_eq!(calls.len(), 1);
    let judged = &calls[0].judged;
    assert_eq!(
        judged.record.incomplete,
        judged.reason == Some(Reason::Incomplete)
    );
    judged.record.incomplete
}

#[test]
fn call_named_by_an_unreadable_frame_is_a_dead_letter() {
    assert!(is_incomplete_after("1795151317.146"));
    assert!(!is_incomplete_after("1795151317.145"));
}
