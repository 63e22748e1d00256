//! Tests the interfaces for monitoring systems, scripts, and systemd.

use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::{self, TRUNKS};
use callbridge_testbed::pbx::{self, FakePbx};
use callbridge_testbed::wait::{soon, until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixDatagram};

/// Another process's message to systemd.
const FILLER: &[u8] = b"x";

/// Metrics used by dashboards and alert rules.
const METRICS: [&str; 14] = [
    "callbridge_calls{book=\"journaled\"} 1",
    "callbridge_requests_total{endpoint=",
    "callbridge_budget_slots{state=\"used\"}",
    "callbridge_backlog_drain_seconds 0",
    "callbridge_source_up{source=\"pbx1/file",
    "callbridge_source_events_total{source=\"pbx1/file",
    "callbridge_source_last_event_timestamp_seconds{source=\"pbx1/file",
    "callbridge_gaps_total{source=\"pbx1/file",
    "callbridge_waiting_calls{reason=\"no_lead\"} 1",
    "callbridge_token_expiry_timestamp_seconds ",
    "callbridge_request_duration_seconds_bucket{le=",
    "callbridge_commit_duration_seconds_bucket{le=",
    "callbridge_build_info{version=",
    "callbridge_paused{reason=\"unreachable\"} 0",
];

/// Returns the text of `/metrics`.
pub async fn metrics(program: &Program) -> String {
    let (status, metrics) = get(address(program).await, "/metrics").await;
    assert_eq!(status, 200);
    metrics
}

/// Returns the address on which `--listen` with port 0 is listening.
pub async fn address(program: &Program) -> SocketAddr {
    until("the address of health and metrics in the log", async || {
        logged_address(program).is_some()
    })
    .await;
    logged_address(program).expect("an address")
}

fn logged_address(program: &Program) -> Option<SocketAddr> {
    program.log().lines().find_map(listen_address)
}

/// Returns the `--listen` address if it's in this log line.
pub fn listen_address(line: &str) -> Option<SocketAddr> {
    // In a JSON line, the address comes before the message.
    let named = line.contains("health and metrics").then_some(line)?;
    let (_, after) = named.split_once("127.0.0.1:")?;
    let port = after.split(|c: char| !c.is_ascii_digit()).next()?;
    Some(SocketAddr::from(([127, 0, 0, 1], port.parse().ok()?)))
}

/// Gets one of the program's pages, and returns the HTTP status and the body.
pub async fn page(program: &Program, path: &str) -> (u16, String) {
    get(address(program).await, path).await
}

/// Gets `path` from a server, and returns the HTTP status and the body.
pub async fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    let exchange = async {
        let mut stream = TcpStream::connect(addr).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let answer = soon(path, exchange).await.expect("an answer");
    let status = answer.split(' ').nth(1).expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
    (status.parse().expect("a number"), body.to_owned())
}

/// Promise: Every documented metric is served.
#[tokio::test]
async fn health_readiness_and_every_promised_metric_are_served() {
    let (place, (crm, expires_at)) = (Place::new(), crm::start_expiring().await);
    for name in ["inbound_answered", "unknown_customer"] {
        place.append("recorded", &recordings::one(name).ami);
    }
    let source = place.file("recorded", "ami");
    let flags = [
        &source,
        TRUNKS[0],
        TRUNKS[1],
        RATE_FLAG,
        "--listen=127.0.0.1:0",
        "--cdr-wait=1s",
    ];
    let mut program = place.run(&crm.url(), &flags);
    program
        .until("two calls settled", |current| {
            current.books.journaled == 1 && current.books.waiting == 1
        })
        .await;
    let addr = address(&program).await;
    assert_eq!(get(addr, "/healthz").await.0, 200);
    assert_eq!(get(addr, "/readyz").await.0, 200);
    let (status, metrics) = get(addr, "/metrics").await;
    assert_eq!(status, 200);
    for name in METRICS {
        assert!(metrics.contains(name), "{name} is missing in\n{metrics}");
    }
    let expiry = format!("callbridge_token_expiry_timestamp_seconds {expires_at}\n");
    assert!(metrics.contains(&expiry), "{metrics}");
    check_with_promtool(&metrics);
    // If callbridge can't read the counters, `/metrics` must fail, because zeros would look as if
    // the counters had been reset.
    let path = place.at("state").join(callbridge_spool::folder::FILE);
    let database = rusqlite::Connection::open(&path).expect("the state");
    rename_table(&database, "missed_customers", "elsewhere");
    let (status, text) = get(addr, "/metrics").await;
    assert_eq!(status, 503, "{text}");
    assert!(text.starts_with("the books cannot be read: "), "{text}");
    rename_table(&database, "elsewhere", "missed_customers");
    assert_eq!(get(addr, "/metrics").await.0, 200);
    program.terminate().await;
}

