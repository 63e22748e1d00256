//! The spool with many rows. The cost of an operation and the memory of the daemon must not depend
//! on the number of rows.
//!
//! `cargo bench --bench spool` measures 10 thousand and 1 million rows. `-- 10000000` measures that
//! many (10 million need 12 GB of disk and some minutes). With `-- --backlog`, all rows are calls
//! that wait to be sent, instead of the mixture of an old spool.

#[path = "support/table.rs"]
mod table;

use callbridge_call::{EventTime, FinishedCall};
use callbridge_model::{Judged, TokenFingerprint};
use callbridge_spool::{
    CallFilter, Done, Finished, Guard, Handle, LetterFilter, Op, OutcomeSource, QueueQuery, RowId,
    Settings, State, Step, open, tables,
};
use callbridge_testkit::Wait as _;
use rusqlite::Connection;
use serde_json::json;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Calls stored in groups of 256 for one figure.
const GROUPED: usize = 20_480;
/// Operations of one kind that are timed, each with a separate commit or read.
const SINGLE: usize = 101;
const NOW: i64 = 1_795_151_317_000_000;

/// Makes the n-th call of a kind, with unique ids.
fn call(n: usize, kind: &str) -> Finished {
    let linkedid = format!("{kind}-1795151317.{n}");
    let uuid = uuid::Uuid::new_v5(&uuid::Uuid::nil(), linkedid.as_bytes());
    let call: FinishedCall = serde_json::from_value(json!({
        "linkedid": linkedid, "also_known_as": [linkedid, format!("{linkedid}1")],
        "direction": "INBOUND", "answered": true, "trunk": "city",
        "number": {"text": "998901110001", "from_dial_string": false}, "employee": "101",
        "employees_in_order": ["101"], "started": NOW, "ended": NOW + 5_000_000,
        "talk": {"secs": 4, "nanos": 150_000_000}, "variables": [], "userfields": [],
        "incomplete": null, "estimate": false, "live": true, "remarks": [], "decided_by": [],
    }))
    .expect("a call");
    let judged: Judged = serde_json::from_value(json!({
        "record": {
            "uuid": uuid, "linkedid": linkedid, "pbx": "pbx1", "direction": "INBOUND",
            "answered": true, "leadId": 4001, "trunk": "city", "clientPhone": "+998901110001",
            "employee": "101", "employeeId": 501, "employeesInOrder": ["101"],
            "startedAt": NOW / 1_000_000, "durationSec": 5, "talkTimeSec": 4,
            "incomplete": false, "estimate": false,
        },
        "outcome": "journal", "reason": null, "message": "", "live": true, "remarks": [],
        "judged_at": NOW,
    }))
    .expect("a verdict");
    Finished::new(judged, call)
}

fn finish(n: usize, kind: &str) -> Op {
    Op::Finish(Box::new(call(n, kind)))
}

/// 70% journaled (half of them long ago), 20% ready, 5% dead, and 5% waiting.
const MIXTURE: &str = "CASE WHEN i % 10 < 7 THEN 'journaled' WHEN i % 10 < 9 THEN 'ready'
                       WHEN i % 20 = 9 THEN 'dead' ELSE 'waiting' END";

