//! Tests that a branch doesn't have to wait while another one floods the hub, while clients have no
//! token, or while clients are slow.

use super::distant::WAIT_MAX;
use super::runs::{is_full_run, report};
use super::stage::{Hub, messages};
use crate::e2e::security::flood::peak;
use crate::support::program::Place;
use callbridge_testbed::wait::{pass, soon};
use futures_util::future::join_all;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Number of requests in the flood. Each has 500 calls, so there are a million calls altogether.
const REQUESTS: usize = 2_000;
/// Number of simultaneous connections used by the flood.
const CONNECTIONS: usize = 40;
const MEMORY_MAX: u64 = 128 << 20;
/// Maximum number of the flood's requests that may be stored while another branch's request waits,
/// which is a fraction of the connections and of the 60 requests that a branch can send in a
/// minute.
const PASSED_MAX: u32 = CONNECTIONS as u32 / 4;

/// Sends a request, and returns the status of the response, or `None` if the connection was closed.
async fn request(hub: SocketAddr, token: &str, body: &[u8]) -> Option<u16> {
    let mut line = TcpStream::connect(hub).await.ok()?;
    let head = format!(
        "POST /v1/calls HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    line.write_all(head.as_bytes()).await.ok()?;
    // The hub may respond and close the connection before the whole body has been sent, so errors
    // are ignored.
    let _ = line.write_all(body).await;
    let mut answer = Vec::new();
    let _ = line.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

/// Sends the flood, and counts how many of its requests are stored by the hub.
async fn send_flood(hub: SocketAddr, token: &str, stored: &AtomicU32) {
    let calls = messages("flood", 0..500).into_bytes();
    let large = vec![b' '; (1 << 20) + 1];
    let share = REQUESTS / CONNECTIONS;
    let lines = (0..CONNECTIONS).map(async |line| {
        for n in 0..share {
            let (token, body) = match (line + n) % 10 {
                0 => (token, &large),
                1 => ("nobody's token", &calls),
                _ => (token, &calls),
            };
            let status = soon("an answer to the flood", request(hub, token, body)).await;
            if status == Some(200) {
                stored.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    join_all(lines).await;
}

/// Reports the longest wait of a branch. It depends on the machine, so only a full run limits it.
fn report_waits(beside: &str, requests: u32, longest: Duration) {
    report(&format!(
        "{requests} requests of a quiet branch {beside}: longest wait {} ms\n",
        longest.as_millis()
    ));
    if is_full_run() {
        assert!(longest <= WAIT_MAX, "a branch waited {longest:?} {beside}");
    }
}

/// Promise: A branch that floods the hub delays no other branch.
#[tokio::test]
async fn million_calls_of_one_branch_delay_no_other() {
    let hub = Hub::start_in(Place::on_disk()).await;
    let address = hub.address;
    let flooding = hub.add_branch("flood").await;
    let quiet = hub.add_branch("quiet").await;
    let mut slow = Vec::new();
    for _ in 0..50 {
        let mut line = TcpStream::connect(address).await.expect("it listens");
        let head = format!(
            "POST /v1/calls HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {quiet}x\r\n\
             Content-Length: 9000\r\n\r\nhalf a body"
        );
        line.write_all(head.as_bytes()).await.expect("taken");
        slow.push(line);
    }
    let (token, stored) = (flooding.clone(), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&stored);
    let flood = tokio::spawn(async move { send_flood(address, &token, &count).await });
    let mut longest = Duration::ZERO;
    let mut passed = 0;
    let mut calls = 0;
    let mut answered_in_flood = 0;
    while !flood.is_finished() && calls < 50 {
        let body = messages("quiet", calls..calls + 1);
        let (begin, stored_before) = (Instant::now(), stored.load(Ordering::Relaxed));
        let status = soon("an answer", request(address, &quiet, body.as_bytes())).await;
        longest = longest.max(begin.elapsed());
        passed = passed.max(stored.load(Ordering::Relaxed) - stored_before);
        assert_eq!(status, Some(200));
        calls += 1;
        answered_in_flood += u32::from(!flood.is_finished());
        pass(Duration::from_millis(200)).await;
    }
    // A slow machine takes minutes for a million calls, but each of the flood's requests has a
    // deadline.
    flood.await.expect("every request was answered");
    let flood_stored = stored.load(Ordering::Relaxed);
    assert!(flood_stored > 0, "the hub stored no request of the flood");
    assert!(answered_in_flood > 0, "the flood ended before an answer");
    let memory = peak(&hub.program);
    report_waits("in a flood", calls, longest);
    report(&format!(
        "{passed} of the flood's requests were stored meanwhile; peak {memory} bytes\n"
    ));
    assert!(passed <= PASSED_MAX, "{passed}");
    assert!(memory < MEMORY_MAX, "{memory}");
    drop(slow);
    hub.program.terminate().await;
}

/// Starts a request with a body of the maximum length, and sends all but its last byte.
async fn hold_body_open(hub: SocketAddr, token: &str) -> TcpStream {
    let mut line = TcpStream::connect(hub).await.expect("it listens");
    let head = format!(
        "POST /v1/calls HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: {}\r\n\r\n",
        1 << 20
    );
    line.write_all(head.as_bytes()).await.expect("taken");
    let body = vec![b'\n'; (1 << 20) - 1];
    line.write_all(&body).await.expect("taken");
    line
}

/// The branch holds its requests open, having sent all but the last byte of each.
#[tokio::test]
async fn branch_that_uses_up_its_memory_leaves_room_for_others() {
    let hub = Hub::start().await;
    let address = hub.address;
    let greedy = hub.add_branch("greedy").await;
    let quiet = hub.add_branch("quiet").await;
    let full = format!("{}{}", messages("greedy", 0..1), "\n".repeat(1 << 19));
    let mut held = Vec::new();
    let mut status = Some(200);
    while status == Some(200) {
        for _ in 0..4 {
            held.push(hold_body_open(address, &greedy).await);
        }
        status = soon("an answer", request(address, &greedy, full.as_bytes())).await;
    }
    assert_eq!(status, Some(503), "the branch has used up its memory");
    let short = messages("greedy", 1..2);
    let status = soon("an answer", request(address, &greedy, short.as_bytes())).await;
    assert_eq!(status, Some(200), "a short body always fits");
    let mut longest = Duration::ZERO;
    for n in 0..20 {
        let body = format!("{}{}", messages("quiet", n..n + 1), "\n".repeat(1 << 19));
        let began = Instant::now();
        let status = soon("an answer", request(address, &quiet, body.as_bytes())).await;
        longest = longest.max(began.elapsed());
        assert_eq!(status, Some(200), "request {n}");
    }
    report_waits("beside one that uses up its memory", 20, longest);
    drop(held);
    hub.program.terminate().await;
}