fn rename_table(database: &rusqlite::Connection, from: &str, to: &str) {
    let renamed = database.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}"));
    renamed.expect("renamed");
}

/// Checks that `promtool check metrics` doesn't report any problems. Does nothing if promtool isn't
/// installed.
fn check_with_promtool(metrics: &str) {
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    let checking = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut checking) = checking else {
        let line = b"\nnot run: promtool check metrics (promtool is not installed)\n";
        let _ = std::io::stderr().write_all(line);
        return;
    };
    let mut stdin = checking.stdin.take().expect("a pipe");
    stdin.write_all(metrics.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = checking.wait_with_output().expect("promtool ends");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && complaints.is_empty(),
        "{complaints}\n{metrics}"
    );
}

#[tokio::test]
async fn readiness_waits_for_first_source_login_and_ignores_pause() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    crm.admin(|core, _| core.revoke_all());
    let secret_file = place.write("secret", "not the secret");
    let source = format!(
        "--source=ami://bridge@{}?secret-file={secret_file}",
        pbx.addr()
    );
    let flags = [&source, TRUNKS[0], "--listen=127.0.0.1:0"];
    let mut program = place.run(&crm.url(), &flags);
    let addr = address(&program).await;
    let down = program.until("a refused login", |status| {
        status.sources[0]
            .reason
            .as_ref()
            .is_some_and(|reason| reason.contains("refused the login"))
    });
    down.await;
    let (status, text) = get(addr, "/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("pbx1/ami"), "{text}");
    assert_eq!(get(addr, "/healthz").await.0, 200);
    let metrics = get(addr, "/metrics").await.1;
    assert!(
        metrics.contains("callbridge_source_up{source=\"pbx1/ami"),
        "{metrics}"
    );

    place.write("secret", pbx::SECRET);
    pbx.logged_in(1).await;
    program
        .until("the pause", |current| current.pause.is_some())
        .await;
    until("readiness", async || get(addr, "/readyz").await.0 == 200).await;
    let metrics = get(addr, "/metrics").await.1;
    assert!(
        metrics.contains("callbridge_paused{reason=\"token_refused\"} 1"),
        "{metrics}"
    );
    program.terminate().await;
}

/// Returns a JSON object's keys.
fn keys(value: &Value) -> BTreeSet<&str> {
    let object = value.as_object().expect("an object");
    object.keys().map(String::as_str).collect()
}

/// Checks that a JSON object has these keys.
fn assert_keys(value: &Value, wanted: &[&str]) {
    let present = keys(value);
    let missing: Vec<_> = wanted
        .iter()
        .filter(|key| !present.contains(**key))
        .collect();
    assert!(missing.is_empty(), "{missing:?} of {value}");
}

