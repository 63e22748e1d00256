//! How fast calls go through a fleet: out of a collector's spool into a stream, out of the stream
//! into a sender's spool, and into a state that is made anew. Beside each stands the same by lapin
//! alone, on the same RabbitMQ node, in the same run.
//!
//! `cargo bench --bench fleet` takes 20,000 calls; `-- 300000` as many as are named.

#[path = "support/table.rs"]
mod table;

use callbridge_forward::Forwarder;
use callbridge_forward::message::{body, properties};
use callbridge_model::heartbeat::Pulse;
use callbridge_sandbox as sandbox;
use callbridge_sender::status::SenderStatus;
use callbridge_source::Secret;
use callbridge_source::url::StreamUrl;
use callbridge_spool::{Finished, Op, Row, Settings, open, tables};
use callbridge_testbed::broker::{ADMINISTRATOR, Broker, SECRET, VHOST};
use futures_util::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use rusqlite::Connection;
use serde_json::json;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Calls without a number in the arguments.
const CALLS: usize = 20_000;
/// Messages that the bare publisher has under way at once, as the collector.
const BATCH: usize = 500;
const TOKEN: &str = "svc_pat_bench";
const NOW: i64 = 1_795_151_317_000_000;

/// See the module.
pub fn main() {
    let words = std::env::args().skip(1);
    let calls = { words }.find_map(|word| word.parse().ok());
    let calls = calls.unwrap_or(CALLS);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let node = Broker::start();
    runtime.block_on(async {
        forwarded(&node, calls).await;
        into_spool(&node, calls).await;
        made_anew(&node, calls).await;
    });
}

/// The n-th call of a PBX of its own, ready to be sent.
fn call(n: usize) -> Finished {
    let linkedid = format!("1795151317.{n}");
    let uuid = uuid::Uuid::new_v5(&uuid::Uuid::nil(), linkedid.as_bytes());
    let call = json!({
        "linkedid": linkedid, "also_known_as": [linkedid], "direction": "INBOUND",
        "answered": true, "trunk": "city", "number": {"text": "998901110001",
        "from_dial_string": false}, "employee": "101", "employees_in_order": ["101"],
        "started": NOW, "ended": NOW + 5_000_000, "talk": {"secs": 4, "nanos": 150_000_000},
        "variables": [], "userfields": [], "incomplete": null, "estimate": false, "live": true,
        "remarks": [], "why": [],
    });
    let judged = json!({
        "record": {
            "uuid": uuid, "linkedid": linkedid, "pbx": format!("site-{}", n % 1_000),
            "direction": "INBOUND", "answered": true, "leadId": 4001, "trunk": "city",
            "clientPhone": "+998901110001", "employee": "101", "employeeId": 501,
            "employeesInOrder": ["101"], "startedAt": NOW / 1_000_000, "durationSec": 5,
            "talkTimeSec": 4, "incomplete": false, "estimate": false,
        },
        "outcome": "journal", "reason": null, "message": "", "live": true, "remarks": [],
        "judged_at": NOW,
    });
    Finished {
        judged: serde_json::from_value(judged).expect("a verdict"),
        call: serde_json::from_value(call).expect("a call"),
    }
}

fn per_second(calls: usize, took: Duration) -> String {
    format!("{:.0} calls/s", calls as f64 / took.as_secs_f64())
}

/// A place for a state and secrets.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("secret"), SECRET).expect("written");
    std::fs::write(folder.path().join("token"), TOKEN).expect("written");
    folder
}

