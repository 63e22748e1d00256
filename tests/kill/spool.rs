//! Tests that an acknowledged write is there after kill -9, that no write is partial, and that a
//! disk that refuses a write refuses the whole request.
//!
//! Each test starts this binary again as its child. [`CHILD`] has its first call and its folder.

use callbridge_call::FinishedCall;
use callbridge_model::{CallUuid, Judged};
use callbridge_spool::{Done, Error, Finished, Integrity, Op, Settings, open, tables};
use callbridge_testkit::Wait as _;
use serde_json::json;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The variable with the child's first call number and its folder.
const CHILD: &str = "CALLBRIDGE_TEST_SPOOL_CHILD";
/// Threads that write at the same time, so groups hold several requests.
const WRITERS: u32 = 4;
/// The first call number of each round is a multiple of this.
const ROUND: u32 = 100_000;

fn uuid_of(n: u32) -> CallUuid {
    CallUuid(uuid::Uuid::from_u128(u128::from(n)))
}

/// Returns the n-th call, which has some kilobytes.
fn call(n: u32) -> Finished {
    let linkedid = format!("1795151317.{n}");
    let second = i64::from(n) + 1_795_151_317;
    let event = json!({
        "value": "answered", "at": second * 1_000_000, "channel": "PJSIP/city-0000004f",
        "message": "BridgeEnter of two real parties ".repeat(8),
    });
    let call: FinishedCall = serde_json::from_value(json!({
        "linkedid": linkedid, "also_known_as": [format!("1795151317.{n}a")],
        "direction": "INBOUND", "answered": true, "trunk": "city",
        "number": {"text": "998901110001", "from_dial_string": false}, "employee": "101",
        "employees_in_order": ["101"], "started": second * 1_000_000,
        "ended": (second + 5) * 1_000_000, "talk": {"secs": 4, "nanos": 0}, "variables": [],
        "userfields": [], "incomplete": null, "estimate": false, "live": true, "remarks": [],
        "decided_by": vec![event; 10],
    }))
    .expect("a call");
    let judged: Judged = serde_json::from_value(json!({
        "record": {
            "uuid": uuid_of(n), "linkedid": linkedid, "pbx": "pbx1", "direction": "INBOUND",
            "answered": true, "leadId": 4001, "trunk": "city", "clientPhone": "+998901110001",
            "employee": "101", "employeeId": null, "employeesInOrder": ["101"],
            "startedAt": second, "durationSec": 5, "talkTimeSec": 4, "incomplete": false,
            "estimate": false,
        },
        "outcome": "journal", "reason": null, "message": "", "live": true, "remarks": [],
        "judged_at": (second + 6) * 1_000_000,
    }))
    .expect("a verdict");
    Finished::new(judged, call)
}

/// Returns one request: a call, its open state, and a count. The request is stored completely or
/// not at all.
fn request(n: u32) -> Vec<Op> {
    let open = Op::Open {
        pbx: "pbx1".into(),
        key: n.into(),
        snapshot: Some(n.to_be_bytes().to_vec()),
    };
    let count = Op::Count {
        counter: "written".into(),
        by: 1,
    };
    vec![open, Op::Finish(Box::new(call(n))), count]
}

/// Starts this binary again, to run only `test`.
fn child(test: &str, dir: &Path, first: u32) -> Child {
    Command::new(std::env::current_exe().expect("this binary"))
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{first}:{}", dir.display()))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

/// Returns the child's first call number and folder. Returns `None` in the parent.
fn child_arguments() -> Option<(u32, String)> {
    let arguments = std::env::var(CHILD).ok()?;
    let (first, dir) = arguments.split_once(':').expect("first:dir");
    Some((first.parse().expect("a number"), dir.to_owned()))
}

/// Writes calls until the process is killed. Prints the number of each call after the call is
/// acknowledged.
fn write_for_ever(first: u32, dir: &str) {
    // Another process that is just being started can hold a copy of this test's lock for a moment.
    let deadline = Instant::now() + Duration::from_secs(60);
    let (handle, _guard) = loop {
        match open(Path::new(dir), Settings::default()) {
            Err(Error::Locked { .. }) if Instant::now() < deadline => std::thread::yield_now(),
            opened => break opened.expect("opens"),
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let handle = handle.clone();
            scope.spawn(move || {
                for n in (first + writer..first + ROUND).step_by(WRITERS as usize) {
                    handle.write(request(n)).wait().expect("stored");
                    // One write per line, so lines of two threads do not mix.
                    let line = format!("answered {n}\n");
                    std::io::stdout()
                        .write_all(line.as_bytes())
                        .expect("a pipe");
                }
            });
        }
    });
}

/// Reads `answers` answers, kills the child, and reads the rest of the pipe.
fn kill_after(child: &mut Child, answers: usize) -> BTreeSet<u32> {
    let mut answered = BTreeSet::new();
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    for line in lines {
        let line = line.expect("text");
        // The line can follow output of the test harness.
        if let Some((_, n)) = line.split_once("answered ") {
            answered.insert(n.parse().expect("a number"));
            if answered.len() == answers {
                child.kill().expect("SIGKILL");
            }
        }
    }
    let status = child.wait().expect("its end");
    assert!(!status.success(), "it ended by itself");
    answered
}

