//! A branch that floods its hub, strangers without a token, and clients that are slow: do other
//! branches wait?

use super::stage::{add_branch, free_address, messages, start_hub};
use crate::e2e::security::flood::peak;
use crate::support::crm;
use crate::support::program::Place;
use callbridge_testbed::wait::{pass, soon};
use futures_util::future::join_all;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Requests of 500 calls: a million calls.
const REQUESTS: usize = 2_000;
/// Connections of the flood at once.
const LINES: usize = 40;
const MEMORY_MAX: u64 = 128 << 20;

/// Sends a request, and returns the status of the answer. `None` if the connection was cut.
async fn request(hub: SocketAddr, token: &str, body: &[u8]) -> Option<u16> {
    let mut line = TcpStream::connect(hub).await.ok()?;
    let head = format!(
        "POST /v1/calls HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    line.write_all(head.as_bytes()).await.ok()?;
    // The hub can answer before it has read the body.
    let _ = line.write_all(body).await;
    let mut answer = Vec::new();
    let _ = line.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    text.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

async fn flood(hub: SocketAddr, token: &str) {
    let calls = messages("flood", 0..500).into_bytes();
    let large = vec![b' '; (1 << 20) + 1];
    let share = REQUESTS / LINES;
    let lines = (0..LINES).map(async |line| {
        for n in 0..share {
            match (line + n) % 10 {
                0 => request(hub, token, &large).await,
                1 => request(hub, "nobody's token", &calls).await,
                _ => request(hub, token, &calls).await,
            };
        }
    });
    join_all(lines).await;
}

/// How long a small write to the disk takes now.
fn write_takes(place: &Place) -> Duration {
    let begun = Instant::now();
    let mut file = File::create(place.at("yardstick")).expect("a file");
    file.write_all(&[0; 512]).expect("written");
    file.sync_all().expect("synced");
    begun.elapsed()
}

/// Promise: A branch that floods the hub delays no other branch.
#[tokio::test]
async fn million_calls_of_one_branch_delay_no_other() {
    let (place, crm) = (Place::on_disk(), crm::start().await);
    let address = free_address();
    let mut hub = start_hub(&place, &crm.url(), address);
    hub.until("it serves", |status| status.hub.is_some()).await;
    let flooding = add_branch(&place, "flood", "flood").await;
    let quiet = add_branch(&place, "quiet", "quiet").await;
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
    let token = flooding.clone();
    let flood = tokio::spawn(async move { flood(address, &token).await });
    let (mut longest, mut write) = (Duration::ZERO, Duration::ZERO);
    let mut calls = 0;
    while !flood.is_finished() && calls < 50 {
        let body = messages("quiet", calls..calls + 1);
        let asked = Instant::now();
        let answered = soon("an answer", request(address, &quiet, body.as_bytes())).await;
        longest = longest.max(asked.elapsed());
        assert_eq!(answered, Some(200));
        calls += 1;
        write = write.max(write_takes(&place));
        pass(Duration::from_millis(200)).await;
    }
    soon("the end of the flood", flood).await.expect("no panic");
    let memory = peak(&hub);
    println!(
        "{calls} calls of a quiet branch in a flood: at most {longest:?}, peak {memory} bytes, \
         a write of this test at most {write:?}"
    );
    // A busy machine is no failure.
    let limit = Duration::from_secs(2).max(5 * write);
    assert!(longest < limit, "{longest:?} is not below {limit:?}");
    assert!(memory < MEMORY_MAX, "{memory}");
    drop(slow);
    hub.terminate().await;
}
