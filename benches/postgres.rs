//! The spool on PostgreSQL, which syncs each commit: on the same machine, and 5 ms away.
//!
//! `cargo bench --bench postgres` starts a PostgreSQL server, and a proxy that delays each
//! direction. It measures calls per second, the work queue, a step of the sender while branches
//! flood the hub, and a takeover of a state with a million calls (`-- 100000` uses another number).

#[path = "support/branches.rs"]
mod branches;
#[path = "support/table.rs"]
mod table;

use callbridge_call::{EventTime, FinishedCall};
use callbridge_model::{Judged, TokenFingerprint};
use callbridge_spool::{
    Done, Finished, Guard, Handle, Instance, Op, PostgresUrl, QueueQuery, RowId, Settings, SlotRow,
    Step, open_postgres, tables,
};
use callbridge_testbed::postgres::{DATABASE, Durability, Postgres, ROLE};
use callbridge_testbed::proxy::Proxy;
use callbridge_testkit::Wait as _;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::NoTls;

/// The proxy's delay in each direction. Its timer adds up to a millisecond.
const DELAY: Duration = Duration::from_millis(2);
const NOW: i64 = 1_795_151_317_000_000;
/// Calls of the largest request that a branch can send.
const REQUEST_CALLS: usize = 500;
/// Operations of one kind that are timed.
const SINGLE: usize = 51;

/// Makes the n-th call of a kind. Every fourth customer was missed, and each has called `repeats`
/// times.
fn call(n: usize, kind: &str, repeats: usize) -> Finished {
    let linkedid = format!("{kind}-1795151317.{n}");
    let uuid = uuid::Uuid::new_v5(&uuid::Uuid::nil(), linkedid.as_bytes());
    let phone = format!("99890{:07}", n / repeats);
    let answered = !n.is_multiple_of(4);
    let talk = if answered { 4 } else { 0 };
    let call: FinishedCall = serde_json::from_value(json!({
        "linkedid": linkedid, "also_known_as": [linkedid, format!("{linkedid}.leg")],
        "direction": "INBOUND", "answered": answered, "trunk": "city",
        "number": {"text": phone, "from_dial_string": false}, "employee": "101",
        "employees_in_order": ["101"], "started": NOW, "ended": NOW + 5_000_000,
        "talk": {"secs": talk, "nanos": 0}, "variables": [], "userfields": [],
        "incomplete": null, "estimate": false, "live": true, "remarks": [], "decided_by": [],
    }))
    .expect("a call");
    let judged: Judged = serde_json::from_value(json!({
        "record": {
            "uuid": uuid, "linkedid": linkedid, "pbx": "pbx1", "direction": "INBOUND",
            "answered": answered, "leadId": 4001, "trunk": "city",
            "clientPhone": format!("+{phone}"),
            "employee": "101", "employeeId": 501, "employeesInOrder": ["101"],
            "startedAt": NOW / 1_000_000, "durationSec": 5, "talkTimeSec": talk,
            "incomplete": false, "estimate": false,
        },
        "outcome": "journal", "reason": null, "message": "", "live": true, "remarks": [],
        "judged_at": NOW,
    }))
    .expect("a verdict");
    Finished::new(judged, call)
}

