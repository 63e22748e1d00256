//! The cost of an event, from its POST to the answer after its commit.
//!
//! `cargo bench --bench webhook` sends 5,000 `CALL_COMPLETED` events, each for a call that waits to
//! be confirmed. It sends 20 at a time (the CRM's limit per company), each over a new connection.
//! It prints events per second and CPU seconds per 1,000 events. For comparison, it measures parts:
//! the same requests to a listener that only answers, the processing without a commit, and the
//! commits without HTTP. The CPU time of the threads that send is not counted.

#[path = "support/cpu.rs"]
mod cpu;
#[path = "support/table.rs"]
mod table;

use callbridge_call::EventTime;
use callbridge_listener::body::{self, Body};
use callbridge_listener::places::ConnectionPlace;
use callbridge_listener::serve::{self, AnswerHttp, Open};
use callbridge_listener::site::SiteRules;
use callbridge_model::webhook_signature::Key;
use callbridge_model::{Secret, SecretPlace, TokenFingerprint};
use callbridge_spool as spool;
use callbridge_spool::{Handle, Op, Settings, Step};
use callbridge_testkit::Wait as _;
use callbridge_webhook::headers::{Headers, ID, INSTALLATION, SIGNATURE, TIMESTAMP};
use callbridge_webhook::http;
use callbridge_webhook::installations::Installations;
use callbridge_webhook::receiver::Receiver;
use callbridge_webhook::secrets::{Places, Secrets};
use callbridge_webhook::tally::Tally;
use callbridge_webhook::verify::{Verified, VerifyContext, judge};
use cpu::cpu;
use hyper::{Request, Response, StatusCode, body::Incoming};
use serde_json::json;
use std::future::pending;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

const EVENTS: usize = 5_000;
const LINES: usize = 20;
const SECRET: &str = "4f1a0c9d2b7e6058a3c1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071829";

fn uuid(n: usize) -> uuid::Uuid {
    uuid::Uuid::new_v5(&uuid::Uuid::nil(), &n.to_be_bytes())
}

/// Makes the event of the n-th call, as the CRM sends it, with a record and its long link.
fn event(n: usize) -> Vec<u8> {
    let id = uuid(n + EVENTS).to_string();
    json!({
        "eventId": id, "eventType": "CALL_COMPLETED", "occurredAt": 1_795_151_330, "companyId": 77,
        "call": {
            "callId": format!("oapi-{}", uuid(n)), "provider": "OPEN_API",
            "conversationKind": "CALL", "direction": "INBOUND", "answered": true,
            "startedAt": 1_795_151_317, "endedAt": 1_795_151_322, "durationSec": 5,
            "talkTimeSec": 4, "hangupCause": "ANSWER", "clientPhone": "+998901110001",
            "operatorExtension": "101", "employeeId": 501, "employeeName": "Anna",
            "contactId": 7, "contactName": "Ali", "leadIds": [4001],
            "record": {"fileId": 9, "url": format!("https://files.example/{}", "x".repeat(400)),
                       "expiresAt": 1_795_583_330, "durationSec": 4},
        },
    })
    .to_string()
    .into_bytes()
}

fn headers(body: &[u8], n: usize) -> [(&'static str, String); 4] {
    let now = callbridge_model::clock::now()
        .wall
        .floor_seconds()
        .get()
        .to_string();
    let signature = Key::new(&Secret::from(SECRET)).sign(&now, body);
    [
        (ID, uuid(n + EVENTS).to_string()),
        (INSTALLATION, "9001".to_owned()),
        (TIMESTAMP, now),
        (SIGNATURE, signature),
    ]
}

fn request(n: usize) -> Vec<u8> {
    let body = event(n);
    let mut head = "POST /webhooks HTTP/1.1\r\nHost: bench\r\n".to_owned();
    for (name, value) in headers(&body, n) {
        head += &format!("{name}: {value}\r\n");
    }
    head += &format!("Content-Length: {}\r\n\r\n", body.len());
    [head.into_bytes(), body].concat()
}

/// Sends all requests, [`LINES`] at a time, and reads each answer.
fn send(addr: SocketAddr, requests: &[Vec<u8>]) {
    let share = requests.len().div_ceil(LINES);
    std::thread::scope(|scope| {
        for requests in requests.chunks(share) {
            scope.spawn(move || {
                let mut answer = [0; 1024];
                for request in requests {
                    let mut stream = TcpStream::connect(addr).expect("it listens");
                    stream.set_nodelay(true).expect("a socket");
                    stream.write_all(request).expect("taken");
                    let length = stream.read(&mut answer).expect("an answer");
                    assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "refused");
                }
            });
        }
    });
}

