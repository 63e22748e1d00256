//! Durable intake: finished calls into the spool, compared with bare synced writes and bare SQLite
//! with the same bytes, in the same run.
//!
//! `cargo bench --bench intake` prints a table. `-- CALLS` sets the number of calls (default:
//! 50,000). `-- --only TEXT` leaves out the lines without that text.

#[path = "support/table.rs"]
mod table;

use callbridge_call::FinishedCall;
use callbridge_model::{CallUuid, Judged};
use callbridge_spool::{Finished, Op, Settings, open};
use callbridge_testkit::Wait as _;
use rusqlite::Connection;
use serde_json::json;
use std::fs::{File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

const GROUP: usize = 256;
/// Calls that are written one at a time. Each call waits for the disk.
const SINGLE: usize = 500;

/// Makes the n-th call, as large as the median call of the recordings: two channels, one lead,
/// eight reasons.
fn call(n: usize) -> Finished {
    let linkedid = format!("1795151317.{}", n * 2);
    let alias = format!("1795151317.{}", n * 2 + 1);
    let started = 1_795_151_317_000_000 + n as i64 * 1_000;
    let values = [
        "direction",
        "answered",
        "trunk",
        "number",
        "employee",
        "startedAt",
        "durationSec",
        "talk",
    ];
    let decided_by = values.map(|value| {
        json!({
            "value": value, "at": started, "channel": "PJSIP/city-0000004f",
            "message": "BridgeEnter into bridge 4a1f with PJSIP/101-00000050",
        })
    });
    let call: FinishedCall = serde_json::from_value(json!({
        "linkedid": linkedid, "also_known_as": [linkedid, alias],
        "direction": "INBOUND", "answered": true, "trunk": "city",
        "number": {"text": "998901110001", "from_dial_string": false}, "employee": "101",
        "employees_in_order": ["101"], "started": started, "ended": started + 5_000_000,
        "talk": {"secs": 4, "nanos": 150_000_000},
        "variables": [{"name": "LEAD_ID", "values": ["4001"]}],
        "userfields": [], "incomplete": null, "estimate": false, "live": true, "remarks": [],
        "decided_by": decided_by,
    }))
    .expect("a call");
    let uuid = uuid::Uuid::new_v5(&uuid::Uuid::nil(), linkedid.as_bytes());
    let judged: Judged = serde_json::from_value(json!({
        "record": {
            "uuid": CallUuid(uuid), "linkedid": linkedid, "pbx": "pbx1",
            "direction": "INBOUND", "answered": true, "leadId": 4001, "trunk": "city",
            "clientPhone": "+998901110001", "employee": "101", "employeeId": 501,
            "employeesInOrder": ["101"], "startedAt": started / 1_000_000, "durationSec": 5,
            "talkTimeSec": 4, "incomplete": false, "estimate": false,
        },
        "outcome": "journal", "reason": null, "message": "", "live": true, "remarks": [],
        "judged_at": started + 5_500_000,
    }))
    .expect("a verdict");
    Finished::new(judged, call)
}

/// Returns the texts of a call that any storage must keep.
fn stored_texts(call: &Finished) -> (String, String) {
    let record = serde_json::to_string(&call.judged.record).expect("JSON");
    (record, serde_json::to_string(&call.call).expect("JSON"))
}

/// Measures `write` and `fdatasync` of each group. If `in_place`, the writes overwrite an existing
/// file.
fn bare_writes(path: &Path, calls: &[Finished], group: usize, in_place: bool) -> Duration {
    let chunks: Vec<Vec<u8>> = calls
        .chunks(group)
        .map(|calls| {
            let texts = calls.iter().map(stored_texts);
            texts
                .flat_map(|(a, b)| [a.into_bytes(), b.into_bytes()].concat())
                .collect()
        })
        .collect();
    let mut file: File = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .open(path)
        .expect("a file");
    if in_place {
        for chunk in &chunks {
            file.write_all(chunk).expect("written");
        }
        file.sync_all().expect("synced");
        file.seek(SeekFrom::Start(0)).expect("back");
    }
    let began = Instant::now();
    for chunk in &chunks {
        file.write_all(chunk).expect("written");
        file.sync_data().expect("synced");
    }
    began.elapsed()
}

/// Measures SQLite: one rowid table with a unique uuid, one transaction per group, and a prepared
/// statement.
fn bare_sqlite(path: &Path, calls: &[Finished], group: usize) -> Duration {
    let db = Connection::open(path).expect("opens");
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE calls (id INTEGER PRIMARY KEY, uuid BLOB, record TEXT, call TEXT) STRICT;
         CREATE UNIQUE INDEX calls_uuid ON calls(uuid);",
    )
    .expect("a table");
    let rows: Vec<_> = calls
        .iter()
        .map(|call| {
            (
                call.judged.record.uuid.expect("a uuid").0.into_bytes(),
                stored_texts(call),
            )
        })
        .collect();
    let mut insert = db
        .prepare("INSERT INTO calls (uuid, record, call) VALUES (?1, ?2, ?3)")
        .expect("a statement");
    let began = Instant::now();
    for rows in rows.chunks(group) {
        db.execute_batch("BEGIN IMMEDIATE").expect("begun");
        for (uuid, (record, call)) in rows {
            insert.execute((uuid, record, call)).expect("a row");
        }
        db.execute_batch("COMMIT").expect("committed");
    }
    began.elapsed()
}

