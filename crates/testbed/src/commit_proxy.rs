//! A proxy in front of PostgreSQL, without TLS, that counts commits. It can lose a COMMIT, lose the
//! answer to it, or hold the answer back. The client cannot know whether the request or the answer
//! was lost.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

/// The part of a COMMIT that is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The request is lost, so the server rolls back.
    Request,
    /// The answer is lost after the server has committed.
    Answer,
}

/// Forwards from its own loopback port to a server.
pub struct CommitProxy {
    address: SocketAddr,
    plan: Arc<Plan>,
    task: JoinHandle<()>,
}

/// What the proxy does to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost(Loss),
    /// Its answer is held back.
    Held,
}

#[derive(Default)]
struct Plan {
    /// Number of commits until the affected one, which is included, and what happens to it.
    next: Mutex<Option<(u32, Fate)>>,
    met: Notify,
    released: Notify,
    /// Answered commits.
    commits: AtomicU64,
}

impl Plan {
    fn set(&self, number: u32, fate: Fate) {
        assert!(number > 0, "commits are counted from 1");
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = Some((number, fate));
    }

    /// Counts a commit. Returns `true` if this fate applies to it.
    fn meets(&self, fate: Fate) -> bool {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((number, planned)) = next.as_mut() else {
            return false;
        };
        if *planned != fate {
            return false;
        }
        *number -= 1;
        if *number > 0 {
            return false;
        }
        *next = None;
        self.met.notify_one();
        true
    }
}

impl CommitProxy {
    /// Starts a proxy that forwards to a server on this port of loopback.
    pub async fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let plan = Arc::<Plan>::default();
        let task = tokio::spawn(serve(listener, port, Arc::clone(&plan)));
        Self {
            address,
            plan,
            task,
        }
    }

    /// Returns the port on which it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Loses a part of the n-th COMMIT from now, counted from 1, and then closes its connection to
    /// both sides.
    pub fn lose(&self, number: u32, loss: Loss) {
        self.plan.set(number, Fate::Lost(loss));
    }

    /// Waits until the COMMIT or its answer was lost.
    pub async fn has_lost(&self) {
        self.plan.met.notified().await;
    }

    /// Holds back the answer to the n-th COMMIT from now, counted from 1, until
    /// [`release`](Self::release).
    pub fn hold(&self, number: u32) {
        self.plan.set(number, Fate::Held);
    }

    /// Waits until the server has committed, and the answer is held back.
    pub async fn has_held(&self) {
        self.plan.met.notified().await;
    }

    /// Forwards the answer that is held back.
    pub fn release(&self) {
        self.plan.released.notify_one();
    }

    /// Returns the number of commits that the server has answered.
    pub fn commits(&self) -> u64 {
        self.plan.commits.load(Ordering::Relaxed)
    }
}

impl Drop for CommitProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, port: u16, plan: Arc<Plan>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        // Without a server, the connection is closed, like a refused one.
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
            continue;
        };
        // Each message is written separately, and would wait for an acknowledgment.
        for line in [&client, &server] {
            line.set_nodelay(true).expect("it is open");
        }
        let plan = Arc::clone(&plan);
        connections.spawn(async move {
            let (client_read, client_write) = client.into_split();
            let (server_read, server_write) = server.into_split();
            // When one direction ends, both end.
            tokio::select! {
                _ = requests(client_read, server_write, &plan) => {}
                _ = answers(server_read, client_write, &plan) => {}
            }
        });
    }
}

/// Reads a message: its kind, and its body without the length. `None` at the end.
async fn message(from: &mut OwnedReadHalf, has_kind: bool) -> Option<(u8, Vec<u8>)> {
    let mut kind = 0;
    if has_kind {
        kind = from.read_u8().await.ok()?;
    }
    let length = from.read_u32().await.ok()?;
    let length = usize::try_from(length).ok()?.checked_sub(4)?;
    let mut body = vec![0; length];
    from.read_exact(&mut body).await.ok()?;
    Some((kind, body))
}