fn show_rate(name: &str, began: Instant, cpu: Option<Duration>) -> String {
    let took = began.elapsed().as_secs_f64();
    let rate = EVENTS as f64 / took;
    let per = cpu.map(|cpu| cpu.as_secs_f64() * 1_000.0 / EVENTS as f64);
    let per = per.map_or_else(
        || format!("{:>9.3}", took * 1_000.0 / EVENTS as f64),
        |cpu| format!("{cpu:>9.3}"),
    );
    println!("{name:<44} {rate:>9.0} {per}");
    format!("{rate:.0}/s, {} CPU s/1000", per.trim())
}

/// Makes a spool with a call for each event, waiting to be confirmed.
fn fill_spool(dir: &Path) -> (Handle, spool::Guard) {
    let (spool, guard) = spool::open(dir, Settings::default()).expect("a spool");
    let (company, application) = ("77".to_owned(), "5".to_owned());
    let bind = Op::BindCompany {
        company,
        application,
    };
    spool.write(vec![bind]).wait().expect("bound");
    let at = EventTime::from_seconds(1_795_151_317);
    for chunk in (0..EVENTS).collect::<Vec<_>>().chunks(500) {
        let finish = chunk.iter().map(|n| Op::Finish(Box::new(call(*n))));
        let done = spool.write(finish.collect()).wait().expect("stored");
        let steps = done.iter().flat_map(|done| {
            let spool::Done::New(row) = done else {
                panic!("{done:?}");
            };
            let accepted = Step::Accepted {
                request_id: row.to_string(),
                token: TokenFingerprint::of("token"),
            };
            [Step::Send, accepted].map(|step| Op::Step {
                row: *row,
                step,
                at,
            })
        });
        spool.write(steps.collect()).wait().expect("stepped");
    }
    (spool, guard)
}

fn call(n: usize) -> spool::Finished {
    let (uuid, linkedid) = (uuid(n), format!("1795151317.{n}"));
    let started = 1_795_151_317_000_000_i64;
    let call = serde_json::from_value(json!({
        "linkedid": linkedid, "also_known_as": [linkedid], "direction": "INBOUND",
        "answered": true, "trunk": "city", "number": null, "employee": null,
        "employees_in_order": [], "started": started, "ended": started + 5_000_000,
        "talk": {"secs": 4, "nanos": 0}, "variables": [], "userfields": [], "incomplete": null,
        "estimate": false, "live": true, "remarks": [], "decided_by": [],
    }));
    let judged = serde_json::from_value(json!({
        "record": {
            "uuid": uuid, "linkedid": linkedid, "pbx": "pbx1", "direction": "INBOUND",
            "answered": true, "leadId": 4001, "trunk": "city", "clientPhone": null,
            "employee": null, "employeeId": null, "employeesInOrder": [],
            "startedAt": started / 1_000_000, "durationSec": 5, "talkTimeSec": 4,
            "incomplete": false, "estimate": false,
        },
        "outcome": "journal", "reason": null, "message": "", "live": true, "remarks": [],
        "judged_at": started,
    }));
    spool::Finished::new(judged.expect("a verdict"), call.expect("a call"))
}

fn receiver(spool: &Handle) -> Arc<Receiver> {
    let places = Places {
        application: Some(SecretPlace::Variable(Secret::from(SECRET))),
        ..Places::default()
    };
    Arc::new(Receiver {
        spool: spool.clone(),
        secrets: Secrets::new(places, None).0,
        installations: Installations::default(),
        country: None,
        clock_right_from: callbridge_call::EventTime::from_seconds(0),
        tally: Arc::new(Tally::new()),
    })
}