fn finish(n: usize, kind: &str, repeats: usize) -> Op {
    Op::Finish(Box::new(call(n, kind, repeats)))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn longest(times: &[Duration]) -> Duration {
    times.iter().copied().max().unwrap_or_default()
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// A connection to the server: direct, or through the proxy.
struct Way<'a> {
    name: &'a str,
    server: &'a Postgres,
    port: u16,
    runtime: &'a Runtime,
}

impl Way<'_> {
    fn open(&self, schema: &str) -> (Handle, Guard) {
        let url = self.server.url_at(self.port, schema);
        let url = PostgresUrl::parse(&url).expect("a URL");
        let instance = Instance::new("bench", "0.1.0", "");
        let opened = open_postgres(&url, instance, Settings::default()).expect("opens");
        assert!(opened.0.leadership().borrow().is_leading());
        opened
    }

    /// Measures a round trip, and rows per second of a plain loop of `INSERT` with the same texts,
    /// in transactions of this many rows.
    fn measure_plain_inserts(&self, rows: usize) -> (Duration, f64) {
        let config = format!(
            "host=127.0.0.1 port={} user={ROLE} dbname={DATABASE}",
            self.port
        );
        self.runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&config, NoTls).await.expect("it");
            tokio::spawn(connection);
            let made = "CREATE TABLE IF NOT EXISTS plain (id BIGINT PRIMARY KEY, record TEXT,
                 call TEXT); TRUNCATE plain";
            client.batch_execute(made).await.expect("a table");
            let mut trips = Vec::new();
            for _ in 0..SINGLE {
                let began = Instant::now();
                client.batch_execute("").await.expect("answered");
                trips.push(began.elapsed());
            }
            let text = "INSERT INTO plain VALUES ($1, $2, $3)";
            let insert = client.prepare(text).await.expect("a statement");
            let Op::Finish(call) = finish(1, "plain", 1) else {
                panic!("a call");
            };
            let record = serde_json::to_string(&call.judged.record).expect("JSON");
            let facts = serde_json::to_string(&call.call).expect("JSON");
            let (began, mut id) = (Instant::now(), 0_i64);
            while began.elapsed() < Duration::from_secs(2) {
                client.batch_execute("BEGIN").await.expect("begun");
                for _ in 0..rows {
                    id += 1;
                    let values: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                        [&id, &record, &facts];
                    client.execute(&insert, &values).await.expect("stored");
                }
                client.batch_execute("COMMIT").await.expect("committed");
            }
            (median(trips), id as f64 / began.elapsed().as_secs_f64())
        })
    }

    fn row(&self, what: &str, measured: &str, to_reach: &str, reference: &str) {
        let what = format!("{}: {what}", self.name);
        println!("{what:<58} {measured:>26}   {reference}");
        table::row("postgres", &what, measured, to_reach, reference);
    }
}

/// Measures calls per second through the spool, in requests of `calls`, and the time of one
/// request.
fn measure_rate(handle: &Handle, kind: &str, calls: usize, repeats: usize) -> (f64, Duration) {
    let mut times = Vec::new();
    let (began, mut n) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(4) || times.len() < 4 {
        let ops = (n..n + calls).map(|n| finish(n, kind, repeats)).collect();
        n += calls;
        let sent_at = Instant::now();
        handle.write(ops).wait().expect("stored");
        times.push(sent_at.elapsed());
    }
    (n as f64 / began.elapsed().as_secs_f64(), median(times))
}

fn measure_writes(way: &Way<'_>, handle: &Handle) {
    for calls in [1, 25, REQUEST_CALLS] {
        let (trip, plain) = way.measure_plain_inserts(calls);
        for (repeats, customers) in [(1, "customers call once"), (50, "50 calls of each")] {
            let kind = format!("{} {calls} {repeats}", way.name);
            let (rate, time) = measure_rate(handle, &kind, calls, repeats);
            let what = format!("{calls} calls a request, {customers}");
            let measured = format!("{rate:.0}/s, {} each", ms(time));
            let reference = format!("INSERT: {plain:.0}/s, round trip {}", ms(trip));
            way.row(&what, &measured, "500/s", &reference);
        }
    }
}

fn head(handle: &Handle) -> Vec<Duration> {
    let now = EventTime::from_micros(NOW);
    let mut times = Vec::new();
    for _ in 0..SINGLE {
        let ask = QueueQuery {
            now,
            tokens: vec![TokenFingerprint::of("token")],
            confirmable_before: now,
            ending_before: now,
            untried_first: false,
            suspended: callbridge_spool::SuspendedCalls::default(),
        };
        let began = Instant::now();
        let read = handle.read(move |store| tables::work_queue::head(store, &ask));
        read.wait().expect("a work queue");
        times.push(began.elapsed());
    }
    times
}

fn store_calls(handle: &Handle, kind: &str, calls: usize) -> Vec<RowId> {
    let ops = (0..calls).map(|n| finish(n, kind, 1)).collect();
    let done = handle.write(ops).wait().expect("stored");
    let rows = done.into_iter().map(|done| match done {
        Done::New(row) => row,
        other => panic!("{other:?}"),
    });
    rows.collect()
}

fn send(row: RowId) -> Vec<Op> {
    let slot = SlotRow {
        slot: 0,
        token: TokenFingerprint::of("token"),
        boot_id: "boot".into(),
        sent: Duration::from_secs(1),
        answered: None,
        wall_sent: EventTime::from_micros(NOW),
    };
    let at = EventTime::from_micros(NOW);
    vec![Op::Slot(slot), Op::step(row, Step::Send, at)]
}

