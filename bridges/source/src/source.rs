//! A source, from its URL until it ends.

use crate::{
    Access, Backoff, Clock, Context, Counts, Error, FilePosition, FilesAgain, Fix, Item, LineError,
    Ring, Secret, Settings, SourceFeed, SourceId, SourceUrl, Stop, Transport, VerdictReader, ami,
    amqp, chance, esl, file, websocket,
};
use callbridge_asterisk::survey::Account;
use callbridge_freeswitch::survey::SwitchFacts;
use std::{fmt, time::Duration};
use tokio::sync::watch;

/// A source that's ready to run.
pub struct Source {
    id: SourceId,
    url: SourceUrl,
    access: Access,
    start: Option<FilePosition>,
    clock: Clock,
    counts: Counts,
    again: FilesAgain,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Source");
        shown.field("id", &self.id).field("url", &self.url.shown);
        shown.finish_non_exhaustive()
    }
}

impl Source {
    /// Returns `true` for a live connection, which never resends an event.
    pub const fn is_live(&self) -> bool {
        self.url.transport.live_endpoint().is_some()
    }

    /// Creates a source that starts at `start`, the position in the spool. If there's no position,
    /// the source starts where its URL says.
    pub fn new(
        id: SourceId,
        url: SourceUrl,
        secret: Secret,
        start: Option<FilePosition>,
        settings: Settings,
        clock: Clock,
    ) -> Self {
        Self {
            id,
            access: Access {
                settings,
                secret,
                ca_file: url.ca_file.clone(),
            },
            url,
            start,
            clock,
            counts: Counts::default(),
            again: FilesAgain::default(),
        }
    }

    /// Returns a handle to the counters, which remains valid while [`Source::run`] is running.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Returns a handle for requesting that files in a directory be reread.
    pub fn files_again(&self) -> FilesAgain {
        self.again.clone()
    }

    /// Opens the source once, without consuming anything from it. For an AMI source, returns the
    /// permissions of its manager account.
    ///
    /// # Errors
    /// Returns the problem and what to do about it. Use [`Error::fix`] to find out where to fix it.
    pub async fn probe(&self) -> Result<Option<Account>, Error> {
        let access = &self.access;
        match &self.url.transport {
            Transport::Ami { endpoint, user } => {
                return ami::survey(endpoint, user, access, self.clock)
                    .await
                    .map(Some);
            }
            Transport::Esl { endpoint } => esl::probe(endpoint, access).await?,
            Transport::WebSocket { endpoint, path } => {
                websocket::probe(endpoint, path, access).await?;
            }
            Transport::Amqp(queue) => amqp::probe(queue, access).await?,
            Transport::File { path, format, .. } => file::probe(path, *format).await?,
        }
        Ok(None)
    }

    /// Asks a switch for facts about itself over its event socket, or returns `None` for any other
    /// kind of source.
    ///
    /// # Errors
    /// Returns the same errors as [`Source::probe`].
    pub async fn survey_switch(&self) -> Result<Option<SwitchFacts>, Error> {
        let Transport::Esl { endpoint } = &self.url.transport else {
            return Ok(None);
        };
        esl::survey(endpoint, &self.access).await.map(Some)
    }

    /// Runs until `shutdown`, or until the intake has ended. A lost connection is always reopened.
    /// The last item is [`Item::Done`]. After `shutdown`, a broker's source stops reading and waits
    /// a short time for the verdicts on its frames, whereas a live connection sends a final ping
    /// and is read until the response arrives, for at most a second.
    pub async fn run(
        self,
        ring: Ring,
        verdicts: VerdictReader,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let line = SourceFeed {
            id: self.id,
            shown: self.url.public(),
            ring,
            clock: self.clock,
            counts: self.counts,
            seq: 0,
            up: None,
            was_up: false,
            reported: None,
            dropped: 0,
        };
        let (stop_sender, stop) = watch::channel(false);
        let mut context = Context {
            line,
            access: self.access,
            stop: Stop(stop),
            calls: verdicts.calls(),
        };
        let transport = &self.url.transport;
        let ended = {
            let work = work(&mut context, transport, self.start, self.again, verdicts);
            let mut work = std::pin::pin!(work);
            tokio::select! {
                ended = &mut work => ended,
                () = shutdown => {
                    stop_sender.send_replace(true);
                    work.await
                }
            }
        };
        // If the intake has ended, there's no one to receive this.
        if ended.is_ok() {
            let _ = context.line.ring.report(self.id, Item::Done).await;
        }
    }
}

