//! Finds other daemons on this machine that read the same source. It logs them and shows them in
//! `status`, but never refuses them.
//!
//! For each source, the first daemon listens on an abstract Unix socket. Its name is derived from
//! the source's address. Abstract names belong to no folder, so a service with its own user and
//! `/tmp` and a daemon started by hand find each other. A later daemon finds the name in use and
//! connects. The kernel gives each the other's process id, and no data is sent. The connection
//! lasts while both daemons read. If it ends, the other daemon has ended, and the name can be taken
//! over.
//!
//! Any process on the machine can listen there or connect. The result is only shown, and nothing
//! depends on it. A process in another network namespace is not found.

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

/// Maximum connections of other daemons at a time.
const OTHERS_MAX: usize = 16;
/// First and longest pause before the name is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

/// The other daemons on each source, by its index among the flags.
pub(crate) type Others = watch::Receiver<BTreeMap<usize, Vec<OtherReader>>>;

/// One of our sources, and the other daemons that read it.
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
        // Any number of processes can read a PBX's catch-up file. A source that is given twice must
        // not find itself.
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

/// Returns the name of a source's socket. It begins with a zero byte, so it is abstract.
fn name(address: &Address) -> String {
    let parts: Vec<&str> = address.parts().collect();
    let hash = digest(&SHA256, parts.join("\0").as_bytes());
    let first = hash.as_ref().first_chunk().copied();
    let hash = u64::from_be_bytes(first.unwrap_or_default());
    format!("\0callbridge-reader-{hash:016x}")
}

/// Listens on the socket `name` if it is free. Otherwise connects to the daemon that listens there,
/// and tries again when that daemon ends.
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
    /// Adds the process at the other end of the connection to `others`, and removes it when it
    /// disconnects.
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

/// Adds the other readers of each source to its status.
pub(crate) fn with_readers(mut sources: Vec<SourceStatus>, others: &Others) -> Vec<SourceStatus> {
    for (at, readers) in others.borrow().iter() {
        if let Some(source) = sources.get_mut(*at) {
            source.others.clone_from(readers);
        }
    }
    sources
}
