//! Keeps an outbox of the spool empty: what is due is published, and leaves the outbox after the
//! broker's confirm and on no other path. An outage of the broker loses nothing; what was not
//! confirmed is published again.

use callbridge_source::amqp::publish::{ConfirmedLine, refusal};
use callbridge_source::{Backoff, Bounds, BrokerUrl, Fix, Secret, amqp::Login, chance};
use callbridge_spool::{Handle, Op};
use lapin::BasicProperties;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// A loop that waits beats at least this often.
pub(crate) const CHECK_EVERY: Duration = Duration::from_secs(1);
/// No queue has this name: whoever may write is told so, and whoever may not is told that.
pub(crate) const NOWHERE: &str = "callbridge.no-such-queue";

/// Reasons for which messages stay in the outbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broker cannot be reached or does not let us in.
    #[error(transparent)]
    Broker(#[from] callbridge_source::Error),
    /// The line was lost, or the broker did not confirm in time.
    #[error("the connection to the broker was lost ({0})")]
    Lost(String),
    /// There is no such queue or stream, it is full, or too few of its nodes are there.
    #[error("{what}: {words}; {cure}")]
    NotTaken {
        /// The queue or stream, and the kind of message: `stream calls did not take a call`.
        what: String,
        /// Reason as the broker gives it.
        words: String,
        /// Advice to the operator, with the commands to run.
        cure: String,
    },
    /// The user may not write there.
    ///
    /// The reason as the broker gives it, then advice to the operator: the right that is missing,
    /// and the command that grants it.
    #[error("{0}")]
    NoRight(String),
    /// The outbox in the spool cannot be read or written.
    #[error(transparent)]
    Spool(#[from] callbridge_spool::Error),
}

impl Error {
    /// Says who can mend it: the other side, a secret or the settings; `None` where unknown.
    pub const fn fix(&self) -> Option<Fix> {
        match self {
            Self::Broker(error) => Some(error.fix()),
            Self::NoRight(_) => Some(Fix::Secret),
            Self::Lost(_) | Self::NotTaken { .. } | Self::Spool(_) => None,
        }
    }

    pub(crate) fn lost(error: &lapin::Error) -> Self {
        Self::Lost(error.to_string())
    }

    pub(crate) fn no_answer() -> Self {
        Self::Lost("no answer".to_owned())
    }
}

/// A queue or stream, and the login under which an outbox is published to it.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) login: Login,
    /// The broker's default exchange without one.
    pub(crate) exchange: Option<String>,
    /// The queue or stream, which is the routing key, too.
    pub(crate) queue: String,
}

impl Destination {
    /// The queue, stream or exchange of a URL; nothing is opened yet.
    pub(crate) fn of(url: &BrokerUrl, secret: Secret) -> Self {
        Self {
            login: Login::new(&url.broker, secret, url.ca_file.as_ref()),
            exchange: url.exchange.clone(),
            queue: url.name.clone(),
        }
    }
}

/// Messages that the spool keeps until the broker has them.
pub(crate) trait Outbox {
    /// Content of one message, as it is read from the outbox.
    type Item;
    /// The log's words when messages begin to wait, when they leave again, and at an end at which
    /// some are left.
    const WAITS: &str;
    const GOES_ON: Option<&str>;
    const LEFT: &str;
    /// At the end, for what is due still. What remains is published after the next start.
    const FLUSH_WITHIN: Duration;

    fn destination(&self) -> &Destination;

    fn bounds(&self) -> Bounds {
        Bounds::default()
    }

    /// Opens a line on which all may be published.
    async fn open(&self, turn: usize) -> Result<ConfirmedLine, Error> {
        Ok(ConfirmedLine::open(&self.destination().login, turn).await?)
    }

    /// Waits until something may be due; whether the spool goes on.
    async fn wait(changed: &mut watch::Receiver<u64>) -> bool;

    /// Reads the next batch that is due; `lost`: the line that was open has been closed.
    async fn due(&mut self, spool: &Handle, lost: bool) -> Result<Vec<Self::Item>, Error>;

    fn message(&self, item: &Self::Item) -> (String, BasicProperties);

    /// Operations by which these confirmed items leave the outbox; `all`: none of the batch is
    /// missing.
    fn confirmed(&self, items: Vec<Self::Item>, all: bool) -> Vec<Op>;

    /// A message could not be published, or has got no confirm.
    fn failed(&self, error: &lapin::Error) -> Error {
        Error::lost(error)
    }

    /// A message came back, or was refused.
    fn returned(&self, words: String) -> Error;

    /// Reports each turn of the loop, so that a loop that hangs is noticed.
    fn beat(&self) {}

    /// Messages wait for this reason; whether the line was `lost` or never had.
    async fn waits(&mut self, _spool: &Handle, _error: &Error, _lost: bool) {}

    /// Called once the outbox is empty again.
    fn goes_on(&mut self) {}
}