/// Runs one session after another, with pauses in between, until a stop is requested.
async fn work(
    context: &mut Context,
    transport: &Transport,
    start: Option<FilePosition>,
    again: FilesAgain,
    verdicts: VerdictReader,
) -> Result<(), crate::Gone> {
    let stop = context.stop.clone();
    let mut queue = match transport {
        Transport::File { path, format, from } => {
            let mut tail =
                file::Tail::new(path.clone(), *format, from.clone(), start, again, verdicts);
            return tokio::select! {
                gone = tail.follow(context) => gone,
                () = stop.requested() => Ok(()),
            };
        }
        Transport::Amqp(queue) => Some(amqp::Consumer::new(queue, verdicts)),
        Transport::Ami { .. } | Transport::Esl { .. } | Transport::WebSocket { .. } => None,
    };
    let mut unfiltered = false;
    let mut core = None;
    let mut backoff = Backoff::new(context.access.settings.backoff);
    loop {
        // Each session handles the stop itself, because a broker's frames still need to be
        // acknowledged, and a live connection sends a final ping.
        let ended = match (transport, &mut queue) {
            (Transport::Ami { endpoint, user }, _) => {
                ami::session(endpoint, user, &mut unfiltered, context).await
            }
            (Transport::Esl { endpoint }, _) => esl::session(endpoint, &mut core, context).await,
            (Transport::WebSocket { endpoint, path }, _) => {
                websocket::session(endpoint, path, context).await
            }
            (_, Some(queue)) => queue.session(context, stop.clone()).await,
            (Transport::Amqp(_) | Transport::File { .. }, None) => Ok(()),
        };
        let error = match ended {
            Ok(()) => return Ok(()),
            Err(Error::Gone(gone)) => return Err(gone),
            Err(error) => error,
        };
        // The silence has already gone on for long enough, so the connection is reopened soon. The
        // gap starts at the last byte.
        let mut silent = Duration::ZERO;
        if let Error::Line(_, LineError::Silent(time)) = &error {
            backoff.reset();
            silent = *time;
        }
        let up = context.line.up_for();
        let wait = wait_after(&mut backoff, &error, transport, up, chance());
        let why = error.to_string();
        context.line.down(why, error.fix(), silent, false).await?;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.requested() => return Ok(()),
        }
    }
}

