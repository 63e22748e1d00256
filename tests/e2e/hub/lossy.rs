//! A TCP proxy between collectors and their hub that loses responses. The hub has committed, but
//! the collector doesn't get the response.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{copy, copy_bidirectional, sink};
use tokio::net::{TcpListener, TcpStream};

/// One in this many connections loses its response.
const PERIOD: u64 = 7;

/// A running proxy.
pub struct LossyProxy {
    pub address: SocketAddr,
    lost: Arc<AtomicU64>,
}

impl LossyProxy {
    /// Starts a proxy on loopback that forwards to this hub.
    pub async fn start(hub: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("an address");
        let lost = Arc::<AtomicU64>::default();
        let counter = Arc::clone(&lost);
        tokio::spawn(async move {
            for number in 0_u64.. {
                let Ok((client, _)) = listener.accept().await else {
                    return;
                };
                let is_lossy = number % PERIOD == PERIOD - 1;
                let counter = Arc::clone(&counter);
                tokio::spawn(async move { forward(client, hub, is_lossy, &counter).await });
            }
        });
        Self { address, lost }
    }

    /// Returns the number of responses lost so far.
    pub fn count_lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

/// Forwards a connection to the hub. If `is_lossy` is set, the response is dropped and counted.
async fn forward(mut client: TcpStream, hub: SocketAddr, is_lossy: bool, lost: &AtomicU64) {
    let Ok(mut hub) = TcpStream::connect(hub).await else {
        return;
    };
    if !is_lossy {
        // Broken connections are expected in these tests.
        let _ = copy_bidirectional(&mut client, &mut hub).await;
        return;
    }
    let (mut from_client, _to_client) = client.split();
    let (mut from_hub, mut to_hub) = hub.split();
    let (mut dropped, mut request) = (sink(), Box::pin(copy(&mut from_client, &mut to_hub)));
    let mut answer = Box::pin(copy(&mut from_hub, &mut dropped));
    let bytes = tokio::select! {
        bytes = &mut answer => bytes,
        _ = &mut request => answer.await,
    };
    lost.fetch_add(
        u64::from(bytes.is_ok_and(|bytes| bytes > 0)),
        Ordering::Relaxed,
    );
}