/// Measures `Send` while branches send the largest requests without a pause.
fn measure_sends_under_flood(
    way: &Way<'_>,
    handle: &Handle,
    branches: usize,
) -> (Vec<Duration>, f64) {
    let rows = store_calls(handle, &format!("{} flooded {branches}", way.name), SINGLE);
    let is_over = Arc::new(AtomicBool::new(false));
    let flooded = Arc::new(AtomicU64::new(0));
    let mut floods = Vec::new();
    for branch in 0..branches {
        let (handle, is_over, flooded) =
            (handle.clone(), Arc::clone(&is_over), Arc::clone(&flooded));
        let kind = format!("{} flood {branches} {branch}", way.name);
        floods.push(std::thread::spawn(move || {
            for request in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let calls = request * REQUEST_CALLS..(request + 1) * REQUEST_CALLS;
                let ops = calls.map(|n| finish(n, &kind, 1)).collect();
                handle.write(ops).wait().expect("stored");
                flooded.fetch_add(REQUEST_CALLS as u64, Ordering::Relaxed);
            }
        }));
    }
    let began = Instant::now();
    let mut times = Vec::new();
    for row in rows {
        let sent_at = Instant::now();
        handle.write(send(row)).wait().expect("stored");
        times.push(sent_at.elapsed());
        std::thread::sleep(Duration::from_millis(37));
    }
    let rate = flooded.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    is_over.store(true, Ordering::Relaxed);
    for flood in floods {
        flood.join().expect("stored");
    }
    (times, rate)
}

fn measure_sender(way: &Way<'_>, handle: &Handle) {
    let times = head(handle);
    let measured = format!(
        "{}, at most {}",
        ms(median(times.clone())),
        ms(longest(&times))
    );
    way.row(
        "the next request (work queue)",
        &measured,
        "3 round trips",
        "",
    );
    let rows = store_calls(handle, &format!("{} alone", way.name), SINGLE);
    let mut alone = Vec::new();
    for row in rows {
        let sent_at = Instant::now();
        handle.write(send(row)).wait().expect("stored");
        alone.push(sent_at.elapsed());
    }
    let reference = format!("alone {}", ms(median(alone)));
    for branches in [1, 4] {
        let (times, rate) = measure_sends_under_flood(way, handle, branches);
        let what = format!("Send while {branches} flood, {rate:.0} calls/s");
        let measured = format!(
            "{}, at most {}",
            ms(median(times.clone())),
            ms(longest(&times))
        );
        way.row(&what, &measured, "~100 ms", &reference);
    }
}

/// Measures calls per second through `POST /v1/calls`, in requests of several sizes.
fn measure_branches(way: &Way<'_>) {
    const BRANCHES: usize = 40;
    let (handle, guard) = way.open(&Postgres::new_schema());
    branches::add(&handle, BRANCHES);
    let (addr, serving) = branches::serve(way.runtime, &handle);
    let mut stored = 0;
    for (round, (requests, calls)) in [(20, 1), (20, 25), (4, REQUEST_CALLS)]
        .into_iter()
        .enumerate()
    {
        let bodies = branches::bodies(BRANCHES, round * 100_000, (requests, calls));
        let all = branches::requests(&bodies);
        let began = Instant::now();
        branches::send(addr, &all);
        let count = BRANCHES * requests * calls;
        let rate = count as f64 / began.elapsed().as_secs_f64();
        stored += count as u64;
        let what = format!("POST /v1/calls, {calls} calls a request");
        way.row(&what, &format!("{rate:.0}/s"), "500/s", "20 connections");
    }
    let books = handle.read(|store| Ok(store.books()));
    let finished = books.wait().expect("readable").finished;
    assert_eq!(finished, stored, "each call is stored");
    serving.abort();
    drop(handle);
    guard.close();
}

