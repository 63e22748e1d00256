//! How fast calls go through a fleet: out of a collector's spool into a stream, out of the stream
//! into a sender's spool, and into a state that is made anew; and how long a standby takes that
//! follows a holder. Beside each stands a plainer figure of the same run, on the same node.
//!
//! `cargo bench --bench fleet` takes 20,000 calls; `-- 300000` as many as are named.

#[path = "support/table.rs"]
mod table;

use callbridge_broker::Forwarder;
use callbridge_broker::message::{body, properties};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{Address, FieldNames, Request, request};
use callbridge_fleet::lease::Terms;
use callbridge_model::{CallUuid, Heartbeat};
use callbridge_sandbox as sandbox;
use callbridge_sender::status::SenderStatus;
use callbridge_source::{BrokerUrl, Secret};
use callbridge_spool::{Finished, Op, Row, Settings, open, tables};
use callbridge_testbed::broker::{ADMINISTRATOR, Broker, SECRET, VHOST};
use callbridge_testbed::expected;
use futures_util::StreamExt as _;
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions};
use lapin::types::{AMQPValue, FieldTable};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Calls without a number in the arguments.
const CALLS: usize = 20_000;
/// Messages that the bare publisher has under way at once, as the collector.
const BATCH: usize = 500;
const TOKEN: &str = "svc_pat_bench";
/// The longest that a request can be under way, as `--standby` counts it.
const REQUEST: Duration = Duration::from_secs(35);
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
        taken_over(&node).await;
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
    let judged = serde_json::from_value(judged).expect("a verdict");
    Finished::new(judged, serde_json::from_value(call).expect("a call"))
}

fn per_second(calls: usize, took: Duration) -> String {
    format!("{:.0} calls/s", calls as f64 / took.as_secs_f64())
}