/// Checks that the JSON of `status` has all documented keys.
fn assert_status_shape(status: &Value) {
    assert_keys(
        status,
        &["books", "budget", "backlog", "sources", "token", "pause"],
    );
    assert_keys(
        status,
        &["verdict", "problems", "version", "lastCallAt", "gaps"],
    );
    for item in status["problems"].as_array().expect("a list") {
        assert_keys(item, &["kind", "message", "command"]);
    }
    let books = "finished ready sending submitted journaled dead waiting discarded internal \
                 skipped unreadable";
    assert_keys(
        &status["books"],
        &books.split_whitespace().collect::<Vec<_>>(),
    );
    assert_keys(
        &status["budget"],
        &["limit", "windowSec", "used", "nextFreeInMs"],
    );
    assert_keys(&status["backlog"], &["calls", "drainSec"]);
    let token = "state kind company application expiresAt grants";
    assert_keys(
        &status["token"],
        &token.split_whitespace().collect::<Vec<_>>(),
    );
    let source = "url pbx state lastEventAt read skipped repaired gaps";
    for item in status["sources"].as_array().expect("sources") {
        assert_keys(item, &source.split_whitespace().collect::<Vec<_>>());
    }
    if !status["pause"].is_null() {
        assert_keys(&status["pause"], &["reason", "fix"]);
    }
}

#[tokio::test]
async fn status_keeps_shape_without_daemon_and_exits_69_without_state() {
    let (place, crm) = (Place::new(), crm::start().await);
    let nothing = place.command(&["status", "--json", "--exit-code"]).await;
    assert_eq!(nothing.status.code(), Some(69));
    assert!(nothing.stdout.is_empty());
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let source = place.file("recorded", "ami");
    let mut program = place.run(&crm.url(), &[&source, TRUNKS[0], RATE_FLAG]);
    program
        .until("a journaled call", |status| {
            status.books.journaled == 1 && status.token.state == "ok"
        })
        .await;
    let running = place.lines(&["status", "--json"]).await.remove(0);
    assert_status_shape(&running);
    assert_eq!(running["books"]["finished"], 1);
    assert_eq!(
        (&running["budget"]["limit"], &running["budget"]["windowSec"]),
        (&60.into(), &2.into())
    );
    let source_status = &running["sources"][0];
    assert_eq!(
        (&source_status["state"], &source_status["pbx"]),
        (&"done".into(), &"pbx1".into())
    );
    assert_eq!(running["token"]["company"], "Sandbox company");
    assert_eq!(running["verdict"], "ok", "{running}");
    let text = place.command(&["status", "--exit-code"]).await;
    assert_eq!(text.status.code(), Some(0));
    let text = String::from_utf8(text.stdout).expect("UTF-8");
    assert!(
        text.starts_with("no problem found\n") && !text.contains('\x1b'),
        "{text}"
    );
    program.terminate().await;

    let without_daemon = place.lines(&["status", "--json"]).await.remove(0);
    assert_status_shape(&without_daemon);
    assert_eq!(without_daemon["books"], running["books"]);
    assert_eq!(
        (
            &without_daemon["verdict"],
            &without_daemon["problems"][0]["kind"]
        ),
        (&"down".into(), &"no_daemon".into())
    );
    assert_eq!(without_daemon["lastCallAt"], running["lastCallAt"]);
    assert!(running["lastCallAt"].is_number(), "{running}");
    let down = place.command(&["status", "--exit-code"]).await;
    assert_eq!(down.status.code(), Some(2));
    let text = String::from_utf8(down.stdout).expect("UTF-8");
    let first = "nothing reaches the CRM\n  - no daemon runs";
    assert!(text.starts_with(first), "{text}");
    assert!(
        down.stderr.is_empty(),
        "a status without a daemon is no error"
    );
}

#[tokio::test]
async fn second_process_on_same_state_exits_75_and_first_continues() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], RATE_FLAG];
    let mut first = place.run(&crm.url(), &flags);
    first.until("the program answers", |_| true).await;
    let second = place.run(&crm.url(), &flags).ended().await;
    assert_eq!(second.code(), Some(75));
    let log = place.logs();
    let holder = format!("is in use by process {}", first.id());
    assert!(log.contains(&holder), "{log}");
    first.settled(1).await;
    first.terminate().await;
}