/// Promise: An acknowledged write is on the disk.
#[test]
fn acknowledged_writes_survive_sigkill_and_none_is_partial() {
    if let Some((first, dir)) = child_arguments() {
        return write_for_ever(first, &dir);
    }
    let test = "kill::spool::acknowledged_writes_survive_sigkill_and_none_is_partial";
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut all = BTreeSet::new();
    for (round, answers) in (1..=24).chain([55, 144, 377, 987]).enumerate() {
        let first = u32::try_from(round).expect("small") * ROUND + 1;
        let mut child = child(test, dir.path(), first);
        all.extend(kill_after(&mut child, answers));
        assert!(all.len() >= answers, "the child answered too little");
        check(dir.path(), &all, &Integrity::Sound);
    }
}

/// Checks the child's spool: all acknowledged calls are there, each request is complete, and the
/// books balance.
fn check(dir: &Path, answered: &BTreeSet<u32>, expected: &Integrity) {
    let (handle, guard) = open(dir, Settings::default()).expect("opens after the kill");
    let restored = handle.read(|store| Ok(store.silence().is_some())).wait();
    assert_eq!(restored, Ok(false), "a file that was killed in is no copy");
    let opened = handle
        .read(|store| tables::resume::all_open_calls(store))
        .wait();
    let opened: BTreeSet<u64> = opened
        .expect("readable")
        .into_iter()
        .map(|(_, key, _)| key)
        .collect();
    for n in answered {
        assert!(
            opened.contains(&u64::from(*n)),
            "call {n} was answered and is gone"
        );
    }
    let stored = opened.len() as u64;
    let books = handle
        .read(|store| Ok((store.books(), store.counters())))
        .wait();
    let (books, counters) = books.expect("books");
    assert_eq!((books.ready, books.finished), (stored, stored));
    assert_eq!(counters.get("written"), Some(&stored));
    let wrong = handle.read(tables::books::recount).wait();
    assert_eq!(wrong.expect("a recount"), []);
    for n in opened {
        let n = u32::try_from(n).expect("ours");
        let row = handle
            .read(move |store| {
                let row = tables::calls::row_of(store, uuid_of(n))?;
                row.map_or(Ok(None), |row| tables::calls::row(store, row))
            })
            .wait();
        let row = row
            .expect("readable")
            .unwrap_or_else(|| panic!("half of call {n}"));
        assert_eq!(row.call, call(n).call);
    }
    let deadline = Instant::now() + Duration::from_secs(120);
    while handle.health().integrity == Integrity::Checking {
        assert!(Instant::now() < deadline, "the check never ends");
        handle.write(Vec::new()).wait().expect("works meanwhile");
    }
    assert_eq!(handle.health().integrity, *expected);
    guard.close();
}

/// Limits the size of files. A write beyond the limit fails, as on a full disk.
fn limit_files(bytes: Option<u64>) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Fsize);
    limit.current = bytes;
    setrlimit(Resource::Fsize, limit).expect("below the hard limit");
}

fn write_into_a_limit(dir: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        // With a handler, the signal does not end the process, and the write fails instead.
        let kind = tokio::signal::unix::SignalKind::from_raw(25);
        let _over_limit = tokio::signal::unix::signal(kind).expect("a handler");
        let (handle, _guard) = open(Path::new(dir), Settings::default()).expect("opens");
        limit_files(Some(512 * 1024));
        let mut refused = None;
        for n in 1..10_000 {
            match handle.write(request(n)).await {
                Ok(done) => assert!(matches!(done[1], Done::New(_))),
                Err(error) => {
                    refused = Some((n, error));
                    break;
                }
            }
        }
        let (n, error) = refused.expect("the limit is never met");
        assert!(error.is_retryable(), "{error:?}");
        assert!(matches!(error, Error::Disk { .. } | Error::Full { .. }));
        assert_eq!(handle.health().trouble, Some(error));
        let books = handle
            .read(|store| Ok((store.books(), tables::books::recount(store)?)))
            .await;
        let (books, recount) = books.expect("reading goes on");
        assert_eq!((books.ready, recount), (u64::from(n) - 1, vec![]));
        limit_files(None);
        let done = handle
            .write(request(n))
            .await
            .expect("it goes on by itself");
        assert!(
            matches!(done[1], Done::New(_)),
            "half of it was kept: {done:?}"
        );
        assert_eq!(handle.health().trouble, None);
        println!("answered {n}");
    });
}

#[test]
fn refused_disk_write_rejects_whole_request_and_work_resumes() {
    if let Some((_, dir)) = child_arguments() {
        return write_into_a_limit(&dir);
    }
    let test = "kill::spool::refused_disk_write_rejects_whole_request_and_work_resumes";
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let output = child(test, dir.path(), 0)
        .wait_with_output()
        .expect("its end");
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{words}");
    let (_, last) = words.split_once("answered ").expect("its last call");
    let last: u32 = last
        .lines()
        .next()
        .expect("a line")
        .parse()
        .expect("a number");
    check(dir.path(), &(1..=last).collect(), &Integrity::NotNeeded);
}
