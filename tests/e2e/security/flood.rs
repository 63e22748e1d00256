//! Tests that callbridge responds to every other request while unauthorized clients flood the
//! listeners.

use crate::e2e::operations::monitoring;
use crate::e2e::webhooks;
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::recordings::TRUNKS;
use callbridge_model::Secret;
use callbridge_model::webhook_signature::Key;
use callbridge_testbed::pbx::FakePbx;
use callbridge_testbed::wait::{soon, until};
use futures_util::future::join_all;
use serde_json::json;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// The application's secret, which is used to sign webhooks.
const SECRET: &str = "4f1a0c9d2b7e6058a3c1d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071829";
/// The flood's source address. Other requests come from 127.0.0.1.
const FLOOD_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Number of connections in a tenth of a second during a flood of 2,500 connections per second.
const ARRIVALS: usize = 250;

/// Returns how many file descriptors the program has open.
fn descriptors(program: &Program) -> usize {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", program.id()));
    entries.expect("a process").count()
}

/// Returns the program's peak memory usage in bytes.
pub fn peak(program: &Program) -> u64 {
    status_bytes(program, "VmHWM:")
}

/// Returns a value such as `VmHWM:` from the program's `/proc/PID/status`, in bytes.
pub fn status_bytes(program: &Program, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.id()));
    let status = status.expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.expect("a number") * 1024
}

/// Opens a connection to `addr` from the loopback address `from`.
async fn connect(from: Ipv4Addr, addr: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    let from = SocketAddr::from((from, 0));
    socket.bind(from).expect("an address of loopback");
    let connecting = soon("a connection", socket.connect(addr)).await;
    connecting.expect("a listener")
}

/// Promise: Slow and incomplete requests to a listener block nothing else.
#[tokio::test]
async fn incomplete_requests_block_nothing_and_time_out() {
    let (place, crm, pbx) = (Place::new(), crm::start().await, FakePbx::ami().await);
    let source = place.ami(&pbx);
    let flags = [&source, TRUNKS[0], RATE_FLAG, "--listen=127.0.0.1:0"];
    let program = place.run(&crm.url(), &flags);
    pbx.logged_in(1).await;
    let addr = monitoring::address(&program).await;
    let mut connections = Vec::new();
    for _ in 0..300 {
        let mut line = connect(Ipv4Addr::LOCALHOST, addr).await;
        // The program may close the connection at any time.
        let _ = line.write_all(b"GET /metrics HTTP/1.1\r\nX-Half: ").await;
        connections.push(line);
    }
    for page in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(monitoring::get(addr, page).await.0, 200, "{page}");
        let open = descriptors(&program);
        assert!(open < 100, "{open} descriptors");
    }
    pbx.cut().await;
    pbx.logged_in(2).await;
    assert!(program.status().await.is_some(), "commands are answered");
    let ends = connections.iter_mut().map(async |line| {
        let mut answer = Vec::new();
        // A reset ends the connection too.
        let _ = line.read_to_end(&mut answer).await;
        assert_eq!(answer, b"", "an incomplete request gets no answer");
    });
    soon("the end of all connections", join_all(ends)).await;
    assert_eq!(monitoring::get(addr, "/healthz").await.0, 200);
    program.terminate().await;
}

