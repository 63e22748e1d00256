//! How many calls a second a hub takes through `POST /v1/calls`.
//!
//! `cargo bench --bench hub` makes a hub with 1,000 branches. Each branch sends 10 requests with
//! one call, then 2 requests with 25 calls, over 20 connections at a time. The bench prints calls a
//! second and CPU seconds per 1,000 calls, with SQLite and with PostgreSQL on this machine (fsync
//! is on). The reference is a loop of `INSERT` statements with the same texts, in transactions of
//! the same size, on the same engine.

#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/table.rs"]
mod table;

use callbridge_call::EpochSeconds;
use callbridge_hub::http;
use callbridge_hub::receiver::{Receiver, Turns};
use callbridge_hub::tally::Tally;
use callbridge_hub::token::{BranchTable, hash, new_incarnation};
use callbridge_mapping::{People, Rules, Trunk};
use callbridge_model::{Secret, clock};
use callbridge_spool as spool;
use callbridge_spool::{Handle, Instance, NewBranch, Op, PostgresUrl, Settings};
use callbridge_testbed::postgres::{DATABASE, Durability, Postgres};
use callbridge_testkit::Wait as _;
use cpu::cpu;
use serde_json::json;
use std::future::pending;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const BRANCHES: usize = 1_000;
const LINES: usize = 20;

/// Requests of each branch, with the calls of each.
const ROUNDS: [(usize, usize); 2] = [(10, 1), (2, 25)];

fn token(branch: usize) -> String {
    format!("cbh_{branch:064}")
}

fn message(branch: usize, call: usize) -> String {
    json!({
        "pbx": format!("pbx{branch}"), "id": format!("1795151317.{call}"), "direction": "INBOUND",
        "trunk": "city", "phone": "+998901110001", "startedAt": 1_795_151_317 + call,
        "durationSec": 5.2, "answered": true, "talkSec": 4.1, "extension": "101",
        "extensions": ["101"], "leadId": 4001, "variables": {"LEAD_ID": "4001"},
    })
    .to_string()
}

fn request(branch: usize, body: &str) -> Vec<u8> {
    format!(
        "POST /v1/calls HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n{body}",
        token(branch),
        body.len()
    )
    .into_bytes()
}

/// The bodies of a round, each with its branch. No call comes twice.
fn bodies(round: usize) -> Vec<(usize, String)> {
    let (requests, calls) = ROUNDS[round];
    let mut all = Vec::new();
    for n in 0..requests {
        for branch in 0..BRANCHES {
            let first = round * 10_000 + n * calls;
            let lines = (first..first + calls).map(|call| message(branch, call));
            all.push((branch, lines.collect::<Vec<_>>().join("\n")));
        }
    }
    all
}

/// Sends all requests, [`LINES`] at a time, and reads each answer.
fn send(addr: SocketAddr, requests: &[Vec<u8>]) {
    let share = requests.len().div_ceil(LINES);
    std::thread::scope(|scope| {
        for requests in requests.chunks(share) {
            scope.spawn(move || {
                for request in requests {
                    let mut stream = TcpStream::connect(addr).expect("it listens");
                    stream.set_nodelay(true).expect("a socket");
                    stream.write_all(request).expect("taken");
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).expect("an answer");
                    let text = String::from_utf8_lossy(&answer);
                    assert!(answer.starts_with(b"HTTP/1.1 200"), "{text}");
                }
            });
        }
    });
}

fn fill(spool: &Handle) {
    let mut ops = vec![Op::BeginHub {
        incarnation: new_incarnation(),
        at: clock::now().wall,
    }];
    for branch in 0..BRANCHES {
        ops.push(Op::AddBranch(NewBranch {
            name: format!("branch{branch}"),
            token: hash(&Secret::from(token(branch))),
            pbxs: vec![format!("pbx{branch}")],
            at: EpochSeconds::new(1),
        }));
    }
    spool.write(ops).wait().expect("stored");
}

fn receiver(runtime: &tokio::runtime::Runtime, spool: &Handle) -> Arc<Receiver> {
    let branches = Arc::new(BranchTable::default());
    runtime
        .block_on(branches.reload(spool))
        .expect("readable branches");
    let rules = Rules {
        without_trunk: Some(Trunk::default()),
        ..Rules::default()
    };
    Arc::new(Receiver {
        spool: spool.clone(),
        rules,
        people: Arc::new(RwLock::new(Arc::new(People::default()))),
        branches,
        tally: Arc::new(Tally::default()),
        silence: Duration::from_secs(105),
        version: "bench",
        turns: Turns::default(),
    })
}

/// The reference with SQLite: the same texts into one table, in transactions of the same size.
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

/// The same with PostgreSQL, one statement after the other.
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

/// Sends all rounds to a hub over this spool. `reference` returns the calls a second of the plain
/// statements.
fn measure(
    runtime: &tokio::runtime::Runtime,
    engine: &str,
    spool: &Handle,
    to_reach: &str,
    reference: impl Fn(&[(usize, String)]) -> f64,
) {
    fill(spool);
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a port");
    let addr = listener.local_addr().expect("an address");
    let receiver = receiver(runtime, spool);
    let serving = runtime.spawn(http::serve(listener, None, receiver, pending()));
    for (round, (requests, calls)) in ROUNDS.into_iter().enumerate() {
        let bodies = bodies(round);
        let all: Vec<Vec<u8>> = bodies
            .iter()
            .map(|(branch, body)| request(*branch, body))
            .collect();
        let names = ["bench-server", "spool", "tokio"];
        let (began, before) = (Instant::now(), cpu(&names));
        send(addr, &all);
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

/// See the module.
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
    let instance = Instance::new("bench", "bench", "", clock::boot_id());
    let opened = spool::open_postgres(&url, instance, Settings::default());
    let (spool, guard) = opened.expect("a database");
    let port = server.port();
    measure(&runtime, "PostgreSQL", &spool, "500/s", |bodies| {
        runtime.block_on(postgres_inserts(port, bodies))
    });
    drop(spool);
    guard.close();
}