/// Fills an empty spool with `rows` copies of one call, by SQL.
fn fill(dir: &Path, rows: usize, backlog: bool) {
    let (handle, guard) = open(dir, Settings::default()).expect("opens");
    handle.write(vec![finish(0, "@")]).wait().expect("stored");
    guard.close();
    let db = Connection::open(dir.join("spool.db")).expect("opens");
    db.execute_batch(
        "PRAGMA synchronous = OFF; PRAGMA journal_mode = OFF; PRAGMA cache_size = -200000",
    )
    .expect("fast and careless");
    let state = if backlog { "'ready'" } else { MIXTURE };
    let indices = indices(&db);
    for (name, _) in &indices {
        db.execute_batch(&format!("DROP INDEX {name}"))
            .expect("dropped");
    }
    let text = format!(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i <= {rows}),
              made AS (SELECT i, {state} AS state FROM n)
         INSERT INTO calls (id, uuid, state, live, since, pbx, turn, linkedid, trunk, direction,
                            answered, started, ended, phone, phone_ending, raw_phone, extension,
                            employee, lead, record, call, times_dead, reason)
         SELECT i, randomblob(16), made.state, i % 2,
                CASE WHEN i % 2 THEN since ELSE 0 END, pbx, turn, replace(linkedid, '@', i), trunk,
                direction, answered, started, ended, '+99890' || (i % 100000),
                substr('+99890' || (i % 100000), -4), raw_phone, extension, employee, lead,
                replace(record, '@', i), replace(call, '@', i), made.state IN ('dead', 'waiting'),
                CASE made.state WHEN 'dead' THEN 'failed' WHEN 'waiting' THEN 'no_lead' END
         FROM made, (SELECT * FROM calls WHERE id = 1) AS c"
    );
    db.execute_batch(&text).expect("filled");
    for (_, sql) in indices {
        db.execute_batch(&sql).expect("an index");
    }
    db.execute_batch(
        "INSERT OR REPLACE INTO books SELECT state, count(*) FROM calls GROUP BY state;
         INSERT OR REPLACE INTO books SELECT 'finished', count(*) FROM calls;
         INSERT INTO seen_calls SELECT 'pbx1', '1795000000.' || id, uuid, 1, started, since
             FROM calls ORDER BY 2;
         PRAGMA journal_mode = WAL;",
    )
    .expect("the books");
}

