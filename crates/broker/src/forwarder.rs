//! The loop that publishes ready calls, and marks as forwarded what a broker has confirmed.

use crate::again::{self, ForwardAgain};
use crate::message::{body, properties};
use crate::outcomes;
use callbridge_model::clock;
use callbridge_model::heartbeat::Pulse;
use callbridge_model::status::{Backlog, Pause};
use callbridge_sender::status::SenderStatus;
use callbridge_source::amqp::publish::{ConfirmedLine, refusal};
use callbridge_source::amqp::{Login, declare_stream_command, reply, route_commands};
use callbridge_source::url::StreamUrl;
use callbridge_source::{Backoff, Bounds, Secret, chance};
use callbridge_spool::{Handle, Op, Row, Step, tables};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// Calls under way at once.
const BATCH: usize = 500;
/// The broker's codes for a right that lacks, and for an exchange that is not there.
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
/// The broker's words on a message that came back.
const NO_ROUTE: &str = "NO_ROUTE";
/// The loop comes round at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// At the end, for what is ready still. What remains is forwarded after the next start.
const FLUSH_WITHIN: Duration = Duration::from_secs(4);

/// Why calls wait.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broker cannot be reached or does not let us in.
    #[error(transparent)]
    Broker(#[from] callbridge_source::Error),
    /// The line was lost, or the broker did not confirm in time.
    #[error("the line to the broker was lost ({0})")]
    Lost(String),
    /// There is no such stream, it is full, or too few of its nodes are there.
    #[error("stream {stream} did not take a call: {words}; {cure}")]
    NotTaken {
        /// The stream.
        stream: String,
        /// The broker's words.
        words: String,
        /// What to do.
        cure: String,
    },
    /// The spool.
    #[error(transparent)]
    Spool(#[from] callbridge_spool::Error),
}

impl Error {
    /// Whose hand mends it, where that is known.
    pub const fn fix(&self) -> Option<callbridge_source::Fix> {
        match self {
            Self::Broker(error) => Some(error.fix()),
            Self::Lost(_) | Self::NotTaken { .. } | Self::Spool(_) => None,
        }
    }
}

/// The way of a collector's calls to a stream.
pub struct Forwarder {
    login: Login,
    stream: String,
    exchange: Option<String>,
    declare: bool,
    bounds: Bounds,
}

impl Forwarder {
    /// The stream of `--forward`.
    pub fn new(url: &StreamUrl, secret: Secret) -> Self {
        Self {
            login: Login {
                broker: url.broker.clone(),
                secret,
                variable: "CALLBRIDGE_AMQP_SECRET",
                ca_file: url.ca_file.clone(),
                within: callbridge_source::Settings::default().connect_within,
            },
            stream: url.stream.clone(),
            exchange: url.exchange.clone(),
            declare: url.declare,
            bounds: Bounds::default(),
        }
    }

    /// Logs in, and makes the stream where that is wished.
    async fn open(&self, turn: usize) -> Result<ConfirmedLine, Error> {
        let line = ConfirmedLine::open_from(&self.login, turn).await?;
        if self.declare {
            let made = timeout(self.login.within, line.declare(&self.stream)).await;
            match made {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return Err(self.not_taken(error.to_string())),
                Err(_) => return Err(Error::Lost("no answer".to_owned())),
            }
        }
        Ok(line)
    }

    fn not_taken(&self, words: String) -> Error {
        let vhost = &self.login.broker.vhost;
        let make = declare_stream_command(vhost, &self.stream);
        let user = &self.login.broker.user;
        let cure = match &self.exchange {
            None => format!(
                "make it ({make}), see that most of its nodes are up, and that {user} may write \
                 to amq.default"
            ),
            Some(exchange) => format!(
                "make it ({make}), and its way there ({}), see that most of its nodes are up, \
                 and that {user} may write to {exchange}",
                route_commands(vhost, exchange, &self.stream)
            ),
        };
        Error::NotTaken {
            stream: self.stream.clone(),
            words,
            cure,
        }
    }

    /// A message that no queue took came back; else it was refused.
    fn returned(&self, words: String) -> Error {
        self.not_taken(match &self.exchange {
            Some(exchange) if words == NO_ROUTE => {
                format!("exchange {exchange} routes to no queue ({words})")
            }
            Some(_) | None => words,
        })
    }

    /// A refusal closes the channel, and is no loss of the broker.
    fn refused(&self, error: &lapin::Error) -> Error {
        match reply(error) {
            Some((ACCESS_REFUSED | NOT_FOUND, words)) => self.not_taken(words),
            Some(_) | None => Error::Lost(error.to_string()),
        }
    }

    /// Logs in, looks whether the stream is there and takes what is published to it, and leaves.
    ///
    /// Whether an exchange routes to the stream shows nothing but a message: one that tells of no
    /// call is published, which whoever reads the stream passes by.
    ///
    /// # Errors
    /// What is wrong and what to do.
    pub async fn probe(&self) -> Result<(), Error> {
        let line = self.open(0).await?;
        let probing = async {
            line.finds(&self.stream).await?;
            let (exchange, key) = match self.exchange.as_deref() {
                Some(exchange) => (Some(exchange), self.stream.as_str()),
                None => (None, outcomes::NOWHERE),
            };
            let properties = outcomes::properties(&self.login.broker.user);
            let nothing = outcomes::body(&[]);
            let sent = line.publish_by(exchange, key, nothing.as_bytes(), properties);
            sent.await?.await
        };
        let probed = match timeout(self.login.within, probing).await {
            Ok(Ok(confirmation)) => match (refusal(&confirmation), &self.exchange) {
                (Some(words), Some(_)) => Err(self.returned(words)),
                (Some(_) | None, _) => Ok(()),
            },
            Ok(Err(error)) => Err(self.refused(&error)),
            Err(_) => Err(Error::Lost("no answer".to_owned())),
        };
        line.close().await;
        probed
    }

    /// Forwards ready calls until `shutdown`, then those that are left, if that can be had within
    /// some seconds.
    pub async fn run(
        self,
        spool: Handle,
        shown: watch::Sender<SenderStatus>,
        pulse: Pulse,
        shutdown: impl Future<Output = ()>,
    ) {
        let mut forwarding = Forwarding {
            forwarder: self,
            spool,
            line: None,
            turn: 0,
            told: None,
            noted: false,
            shown,
            pulse,
        };
        tokio::select! {
            () = forwarding.keep_empty() => {}
            () = shutdown => {}
        }
        let flushed = timeout(FLUSH_WITHIN, forwarding.empty()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::debug!("calls are left to be forwarded after the next start");
        }
        if let Some(line) = forwarding.line.take() {
            line.close().await;
        }
    }
}

struct Forwarding {
    forwarder: Forwarder,
    spool: Handle,
    line: Option<ConfirmedLine>,
    /// Lines that were lost or not had: the next one begins with the next node.
    turn: usize,
    /// Why calls wait, as last told.
    told: Option<String>,
    /// What may be lost by this outage is noted.
    noted: bool,
    shown: watch::Sender<SenderStatus>,
    pulse: Pulse,
}

impl Forwarding {
    /// Forwards whatever becomes ready, until the spool has ended.
    async fn keep_empty(&mut self) {
        let mut changed = self.spool.changed();
        let mut backoff = Backoff::new(self.forwarder.bounds);
        loop {
            self.pulse.beat();
            changed.mark_unchanged();
            match self.all().await {
                Ok(()) => {
                    backoff.reset();
                    self.noted = false;
                    if self.told.take().is_some() {
                        tracing::info!("calls are forwarded again");
                    }
                    self.show(None);
                    match timeout(LOOK_EVERY, changed.changed()).await {
                        Ok(Ok(())) | Err(_) => {}
                        Ok(Err(_)) => return,
                    }
                }
                Err(Error::Spool(callbridge_spool::Error::Closed)) => return,
                Err(error) => {
                    self.note_loss(&error).await;
                    let up = self
                        .line
                        .take()
                        .map_or(Duration::ZERO, |line| line.up_for());
                    self.turn += 1;
                    self.tell(&error);
                    let wait = tokio::time::Instant::now() + backoff.wait(up, chance());
                    while tokio::time::Instant::now() < wait {
                        self.pulse.beat();
                        let next = tokio::time::Instant::now() + LOOK_EVERY;
                        tokio::time::sleep_until(next.min(wait)).await;
                    }
                }
            }
        }
    }

    /// A broker is lost: what it confirmed last may not be on its disk.
    async fn note_loss(&mut self, error: &Error) {
        let gone = match error {
            Error::Broker(_) => true,
            Error::Lost(_) => self.line.as_ref().is_none_or(|line| !line.is_open()),
            Error::NotTaken { .. } | Error::Spool(_) => false,
        };
        if !gone || self.noted {
            return;
        }
        let lost = ForwardAgain::lost(clock::now().wall);
        match again::add(&self.spool, lost).await {
            Ok(()) => self.noted = true,
            Err(error) => tracing::warn!(%error, "what may be lost with the broker is not noted"),
        }
    }

    /// All that is ready, then what is to be published again. A line that is lost while nothing is
    /// ready is noticed here.
    async fn all(&mut self) -> Result<(), Error> {
        self.empty().await?;
        if self.line.as_ref().is_some_and(|line| !line.is_open()) {
            return Err(Error::Lost("the broker has closed it".to_owned()));
        }
        while let Some(due) = again::due(&self.spool).await? {
            self.pulse.beat();
            let calls = again::calls(&self.spool, due, BATCH).await?;
            if calls.is_empty() {
                again::over(&self.spool).await?;
                break;
            }
            let rows: Vec<Row> = calls.iter().map(|(_, row)| row.clone()).collect();
            let (confirmed, ended) = self.batch(&rows).await?;
            ended?;
            tracing::info!(
                calls = confirmed.len(),
                "forwarded again after a loss of the broker"
            );
            again::done(&self.spool, due.behind(&calls)).await?;
            self.empty().await?;
        }
        Ok(())
    }

    fn tell(&mut self, error: &Error) {
        let reason = error.to_string();
        self.show(Some(&reason));
        if self.told.as_ref() != Some(&reason) {
            tracing::warn!(%reason, "calls cannot be forwarded; they are kept");
            self.told = Some(reason);
        }
    }

    fn show(&self, why: Option<&str>) {
        let pause = why.map(|cure| Pause {
            reason: "outage".to_owned(),
            cure: cure.to_owned(),
        });
        self.shown.send_if_modified(|shown| {
            let changed = shown.pause != pause;
            shown.pause = pause;
            shown.backlog = Backlog::default();
            changed
        });
    }

    /// Forwards until nothing is ready.
    async fn empty(&mut self) -> Result<(), Error> {
        loop {
            self.pulse.beat();
            let ready = self.spool.read(|store| tables::calls::ready(store, BATCH));
            let ready = ready.await?;
            if ready.is_empty() {
                return Ok(());
            }
            let (confirmed, ended) = self.batch(&ready).await?;
            if !confirmed.is_empty() {
                tracing::debug!(calls = confirmed.len(), "forwarded");
                self.spool.write(confirmed).await?;
            }
            ended?;
        }
    }

    /// Publishes these: what was confirmed of them, and what stopped the others.
    async fn batch(&mut self, rows: &[Row]) -> Result<(Vec<Op>, Result<(), Error>), Error> {
        let line = match self.line.take() {
            Some(line) => line,
            None => self.forwarder.open(self.turn).await?,
        };
        let mut confirmed = Vec::with_capacity(rows.len());
        let published = self.publish(&line, rows, &mut confirmed);
        let ended = match timeout(self.forwarder.login.within, published).await {
            Ok(ended) => ended,
            // Those without a confirm are published again; a slow broker gets on all the same.
            Err(_) => Err(Error::Lost("no confirm".to_owned())),
        };
        self.line = Some(line);
        Ok((confirmed, ended))
    }

    /// Publishes all, then waits for all confirms: `confirmed` gains those that were taken; the
    /// error is what stopped the others.
    async fn publish(
        &self,
        line: &ConfirmedLine,
        ready: &[Row],
        confirmed: &mut Vec<Op>,
    ) -> Result<(), Error> {
        let mut ended = Ok(());
        let mut under_way = Vec::with_capacity(ready.len());
        let user = &self.forwarder.login.broker.user;
        for row in ready {
            let (body, properties) = (body(row), properties(row, user));
            let (exchange, stream) = (&self.forwarder.exchange, &self.forwarder.stream);
            let sent = line.publish_by(exchange.as_deref(), stream, body.as_bytes(), properties);
            match sent.await {
                Ok(confirm) => under_way.push((row.id, confirm)),
                Err(error) => {
                    ended = Err(self.forwarder.refused(&error));
                    break;
                }
            }
        }
        for (row, confirm) in under_way {
            match confirm.await {
                Ok(confirmation) => match refusal(&confirmation) {
                    None => confirmed.push(Op::Step {
                        row,
                        step: Step::Forwarded,
                        at: clock::now().wall,
                    }),
                    Some(words) => ended = Err(self.forwarder.returned(words)),
                },
                Err(error) => ended = Err(self.forwarder.refused(&error)),
            }
        }
        ended
    }
}