/// The longest wait for a PBX on this machine, where an attempt is cheap.
const LOOPBACK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Returns how long to wait after this error before trying again.
///
/// A PBX that can't replay events is retried immediately if the connection had worked, and soon
/// otherwise. A rejected login is an exception, since repeated attempts with the wrong secret would
/// lock the account.
fn wait_after(
    backoff: &mut Backoff,
    error: &Error,
    transport: &Transport,
    up: Duration,
    chance: u64,
) -> Duration {
    let endpoint = match transport.live_endpoint() {
        Some(endpoint) if error.fix() == Fix::Remote => endpoint,
        _ => return backoff.wait(up, chance),
    };
    // Every moment without a connection is a gap, but a connection that worked isn't retried in a
    // tight loop either.
    if backoff.has_worked(up) {
        return Duration::ZERO;
    }
    let wait = match error {
        Error::Line(_, LineError::Connect(_)) if up.is_zero() => backoff.wait_refused(chance),
        _ => backoff.wait(up, chance),
    };
    if endpoint.is_loopback() {
        wait.min(LOOPBACK_WAIT_MAX)
    } else {
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backoff::Bounds;
    use crate::url::TcpEndpoint;
    use callbridge_asterisk::login::LoginError;

    /// Returns the times at which the source tries to reconnect after losing the connection to a
    /// PBX, in milliseconds after the loss. All waits have their maximum length.
    fn tries(url: &str, refusal: impl Fn(&TcpEndpoint) -> Error) -> Vec<u128> {
        let transport = SourceUrl::parse(url).expect("a source").transport;
        let (Transport::Ami { endpoint, .. } | Transport::Esl { endpoint }) = &transport else {
            panic!("{transport:?}")
        };
        let mut backoff = Backoff::new(Bounds::default());
        let lost = line_error(
            endpoint,
            LineError::Closed("no reason was given".to_owned()),
        );
        let hour = Duration::from_secs(3600);
        let mut at = wait_after(&mut backoff, &lost, &transport, hour, u64::MAX);
        let mut tries = vec![at.as_millis()];
        for _ in 0..9 {
            let refused = refusal(endpoint);
            at += wait_after(&mut backoff, &refused, &transport, Duration::ZERO, u64::MAX);
            tries.push(at.as_millis());
        }
        tries
    }

    fn line_error(endpoint: &TcpEndpoint, error: LineError) -> Error {
        Error::Line(endpoint.clone(), error)
    }

    fn connection_refused(endpoint: &TcpEndpoint) -> Error {
        line_error(
            endpoint,
            LineError::Connect("connection refused".to_owned()),
        )
    }

    #[test]
    fn refused_connection_is_retried_every_5s_on_loopback() {
        let soon = [0, 100, 600, 1_600, 3_600, 4_100, 5_100, 7_100];
        for url in ["ami://u@127.0.0.1", "ami://u@localhost", "esl://[::1]"] {
            let tries = tries(url, connection_refused);
            assert_eq!(tries[..8], soon, "{url}");
            assert_eq!(tries[8..], [11_100, 16_100], "{url}");
        }
        let far = tries("ami://u@192.0.2.7", connection_refused);
        assert_eq!(far[..8], soon);
        assert_eq!(far[8..], [11_100, 19_100]);
    }

    #[test]
    fn connection_that_breaks_every_20s_is_retried_at_once() {
        let transport = SourceUrl::parse("ami://u@192.0.2.7")
            .expect("a PBX")
            .transport;
        let Some(endpoint) = transport.live_endpoint() else {
            panic!("{transport:?}")
        };
        let lost = line_error(endpoint, LineError::Closed("reset".to_owned()));
        let mut backoff = Backoff::new(Bounds::default());
        let mut wait = |seconds| {
            let up = Duration::from_secs(seconds);
            wait_after(&mut backoff, &lost, &transport, up, u64::MAX)
        };
        for _ in 0..50 {
            assert_eq!(wait(20), Duration::ZERO);
        }
        let short: Vec<_> = (0..3).map(|_| wait(9).as_millis()).collect();
        assert_eq!(
            short,
            [500, 1_000, 2_000],
            "it never worked for ten seconds"
        );
    }

    #[test]
    fn refused_login_is_not_retried_quickly() {
        let tries = tries("ami://u@127.0.0.1", |endpoint| {
            line_error(endpoint, LineError::Ami(LoginError::BadCredentials))
        });
        let waits: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(waits[..3], [500, 1_000, 2_000]);
        assert_eq!(waits[6..], [30_000, 30_000, 30_000]);
    }

    #[test]
    fn quick_retries_restart_after_the_connection_was_up() {
        let transport = SourceUrl::parse("esl://127.0.0.1")
            .expect("a switch")
            .transport;
        let Transport::Esl { endpoint } = &transport else {
            panic!("{transport:?}")
        };
        let mut backoff = Backoff::new(Bounds::default());
        for _ in 0..9 {
            wait_after(
                &mut backoff,
                &connection_refused(endpoint),
                &transport,
                Duration::ZERO,
                0,
            );
        }
        wait_after(
            &mut backoff,
            &connection_refused(endpoint),
            &transport,
            Duration::from_secs(1),
            0,
        );
        let again = wait_after(
            &mut backoff,
            &connection_refused(endpoint),
            &transport,
            Duration::ZERO,
            0,
        );
        assert_eq!(again, Duration::from_millis(100));
    }
}