async fn pass_on(to: &mut OwnedWriteHalf, kind: Option<u8>, body: &[u8]) -> Option<()> {
    let length = u32::try_from(body.len() + 4).ok()?;
    let mut bytes = Vec::with_capacity(body.len() + 5);
    bytes.extend(kind);
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
    to.write_all(&bytes).await.ok()
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, plan: &Plan) -> Option<()> {
    // The first message has no kind.
    let (_, startup) = message(&mut from, false).await?;
    pass_on(&mut to, None, &startup).await?;
    let mut prepared = BTreeSet::new();
    loop {
        let (kind, body) = message(&mut from, true).await?;
        let mut texts = body.split(|byte| *byte == 0);
        let first = texts.next().unwrap_or_default();
        let second = texts.next().unwrap_or_default();
        let is_commit = match kind {
            b'P' if is_commit(second) => {
                prepared.insert(first.to_vec());
                false
            }
            b'P' => {
                prepared.remove(first);
                false
            }
            // Bind: the names of a portal and of its statement.
            b'B' => prepared.contains(second),
            b'Q' => is_commit(first),
            _ => false,
        };
        if is_commit && plan.meets(Fate::Lost(Loss::Request)) {
            return None;
        }
        pass_on(&mut to, Some(kind), &body).await?;
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, plan: &Plan) -> Option<()> {
    loop {
        let (kind, body) = message(&mut from, true).await?;
        // CommandComplete.
        if kind == b'C' && body == b"COMMIT\0" {
            plan.commits.fetch_add(1, Ordering::Relaxed);
            if plan.meets(Fate::Lost(Loss::Answer)) {
                return None;
            }
            if plan.meets(Fate::Held) {
                plan.released.notified().await;
            }
        }
        pass_on(&mut to, Some(kind), &body).await?;
    }
}

fn is_commit(text: &[u8]) -> bool {
    text.trim_ascii().eq_ignore_ascii_case(b"COMMIT")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::{DATABASE, Durability, Postgres, ROLE};
    use crate::wait::soon;
    use std::process::Command;

    /// Inserts a row in its own transaction. Returns `true` if the client learns that it succeeded.
    fn insert(server: &Postgres, port: u16, row: u32) -> bool {
        let port = port.to_string();
        let insert = format!("INSERT INTO kept VALUES ({row})");
        let commands = ["-c", "BEGIN", "-c", insert.as_str(), "-c", "COMMIT"];
        let output = Command::new(server.program("psql"))
            .args(["-h", "127.0.0.1", "-p", &port, "-U", ROLE, "-d", DATABASE])
            .args(["-X", "-q", "-v", "ON_ERROR_STOP=1"])
            .args(commands)
            .env("PGSSLMODE", "disable")
            .env("PGGSSENCMODE", "disable")
            .output();
        output.expect("psql").status.success()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn lost_commit_is_rolled_back_and_lost_answer_is_not() {
        let server = Postgres::start(Durability::None, "");
        server.sql(&format!(
            "CREATE TABLE kept (x int); GRANT ALL ON kept TO {ROLE}"
        ));
        let proxy = CommitProxy::start(server.port()).await;
        assert!(insert(&server, proxy.port(), 1));
        proxy.lose(2, Loss::Request);
        assert!(insert(&server, proxy.port(), 2));
        assert!(!insert(&server, proxy.port(), 3));
        soon("the loss", proxy.has_lost()).await;
        proxy.lose(1, Loss::Answer);
        assert!(!insert(&server, proxy.port(), 4));
        soon("the loss", proxy.has_lost()).await;
        assert!(insert(&server, proxy.port(), 5));
        let rows = server.sql("SELECT string_agg(x::text, ' ' ORDER BY x) FROM kept");
        assert_eq!(rows, "1 2 4 5");
        assert_eq!(proxy.commits(), 4, "one was not answered by the server");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn held_commit_is_stored_but_answered_only_after_release() {
        let server = Postgres::start(Durability::None, "");
        server.sql(&format!(
            "CREATE TABLE kept (x int); GRANT ALL ON kept TO {ROLE}"
        ));
        let proxy = CommitProxy::start(server.port()).await;
        proxy.hold(1);
        let inserted = std::thread::scope(|scope| {
            let inserting = scope.spawn(|| insert(&server, proxy.port(), 1));
            while proxy.commits() == 0 {
                std::thread::park_timeout(std::time::Duration::from_millis(5));
            }
            assert_eq!(server.sql("SELECT count(*) FROM kept"), "1");
            assert!(!inserting.is_finished());
            proxy.release();
            inserting.join()
        });
        assert!(inserted.expect("no panic"));
        soon("the hold", proxy.has_held()).await;
    }
}
