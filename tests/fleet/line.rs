//! Lines between a client and servers, that can be cut while both of their ends are well.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cable {
    /// It carries.
    Whole,
    /// What is open was closed, and whoever calls is hung up on.
    Closed,
    /// Bytes vanish, and nobody hears of it.
    Silent,
}

/// A loopback port from which bytes go to a server.
pub struct TappedLine {
    addr: SocketAddr,
    cable: watch::Sender<Cable>,
    carried: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl TappedLine {
    /// A whole line to this server.
    pub async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let addr = listener.local_addr().expect("bound");
        let cable = watch::Sender::new(Cable::Whole);
        let carried = Arc::new(AtomicU64::new(0));
        let (shared, counter) = (cable.clone(), Arc::clone(&carried));
        let task = tokio::spawn(async move {
            while let Ok((inner, _)) = listener.accept().await {
                let (cable, counter) = (shared.subscribe(), Arc::clone(&counter));
                tokio::spawn(carry(inner, server, cable, counter));
            }
        });
        Self {
            addr,
            cable,
            carried,
            task,
        }
    }

    /// Where clients call.
    pub const fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What becomes of the line.
    pub fn set(&self, cable: Cable) {
        self.cable.send_replace(cable);
    }

    /// Bytes that clients have sent over it so far.
    pub fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }
}

impl Drop for TappedLine {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(
    inner: TcpStream,
    server: SocketAddr,
    mut cable: watch::Receiver<Cable>,
    counter: Arc<AtomicU64>,
) {
    // Who calls into silence waits for an answer until the line is whole again.
    let now = cable.wait_for(|it| *it != Cable::Silent).await;
    if !now.is_ok_and(|it| *it == Cable::Whole) {
        return;
    }
    let Ok(outer) = TcpStream::connect(server).await else {
        return;
    };
    let (inner_read, inner_write) = inner.into_split();
    let (outer_read, outer_write) = outer.into_split();
    let back = cable.clone();
    tokio::select! {
        () = forward(inner_read, outer_write, cable, Some(counter)) => {}
        () = forward(outer_read, inner_write, back, None) => {}
    }
}

/// Bytes one way, until an end is closed or the line is. In silence they are not even read: a
/// client that goes on writing finds its window full, as on a dead line.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut cable: watch::Receiver<Cable>,
    counter: Option<Arc<AtomicU64>>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let state = *cable.borrow_and_update();
        let read = match state {
            Cable::Closed => return,
            Cable::Silent => {
                if cable.changed().await.is_err() {
                    return;
                }
                continue;
            }
            Cable::Whole => tokio::select! {
                read = from.read(&mut buffer) => read,
                changed = cable.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
            },
        };
        match read {
            Ok(0) | Err(_) => return,
            Ok(read) if to.write_all(&buffer[..read]).await.is_err() => return,
            Ok(read) => {
                if let Some(counter) = &counter {
                    counter.fetch_add(u64::try_from(read).unwrap_or(0), Ordering::Relaxed);
                }
            }
        }
    }
}

/// The lines of a client, one to each broker.
pub struct Cabling(Vec<TappedLine>);

impl Cabling {
    /// Whole ones to these.
    pub async fn to(servers: &[SocketAddr]) -> Self {
        let mut lines = Vec::new();
        for server in servers {
            lines.push(TappedLine::to(*server).await);
        }
        Self(lines)
    }

    /// `HOST:PORT,HOST:PORT,…`, the `first` one before the others.
    pub fn hosts(&self, first: usize) -> String {
        let (before, after) = self.0.split_at(first % self.0.len());
        let hosts = after.iter().chain(before).map(|it| it.addr().to_string());
        hosts.collect::<Vec<_>>().join(",")
    }

    /// Where a client calls for one of them.
    pub fn addr(&self, server: usize) -> SocketAddr {
        self.0[server % self.0.len()].addr()
    }

    /// What becomes of all of them.
    pub fn set(&self, cable: Cable) {
        self.0.iter().for_each(|it| it.set(cable));
    }
}