/// Measures the spool: two producers with requests of `group` calls, or one producer if `group` is
/// 1.
fn spool(dir: &Path, calls: Vec<Finished>, group: usize) -> Duration {
    let (handle, guard) = open(dir, Settings::default()).expect("opens");
    let producers = if group == 1 { 1 } else { 2 };
    let mut requests: Vec<Vec<Vec<Op>>> = vec![Vec::new(); producers];
    let ops: Vec<Op> = calls
        .into_iter()
        .map(|call| Op::Finish(Box::new(call)))
        .collect();
    for (at, ops) in ops.chunks(group).enumerate() {
        requests[at % producers].push(ops.to_vec());
    }
    let began = Instant::now();
    std::thread::scope(|scope| {
        for requests in requests {
            let handle = handle.clone();
            scope.spawn(move || {
                for request in requests {
                    handle.write(request).wait().expect("stored");
                }
            });
        }
    });
    let took = began.elapsed();
    guard.close();
    took
}

/// Runs a measurement and prints its result, if its name contains `only`. Returns the calls per
/// second as text.
fn line(name: &str, only: &str, calls: usize, measure: impl FnOnce() -> Duration) -> String {
    if !name.contains(only) {
        return "not measured".to_owned();
    }
    let seconds = measure().as_secs_f64();
    println!(
        "{name:<44} {:>10.0} {:>10.1}",
        calls as f64 / seconds,
        seconds * 1e6 / calls as f64
    );
    format!("{:.0} calls/s", calls as f64 / seconds)
}

/// Runs the bench that the module describes.
pub fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asked = args.iter().find_map(|text| text.parse().ok());
    let only = args.iter().position(|text| text == "--only");
    let only = only
        .and_then(|at| args.get(at + 1))
        .map_or("", String::as_str);
    let total: usize = asked.unwrap_or(50_000);
    let calls: Vec<Finished> = (0..total).map(call).collect();
    let single = &calls[..SINGLE.min(total)];
    let (record, facts) = stored_texts(&calls[0]);
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    println!("{total} calls of {} bytes", record.len() + facts.len());
    println!("{:<44} {:>10} {:>10}", "", "calls/s", "µs/call");
    let groups = [
        (GROUP, "groups of 256", &calls[..]),
        (1, "one at a time", single),
    ];
    for (group, words, calls) in groups {
        let n = calls.len();
        let name = format!("{words}: write + fdatasync, appending");
        let appended = line(&name, only, n, || {
            bare_writes(&dir.path().join("append"), calls, group, false)
        });
        let name = format!("{words}: write + fdatasync, in place");
        line(&name, only, n, || {
            bare_writes(&dir.path().join("in_place"), calls, group, true)
        });
        let file = dir.path().join(format!("bare{group}.db"));
        let name = format!("{words}: bare SQLite");
        let bare = line(&name, only, n, || bare_sqlite(&file, calls, group));
        let state = dir.path().join(format!("spool{group}"));
        let name = format!("{words}: the spool");
        let ours = line(&name, only, n, || spool(&state, calls.to_vec(), group));
        let plain = format!("bare SQLite: {bare}; write + fdatasync: {appended}");
        let what = format!("calls into the spool, {words}");
        table::row("intake", &what, &ours, "", &plain);
    }
}
