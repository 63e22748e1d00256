//! Other daemons on this machine that read a source of ours: found, named in log and `status`,
//! never refused.
//!
//! For each source the first daemon listens on an abstract Unix socket whose name is made of the
//! source's address: such names belong to no folder, so that a service with a user and a `/tmp` of
//! its own and a daemon begun by hand meet there. A later one finds the name taken, connects, and
//! both say who they are in one line of JSON. The connection stands for as long as both read: its
//! end is the other's end, and the name is taken over.
//!
//! Anybody on the machine can listen there or connect. What is told is shown, nothing else hangs
//! on it; a process without the network namespace (or with another) is not met.

use super::has_stopped;
use crate::config::checked::Config;
use callbridge_listener::accept::Acceptor;
use callbridge_model::safe::safe;
use callbridge_model::status;
use callbridge_model::status::other_reader::{Effect, OtherReader};
use callbridge_source::url::{Address, Transport};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net as blocking;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// What another daemon says of itself is at most this long, in bytes.
const CARD_BYTES_MAX: u64 = 64 << 10;
/// And said within this time.
const CARD_WITHIN: Duration = Duration::from_secs(5);
/// As many others are listened to at a time.
const OTHERS_MAX: usize = 16;
/// Before the name is tried again: at first, and at most.
const AGAIN_AFTER: Duration = Duration::from_millis(200);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(10);

/// What a daemon says of itself on a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Card {
    state: String,
    pbx: String,
    /// Its trunks' endpoints, hashed: they are nobody's to read.
    trunks: BTreeSet<String>,
    /// An endpoint has a `*`: it may take any trunk of another's.
    patterns: bool,
    journals: bool,
}

/// The others on each source, by its place among the flags.
pub(crate) type Others = watch::Receiver<BTreeMap<usize, Vec<OtherReader>>>;

/// One source of ours, and who reads it beside us.
struct WatchedSource {
    at: usize,
    shown: String,
    queue: bool,
    own: Card,
    others: watch::Sender<BTreeMap<usize, Vec<OtherReader>>>,
}

/// Looks out for others until the stop is given.
pub(crate) fn start(
    config: &Config,
    sources: &[status::SourceStatus],
    stopped: &watch::Receiver<bool>,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> Others {
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
            queue: matches!(flag.url.transport, Transport::Amqp(_)),
            own: card(config, &source.pbx),
            others: others.clone(),
        });
        let name = name(&flag.url.address());
        let (look, stop) = (look_out(place, name), has_stopped(stopped.clone()));
        tasks.spawn(async move {
            tokio::select! {
                () = look => Ok(()),
                () = stop => Ok(()),
            }
        });
    }
    shown
}

fn card(config: &Config, pbx: &str) -> Card {
    let of_another = |name: &str| {
        name != pbx && (config.sources.iter()).any(|it| it.url.pbx.as_deref() == Some(name))
    };
    let trunks = (config.rules.trunks.iter())
        .filter(|trunk| trunk.journal && !trunk.pbx.as_deref().is_some_and(of_another));
    let trunks: Vec<&str> = trunks.map(|trunk| trunk.endpoint.as_str()).collect();
    let state = config.state.clone().unwrap_or_default();
    let state = std::path::absolute(&state).unwrap_or(state);
    Card {
        state: state.display().to_string(),
        pbx: pbx.to_owned(),
        patterns: trunks.iter().any(|endpoint| endpoint.contains('*')),
        trunks: trunks
            .into_iter()
            .map(|endpoint| hashed([endpoint].into_iter()))
            .collect(),
        journals: !config.dry_run,
    }
}

/// The name of a source's socket.
fn name(address: &Address) -> String {
    format!("callbridge-source-{}", hashed(address.parts()))
}

fn hashed<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<&str> = words.collect();
    let hash = digest(&SHA256, words.join("\0").as_bytes());
    let first = hash.as_ref().first_chunk().copied();
    format!("{:016x}", u64::from_be_bytes(first.unwrap_or_default()))
}

/// What a daemon that tells this of itself does to the calls of ours.
fn effect(own: &Card, other: &Card, queue: bool) -> Effect {
    let shared = own.patterns || other.patterns || !own.trunks.is_disjoint(&other.trunks);
    if queue {
        Effect::Torn
    } else if !shared || !own.journals || !other.journals {
        Effect::None
    } else if own.pbx == other.pbx {
        Effect::SentTwice
    } else {
        Effect::Twice
    }
}

/// Listens where nobody does, else stays with who does; for ever.
async fn look_out(place: Arc<WatchedSource>, name: String) {
    let mut pause = AGAIN_AFTER;
    loop {
        match bind(&name) {
            Ok(listener) => return listen(&place, &listener).await,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => {
                tracing::debug!(source = place.shown, %error, "other daemons are not looked for");
                return;
            }
        }
        let met = match connect(&name) {
            Ok(stream) => place.meet(stream).await,
            Err(error) => Err(error),
        };
        match met {
            Ok(()) => pause = AGAIN_AFTER,
            Err(error) => {
                tracing::debug!(source = place.shown, %error, "another daemon says nothing");
                pause = (pause * 2).min(AGAIN_AFTER_MAX);
            }
        }
        tokio::time::sleep(pause).await;
    }
}

