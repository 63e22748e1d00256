//! Ready calls to a broker's stream: each is forwarded when the broker has confirmed it.
//!
//! Some are published once more: a stream confirms what most of its nodes hold, and none of them
//! need have it on its disk. Whoever loses a broker publishes again what was confirmed shortly
//! before, once for each outage; a person may do so from any moment (`state forward-again`). A call
//! that the stream has kept is the same call by its uuid.

use crate::drain::{CHECK_EVERY, Destination, Error, NOWHERE, Outbox, keep_empty};
use crate::message::{body, properties};
use crate::outcomes;
use callbridge_call::EventTime;
use callbridge_formats::message::Outcomes;
use callbridge_model::status::{Backlog, Pause};
use callbridge_model::{Heartbeat, clock};
use callbridge_sender::status::SenderStatus;
use callbridge_source::amqp::publish::{ConfirmedLine, refusal};
use callbridge_source::amqp::{declare_stream_command, reply, route_commands};
use callbridge_source::{BrokerUrl, Secret, url::Broker};
use callbridge_spool::{Handle, Op, Row, RowId, Step, tables};
use lapin::BasicProperties;
use std::time::Duration;
use tokio::{sync::watch, time::timeout};

/// Calls under way at once.
const BATCH: usize = 500;
/// The broker's codes for a right that lacks, and for an exchange that is not there.
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
/// The broker's words on a message that came back.
const NO_ROUTE: &str = "NO_ROUTE";

/// Age up to which confirmed calls may not be on a lost broker's disk (300 s), and the time in
/// which a lost line is noticed (30 s).
pub const BEFORE_LOSS: Duration = Duration::from_secs(300 + 30);
/// The setting that keeps [`ForwardAgain`], until all of it is published.
const AGAIN: &str = "forward.again";

/// The way of a collector's calls to a stream.
pub struct Forwarder {
    to: Destination,
    declare: bool,
}

impl Forwarder {
    /// Publishes to the stream or exchange of `--forward`; nothing is opened yet.
    pub fn new(url: &BrokerUrl, secret: Secret) -> Self {
        let (to, declare) = (Destination::of(url, secret), url.declare);
        Self { to, declare }
    }

    /// Logs in, and makes the stream where the URL asks for that.
    async fn open(&self, turn: usize) -> Result<ConfirmedLine, Error> {
        let line = ConfirmedLine::open(&self.to.login, turn).await?;
        if self.declare {
            let made = timeout(self.to.login.within, line.declare_calls(&self.to.queue)).await;
            let made = made.map_err(|_| Error::no_answer())?;
            made.map_err(|error| self.not_taken(error.to_string()))?;
        }
        Ok(line)
    }

    fn not_taken(&self, words: String) -> Error {
        let (queue, exchange) = (&self.to.queue, &self.to.exchange);
        let Broker { user, vhost, .. } = &self.to.login.broker;
        let make = declare_stream_command(vhost, queue);
        let cure = match exchange {
            None => format!(
                "make it ({make}), see that most of its nodes are up, and that {user} may write \
                 to amq.default"
            ),
            Some(exchange) => format!(
                "make it ({make}), and its way there ({}), see that most of its nodes are up, \
                 and that {user} may write to {exchange}",
                route_commands(vhost, exchange, queue)
            ),
        };
        Error::NotTaken {
            what: format!("stream {queue} did not take a call"),
            words,
            cure,
        }
    }