/// Measures everything: listener, processing, commit, and answer.
fn measure_whole(runtime: &tokio::runtime::Runtime, folder: &Path, requests: &[Vec<u8>]) -> String {
    let (spool, guard) = fill_spool(&folder.join("whole"));
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a port");
    let addr = listener.local_addr().expect("an address");
    let (receiver, places) = (receiver(&spool), http::CONNECTIONS_MAX);
    let serving = runtime.spawn(http::serve(listener, None, receiver, places, pending()));
    let names = ["bench-server", "spool"];
    let (began, before) = (Instant::now(), cpu(&names));
    send(addr, requests);
    let shown = show_rate(
        "POST, judged, committed, answered",
        began,
        Some(cpu(&names) - before),
    );
    let books = spool
        .read(|store| Ok(store.books()))
        .wait()
        .expect("readable");
    assert_eq!(
        books.journaled, EVENTS as u64,
        "each has confirmed its call"
    );
    serving.abort();
    drop(spool);
    guard.close();
    shown
}

struct OnlyAnswers;

impl AnswerHttp for OnlyAnswers {
    async fn answer(&self, _: &ConnectionPlace, asked: Request<Incoming>) -> Response<Body> {
        let read = body::read(asked.into_body(), http::BODY_BYTES_MAX).await;
        read.expect("a body");
        body::response(StatusCode::OK, "text/plain", body::whole("ok"))
    }
}

/// Measures the reference: the same bytes to a listener that answers and does nothing.
fn measure_reference(runtime: &tokio::runtime::Runtime, requests: &[Vec<u8>]) -> String {
    let listener = runtime
        .block_on(TcpListener::bind("127.0.0.1:0"))
        .expect("a port");
    let addr = listener.local_addr().expect("an address");
    let open = Open {
        name: "reference",
        listener,
        tls: None,
        limits: http::limits(http::CONNECTIONS_MAX),
        site: SiteRules::STRICT,
    };
    let serving = runtime.spawn(serve::serve(open, Arc::new(OnlyAnswers), pending()));
    let (began, before) = (Instant::now(), cpu(&["bench-server"]));
    send(addr, requests);
    let used = cpu(&["bench-server"]) - before;
    let shown = show_rate(
        "reference: a listener that reads and answers",
        began,
        Some(used),
    );
    serving.abort();
    shown
}

fn measure_judging() -> Vec<Op> {
    let places = Places {
        application: Some(SecretPlace::Variable(Secret::from(SECRET))),
        ..Places::default()
    };
    let keyring = Secrets::new(places, None).0.current();
    let all: Vec<_> = (0..EVENTS)
        .map(|n| (headers(&event(n), n), event(n)))
        .collect();
    let bench = VerifyContext {
        now: callbridge_model::clock::now().wall,
        right_from: EventTime::from_seconds(0),
        country: None,
        could_be_ours: true,
    };
    let began = Instant::now();
    let judged = all.iter().map(|(headers, body)| {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()));
        let headers = Headers::read(headers).expect("whole");
        let mut proof = keyring.begin(&headers);
        proof.add(body);
        match judge(&headers, body, proof, bench) {
            Ok(Verified::Keep { delivery }) => Op::Delivery(delivery),
            other => panic!("{other:?}"),
        }
    });
    let judged: Vec<_> = judged.collect();
    show_rate("judged alone, one thread", began, None);
    judged
}

fn measure_commits(folder: &Path, ops: &[Op]) {
    let (spool, guard) = fill_spool(&folder.join("commits"));
    let (began, before) = (Instant::now(), cpu(&["spool"]));
    for group in ops.chunks(LINES) {
        spool.write(group.to_vec()).wait().expect("stored");
    }
    let used = cpu(&["spool"]) - before;
    show_rate("commits alone, groups of 20", began, Some(used));
    drop(spool);
    guard.close();
}

/// Runs the bench that the module describes.
pub fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("bench-server")
        .enable_all()
        .build()
        .expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let requests: Vec<Vec<u8>> = (0..EVENTS).map(request).collect();
    println!(
        "{:<44} {:>9} {:>9}",
        format!("{EVENTS} events, {LINES} lines"),
        "events/s",
        "CPU s/1000"
    );
    let ours = measure_whole(&runtime, folder.path(), &requests);
    let plain = measure_reference(&runtime, &requests);
    measure_commits(folder.path(), &measure_judging());
    let plain = format!("axum that reads and answers: {plain}");
    table::row("webhook", "an event, POST to answer", &ours, "", &plain);
}
