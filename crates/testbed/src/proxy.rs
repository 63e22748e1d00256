//! A TCP proxy that can stop forwarding without closing anything: what a dead line looks like.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards from a loopback port of its own to another.
pub struct Proxy {
    address: SocketAddr,
    /// Connections made before this generation stand still: to the other port, and back.
    asks: Arc<watch::Sender<u64>>,
    answers: Arc<watch::Sender<u64>>,
    /// New connections are accepted, and nothing else happens to them.
    is_cut: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Forwards to `port` on loopback.
    pub async fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let asks = Arc::new(watch::Sender::new(0_u64));
        let answers = Arc::new(watch::Sender::new(0_u64));
        let (there, back) = (Arc::clone(&asks), Arc::clone(&answers));
        let is_cut = Arc::<AtomicBool>::default();
        let cut = Arc::clone(&is_cut);
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((inner, _)) = listener.accept().await {
                if cut.load(Ordering::Relaxed) {
                    held.push(inner);
                    continue;
                }
                // Whoever finds nobody behind the proxy is closed, as by a refused connection.
                let Ok(outer) = TcpStream::connect(("127.0.0.1", port)).await else {
                    continue;
                };
                let (inner_read, inner_write) = inner.into_split();
                let (outer_read, outer_write) = outer.into_split();
                let (there, back) = (there.subscribe(), back.subscribe());
                tokio::spawn(forward(inner_read, outer_write, there));
                tokio::spawn(forward(outer_read, inner_write, back));
            }
        });
        Self {
            address,
            asks,
            answers,
            is_cut,
            task,
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Every connection that is open now forwards nothing any more, and stays open; later ones
    /// work.
    pub fn freeze(&self) {
        self.asks.send_modify(|generation| *generation += 1);
        self.mute();
    }

    /// Forwards nothing on any connection, now or later, until [`join`](Self::join).
    pub fn cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.freeze();
    }

    /// Forwards on new connections again.
    pub fn join(&self) {
        self.is_cut.store(false, Ordering::Relaxed);
    }

    /// On every connection that is open now nothing comes back any more; what is asked is heard.
    pub fn mute(&self) {
        self.answers.send_modify(|generation| *generation += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut generation: watch::Receiver<u64>,
) {
    let born = *generation.borrow();
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = tokio::select! {
            read = from.read(&mut buffer) => Some(read),
            () = outlived(&mut generation, born) => None,
        };
        let Some(read) = read else {
            // Both halves are kept until the proxy ends, so that neither side hears of it.
            let _ = generation.wait_for(|_| false).await;
            return;
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) if to.write_all(&buffer[..read]).await.is_err() => return,
            Ok(_) => {}
        }
    }
}

/// Waits for a freeze after the connection was made, or the proxy's end.
async fn outlived(generation: &mut watch::Receiver<u64>, born: u64) {
    let _ = generation.wait_for(|now| *now > born).await;
}