/// Returns the indices of calls, with the SQL that creates them.
fn indices(db: &Connection) -> Vec<(String, String)> {
    let mut found = db
        .prepare("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = 'calls'")
        .expect("a question");
    let rows = found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.expect("rows").map(|row| row.expect("a row")).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn median_time(mut work: impl FnMut(usize)) -> Duration {
    let mut times = Vec::with_capacity(SINGLE);
    for n in 0..SINGLE {
        let began = Instant::now();
        work(n);
        times.push(began.elapsed());
    }
    median(times)
}

/// Measures calls per second, in groups of 256.
fn measure_groups(handle: &Handle) -> f64 {
    let groups: Vec<Vec<Op>> = (0..GROUPED / 256)
        .map(|group| (0..256).map(|n| finish(group * 256 + n, "g")).collect())
        .collect();
    let began = Instant::now();
    for group in groups {
        handle.write(group).wait().expect("stored");
    }
    GROUPED as f64 / began.elapsed().as_secs_f64()
}

/// Measures the steps of a call, with one commit per step. Returns the time of one.
fn measure_steps(handle: &Handle) -> Duration {
    let stored: Vec<Op> = (0..SINGLE).map(|n| finish(n, "s")).collect();
    let rows: Vec<RowId> = handle
        .write(stored)
        .wait()
        .expect("stored")
        .into_iter()
        .map(|done| match done {
            Done::New(row) => row,
            other => panic!("{other:?}"),
        })
        .collect();
    let at = EventTime::from_micros(NOW);
    let accepted = Step::Accepted {
        request_id: "f3b0c442-98fc-4c14-9afb-f4c8996fb924".into(),
        token: TokenFingerprint::of("token"),
    };
    let way = [
        Step::Send,
        accepted,
        Step::Journaled(OutcomeSource::Confirmation),
    ];
    let each = way.map(|step| {
        median_time(|n| {
            let op = Op::Step {
                row: rows[n],
                step: step.clone(),
                at,
            };
            handle.write(vec![op]).wait().expect("a step");
        })
    });
    each.iter().sum::<Duration>() / 3
}

fn measure_head(handle: &Handle) -> Duration {
    let now = EventTime::from_micros(NOW);
    median_time(|_| {
        let ask = QueueQuery {
            now,
            tokens: vec![TokenFingerprint::of("token")],
            confirmable_before: now,
            ending_before: now,
            untried_first: false,
            suspended: callbridge_spool::SuspendedCalls::default(),
        };
        handle
            .read(move |store| tables::work_queue::head(store, &ask))
            .wait()
            .expect("a head");
    })
}

/// Measures a page from the middle of the dead letters, as `dead list` reads it.
fn measure_letters(handle: &Handle, rows: usize) -> Duration {
    let after = Some(RowId(i64::try_from(rows / 2).expect("small")));
    median_time(|_| {
        let filter = LetterFilter {
            state: Some(State::Dead),
            after,
            limit: 200,
            ..LetterFilter::default()
        };
        handle
            .read(move |store| tables::letters::letters(store, &filter))
            .wait()
            .expect("letters");
    })
}

/// Measures a page of the list of calls. The filter matches no call, so every call that one
/// page reads is compared.
fn measure_list(handle: &Handle, filter: &CallFilter) -> Duration {
    median_time(|_| {
        let filter = filter.clone();
        let (calls, next) = handle
            .read(move |store| tables::listed::list_calls(store, &filter, filter.beginning()))
            .wait()
            .expect("a page");
        assert!(calls.is_empty() && next.is_some(), "a full page of others");
    })
}

/// Prints the time of a page that is filtered by a column. The reference is a page that is filtered
/// by an extension, for which each record is read.
fn print_filtered(rows: usize, handle: &Handle) {
    let by_trunk = CallFilter {
        trunk: Some("another".to_owned()),
        ..CallFilter::default()
    };
    let by_extension = CallFilter {
        extension: Some("999".to_owned()),
        ..CallFilter::default()
    };
    let column = format!("{:.0} µs", micros(measure_list(handle, &by_trunk)));
    let record = format!(
        "from the records: {:.0} µs",
        micros(measure_list(handle, &by_extension))
    );
    let what = format!("{rows} rows: 500 of another trunk");
    table::row("spool", &what, &column, "less", &record);
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn measure_scrape(handle: &Handle) -> Duration {
    median_time(|_| {
        handle
            .read(tables::letters::dead_by_reason)
            .wait()
            .expect("reasons");
    })
}

/// Measures one round of the purge, while more rounds remain.
fn measure_purge(handle: &Handle) -> Duration {
    let now = EventTime::from_micros(NOW - 1_000_000);
    let began = Instant::now();
    let rounds = 8;
    for _ in 0..rounds {
        handle.write(vec![Op::Purge(now)]).wait().expect("purged");
    }
    began.elapsed() / rounds
}

/// Measures a daemon on that folder, with a CRM that does not answer. Returns its memory in MB.
fn measure_resident(root: &Path) -> f64 {
    let crm = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", crm.local_addr().expect("its address"));
    let (source, token) = (root.join("empty.raw"), root.join("token"));
    std::fs::write(&source, "").expect("written");
    std::fs::write(&token, "svc_pat_bench\n").expect("written");
    let given = std::env::var_os("CALLBRIDGE_PROGRAM");
    let program = given.unwrap_or_else(|| env!("CARGO_BIN_EXE_callbridge").into());
    let child = Command::new(program)
        .env_remove("CALLBRIDGE_PROGRAM")
        .args(["run", "--log", "error", "--pbx-id", "bench", "--crm-url"])
        .args([
            &url,
            "--trunk",
            "city=PJSIP/city,country=UZ,lead=var:LEAD_ID",
        ])
        .arg("--source")
        .arg(format!("file://{}?format=ami", source.display()))
        .arg("--token-file")
        .arg(&token)
        .arg("--state")
        .arg(root.join("state"))
        .stdout(Stdio::null())
        .spawn()
        .expect("the program starts");
    let mut child = Running(child);
    std::thread::sleep(Duration::from_secs(8));
    assert!(child.0.try_wait().expect("a child").is_none(), "it ended");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.0.id()));
    let status = status.expect("its status");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    let kib: f64 = kib.and_then(|kib| kib.parse().ok()).expect("a number");
    kib / 1024.0
}

