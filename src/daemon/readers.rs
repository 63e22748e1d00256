//! Detects other daemons on this machine that read the same source. They're logged and shown in
//! `status`, but never rejected.
//!
//! For each source, the first daemon listens on an abstract Unix socket whose name is derived from
//! the source's address. Since abstract names don't belong to any directory, a service with its own
//! user and `/tmp` can find a daemon that was started manually, and vice versa. A later daemon
//! finds the name in use and connects to it. The kernel tells each of them the other's process ID,
//! and no data is sent. The connection lasts for as long as both daemons read. When it ends, the
//! other daemon has ended, and the name can be taken over.
//!
//! Any process on the machine may listen there or connect, but the result is only displayed, and
//! nothing depends on it. A process in a different network namespace isn't detected.

use super::tasks::Tasks;
use crate::config::Config;
use callbridge_listener::accept::Acceptor;
use callbridge_model::status::{
    SourceStatus,
    other_reader::{Effect, OtherReader},
};
use callbridge_source::{Transport, url::Address};
use futures_util::FutureExt as _;
use ring::digest::{SHA256, digest};
use std::collections::{BTreeMap, BTreeSet};
use std::{io, sync::Arc, time::Duration};
use tokio::net::{UnixListener, UnixStream};
use tokio::{io::AsyncReadExt as _, sync::watch, task::JoinSet};

/// Maximum number of simultaneous connections from other daemons.
const OTHERS_MAX: usize = 16;
/// First and longest pause before trying the name again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

/// The other daemons on each source, by the source's index among the flags.
pub(crate) type Others = watch::Receiver<BTreeMap<usize, Vec<OtherReader>>>;

/// One of our sources, along with the other daemons that read it.
struct WatchedSource {
    at: usize,
    shown: String,
    effect: Effect,
    others: watch::Sender<BTreeMap<usize, Vec<OtherReader>>>,
}

/// Looks for other daemons until the stop signal.
pub(crate) fn start(config: &Config, sources: &[SourceStatus], tasks: &mut Tasks) -> Others {
    let (others, shown) = watch::channel(BTreeMap::new());
    let mut met = BTreeSet::new();
    for (at, (flag, source)) in config.sources.iter().zip(sources).enumerate() {
        // Any number of processes may read a PBX's catch-up file. If the same source is given
        // twice, it mustn't find itself.
        if flag.catch_up || !met.insert(flag.url.address()) {
            continue;
        }
        let place = Arc::new(WatchedSource {
            at,
            shown: source.name().to_owned(),
            effect: match flag.url.transport {
                Transport::Amqp(_) => Effect::Torn,
                _ => Effect::Unknown,
            },
            others: others.clone(),
        });
        let name = name(&flag.url.address());
        tasks.start_until_stop(watch_reader(place, name).map(Ok));
    }
    shown
}

/// Returns the name of a source's socket, which starts with a zero byte and is therefore abstract.
fn name(address: &Address) -> String {
    let parts: Vec<&str> = address.parts().collect();
    let hash = digest(&SHA256, parts.join("\0").as_bytes());
    let first = hash.as_ref().first_chunk().copied();
    let hash = u64::from_be_bytes(first.unwrap_or_default());
    format!("\0callbridge-reader-{hash:016x}")
}

/// Listens on the socket `name` if it's available. Otherwise, connects to the daemon listening
/// there, and tries again once that daemon has ended.
async fn watch_reader(place: Arc<WatchedSource>, name: String) {
    let mut pause = AGAIN_AFTER;
    loop {
        match UnixListener::bind(&name) {
            Ok(listener) => return listen(&place, &listener).await,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                tracing::debug!(source = place.shown, %error, "other daemons are not looked for");
                return;
            }
        }
        let result = match UnixStream::connect(&name).await {
            Ok(stream) => place.watch_other(stream).await,
            Err(error) => Err(error),
        };
        match result {
            Ok(()) => pause = AGAIN_AFTER,
            Err(error) => {
                tracing::debug!(source = place.shown, %error, "another daemon does not answer");
                pause = (pause * 2).min(AGAIN_AFTER_MAX);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

async fn listen(place: &Arc<WatchedSource>, listener: &UnixListener) {
    let mut meetings = JoinSet::new();
    let mut incoming = Acceptor::new("other daemons");
    loop {
        let (stream, _) = incoming.next(|| listener.accept()).await;
        while meetings.try_join_next().is_some() {}
        if meetings.len() >= OTHERS_MAX {
            continue;
        }
        let place = Arc::clone(place);
        meetings.spawn(async move { place.watch_other(stream).await });
    }
}

impl WatchedSource {
    /// Adds the process at the other end of the connection to `others` until it disconnects.
    async fn watch_other(&self, mut stream: UnixStream) -> io::Result<()> {
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let other = OtherReader {
            pid: pid.filter(|pid| *pid > 0),
            effect: self.effect,
        };
        let source = self.shown.as_str();
        tracing::warn!(source, reason = %other, "another daemon reads this source");
        self.others.send_modify(|all| {
            all.entry(self.at).or_default().push(other.clone());
        });
        let mut bytes = [0; 64];
        let ended = loop {
            match stream.read(&mut bytes).await {
                Ok(1..) => {}
                ended => break ended,
            }
        };
        self.others.send_modify(|all| {
            let here = all.entry(self.at).or_default();
            if let Some(found) = here.iter().position(|reader| *reader == other) {
                here.remove(found);
            }
        });
        ended?;
        tracing::info!(source, reason = %other, "the other daemon has ended");
        Ok(())
    }
}

/// Adds each source's other readers to its status.
pub(crate) fn with_readers(mut sources: Vec<SourceStatus>, others: &Others) -> Vec<SourceStatus> {
    for (at, readers) in others.borrow().iter() {
        if let Some(source) = sources.get_mut(*at) {
            source.others.clone_from(readers);
        }
    }
    sources
}
