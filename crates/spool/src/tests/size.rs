//! Tests that the file doesn't stay larger than its contents.

use super::call::{finished_call, journal, time_at};
use crate::folder::FILE;
use crate::{Done, Handle, Op, PurgeCounts, RowId, Settings, Step, open, tables};
use callbridge_model::{Outcome, TokenFingerprint};
use callbridge_testkit::Wait as _;
use std::path::Path;

const MONTH: i64 = 30 * 24 * 3600;
const MEGABYTE: usize = 1 << 20;

fn length(dir: &Path, suffix: &str) -> u64 {
    let file = dir.join(format!("{FILE}{suffix}"));
    std::fs::metadata(file).map_or(0, |meta| meta.len())
}

/// Returns the operation that stores a snapshot. SQLite doesn't write anything if the bytes stay
/// the same, so use a different `fill` each time.
fn open_call(key: u64, bytes: usize, fill: u8) -> Op {
    Op::Open {
        pbx: "pbx1".into(),
        key,
        snapshot: (bytes > 0).then(|| vec![fill; bytes]),
    }
}

fn purge(handle: &Handle, seconds: i64) -> PurgeCounts {
    let now = time_at(seconds);
    let done = handle.write(vec![Op::Purge(now)]).wait();
    match done.as_deref() {
        Ok([Done::PurgeCounts(purged)]) => *purged,
        other => panic!("{other:?}"),
    }
}

#[test]
fn write_ahead_log_is_truncated_after_a_long_reader_ends() {
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
fn purge_returns_free_space_while_it_runs() {
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
    // While the daemon is running, the file only shrinks at a checkpoint, but the page count
    // already tells how large it will be.
    let reader = rusqlite::Connection::open(dir.path().join(FILE)).expect("opens");
    let pages = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    let size: i64 = reader
        .query_row(pages, [], |row| row.get(0))
        .expect("a size");
    assert!(size < 20 << 20, "{size}");
    drop(reader);
    guard.close();
    let left = length(dir.path(), "");
    assert!(
        full > 30 * MEGABYTE as u64 && left < 20 * MEGABYTE as u64,
        "{full} {left}"
    );
}

/// Many calls were journaled on a single day a month ago, more than one purge deletes.
#[test]
fn purge_backlog_is_removed_in_bounded_rounds() {
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
            at: time_at(0),
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

fn used_bytes(db: &rusqlite::Connection) -> i64 {
    let pages = "SELECT (page_count - freelist_count) * page_size
         FROM pragma_page_count, pragma_freelist_count, pragma_page_size";
    db.query_row(pages, [], |row| row.get(0)).expect("a number")
}

#[test]
fn purged_call_row_takes_at_most_200_bytes() {
    let dir = tempfile::tempdir().expect("a folder");
    let (handle, guard) = open(dir.path(), Settings::default()).expect("opens");
    drop(handle);
    guard.close();
    let file = dir.path().join(FILE);
    let db = rusqlite::Connection::open(&file).expect("opens");
    let calls = 20_000_i64;
    let before = used_bytes(&db);
    // A PBX with a long name, whose IDs start with its system name.
    db.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO purged_calls (pbx, id, uuid, state, started)
         SELECT 'branch-tashkent-' || (i % 90 + 10),
                'pbx1-1795151317.' || i, randomblob(16), 'journaled',
                1795151317 + i FROM n ORDER BY random()",
        [calls],
    )
    .expect("remembered");
    let bytes = used_bytes(&db) - before;
    assert!(bytes / calls <= 200, "{} bytes a call", bytes / calls);
}

#[test]
fn write_ahead_log_is_bounded_after_many_calls() {
    let dir = tempfile::tempdir().expect("a folder");
    let (handle, guard) = open(dir.path(), Settings::default()).expect("opens");
    for first in 0..60 {
        let calls = (first * 256..(first + 1) * 256).map(journal);
        let calls = calls.map(|call| Op::Finish(Box::new(call)));
        handle.write(calls.collect()).wait().expect("stored");
    }
    let log = dir.path().join("spool.db-wal");
    let bytes = std::fs::metadata(log).expect("a log").len();
    assert!(bytes <= 24 << 20, "the log has {bytes} bytes");
    let internal = finished_call(1_000_000, Outcome::Internal, None);
    handle
        .write(vec![Op::Finish(Box::new(internal))])
        .wait()
        .expect("stored");
    guard.close();
}
