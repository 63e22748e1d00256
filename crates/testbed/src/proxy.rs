//! A TCP proxy that can stop forwarding without closing connections, or forward late. It simulates
//! a dead connection and a slow one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

/// Forwards from its own loopback port to another.
pub struct Proxy {
    address: SocketAddr,
    /// The directions to the other port and back.
    asks: watch::Sender<Direction>,
    answers: watch::Sender<Direction>,
    /// If `true`, new connections are accepted, and their bytes are dropped.
    is_cut: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// The number of freezes so far. A connection forwards until the next one after its start.
type Direction = u64;

impl Proxy {
    /// Starts a proxy that forwards to `port` on loopback.
    pub async fn start(port: u16) -> Self {
        Self::start_delayed(port, Duration::ZERO).await
    }

    /// Starts a proxy that forwards to `port` on loopback and delays each byte by this time, in
    /// each direction.
    pub async fn start_delayed(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let asks = watch::Sender::new(0);
        let answers = watch::Sender::new(0);
        let is_cut = Arc::<AtomicBool>::default();
        let serving = serve(
            listener,
            port,
            Arc::clone(&is_cut),
            [asks.subscribe(), answers.subscribe()],
            delay,
        );
        Self {
            address,
            asks,
            answers,
            is_cut,
            task: tokio::spawn(serving),
        }
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Drops all bytes of the connections that are open now, both ways. They stay open. Later
    /// connections work.
    pub fn freeze(&self) {
        self.asks.send_modify(|freezes| *freezes += 1);
        self.mute();
    }

    /// Drops all bytes of all connections, both ways, until [`join`](Self::join). New ones are
    /// accepted.
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.freeze();
    }

    /// Forwards on new connections again.
    pub fn join(&self) {
        self.is_cut.store(false, Ordering::Release);
    }

    /// Drops the answers on the connections that are open now. Requests pass.
    pub fn mute(&self) {
        self.answers.send_modify(|freezes| *freezes += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts connections. They are closed when this future is dropped.
async fn serve(
    listener: TcpListener,
    port: u16,
    is_cut: Arc<AtomicBool>,
    [asks, answers]: [watch::Receiver<Direction>; 2],
    delay: Duration,
) {
    let mut connections = JoinSet::new();
    while let Ok((inner, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        if is_cut.load(Ordering::Acquire) {
            connections.spawn(swallow(inner));
            continue;
        }
        // Without a server, the connection is closed, like a refused one.
        let Ok(outer) = TcpStream::connect(("127.0.0.1", port)).await else {
            continue;
        };
        let (inner_read, inner_write) = inner.into_split();
        let (outer_read, outer_write) = outer.into_split();
        inner_write.as_ref().set_nodelay(true).ok();
        outer_write.as_ref().set_nodelay(true).ok();
        connections.spawn(forward(inner_read, outer_write, asks.clone(), delay));
        connections.spawn(forward(outer_read, inner_write, answers.clone(), delay));
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    to: OwnedWriteHalf,
    direction: watch::Receiver<Direction>,
    delay: Duration,
) {
    let freezes = *direction.borrow();
    let (line, on_the_line) = mpsc::channel(1024);
    let reading = async move {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let read = from.read(&mut buffer).await.unwrap_or(0);
            if *direction.borrow() > freezes {
                // The end of a connection is not forwarded either.
                swallow_half(from).await;
                drop(line);
                return;
            }
            let part = (Instant::now() + delay, buffer[..read].to_vec());
            if read == 0 || line.send(part).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(reading, deliver(on_the_line, to));
}

/// Writes each part when it is due.
async fn deliver(mut on_the_line: mpsc::Receiver<(Instant, Vec<u8>)>, mut to: OwnedWriteHalf) {
    while let Some((due, bytes)) = on_the_line.recv().await {
        sleep_until(due).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// Drops all bytes of a connection, and keeps it open after the client's end.
async fn swallow(mut connection: TcpStream) {
    copy(&mut connection, &mut sink()).await.ok();
    std::future::pending().await
}

async fn swallow_half(mut from: OwnedReadHalf) {
    copy(&mut from, &mut sink()).await.ok();
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::{pass, soon};

    /// Starts a server that sends back what it receives.
    async fn echo() -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        tokio::spawn(async move {
            while let Ok((mut line, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = line.split();
                    copy(&mut from, &mut to).await.ok();
                });
            }
        });
        port
    }

    async fn connect(proxy: &Proxy) -> TcpStream {
        let line = TcpStream::connect(("127.0.0.1", proxy.port())).await;
        line.expect("it accepts")
    }

    /// Writes a byte, and returns whether it comes back within a moment.
    async fn echoes(line: &mut TcpStream) -> bool {
        line.write_all(b"x").await.expect("it is open");
        let moment = Duration::from_millis(300);
        let read = tokio::time::timeout(moment, line.read_u8()).await;
        read.is_ok_and(|read| read.is_ok())
    }

    #[tokio::test]
    async fn cut_proxy_swallows_old_and_new_connections_until_join() {
        let proxy = Proxy::start(echo().await).await;
        let mut old = connect(&proxy).await;
        old.write_all(b"x").await.expect("it is open");
        soon("the echo", old.read_u8()).await.expect("a byte");
        proxy.cut();
        let mut new = connect(&proxy).await;
        assert!(!echoes(&mut old).await);
        assert!(!echoes(&mut new).await);
        // More than the buffers of the system hold.
        let much = vec![0; 16 << 20];
        for line in [&mut old, &mut new] {
            let written = soon("swallowed bytes", line.write_all(&much)).await;
            written.expect("it is open");
        }
        proxy.join();
        pass(Duration::from_millis(50)).await;
        assert!(!echoes(&mut old).await && !echoes(&mut new).await);
        let mut later = connect(&proxy).await;
        later.write_all(b"x").await.expect("it is open");
        soon("the echo", later.read_u8()).await.expect("a byte");
    }
}
