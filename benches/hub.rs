//! How many calls a second a hub takes through `POST /v1/calls`.
//!
//! `cargo bench --bench hub` makes a hub with 1,000 branches. Each branch sends 10 requests with
//! one call, then 2 requests with 25 calls, over 20 connections at a time. The bench prints calls a
//! second and CPU seconds per 1,000 calls, with SQLite and with PostgreSQL on this machine (fsync
//! is on). The reference is a loop of `INSERT` statements with the same texts, in transactions of
//! the same size, on the same engine.

#[path = "support/branches.rs"]
mod branches;
#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/table.rs"]
mod table;

use callbridge_spool as spool;
use callbridge_spool::{Handle, Instance, PostgresUrl, Settings};
use callbridge_testbed::postgres::{DATABASE, Durability, Postgres};
use callbridge_testkit::Wait as _;
use cpu::cpu;
use std::path::Path;
use std::time::Instant;

const BRANCHES: usize = 1_000;

/// Requests of each branch, with the calls of each.
const ROUNDS: [(usize, usize); 2] = [(10, 1), (2, 25)];

/// Measures the reference with SQLite: the same texts into one table, in transactions of the same
/// size.
fn sqlite_inserts(file: &Path, bodies: &[(usize, String)]) -> f64 {
    let db = rusqlite::Connection::open(file).expect("a file");
    let made = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE IF NOT EXISTS calls (id INTEGER PRIMARY KEY, text TEXT NOT NULL)";
    db.execute_batch(made).expect("a table");
    let (began, mut calls) = (Instant::now(), 0);
    for (_, body) in bodies {
        db.execute_batch("BEGIN IMMEDIATE").expect("begun");
        for line in body.lines() {
            let mut insert = db
                .prepare_cached("INSERT INTO calls (text) VALUES (?1)")
                .expect("a statement");
            insert.execute([line]).expect("stored");
            calls += 1;
        }
        db.execute_batch("COMMIT").expect("committed");
    }
    f64::from(calls) / began.elapsed().as_secs_f64()
}

/// Measures the reference with PostgreSQL, one statement after the other.
async fn postgres_inserts(port: u16, bodies: &[(usize, String)]) -> f64 {
    let target = format!("host=127.0.0.1 port={port} user=postgres dbname={DATABASE}");
    let connected = tokio_postgres::connect(&target, tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("a session");
    tokio::spawn(connection);
    let made = "CREATE TABLE IF NOT EXISTS plain (id BIGSERIAL PRIMARY KEY, text TEXT NOT NULL)";
    client.batch_execute(made).await.expect("a table");
    let insert = client.prepare("INSERT INTO plain (text) VALUES ($1)").await;
    let insert = insert.expect("a statement");
    let (began, mut calls) = (Instant::now(), 0);
    for (_, body) in bodies {
        client.batch_execute("BEGIN").await.expect("begun");
        for line in body.lines() {
            client.execute(&insert, &[&line]).await.expect("stored");
            calls += 1;
        }
        client.batch_execute("COMMIT").await.expect("committed");
    }
    f64::from(calls) / began.elapsed().as_secs_f64()
}

/// Sends all rounds to a hub over this spool. `reference` returns the calls per second of the plain
/// statements.
fn measure(
    runtime: &tokio::runtime::Runtime,
    engine: &str,
    spool: &Handle,
    to_reach: &str,
    reference: impl Fn(&[(usize, String)]) -> f64,
) {
    branches::add(spool, BRANCHES);
    let (addr, serving) = branches::serve(runtime, spool);
    for (round, (requests, calls)) in ROUNDS.into_iter().enumerate() {
        let bodies = branches::bodies(BRANCHES, round * 10_000, (requests, calls));
        let all = branches::requests(&bodies);
        let names = ["bench-server", "spool", "tokio"];
        let (began, before) = (Instant::now(), cpu(&names));
        branches::send(addr, &all);
        let took = began.elapsed().as_secs_f64();
        let used = (cpu(&names) - before).as_secs_f64();
        let count = (BRANCHES * requests * calls) as f64;
        let rate = count / took;
        let per = used * 1_000.0 / count;
        let plain = reference(&bodies);
        let what = format!("{engine}: POST /v1/calls, {calls} calls a request");
        println!("{what:<50} {rate:>9.0} {per:>9.3}   plain INSERT {plain:>9.0}");
        let measured = format!("{rate:.0}/s, {per:.3} CPU s/1000");
        let reference = format!("INSERT and COMMIT of the texts: {plain:.0}/s");
        table::row("hub", &what, &measured, to_reach, &reference);
    }
    let books = spool.read(|store| Ok(store.books()));
    let finished = books.wait().expect("readable").finished;
    let expected: usize = ROUNDS.iter().map(|(n, calls)| BRANCHES * n * calls).sum();
    assert_eq!(finished, expected as u64, "each call is stored");
    serving.abort();
}

/// Runs the bench that the module describes.
pub fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("bench-server")
        .enable_all()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder");
    let hub = spool::open(&folder.path().join("hub"), Settings::default());
    let (spool, guard) = hub.expect("a spool");
    let file = folder.path().join("plain.db");
    measure(&runtime, "SQLite", &spool, "1,000/s", |bodies| {
        sqlite_inserts(&file, bodies)
    });
    drop(spool);
    guard.close();

    let server = Postgres::start(Durability::Synced, "");
    let url = PostgresUrl::parse(&server.url("hub")).expect("a URL");
    let instance = Instance::new("bench", "bench", "");
    let opened = spool::open_postgres(&url, instance, Settings::default());
    let (spool, guard) = opened.expect("a database");
    let port = server.port();
    measure(&runtime, "PostgreSQL", &spool, "500/s", |bodies| {
        runtime.block_on(postgres_inserts(port, bodies))
    });
    drop(spool);
    guard.close();
}