/// Publishes what is due until `shutdown`, then what is left, if that can be had within some
/// seconds.
pub(crate) async fn keep_empty<O: Outbox>(
    outbox: O,
    spool: Handle,
    shutdown: impl Future<Output = ()>,
) {
    let mut drain = Drain {
        outbox,
        spool,
        line: None,
        turn: 0,
        reported: None,
    };
    let (stop, stopping) = watch::channel(false);
    let is_empty = {
        let mut work = std::pin::pin!(drain.run(stopping));
        tokio::select! {
            is_empty = &mut work => is_empty,
            () = shutdown => {
                stop.send_replace(true);
                timeout(O::FLUSH_WITHIN, work).await.unwrap_or(false)
            }
        }
    };
    if !is_empty {
        tracing::debug!("{}", O::LEFT);
    }
    if let Some(line) = drain.line.take() {
        line.close().await;
    }
}

struct Drain<O> {
    outbox: O,
    spool: Handle,
    line: Option<ConfirmedLine>,
    /// Lines that were lost or not had: the next one begins with the next node.
    turn: usize,
    /// Reason in the last warning that messages wait: the same one is not logged twice.
    reported: Option<String>,
}

impl<O: Outbox> Drain<O> {
    /// Publishes whatever comes into the outbox, until the spool has ended, or `stopping` and it
    /// was tried once more; whether it is empty. What waits for its confirm is never left for that:
    /// it would be published twice.
    async fn run(&mut self, mut stopping: watch::Receiver<bool>) -> bool {
        let mut changed = self.spool.changed();
        let mut backoff = Backoff::new(self.outbox.bounds());
        changed.mark_changed();
        loop {
            let goes_on = tokio::select! {
                goes_on = O::wait(&mut changed) => goes_on,
                _ = stopping.wait_for(|stopping| *stopping) => true,
            };
            if !goes_on {
                return false;
            }
            let last = *stopping.borrow();
            changed.mark_unchanged();
            let ended = self.empty().await;
            if last {
                return ended.is_ok();
            }
            match ended {
                Ok(()) => {
                    backoff.reset();
                    self.outbox.goes_on();
                    if self.reported.take().is_some()
                        && let Some(words) = O::GOES_ON
                    {
                        tracing::info!("{words}");
                    }
                }
                Err(Error::Spool(callbridge_spool::Error::Closed)) => return false,
                Err(error) => {
                    self.waits(&error).await;
                    let up = self.line.take().map_or(Duration::ZERO, |it| it.up_for());
                    let again = Instant::now() + backoff.wait(up, chance());
                    tokio::select! {
                        () = self.beating_until(again) => {}
                        _ = stopping.wait_for(|stopping| *stopping) => {}
                    }
                    changed.mark_changed();
                }
            }
        }
    }

    async fn waits(&mut self, error: &Error) {
        self.turn += 1;
        let lost = self.line.as_ref().is_none_or(|line| !line.is_open());
        self.outbox.waits(&self.spool, error, lost).await;
        let reason = error.to_string();
        if self.reported.as_ref() != Some(&reason) {
            tracing::warn!(%reason, "{}", O::WAITS);
            self.reported = Some(reason);
        }
    }

    async fn beating_until(&self, end: Instant) {
        while Instant::now() < end {
            self.outbox.beat();
            sleep_until(end.min(Instant::now() + CHECK_EVERY)).await;
        }
    }

    /// Publishes until nothing is due.
    async fn empty(&mut self) -> Result<(), Error> {
        loop {
            self.outbox.beat();
            let lost = self.line.as_ref().is_some_and(|line| !line.is_open());
            let due = self.outbox.due(&self.spool, lost).await?;
            if due.is_empty() {
                return Ok(());
            }
            let line = match self.line.take() {
                Some(line) => line,
                None => self.outbox.open(self.turn).await?,
            };
            let (many, mut confirmed) = (due.len(), Vec::with_capacity(due.len()));
            let published = self.publish(&line, due, &mut confirmed);
            let ended = timeout(self.outbox.destination().login.within, published).await;
            // Those without a confirm are published again; a slow broker gets on all the same.
            let ended = ended.unwrap_or_else(|_| Err(Error::Lost("no confirm".to_owned())));
            self.line = Some(line);
            let all = confirmed.len() == many;
            let stored = self.outbox.confirmed(confirmed, all);
            if !stored.is_empty() {
                self.spool.write(stored).await?;
            }
            ended?;
        }
    }

    /// Publishes all, then waits for all confirms: `confirmed` gains those that were taken; the
    /// error is what stopped the others.
    async fn publish(
        &self,
        line: &ConfirmedLine,
        due: Vec<O::Item>,
        confirmed: &mut Vec<O::Item>,
    ) -> Result<(), Error> {
        let to = self.outbox.destination();
        let mut ended = Ok(());
        let mut under_way = Vec::with_capacity(due.len());
        for item in due {
            let (body, properties) = self.outbox.message(&item);
            let (exchange, body) = (to.exchange.as_deref(), body.as_bytes());
            match line.publish(exchange, &to.queue, body, properties).await {
                Ok(confirm) => under_way.push((item, confirm)),
                Err(error) => {
                    ended = Err(self.outbox.failed(&error));
                    break;
                }
            }
        }
        for (item, confirm) in under_way {
            match confirm.await {
                Ok(confirmation) => match refusal(&confirmation) {
                    None => confirmed.push(item),
                    Some(words) => ended = Err(self.outbox.returned(words)),
                },
                Err(error) => ended = Err(self.outbox.failed(&error)),
            }
        }
        ended
    }
}