    /// A message that no queue took came back; else it was refused.
    fn came_back(&self, words: String) -> Error {
        self.not_taken(match &self.to.exchange {
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
            Some(_) | None => Error::lost(error),
        }
    }

    /// Logs in, and checks that the stream exists and that the login can publish to it.
    ///
    /// Only a message shows whether an exchange routes to the stream. The check publishes one that
    /// contains no calls. Readers of the stream skip it.
    ///
    /// # Errors
    /// The problem and its fix.
    pub async fn probe(&self) -> Result<(), Error> {
        let probed = self.probe_stream().await;
        probed.map_err(|error| error.redacted(&self.to.login))
    }

    async fn probe_stream(&self) -> Result<(), Error> {
        let line = self.open(0).await?;
        let (queue, exchange) = (&self.to.queue, &self.to.exchange);
        let probed = line.last(async |line| {
            line.finds(queue).await?;
            let key = exchange.as_ref().map_or(NOWHERE, |_| queue);
            let properties = outcomes::properties(&self.to.login.broker.user);
            let nothing = Outcomes::default().write();
            let sent = line.publish(exchange.as_deref(), key, nothing.as_bytes(), properties);
            sent.await?.await
        });
        let answered = probed.await.map_err(Error::unanswered)?;
        let confirmation = answered.map_err(|error| self.refused(&error))?;
        match refusal(&confirmation).filter(|_| exchange.is_some()) {
            Some(words) => Err(self.came_back(words)),
            None => Ok(()),
        }
    }

    /// Forwards ready calls until `shutdown`, then those that are left, if that can be had within
    /// some seconds.
    pub async fn run(
        self,
        spool: Handle,
        shown: watch::Sender<SenderStatus>,
        pulse: Heartbeat,
        shutdown: impl Future<Output = ()>,
    ) {
        let calls = ReadyCalls {
            forwarder: self,
            again: None,
            noted: false,
            shown,
            pulse,
        };
        keep_empty(calls, spool, shutdown).await;
    }
}

/// A span of which what was forwarded is published again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForwardAgain {
    /// The last of it that was published.
    after: (EventTime, RowId),
    until: EventTime,
}

impl ForwardAgain {
    /// Covers all calls forwarded between two moments.
    pub const fn between(since: EventTime, until: EventTime) -> Self {
        Self {
            after: (since, RowId(0)),
            until,
        }
    }

    /// Covers the calls that may be lost with a broker whose loss is noticed `now`: the last 330 s.
    pub fn lost(now: EventTime) -> Self {
        Self::between(now.minus(BEFORE_LOSS), now)
    }

    /// Both: what was published again before another outage may be lost, too.
    fn and(self, more: Self) -> Self {
        Self {
            after: self.after.min(more.after),
            until: self.until.max(more.until),
        }
    }

    fn op(self) -> Op {
        let (since, until) = (self.after.0.micros(), self.until.micros());
        Op::meta(AGAIN, format!("{since} {} {until}", self.after.1.0))
    }

    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.split(' ').map(|it| it.parse::<i64>().ok());
        let mut next = || numbers.next().flatten();
        let (since, row, until) = (next()?, next()?, next()?);
        Some(Self {
            after: (EventTime::from_micros(since), RowId(row)),
            until: EventTime::from_micros(until),
        })
    }

    /// Reads the span that is to be published again; `None` when none is left.
    async fn due(spool: &Handle) -> Result<Option<Self>, callbridge_spool::Error> {
        Ok(spool.meta(AGAIN).await?.as_deref().and_then(Self::read))
    }

    /// Adds it to what is to be published again.
    ///
    /// # Errors
    /// When the spool cannot be read or written.
    pub async fn add(self, spool: &Handle) -> Result<(), callbridge_spool::Error> {
        let before = Self::due(spool).await?;
        let all = before.map_or(self, |before| before.and(self));
        spool.write(vec![all.op()]).await.map(drop)
    }
}

struct ReadyCalls {
    forwarder: Forwarder,
    /// Span of which the batch under way is a part; `None` when it holds ready calls.
    again: Option<ForwardAgain>,
    /// The span that this outage may have lost is stored already.
    noted: bool,
    shown: watch::Sender<SenderStatus>,
    pulse: Heartbeat,
}

impl Outbox for ReadyCalls {
    type Item = Row;
    const WAITS: &str = "calls cannot be forwarded; they are kept";
    const GOES_ON: Option<&str> = Some("calls are forwarded again");
    const LEFT: &str = "calls are left to be forwarded after the next start";
    const FLUSH_WITHIN: Duration = Duration::from_secs(4);

    fn destination(&self) -> &Destination {
        &self.forwarder.to
    }