/// Fills a state with journaled calls, of which 300 are ready, by SQL.
fn fill(way: &Way<'_>, schema: &str, rows: usize) {
    let (handle, guard) = way.open(schema);
    handle
        .write(vec![finish(4, "filled", 1)])
        .wait()
        .expect("stored");
    drop(handle);
    guard.close();
    let columns = "live, since, pbx, turn, trunk, direction, answered, started, ended, raw_phone,
        extension, employee, lead, record, call, not_before";
    let page = 20_000;
    for from in (2..=rows).step_by(page) {
        let to = (from + page - 1).min(rows);
        way.server.sql(&format!(
            "SET search_path = {schema}; SET synchronous_commit = off;
             INSERT INTO calls (id, uuid, state, linkedid, phone, phone_ending, {columns})
             SELECT i, decode(md5('call ' || i), 'hex'),
                 CASE WHEN i > {rows} - 300 THEN 'ready' ELSE 'journaled' END, linkedid || i,
                 '+99890' || lpad((i % 100000)::text, 7, '0'), lpad((i % 10000)::text, 4, '0'),
                 {columns}
             FROM generate_series({from}, {to}) AS i, (SELECT * FROM calls WHERE id = 1) AS made;
             INSERT INTO seen_calls (pbx, id, uuid, is_linkedid, started, at)
             SELECT pbx, linkedid, uuid, 1, started, since FROM calls
             WHERE id BETWEEN {from} AND {to}"
        ));
    }
    way.server.sql(&format!(
        "SET search_path = {schema};
         DELETE FROM books;
         INSERT INTO books SELECT state, count(*) FROM calls GROUP BY state;
         INSERT INTO books SELECT 'finished', count(*) FROM calls;
         ANALYZE; CHECKPOINT"
    ));
}

/// The environment variable with the state that a child process of this bench takes over.
const TAKEOVER: &str = "BENCH_TAKEOVER";

/// Takes a state over in this process, and prints the times in milliseconds and the memory in MB.
fn take_over(url: &str) {
    let url = PostgresUrl::parse(url).expect("a URL");
    let instance = Instance::new("other", "0.1.0", "");
    let began = Instant::now();
    let opened = open_postgres(&url, instance, Settings::default());
    let (handle, guard) = opened.expect("opens");
    assert!(handle.leadership().borrow().is_leading());
    let opened = began.elapsed();
    let first = head(&handle)[0];
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    let kib: f64 = kib.and_then(|kib| kib.parse().ok()).expect("a number");
    println!(
        "{} {} {}",
        opened.as_secs_f64() * 1e3,
        first.as_secs_f64() * 1e3,
        kib / 1024.0
    );
    drop(handle);
    guard.close();
}

/// Measures takeovers by another process, and the memory of that process.
fn measure_takeover(way: &Way<'_>, schema: &str, rows: usize) {
    let own = std::env::current_exe().expect("this executable");
    let mut measured: Vec<Vec<f64>> = Vec::new();
    for _ in 0..5 {
        let taken = std::process::Command::new(&own)
            .env(TAKEOVER, way.server.url_at(way.port, schema))
            .output()
            .expect("it starts again");
        let text = String::from_utf8_lossy(&taken.stdout);
        let problem = String::from_utf8_lossy(&taken.stderr);
        assert!(taken.status.success(), "{problem}");
        let figures = text.split_whitespace().map(|figure| figure.parse());
        measured.push(figures.collect::<Result<_, _>>().expect("numbers"));
    }
    measured.sort_by(|one, other| one[0].total_cmp(&other[0]));
    let [opened, first, memory] = measured[measured.len() / 2][..] else {
        panic!("three figures");
    };
    let what = format!("takeover of {rows} calls");
    let measured = format!("{opened:.0} ms, {memory:.1} MB");
    let reference = format!("then the first work queue: {first:.0} ms");
    way.row(&what, &measured, "", &reference);
}

/// Runs the bench that the module describes.
pub fn main() {
    if let Ok(url) = std::env::var(TAKEOVER) {
        take_over(&url);
        return;
    }
    let mut numbers = std::env::args().filter_map(|text| text.parse().ok());
    let rows = numbers.next().unwrap_or(1_000_000);
    let server = Postgres::start(Durability::Synced, "max_wal_size = 4GB\n");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("bench-proxy")
        .enable_all()
        .build()
        .expect("a runtime");
    let proxy = runtime.block_on(Proxy::start_delayed(server.port(), DELAY));
    let mut ways = Vec::new();
    for (name, port) in [("here", server.port()), ("5 ms away", proxy.port())] {
        ways.push(Way {
            name,
            server: &server,
            port,
            runtime: &runtime,
        });
    }
    for way in &ways {
        let (handle, guard) = way.open(&Postgres::new_schema());
        measure_writes(way, &handle);
        measure_sender(way, &handle);
        drop(handle);
        guard.close();
        measure_branches(way);
    }
    let schema = Postgres::new_schema();
    fill(&ways[0], &schema, rows);
    for way in &ways {
        measure_takeover(way, &schema, rows);
    }
}