/// A collector's spool full of calls until all are confirmed, beside a bare publisher of the same
/// messages.
async fn forwarded(node: &Broker, calls: usize) {
    let folder = folder();
    let (handle, guard) = open(&folder.path().join("state"), Settings::default()).expect("opens");
    for from in (0..calls).step_by(256) {
        let group = (from..calls.min(from + 256)).map(|n| Op::Finish(Box::new(call(n))));
        handle.write(group.collect()).await.expect("stored");
    }
    let one = handle.read(|store| tables::calls::ready(store, 1)).await;
    let one = one.expect("readable").pop().expect("a call");
    let bare = published(node, "bare", &one, calls).await;
    let url = format!("{}?stream=forwarded&declare=yes", node.url(ADMINISTRATOR));
    let url = StreamUrl::parse(&url).unwrap_or_else(|faults| panic!("{faults:?}"));
    let secret = Secret::Value(callbridge_model::secret::Secret::from(SECRET));
    let (shown, _) = watch::channel(SenderStatus::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let begun = Instant::now();
    let forwarder = Forwarder::new(&url, secret);
    let running =
        tokio::spawn(
            forwarder.run(handle.clone(), shown, Pulse::new("the forwarder"), async {
                let _ = stopped.await;
            }),
        );
    let mut changed = handle.changed();
    let wanted = u64::try_from(calls).expect("few");
    while handle
        .read(|store| Ok(store.books()))
        .await
        .expect("books")
        .forwarded
        < wanted
    {
        changed.mark_unchanged();
        let _ = tokio::time::timeout(Duration::from_millis(50), changed.changed()).await;
    }
    let took = begun.elapsed();
    let _ = stop.send(());
    running.await.expect("it ends");
    drop(handle);
    guard.close();
    let measured = per_second(calls, took);
    let reference = format!("lapin alone, {BATCH} at once: {}", per_second(calls, bare));
    table::row(
        "fleet",
        "forwarded, confirmed, marked",
        &measured,
        "",
        &reference,
    );
}

/// The same message so many times by lapin alone, each confirmed.
async fn published(node: &Broker, stream: &str, row: &Row, calls: usize) -> Duration {
    make(node, stream).await;
    let (_connection, channel) = node.channel().await;
    let (body, properties) = (body(row), properties(row, ADMINISTRATOR));
    let begun = Instant::now();
    for from in (0..calls).step_by(BATCH) {
        let mut confirms = Vec::new();
        for _ in from..calls.min(from + BATCH) {
            let options = BasicPublishOptions {
                mandatory: true,
                ..BasicPublishOptions::default()
            };
            let (exchange, key, properties) = ("".into(), stream.into(), properties.clone());
            let sent = channel.basic_publish(exchange, key, options, body.as_bytes(), properties);
            confirms.push(sent.await.expect("sent"));
        }
        for confirm in confirms {
            confirm.await.expect("confirmed");
        }
    }
    begun.elapsed()
}

async fn make(node: &Broker, stream: &str) {
    let mut arguments = FieldTable::default();
    let kind = AMQPValue::LongString("stream".into());
    arguments.insert("x-queue-type".into(), kind);
    node.declare_with(stream, arguments).await;
}

/// So many messages of a stream by lapin alone.
async fn consumed(node: &Broker, stream: &str, calls: usize) -> Duration {
    let (_connection, channel) = node.channel().await;
    let qos = channel.basic_qos(1_000, BasicQosOptions::default());
    qos.await.expect("a prefetch");
    let mut arguments = FieldTable::default();
    let first = AMQPValue::LongString("first".into());
    arguments.insert("x-stream-offset".into(), first);
    let begun = Instant::now();
    let options = BasicConsumeOptions::default();
    let consumer = channel.basic_consume(stream.into(), "bench".into(), options, arguments);
    let mut consumer = consumer.await.expect("a consumer");
    let mut last = None;
    for n in 1..=calls {
        let delivery = consumer.next().await.expect("more").expect("a message");
        if n % 250 == 0 {
            let all = BasicAckOptions { multiple: true };
            delivery.ack(all).await.expect("acknowledged");
        }
        last = Some(delivery);
    }
    drop(last);
    begun.elapsed()
}

/// A program, ended with this.
struct BenchedProgram(Child);

impl Drop for BenchedProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sender(node: &Broker, folder: &Path, crm: &str, rate: &str) -> BenchedProgram {
    let secret = folder.join("secret");
    let source = format!(
        "amqp://{ADMINISTRATOR}@127.0.0.1:{}/{VHOST}?stream=forwarded&format=call&secret-file={}",
        node.port(),
        secret.display()
    );
    let child = Command::new(env!("CARGO_BIN_EXE_callbridge"))
        .args([
            "run",
            "--log",
            "error",
            "--source",
            &source,
            "--crm-url",
            crm,
        ])
        .args(["--trunk", "city=,country=UZ", "--rate", rate])
        .arg("--token-file")
        .arg(folder.join("token"))
        .arg("--state")
        .arg(folder.join("state"))
        .stdout(Stdio::null())
        .spawn();
    BenchedProgram(child.expect("the program starts"))
}

/// How many calls the state in this folder has in this book.
fn book(folder: &Path, name: &str) -> usize {
    let Ok(spool) = Connection::open(folder.join("state/spool.db")) else {
        return 0;
    };
    let asked = spool.query_row("SELECT count FROM books WHERE name = ?1", [name], |row| {
        row.get::<_, i64>(0)
    });
    asked.map_or(0, |calls| usize::try_from(calls).expect("a count"))
}

async fn until_booked(running: &mut BenchedProgram, folder: &Path, name: &str, calls: usize) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    while book(folder, name) < calls {
        looks.tick().await;
        let ended = running.0.try_wait().expect("a child");
        assert!(ended.is_none(), "it ended before {calls} calls were {name}");
    }
}

/// The program from its start until all of the stream is in its spool; the CRM is away.
async fn into_spool(node: &Broker, calls: usize) {
    let bare = consumed(node, "forwarded", calls).await;
    let folder = folder();
    let begun = Instant::now();
    let mut running = sender(node, folder.path(), "http://127.0.0.1:1", "60/60s");
    until_booked(&mut running, folder.path(), "finished", calls).await;
    let took = begun.elapsed();
    drop(running);
    let measured = per_second(calls, took);
    let reference = format!("lapin alone: {}", per_second(calls, bare));
    table::row(
        "fleet",
        "stream → spool, from the start",
        &measured,
        "",
        &reference,
    );
}

/// All calls stand in the journal; a state made anew until it knows of each.
async fn made_anew(node: &Broker, calls: usize) {
    // As fast as a CRM without a limit takes them: what is measured is ours.
    let mut config = sandbox::Config {
        token: TOKEN.into(),
        ..sandbox::Config::default()
    };
    config.settings.rate = sandbox::window::Rate {
        requests: 1_000_000,
        window: Duration::from_secs(1),
    };
    config.settings.persist_after = Duration::ZERO;
    config.settings.persist_jitter = Duration::ZERO;
    let crm = sandbox::start(config).await.expect("a sandbox");
    let mut times = Vec::new();
    for _ in 0..2 {
        let folder = folder();
        let before = crm.admin(|core, _| core.counts().values().sum::<u64>());
        let begun = Instant::now();
        let mut running = sender(node, folder.path(), &crm.url(), "10000/1s");
        until_booked(&mut running, folder.path(), "journaled", calls).await;
        let after = crm.admin(|core, _| core.counts().values().sum::<u64>());
        times.push((begun.elapsed(), after - before));
        drop(running);
    }
    let [(first, asked_first), (anew, asked)] = times[..] else {
        return;
    };
    let measured = format!("{:.1} s, {asked} requests", anew.as_secs_f64());
    let reference = format!(
        "the first state: {:.1} s, {asked_first} requests",
        first.as_secs_f64()
    );
    let what = format!("an empty state remade of {calls} calls");
    table::row("fleet", &what, &measured, "", &reference);
}