/// A running program. It is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open_spool(dir: &Path) -> (Duration, Handle, Guard) {
    let began = Instant::now();
    let (handle, guard) = open(dir, Settings::default()).expect("opens");
    (began.elapsed(), handle, guard)
}

/// The figures of a spool: name, figure, and unit.
type Figures = [(&'static str, f64, &'static str); 8];

fn measure(rows: usize, backlog: bool) -> Figures {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let dir = root.path().join("state");
    fill(&dir, rows, backlog);
    let bytes = std::fs::metadata(dir.join("spool.db"))
        .expect("a file")
        .len();
    let resident = measure_resident(root.path());
    let (start, handle, guard) = open_spool(&dir);
    let per_second = measure_groups(&handle);
    let single = median_time(|n| drop(handle.write(vec![finish(n, "1")]).wait()));
    let figures = [
        ("calls in groups of 256", per_second, "/s"),
        ("one call", micros(single), " µs"),
        ("one step", micros(measure_steps(&handle)), " µs"),
        (
            "the next request (head)",
            micros(measure_head(&handle)),
            " µs",
        ),
        ("200 letters", micros(measure_letters(&handle, rows)), " µs"),
        ("letters counted", micros(measure_scrape(&handle)), " µs"),
        (
            "a round of the purge",
            micros(measure_purge(&handle)),
            " µs",
        ),
        ("a daemon's memory", resident, " MB"),
    ];
    let [_, one, step, head, letters, scrape, purge, _] = figures.map(|(_, figure, _)| figure);
    println!(
        "{rows:>9} {:>7.0} {per_second:>9.0} {one:>8.0} {step:>8.0} {head:>8.0} {letters:>9.0} \
         {scrape:>9.0} {purge:>9.0} {:>8.1} {resident:>9.1}",
        bytes as f64 / 1e6,
        start.as_secs_f64() * 1e3,
    );
    print_filtered(rows, &handle);
    guard.close();
    figures
}

fn with_unit(figure: f64, unit: &str) -> String {
    match unit {
        " MB" => format!("{figure:.1}{unit}"),
        _ => format!("{figure:.0}{unit}"),
    }
}

/// Prints the figures of the largest spool, compared with those of the smallest.
fn print_comparison(sizes: &[usize], measured: &[Figures]) {
    let (Some(most), Some(least)) = (measured.last(), measured.first()) else {
        return;
    };
    for ((what, figure, unit), (_, plain, _)) in most.iter().zip(least) {
        let (rows, few) = (sizes[sizes.len() - 1], sizes[0]);
        let what = format!("{rows} rows: {what}");
        let plain = format!("with {few} rows: {}", with_unit(*plain, unit));
        table::row(
            "spool",
            &what,
            &with_unit(*figure, unit),
            "the same",
            &plain,
        );
    }
}

/// Runs the bench that the module describes.
pub fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asked: Vec<usize> = args.iter().filter_map(|text| text.parse().ok()).collect();
    let backlog = args.iter().any(|text| text == "--backlog");
    println!(
        "{:>9} {:>7} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>8} {:>9}",
        "rows",
        "file",
        "groups of",
        "one",
        "one",
        "head",
        "200",
        "letters",
        "purge",
        "open at",
        "daemon's"
    );
    println!(
        "{:>9} {:>7} {:>9} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9} {:>8} {:>9}",
        "",
        "MB",
        "256, /s",
        "call, µs",
        "step, µs",
        "µs",
        "lett., µs",
        "count, µs",
        "round, µs",
        "start, ms",
        "memory, MB"
    );
    let sizes = if asked.is_empty() {
        vec![10_000, 1_000_000]
    } else {
        asked
    };
    let each = sizes.iter().map(|rows| measure(*rows, backlog));
    let measured: Vec<Figures> = each.collect();
    print_comparison(&sizes, &measured);
}
