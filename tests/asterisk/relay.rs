//! A relay between callbridge and the PBX. The connection can be cut and restored.

use anyhow::Result;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards connections from its port to another port.
pub struct Relay {
    address: SocketAddr,
    /// Whether connections are forwarded.
    whole: Arc<watch::Sender<bool>>,
    task: JoinHandle<()>,
}

impl Relay {
    /// Starts to forward to `port` on loopback.
    pub async fn start(port: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let whole = Arc::new(watch::Sender::new(true));
        let shared = Arc::clone(&whole);
        let task = tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                tokio::spawn(forward(inner, port, shared.subscribe()));
            }
        });
        Ok(Self {
            address,
            whole,
            task,
        })
    }

    /// Returns the port to which callbridge connects.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Closes all connections, and closes each new connection at once.
    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Forwards new connections again.
    pub fn mend(&self) {
        self.whole.send_replace(true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut inner: TcpStream, port: u16, mut whole: watch::Receiver<bool>) {
    if !*whole.borrow_and_update() {
        return;
    }
    let Ok(mut outer) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    tokio::select! {
        _ = copy_bidirectional(&mut inner, &mut outer) => {}
        _ = whole.wait_for(|whole| !*whole) => {}
    }
}
