//! Does the file stay as large as what is in it?

use super::call::{at, journal};
use crate::folder::FILE;
use crate::{Done, Handle, Op, PurgeCounts, RowId, Settings, Step, open, tables};
use callbridge_model::TokenFingerprint;
use callbridge_testkit::Wait as _;
use std::path::Path;

const MONTH: i64 = 30 * 24 * 3600;
const MEGABYTE: usize = 1 << 20;

fn length(dir: &Path, suffix: &str) -> u64 {
    let file = dir.join(format!("{FILE}{suffix}"));
    std::fs::metadata(file).map_or(0, |meta| meta.len())
}

/// SQLite writes nothing where the bytes are the same: `fill` them anew.
fn open_call(key: u64, bytes: usize, fill: u8) -> Op {
    Op::Open {
        pbx: "pbx1".into(),
        key,
        snapshot: (bytes > 0).then(|| vec![fill; bytes]),
    }
}

fn purge(handle: &Handle, seconds: i64) -> PurgeCounts {
    let now = at(seconds);
    let done = handle.write(vec![Op::Purge(now)]).wait();
    match done.as_deref() {
        Ok([Done::PurgeCounts(purged)]) => *purged,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_write_ahead_log_is_cut_back_after_a_long_reader_has_gone() {
    let dir = tempfile::tempdir().expect("a folder");
    let (handle, _guard) = open(dir.path(), Settings::default()).expect("opens");
    let reader = rusqlite::Connection::open(dir.path().join(FILE)).expect("opens");
    reader
        .execute_batch("BEGIN; SELECT * FROM meta")
        .expect("a reader");
    for n in 0..40_u8 {
        let op = open_call(u64::from(n) % 4, MEGABYTE, n);
        handle.write(vec![op]).wait().expect("stored");
    }
    assert!(length(dir.path(), "-wal") > 40 * MEGABYTE as u64);
    reader.execute_batch("COMMIT").expect("over");
    for n in 0..24_u8 {
        let op = open_call(u64::from(n) % 4, MEGABYTE, n);
        handle.write(vec![op]).wait().expect("stored");
    }
    let left = length(dir.path(), "-wal");
    assert!(left <= 18 * MEGABYTE as u64, "{left} bytes are left");
}

#[test]
fn room_that_is_free_is_given_back_while_the_purge_works() {
    let dir = tempfile::tempdir().expect("a folder");
    let (handle, guard) = open(dir.path(), Settings::default()).expect("opens");
    for key in 0..40 {
        let op = open_call(key, MEGABYTE, 7);
        handle.write(vec![op]).wait().expect("stored");
    }
    let full = length(dir.path(), "");
    for key in 0..40 {
        handle
            .write(vec![open_call(key, 0, 7)])
            .wait()
            .expect("stored");
    }
    for _ in 0..10 {
        purge(&handle, 0);
    }
    guard.close();
    let left = length(dir.path(), "");
    assert!(
        full > 30 * MEGABYTE as u64 && left < 20 * MEGABYTE as u64,
        "{full} {left}"
    );
}

/// A day of many calls a month ago, and one old call that was given up.
#[test]
fn a_backlog_of_the_purge_is_worked_off_in_bounded_rounds() {
    let dir = tempfile::tempdir().expect("a folder");
    let (handle, _guard) = open(dir.path(), Settings::default()).expect("opens");
    let calls = 1_200;
    let finish = (0..calls).map(|n| Op::Finish(Box::new(journal(n))));
    handle.write(finish.collect()).wait().expect("stored");
    let steps = [
        Step::Send,
        Step::Accepted {
            request_id: "r".into(),
            token: TokenFingerprint::of("token"),
        },
        Step::Journaled(crate::OutcomeSource::Confirmation),
    ];
    for step in steps {
        let all = (1..=i64::from(calls)).map(|row| Op::Step {
            row: RowId(row),
            step: step.clone(),
            at: at(0),
        });
        handle.write(all.collect()).wait().expect("steps");
    }
    let books = handle
        .read(|store| Ok(store.books()))
        .wait()
        .expect("books");
    let (mut rounds, mut gone) = (0, 0);
    loop {
        let purged = purge(&handle, MONTH + 100_000);
        rounds += 1;
        gone += purged.calls;
        assert!(
            purged.calls <= 500 && purged.seen_calls <= 2_000,
            "{purged:?}"
        );
        if !purged.more {
            break;
        }
    }
    assert_eq!((gone, rounds), (u64::from(calls), 3));
    let read = handle
        .read(|store| Ok((store.books(), tables::books::recount(store)?)))
        .wait();
    let (after, recount) = read.expect("readable");
    assert_eq!(after, books, "the books outlive the rows");
    assert_eq!(recount, []);
}
