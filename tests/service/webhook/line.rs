//! A connection to the receiver that sends any bytes and reads answers.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

/// A wait that takes this long has failed.
const DEADLINE: Duration = Duration::from_secs(180);

/// Waits for `future`. Fails with `what` if it is not ready in time.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {DEADLINE:?}"),
    }
}

/// A connection.
pub struct Line(TcpStream);

impl Line {
    pub async fn open(addr: SocketAddr) -> Self {
        let stream = soon("a connection", TcpStream::connect(addr)).await;
        Self(stream.expect("it listens"))
    }

    /// Connects from another address of this machine.
    pub async fn open_from(from: [u8; 4], addr: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        let from = SocketAddr::from((Ipv4Addr::from(from), 0));
        socket.bind(from).expect("an address of loopback");
        let stream = soon("a connection", socket.connect(addr)).await;
        Self(stream.expect("it listens"))
    }

    /// Sends bytes. Returns `false` if the other side has cut the connection.
    pub async fn send(&mut self, bytes: &[u8]) -> bool {
        soon("room to write", self.0.write_all(bytes)).await.is_ok()
    }

    /// Returns the status of the next answer, or `None` if the connection ends without one.
    pub async fn status(&mut self) -> Option<u16> {
        let mut head = Vec::new();
        let reading = async {
            while !head.ends_with(b"\r\n\r\n") {
                head.push(self.0.read_u8().await.ok()?);
            }
            let head = String::from_utf8(head).expect("text");
            let length = head.to_ascii_lowercase();
            let length = length.split("content-length: ").nth(1).expect("a length");
            let length: usize = length.lines().next()?.parse().expect("a number");
            let mut body = vec![0; length];
            self.0.read_exact(&mut body).await.ok()?;
            head.split(' ').nth(1)?.parse().ok()
        };
        soon("an answer, or the end", reading).await
    }

    /// Sends a whole request. Returns the status of the answer.
    pub async fn exchange(&mut self, request: &[u8]) -> u16 {
        assert!(self.send(request).await, "the line was cut");
        self.status().await.expect("an answer")
    }

    /// Waits until the other side ends the connection. Returns the bytes that still arrived.
    pub async fn wait_for_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        // A reset ends the connection too.
        let _ = soon("the end of the line", self.0.read_to_end(&mut rest)).await;
        rest
    }
}