/// Starts a program that receives webhooks over plain HTTP, with at most 1,024 file descriptors as
/// in a shell. Returns the program and its webhook address.
async fn start_receiver(place: &Place, crm: &str) -> (Program, SocketAddr) {
    place.append("recorded", b"");
    let secret = place.write("webhook-secret", SECRET);
    let flags = [
        place.file("recorded", "ami"),
        TRUNKS[0].to_owned(),
        "--webhook-listen=127.0.0.1:0".to_owned(),
        format!("--webhook-secret-file={secret}"),
    ];
    let arguments = place.arguments(crm, &flags);
    let limited = ["prlimit", "--nofile=1024:1024"];
    let mut program = place.start_under(&limited, &arguments, &[]);
    program
        .until("the company of the token", |status| {
            status.token.company.is_some()
        })
        .await;
    let port = webhooks::port(&program).await;
    (program, SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Returns the n-th webhook request, signed with this secret and with `padding` bytes of padding.
fn webhook_request(n: usize, secret: &str, padding: usize) -> Vec<u8> {
    let id = uuid::Uuid::from_u128(n as u128 + 1).to_string();
    let at = callbridge_model::clock::now().wall.floor_seconds().get();
    let body = json!({
        "eventId": id, "eventType": "LEAD_CREATED", "occurredAt": at, "companyId": 1,
        "lead": {"id": 4001 + n, "phone": "+998901110001"}, "padding": "x".repeat(padding),
    });
    let body = body.to_string();
    let signature = Key::new(&Secret::from(secret)).sign(&at.to_string(), body.as_bytes());
    let head = format!(
        "POST /webhooks HTTP/1.1\r\nHost: here\r\nX-Webhook-Id: {id}\r\n\
         X-Webhook-Installation-Id: 9001\r\nX-Webhook-Timestamp: {at}\r\n\
         X-Webhook-Signature: {signature}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body.as_bytes()].concat()
}

/// Sends a request or the end of one, and returns the HTTP status of the response, or `None` if
/// there's no response.
async fn send_request(line: &mut TcpStream, request: &[u8]) -> Option<u16> {
    let exchange = async {
        line.write_all(request).await.ok()?;
        let mut answer = Vec::new();
        // If the connection is reset after the response, the response still counts.
        let _ = line.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        answer.split(' ').nth(1)?.parse().ok()
    };
    soon("an answer", exchange).await
}

/// A task that opens connections one after the other until the `Flood` is dropped.
struct Flood {
    /// Number of connections so far.
    arrived: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Flood {
    fn start(from: Ipv4Addr, addr: SocketAddr) -> Self {
        let flood = Self {
            arrived: Arc::default(),
            over: Arc::default(),
        };
        let (arrived, over) = (Arc::clone(&flood.arrived), Arc::clone(&flood.over));
        tokio::spawn(async move {
            let mut held = VecDeque::new();
            while !over.load(Ordering::Relaxed) {
                held.push_back(connect(from, addr).await);
                arrived.fetch_add(1, Ordering::Relaxed);
                // Hold more connections than the receiver allows, so that it must close some.
                if held.len() > 400 {
                    held.pop_front();
                }
            }
        });
        flood
    }

    /// Waits until this many more connections have been opened.
    async fn wait_for_arrivals(&self, arrivals: usize) {
        let wanted = self.arrived.load(Ordering::Relaxed) + arrivals;
        until("the flood", async || {
            self.arrived.load(Ordering::Relaxed) >= wanted
        })
        .await;
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn every_webhook_is_accepted_during_a_connection_flood() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (program, addr) = start_receiver(&place, &crm.url()).await;
    let flood = Flood::start(FLOOD_ADDRESS, addr);
    flood.wait_for_arrivals(2 * ARRIVALS).await;
    for n in 0..20 {
        let request = webhook_request(n, SECRET, 0);
        let (first, rest) = request.split_at(30 * (n % 2));
        let mut line = connect(Ipv4Addr::LOCALHOST, addr).await;
        line.write_all(first).await.expect("taken");
        flood.wait_for_arrivals(ARRIVALS).await;
        assert_eq!(
            send_request(&mut line, rest).await,
            Some(200),
            "delivery {n}"
        );
    }
    drop(flood);
    program.terminate().await;
}

#[tokio::test]
async fn unsigned_bodies_use_little_memory_and_delay_no_event() {
    let (place, crm) = (Place::new(), crm::start().await);
    let (program, addr) = start_receiver(&place, &crm.url()).await;
    let mut line = connect(Ipv4Addr::LOCALHOST, addr).await;
    assert_eq!(
        send_request(&mut line, &webhook_request(0, SECRET, 0)).await,
        Some(200)
    );
    let before = peak(&program);
    let unsigned = webhook_request(1, "another secret", 250_000);
    let (beginning, last_byte) = unsigned.split_at(unsigned.len() - 1);
    let mut connections = Vec::new();
    for _ in 0..250 {
        let mut line = connect(FLOOD_ADDRESS, addr).await;
        let _ = soon("room to write", line.write_all(beginning)).await;
        connections.push(line);
    }
    let mut line = connect(Ipv4Addr::LOCALHOST, addr).await;
    assert_eq!(
        send_request(&mut line, &webhook_request(2, SECRET, 0)).await,
        Some(200)
    );
    let statuses = join_all(
        connections
            .iter_mut()
            .map(|line| send_request(line, last_byte)),
    )
    .await;
    let are_retryable = statuses
        .iter()
        .all(|status| matches!(status, Some(401 | 408 | 503) | None));
    assert!(are_retryable, "{statuses:?}");
    // The promise is 64 MB. The bodies are about 64 MB altogether, but the program may use less
    // than half of that.
    let grown = peak(&program) - before;
    assert!(grown < 32 << 20, "{grown} bytes");
    program.terminate().await;
}