fn bind(name: &str) -> io::Result<UnixListener> {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let listener = blocking::UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

fn connect(name: &str) -> io::Result<UnixStream> {
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    let stream = blocking::UnixStream::connect_addr(&address)?;
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}

async fn listen(place: &Arc<WatchedSource>, listener: &UnixListener) {
    let mut meetings = JoinSet::new();
    let mut incoming = Acceptor::new("other daemons");
    loop {
        let (stream, _) = incoming.next(listener).await;
        while meetings.try_join_next().is_some() {}
        if meetings.len() >= OTHERS_MAX {
            continue;
        }
        let place = Arc::clone(place);
        meetings.spawn(async move { place.meet(stream).await });
    }
}

/// Takes the other away again when its connection ends, in whatever way.
struct Present<'a> {
    place: &'a WatchedSource,
    other: OtherReader,
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.place.others.send_modify(|all| {
            let here = all.entry(self.place.at).or_default();
            if let Some(found) = here.iter().position(|it| *it == self.other) {
                here.remove(found);
            }
        });
    }
}

impl WatchedSource {
    /// Tells who we are, hears who the other is, and stays until it ends.
    async fn meet(&self, stream: UnixStream) -> io::Result<()> {
        let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
        let (read, mut write) = stream.into_split();
        let mut line = serde_json::to_vec(&self.own)?;
        line.push(b'\n');
        let mut read = BufReader::new(read.take(CARD_BYTES_MAX));
        let mut told = Vec::new();
        let exchange = async {
            write.write_all(&line).await?;
            read.read_until(b'\n', &mut told).await
        };
        timeout(CARD_WITHIN, exchange).await??;
        let card: Card = serde_json::from_slice(&told)?;
        let present = self.greet(pid, &card);
        // Nothing more is said: its end is the other's.
        let mut rest = read.into_inner().into_inner();
        let mut bytes = [0; 64];
        while rest.read(&mut bytes).await? > 0 {}
        let other = present.other.to_string();
        drop(present);
        tracing::info!(source = self.shown, reason = %other, "the other daemon has ended");
        Ok(())
    }

    fn greet(&self, pid: Option<i32>, card: &Card) -> Present<'_> {
        let other = OtherReader {
            pid: pid.filter(|pid| *pid > 0),
            state: safe(&card.state),
            pbx: safe(&card.pbx),
            effect: effect(&self.own, card, self.queue),
        };
        let source = self.shown.as_str();
        match other.effect {
            Effect::None => {
                tracing::info!(source, reason = %other, "another daemon reads this source");
            }
            Effect::Twice | Effect::SentTwice | Effect::Torn => {
                tracing::warn!(source, reason = %other, "another daemon reads this source");
            }
        }
        self.others.send_modify(|all| {
            all.entry(self.at).or_default().push(other.clone());
        });
        Present { place: self, other }
    }
}

/// The sources with who else reads them.
pub(crate) fn told(
    mut sources: Vec<status::SourceStatus>,
    others: &Others,
) -> Vec<status::SourceStatus> {
    for (at, readers) in others.borrow().iter() {
        if let Some(source) = sources.get_mut(*at) {
            source.others.clone_from(readers);
        }
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(pbx: &str, endpoints: &[&str]) -> Card {
        Card {
            state: "/s".to_owned(),
            pbx: pbx.to_owned(),
            patterns: endpoints.iter().any(|it| it.contains('*')),
            trunks: endpoints
                .iter()
                .map(|it| hashed([*it].into_iter()))
                .collect(),
            journals: true,
        }
    }

    #[test]
    fn what_another_does_hangs_on_trunks_uuids_and_the_kind_of_source() {
        let own = card("a", &["PJSIP/city", "PJSIP/gsm"]);
        let of = |other: &Card| effect(&own, other, false);
        assert_eq!(of(&card("b", &["PJSIP/city"])), Effect::Twice);
        assert_eq!(of(&card("a", &["PJSIP/gsm"])), Effect::SentTwice);
        assert_eq!(of(&card("b", &["PJSIP/fax"])), Effect::None);
        assert_eq!(of(&card("b", &["PJSIP/*"])), Effect::Twice);
        let tries = Card {
            journals: false,
            ..card("b", &["PJSIP/city"])
        };
        assert_eq!(of(&tries), Effect::None);
        assert_eq!(effect(&own, &card("b", &["PJSIP/fax"]), true), Effect::Torn);
    }

    #[test]
    fn what_is_told_of_trunks_does_not_name_them() {
        let told = serde_json::to_string(&card("a", &["PJSIP/city"])).expect("JSON");
        assert!(!told.contains("city"), "{told}");
    }
}