    async fn open(&self, turn: usize) -> Result<ConfirmedLine, Error> {
        self.forwarder.open(turn).await
    }

    async fn wait(changed: &mut watch::Receiver<u64>) -> bool {
        !matches!(timeout(CHECK_EVERY, changed.changed()).await, Ok(Err(_)))
    }

    /// All that is ready, then what is to be published again. A line that is lost while nothing is
    /// ready is noticed here.
    async fn due(&mut self, spool: &Handle, lost: bool) -> Result<Vec<Row>, Error> {
        self.again = None;
        let ready = spool.read(|store| tables::calls::ready(store, BATCH));
        let ready = ready.await?;
        if !ready.is_empty() {
            return Ok(ready);
        }
        if lost {
            return Err(Error::Lost("the broker has closed it".to_owned()));
        }
        let Some(due) = ForwardAgain::due(spool).await? else {
            return Ok(Vec::new());
        };
        let calls =
            spool.read(move |store| tables::calls::forwarded(store, due.after, due.until, BATCH));
        let calls = calls.await?;
        if calls.is_empty() {
            let key = AGAIN.to_owned();
            spool.write(vec![Op::MetaGone(key)]).await?;
        } else {
            self.again = Some(due);
        }
        Ok(calls)
    }

    fn message(&self, row: &Row) -> (String, BasicProperties) {
        let user = &self.forwarder.to.login.broker.user;
        (body(row), properties(row, user))
    }

    fn confirmed(&self, rows: Vec<Row>, all: bool) -> Vec<Op> {
        let calls = rows.len();
        if let Some(due) = self.again {
            if !all {
                return Vec::new();
            }
            tracing::info!(calls, "forwarded again after a loss of the broker");
            let after = rows.last().map_or(due.after, |row| (row.since, row.id));
            return vec![ForwardAgain { after, ..due }.op()];
        }
        if calls > 0 {
            tracing::debug!(calls, "forwarded");
        }
        let at = clock::now().wall;
        let forwarded = rows.iter().map(|row| Op::step(row.id, Step::Forwarded, at));
        forwarded.collect()
    }

    fn failed(&self, error: &lapin::Error) -> Error {
        self.forwarder.refused(error)
    }

    fn returned(&self, words: String) -> Error {
        self.forwarder.came_back(words)
    }

    fn beat(&self) {
        self.pulse.beat();
    }

    fn show(&self, error: Option<&Error>) {
        let pause = error.map(|error| Pause::new("outage", error.to_string()));
        self.shown.send_if_modified(|shown| {
            let is_new = shown.pause != pause;
            shown.pause = pause;
            shown.backlog = Backlog::default();
            is_new
        });
    }

    /// If the broker is lost, the calls that it confirmed last may be missing on its disk.
    async fn failed_batch(&mut self, spool: &Handle, error: &Error, lost: bool) {
        let is_gone = match error {
            Error::Broker(_) => true,
            Error::Lost(_) => lost,
            Error::Blocked(_) | Error::NotTaken { .. } | Error::NoRight(_) | Error::Spool(_) => {
                false
            }
        };
        if is_gone && !self.noted {
            let noted = ForwardAgain::lost(clock::now().wall).add(spool).await;
            self.noted = noted.is_ok();
            if let Err(error) = noted {
                tracing::warn!(%error, "what may be lost with the broker is not noted");
            }
        }
    }

    fn goes_on(&mut self) {
        self.noted = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_outages_are_one_span_from_the_first_and_what_is_stored_reads_back() {
        let at = EventTime::from_seconds;
        let first = ForwardAgain::lost(at(10_000));
        assert_eq!(first, ForwardAgain::between(at(9_670), at(10_000)));
        let second = ForwardAgain::lost(at(10_060));
        let both = first.and(second);
        assert_eq!(both, ForwardAgain::between(at(9_670), at(10_060)));
        let Op::Meta { key, value } = both.op() else {
            panic!("a setting");
        };
        assert_eq!(
            (key.as_str(), ForwardAgain::read(&value)),
            (AGAIN, Some(both))
        );
        assert_eq!(ForwardAgain::read("7 8"), None);
    }
}