/// The most memory that a program has had, as the kernel tells.
fn peak_mib(program: &BenchedProgram) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.0.id()));
    let status = status.unwrap_or_default();
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kib = peak.and_then(|it| it.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
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
    let url = BrokerUrl::stream(&url).unwrap_or_else(|faults| panic!("{faults:?}"));
    let secret = Secret::Value(callbridge_model::Secret::from(SECRET));
    let (shown, _) = watch::channel(SenderStatus::default());
    let (stop, stopped) = oneshot::channel::<()>();
    let begun = Instant::now();
    let forwarder = Forwarder::new(&url, secret);
    let running = tokio::spawn(forwarder.run(
        handle.clone(),
        shown,
        Heartbeat::new("the forwarder"),
        async {
            let _ = stopped.await;
        },
    ));
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

/// A sender of the calls in this stream, with these flags beside the usual ones.
fn sender(node: &Broker, folder: &Path, stream: &str, flags: [&str; 3]) -> BenchedProgram {
    let secret = folder.join("secret");
    let source = format!(
        "amqp://{ADMINISTRATOR}@127.0.0.1:{}/{VHOST}?stream={stream}&format=call&secret-file={}",
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
            "--trunk",
            "city=,country=UZ",
        ])
        .args(flags)
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
    let flags = [
        "--crm-url=http://127.0.0.1:1",
        "--rate=60/60s",
        "--settle=500ms",
    ];
    let mut running = sender(node, folder.path(), "forwarded", flags);
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

/// A CRM that takes so many requests in so many seconds, and journals at once.
async fn crm(requests: u32, seconds: u64) -> sandbox::Server {
    let mut config = sandbox::Config {
        token: TOKEN.into(),
        ..sandbox::Config::default()
    };
    config.settings.rate = sandbox::window::Rate {
        requests,
        window: Duration::from_secs(seconds),
    };
    config.settings.persist_after = Duration::ZERO;
    config.settings.persist_jitter = Duration::ZERO;
    sandbox::start(config).await.expect("a sandbox")
}

fn answered(crm: &sandbox::Server) -> u64 {
    crm.admin(|core, _| core.counts().values().sum())
}

/// The message of the n-th of so many calls, which took place one after the other until `NOW`.
fn told(n: usize, calls: usize) -> (i64, Value) {
    let back = i64::try_from((calls - n) * 8).expect("days");
    let started = NOW / 1_000_000 - back;
    let told = json!({
        "pbx": format!("site-{}", n % 1_000), "id": format!("{started}.{n}"),
        "direction": "INBOUND", "trunk": "city", "phone": "901110001", "startedAt": started,
        "durationSec": 5, "answered": true, "talkSec": 4, "extension": "101", "leadId": 4001,
    });
    (started, told)
}

/// The stream has them, and so has the journal: whoever sent them is gone.
async fn sent_by_another(node: &Broker, crm: &sandbox::Server, stream: &str, calls: usize) {
    make(node, stream).await;
    for from in (0..calls).step_by(10_000) {
        let all = (from..calls.min(from + 10_000)).map(|n| told(n, calls).1.to_string());
        node.publish(stream, &all.collect::<Vec<_>>()).await;
    }
    let address = Address::parse("http://127.0.0.1:1").expect("loopback");
    crm.admin(|core, _| {
        for n in 0..calls {
            let (started, told) = told(n, calls);
            let Finished { mut judged, .. } = call(n);
            let text = |name: &str| told[name].as_str().expect("a text");
            let uuid = expected::uuid(text("pbx"), text("id"));
            judged.record.uuid = Some(CallUuid(uuid.parse().expect("a uuid")));
            judged.record.started_at = EpochSeconds::new(started);
            let body = request::submission(&judged.record, &FieldNames::default());
            let request = Request::Submit(body.expect("a lead"));
            let path = request.url(&address).path().to_owned();
            let asked = sandbox::Request::post(&path, &request.body().expect("a body"));
            let at = EventTime::from_seconds(started + 10);
            let answer = core.handle(at, &asked.with_token(TOKEN));
            assert_eq!(
                answer.status,
                200,
                "{:?}",
                String::from_utf8_lossy(&answer.body)
            );
        }
    });
    crm.admin(|core, now| core.tick(now));
    assert_eq!(crm.journal().len(), calls);
}

/// A state is empty, and made anew until it knows of each call: by pages of the journal, and then
/// by what the first one told the stream. The rate is no limit here: what is measured is ours.
async fn made_anew(node: &Broker, calls: usize) {
    let crm = crm(1_000_000, 1).await;
    sent_by_another(node, &crm, "told", calls).await;
    let alone = consumed(node, "told", calls).await;
    for way in ["by pages", "by outcomes"] {
        let folder = folder();
        let before = answered(&crm);
        let begun = Instant::now();
        let url = format!("--crm-url={}", crm.url());
        let flags = [url.as_str(), "--rate=10000/1s", "--settle=500ms"];
        let mut running = sender(node, folder.path(), "told", flags);
        until_booked(&mut running, folder.path(), "finished", calls).await;
        let read = begun.elapsed();
        until_booked(&mut running, folder.path(), "journaled", calls).await;
        let (took, asked) = (begun.elapsed(), answered(&crm) - before);
        let peak = peak_mib(&running);
        until_told(&mut running, folder.path()).await;
        drop(running);
        let measured = format!("{:.1} s, {asked} requests", took.as_secs_f64());
        let reference = format!(
            "of which the stream was read in {:.1} s (lapin alone {:.1} s); {peak} MiB at most",
            read.as_secs_f64(),
            alone.as_secs_f64()
        );
        let what = format!("an empty state remade of {calls} calls {way}");
        table::row("fleet", &what, &measured, "", &reference);
    }
    assert_eq!(crm.journal().len(), calls, "doubled");
}

/// The stream has been told of all outcomes.
async fn until_told(running: &mut BenchedProgram, folder: &Path) {
    let mut looks = tokio::time::interval(Duration::from_millis(100));
    let left = || {
        let spool = Connection::open(folder.join("state/spool.db")).ok()?;
        let left = spool.query_row("SELECT count(*) FROM outcomes", [], |row| row.get(0));
        left.ok()
    };
    while left() != Some(0_i64) {
        looks.tick().await;
        let ended = running.0.try_wait().expect("a child");
        assert!(ended.is_none(), "it ended before it told the stream");
    }
}

/// A holder with calls in hand is killed; how long until a standby that is warm asks the CRM.
async fn taken_over(node: &Broker) {
    const CALLS: usize = 2_000;
    let window = Duration::from_secs(6);
    let crm = crm(60, window.as_secs()).await;
    make(node, "leased").await;
    let all = (0..CALLS).map(|n| told(n, CALLS).1.to_string());
    node.publish("leased", &all.collect::<Vec<_>>()).await;
    let folders = [folder(), folder()];
    let url = format!("--crm-url={}", crm.url());
    let flags = [url.as_str(), "--rate=60/6s", "--standby=bench-lease"];
    let mut holder = sender(node, folders[0].path(), "leased", flags);
    until_booked(&mut holder, folders[0].path(), "finished", CALLS).await;
    let mut standby = sender(node, folders[1].path(), "leased", flags);
    until_booked(&mut standby, folders[1].path(), "finished", CALLS).await;
    until_booked(&mut holder, folders[0].path(), "journaled", 200).await;
    drop(holder);
    let begun = Instant::now();
    // What left before the kill is answered by then.
    let within = begun + Duration::from_secs(1);
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let mut asked = answered(&crm);
    while Instant::now() < within || answered(&crm) == asked {
        looks.tick().await;
        if Instant::now() < within {
            asked = answered(&crm);
        }
        let ended = standby.0.try_wait().expect("a child");
        assert!(ended.is_none(), "the standby ended");
    }
    let took = begun.elapsed();
    let silence = Terms::new(REQUEST, window).silence;
    let measured = format!("{:.1} s", took.as_secs_f64());
    let reference = format!(
        "the rule's silence: {:.1} s; beyond it {:.1} s; {} calls were ready on the standby",
        silence.as_secs_f64(),
        took.saturating_sub(silence).as_secs_f64(),
        CALLS - book(folders[1].path(), "journaled"),
    );
    let what = "kill -9 of the holder → the standby's request";
    table::row("fleet", what, &measured, "", &reference);
}
