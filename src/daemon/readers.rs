//! Other daemons on this machine that read a source of ours: found, named in log and `status`,
//! never refused.
//!
//! For each source the first daemon listens on an abstract Unix socket whose name is made of the
//! source's address: such names belong to no folder, so that a service with a user and a `/tmp` of
//! its own and a daemon begun by hand meet there. A later one finds the name taken and connects;
//! the kernel names each its peer's process, and nothing is said. The connection stands for as long
//! as both read: its end is the other's end, and the name is taken over.
//!
//! Anybody on the machine can listen there or connect. A process is shown, nothing else hangs on
//! it; one without the network namespace (or with another) is not met.

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

/// As many others are listened to at a time.
const OTHERS_MAX: usize = 16;
/// Before the name is tried again: at first, and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

/// The others on each source, by its place among the flags.
pub(crate) type Others = watch::Receiver<BTreeMap<usize, Vec<OtherReader>>>;

/// One source of ours, and who reads it beside us.
struct WatchedSource {
    at: usize,
    shown: String,
    effect: Effect,
    others: watch::Sender<BTreeMap<usize, Vec<OtherReader>>>,
}

/// Looks out for others until the stop is given.
pub(crate) fn start(config: &Config, sources: &[SourceStatus], tasks: &mut Tasks) -> Others {
    let (others, shown) = watch::channel(BTreeMap::new());
    let mut met = BTreeSet::new();
    for (at, (flag, source)) in config.sources.iter().zip(sources).enumerate() {
        // What a PBX has written down is read by as many as like to, and one source given twice is
        // ours alone.
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

/// The name of a source's socket: an abstract one, for it begins with a zero.
fn name(address: &Address) -> String {
    let words: Vec<&str> = address.parts().collect();
    let hash = digest(&SHA256, words.join("\0").as_bytes());
    let first = hash.as_ref().first_chunk().copied();
    let hash = u64::from_be_bytes(first.unwrap_or_default());
    format!("\0callbridge-reader-{hash:016x}")
}

/// Listens where nobody does, else stays with who does; for ever.
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
        let met = match UnixStream::connect(&name).await {
            Ok(stream) => place.meet(stream).await,
            Err(error) => Err(error),
        };
        match met {
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
        meetings.spawn(async move { place.meet(stream).await });
    }
}

impl WatchedSource {
    /// Shows the process at the other end until that ends.
    async fn meet(&self, mut stream: UnixStream) -> io::Result<()> {
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
            if let Some(found) = here.iter().position(|it| *it == other) {
                here.remove(found);
            }
        });
        ended?;
        tracing::info!(source, reason = %other, "the other daemon has ended");
        Ok(())
    }
}

/// The sources with who else reads them.
pub(crate) fn with_readers(mut sources: Vec<SourceStatus>, others: &Others) -> Vec<SourceStatus> {
    for (at, readers) in others.borrow().iter() {
        if let Some(source) = sources.get_mut(*at) {
            source.others.clone_from(readers);
        }
    }
    sources
}