#[tokio::test]
async fn state_of_later_release_exits_78_and_is_kept() {
    let (place, crm) = (Place::new(), crm::start().await);
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let source = place.file("recorded", "ami");
    let flags = [&source, TRUNKS[0], RATE_FLAG, "--until-idle"];
    place.run(&crm.url(), &flags).expect_success().await;
    let path = place.at("state").join(callbridge_spool::folder::FILE);
    let database = rusqlite::Connection::open(&path).expect("the state");
    let later = 4711;
    database
        .pragma_update(None, "user_version", later)
        .expect("written");
    database.close().expect("closed");

    let exit_status = place.run(&crm.url(), &flags).ended().await;
    assert_eq!(exit_status.code(), Some(78));
    assert!(place.logs().contains("4711"), "{}", place.logs());
    let status = place.command(&["status"]).await;
    assert_eq!(status.status.code(), Some(78));
    let database = rusqlite::Connection::open(&path).expect("the state");
    let calls = database.query_row("SELECT count(*) FROM calls", [], |row| row.get::<_, i64>(0));
    assert_eq!(calls.expect("a count"), 1);
}

/// Starts the program, which sends its messages for systemd to the place's `notify` socket.
/// `watchdog` is the watchdog's interval in microseconds.
fn start_under_systemd(place: &Place, crm: &str, watchdog: &str) -> Program {
    let path = place.path("notify");
    place.append("recorded", &recordings::one("inbound_answered").ami);
    let arguments = [
        "run".to_owned(),
        place.file("recorded", "ami"),
        TRUNKS[0].to_owned(),
        "--pbx-id=e2e".to_owned(),
        format!("--crm-url={crm}"),
        format!("--token-file={}", place.path("token")),
        format!("--state={}", place.path("state")),
    ];
    let variables = [
        ("NOTIFY_SOCKET", path.as_str()),
        ("WATCHDOG_USEC", watchdog),
    ];
    place.start(&arguments, &variables)
}

/// Sends the message [`FILLER`] to the socket at this path until it doesn't accept any more
/// messages. Since a single sender may reach its own limit first, the socket is full once a new
/// sender can't send.
fn fill_socket(path: &str) {
    loop {
        let sender = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
        sender.set_nonblocking(true).expect("an open socket");
        let mut sent = 0;
        while sender.send_to(FILLER, path).is_ok() {
            sent += 1;
        }
        if sent == 0 {
            return;
        }
    }
}

/// Returns the next message to systemd with a line that starts with `wanted`.
async fn receive_message(socket: &UnixDatagram, wanted: &str) -> String {
    let receiving = async {
        let mut buffer = [0; 4096];
        loop {
            let length = socket.recv(&mut buffer).await.expect("a message");
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.lines().any(|line| line.starts_with(wanted)) {
                return text;
            }
        }
    };
    soon(wanted, receiving).await
}

#[tokio::test]
async fn systemd_receives_ready_watchdog_and_stopping_messages() {
    let (place, crm) = (Place::new(), crm::start().await);
    let socket = UnixDatagram::bind(place.path("notify")).expect("a socket");
    let program = start_under_systemd(&place, &crm.url(), "200000");
    receive_message(&socket, "READY=1").await;
    let books = "STATUS=1 finished: 1 journaled, 0 waiting, 0 dead letters";
    let alive = receive_message(&socket, books).await;
    assert!(alive.contains("WATCHDOG=1"), "{alive}");
    tokio::join!(receive_message(&socket, "STOPPING=1"), program.terminate());
}

#[tokio::test]
async fn unread_systemd_socket_blocks_nothing() {
    let (place, crm) = (Place::new(), crm::start().await);
    let path = place.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&path).expect("a socket");
    socket.set_nonblocking(true).expect("an open socket");
    fill_socket(&path);
    let mut program = start_under_systemd(&place, &crm.url(), "20000");
    program
        .until("a journaled call", |status| status.books.journaled == 1)
        .await;
    program.terminate().await;
    // The socket was full of the test's own bytes the whole time, so it doesn't contain any of the
    // program's messages.
    let mut buffer = [0; 4096];
    let mut messages = 0;
    while let Ok(length) = socket.recv(&mut buffer) {
        assert_eq!(&buffer[..length], FILLER);
        messages += 1;
    }
    assert!(messages > 0, "the socket was not filled");
}
