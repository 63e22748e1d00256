//! Publishes the messages of a spool's outbox to a broker. A message leaves the outbox only after
//! the broker has confirmed the message. An outage of the broker loses nothing: messages without a
//! confirm are published again.
//!
//! A broker with a memory or disk alarm blocks the connection. It takes the messages that were
//! already sent when the alarm ends, so the loop waits on the blocked connection until then. Before
//! a batch that follows a pause, a short message is published that no queue takes. During an alarm
//! the broker does not answer that message, so no message of the outbox is sent. If this process
//! ends before the alarm, nothing of the outbox is left with the broker.

use callbridge_source::amqp::publish::{ConfirmedLine, Unanswered, refusal};
use callbridge_source::{Backoff, Bounds, BrokerUrl, Fix, Secret, amqp::Login, chance};
use callbridge_spool::{Handle, Op};
use lapin::BasicProperties;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// A loop that waits reports a heartbeat at least this often.
pub(crate) const CHECK_EVERY: Duration = Duration::from_secs(1);
/// No queue has this name. A login with the right to write gets its message back, and a login
/// without this right gets a refusal.
pub(crate) const NOWHERE: &str = "callbridge.no-such-queue";

/// A connection that has confirmed nothing for this long is checked before the next batch.
const TRIED_FOR: Duration = Duration::from_secs(5);

/// Reasons for which messages stay in the outbox.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broker cannot be reached, or refuses the login.
    #[error(transparent)]
    Broker(#[from] callbridge_source::Error),
    /// The connection was lost, or the broker did not confirm in time.
    #[error("the connection to the broker was lost ({0})")]
    Lost(String),
    /// The broker has raised an alarm and reads nothing. The text is the broker's reason, such as
    /// `low on memory`.
    #[error(
        "the broker accepts no messages because of an alarm ({0}); run `rabbitmq-diagnostics \
         alarms` on the broker, and free memory or disk space there"
    )]
    Blocked(String),
    /// The queue does not exist, is full, or has too few nodes online.
    #[error("{what}: {message}; {fix}")]
    NotTaken {
        /// The queue, and the kind of message.
        what: String,
        /// Reason as the broker gives it.
        message: String,
        /// Advice to the operator, with the commands to run.
        fix: String,
    },
    /// The user has no right to publish to the queue.
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
    /// Returns where the error must be fixed: at the other side, in a secret, or in the settings.
    /// `None` if this is unknown.
    pub const fn fix(&self) -> Option<Fix> {
        match self {
            Self::Broker(error) => Some(error.fix()),
            Self::NoRight(_) => Some(Fix::Secret),
            Self::Lost(_) | Self::Blocked(_) | Self::NotTaken { .. } | Self::Spool(_) => None,
        }
    }

    pub(crate) fn lost(error: &lapin::Error) -> Self {
        Self::Lost(error.to_string())
    }

    pub(crate) fn no_answer() -> Self {
        Self::Lost("no answer".to_owned())
    }

    /// Removes the password of a login from the broker's text.
    pub(crate) fn redacted(self, login: &Login) -> Self {
        match self {
            Self::Lost(reason) => Self::Lost(login.redact(&reason)),
            Self::Blocked(reason) => Self::Blocked(login.redact(&reason)),
            Self::NotTaken { what, message, fix } => Self::NotTaken {
                what,
                message: login.redact(&message),
                fix,
            },
            Self::Broker(_) | Self::NoRight(_) | Self::Spool(_) => self,
        }
    }

    pub(crate) fn unanswered(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Blocked(reason) => Self::Blocked(reason),
            Unanswered::Silent => Self::no_answer(),
        }
    }

    /// Returns the broker's or the spool's own reason, without advice.
    pub fn reason(&self) -> String {
        match self {
            Self::Lost(reason) | Self::Blocked(reason) | Self::NoRight(reason) => reason.clone(),
            Self::NotTaken { message, .. } => message.clone(),
            Self::Broker(error) => error.to_string(),
            Self::Spool(error) => error.to_string(),
        }
    }
}

/// A queue, and the login under which an outbox is published to it.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) login: Login,
    /// Name of the queue.
    pub(crate) queue: String,
}

impl Destination {
    /// Makes a destination from a URL. It opens no connection.
    pub(crate) fn from_url(url: &BrokerUrl, secret: Secret) -> Self {
        Self {
            login: Login::new(&url.broker, secret, url.ca_file.as_ref()),
            queue: url.name.clone(),
        }
    }
}

/// Messages that the spool keeps until the broker has confirmed them.
pub(crate) trait Outbox {
    /// Content of one message, as it is read from the outbox.
    type Item;
    /// Log messages: when messages begin to wait (`WAITS`), when they are published again
    /// (`GOES_ON`), and when messages are left at the end (`LEFT`).
    const WAITS: &str;
    const GOES_ON: Option<&str>;
    const LEFT: &str;
    /// Time limit at the end for the messages that are still due. Messages that are left are
    /// published after the next start.
    const FLUSH_WITHIN: Duration;

    fn destination(&self) -> &Destination;

    fn bounds(&self) -> Bounds {
        Bounds::default()
    }

    /// Opens a connection for all messages of the outbox. Each `turn` begins with another node of
    /// the broker.
    async fn open(&self, turn: usize) -> Result<ConfirmedLine, Error> {
        Ok(ConfirmedLine::open(&self.destination().login, turn).await?)
    }

    /// Waits until messages can be due. Returns `false` if the spool has ended.
    async fn wait(changed: &mut watch::Receiver<u64>) -> bool;

    /// Reads the next batch that is due. `lost` means that the connection that was open has been
    /// closed.
    async fn due(&mut self, spool: &Handle, lost: bool) -> Result<Vec<Self::Item>, Error>;

    fn message(&self, item: &Self::Item) -> (String, BasicProperties);

    /// Returns the operations that remove these confirmed items from the outbox. `all` means that
    /// the whole batch was confirmed.
    fn confirmed(&self, items: Vec<Self::Item>, all: bool) -> Vec<Op>;

    /// Returns the error for a message that could not be published, or that was not confirmed.
    fn publish_error(&self, error: &lapin::Error) -> Error {
        Error::lost(error)
    }

    /// Returns the error for a message that the broker returned or refused.
    fn return_error(&self, message: String) -> Error;

    /// Reports each turn of the loop, so that a loop that hangs is noticed.
    fn beat(&self) {}

    /// Shows why messages wait. `None` means that the outbox is empty again.
    fn show(&self, error: Option<&Error>);

    /// Called when a batch has failed. `lost` means that the connection was lost, or could not be
    /// opened.
    async fn failed_batch(&mut self, _spool: &Handle, _error: &Error, _lost: bool) {}

    /// Called once the outbox is empty again.
    fn goes_on(&mut self) {}
}

/// Publishes due messages until `shutdown`, then the remaining ones for at most
/// [`Outbox::FLUSH_WITHIN`].
pub(crate) async fn keep_empty<O: Outbox>(
    outbox: O,
    spool: Handle,
    shutdown: impl Future<Output = ()>,
) {
    let mut drain = Drain {
        outbox,
        spool,
        line: None,
        confirmed_at: None,
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
    /// Time of the connection's last confirm. `None` if it has confirmed nothing yet.
    confirmed_at: Option<Instant>,
    /// Number of connections that were lost or could not be opened. The next connection begins with
    /// the broker's next node.
    turn: usize,
    /// Reason in the last warning that messages wait. The same reason is not logged twice.
    reported: Option<String>,
}

impl<O: Outbox> Drain<O> {
    /// Publishes the messages of the outbox until the spool has ended. Once `stopping` is set, it
    /// publishes the due messages one last time. Returns `true` if the outbox is empty. `stopping`
    /// does not interrupt a batch that waits for its confirms, because its messages would be
    /// published twice.
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
                    self.outbox.show(None);
                    self.outbox.goes_on();
                    if self.reported.take().is_some()
                        && let Some(message) = O::GOES_ON
                    {
                        tracing::info!("{message}");
                    }
                }
                Err(Error::Spool(callbridge_spool::Error::Closed)) => return false,
                Err(error) => {
                    let error = error.redacted(&self.outbox.destination().login);
                    self.report_failed_batch(&error).await;
                    let up = self
                        .line
                        .take()
                        .map_or(Duration::ZERO, |line| line.up_for());
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

    async fn report_failed_batch(&mut self, error: &Error) {
        self.turn += 1;
        let lost = self.line.as_ref().is_none_or(|line| !line.is_open());
        self.outbox.failed_batch(&self.spool, error, lost).await;
        report_waiting(&self.outbox, error, &mut self.reported);
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
            if self.line.is_none() {
                self.confirmed_at = None;
                self.line = Some(self.outbox.open(self.turn).await?);
            }
            let batch = due.len();
            let mut confirmed = Vec::with_capacity(batch);
            let ended = self.publish_in_time(due, &mut confirmed).await;
            if !confirmed.is_empty() {
                self.confirmed_at = Some(Instant::now());
            }
            let all = confirmed.len() == batch;
            let stored = self.outbox.confirmed(confirmed, all);
            if !stored.is_empty() {
                self.spool.write(stored).await?;
            }
            ended?;
        }
    }

    /// Publishes a batch on the open connection, and adds the items that were taken to `confirmed`.
    ///
    /// The login's time limit applies to the confirms. Items without a confirm are published again.
    /// While the broker blocks the connection, there is no time limit.
    async fn publish_in_time(
        &mut self,
        due: Vec<O::Item>,
        confirmed: &mut Vec<O::Item>,
    ) -> Result<(), Error> {
        let Some(line) = &self.line else {
            return Err(Error::Lost("no connection".to_owned()));
        };
        let within = self.outbox.destination().login.within;
        let is_tried = self.confirmed_at.is_some_and(|at| at.elapsed() < TRIED_FOR);
        let mut blocked = line.blocked();
        let mut publishing = std::pin::pin!(async {
            if !is_tried {
                try_line(&self.outbox, line).await?;
            }
            publish(&self.outbox, line, due, confirmed).await
        });
        let mut deadline = Instant::now() + within;
        loop {
            let is_blocked = line.is_blocked();
            tokio::select! {
                ended = &mut publishing => return ended,
                Ok(()) = blocked.changed() => {
                    deadline = Instant::now() + within;
                    let reason = blocked.borrow_and_update().clone();
                    if let Some(reason) = reason {
                        let login = &self.outbox.destination().login;
                        let error = Error::Blocked(reason).redacted(login);
                        report_waiting(&self.outbox, &error, &mut self.reported);
                    }
                }
                () = sleep_until(deadline), if !is_blocked => {
                    return Err(Error::Lost("no confirm".to_owned()));
                }
                () = sleep(CHECK_EVERY) => self.outbox.beat(),
            }
        }
    }
}

/// Shows why messages wait, and logs a reason that differs from the last one.
fn report_waiting<O: Outbox>(outbox: &O, error: &Error, reported: &mut Option<String>) {
    outbox.show(Some(error));
    let reason = error.to_string();
    if reported.as_ref() != Some(&reason) {
        tracing::warn!(%reason, "{}", O::WAITS);
        *reported = Some(reason);
    }
}

/// Publishes a message that no queue takes, and waits until the broker has returned it.
async fn try_line<O: Outbox>(outbox: &O, line: &ConfirmedLine) -> Result<(), Error> {
    let tried = line.may_write(NOWHERE).await;
    tried.map_err(|error| outbox.publish_error(&error))
}

/// Publishes all items, then waits for all confirms. Adds the items that were taken to `confirmed`.
/// The error is the reason why the broker did not take another item.
async fn publish<O: Outbox>(
    outbox: &O,
    line: &ConfirmedLine,
    due: Vec<O::Item>,
    confirmed: &mut Vec<O::Item>,
) -> Result<(), Error> {
    let to = outbox.destination();
    let mut ended = Ok(());
    let mut under_way = Vec::with_capacity(due.len());
    for item in due {
        let (body, properties) = outbox.message(&item);
        let sent = line.publish(&to.queue, body.as_bytes(), properties);
        match sent.await {
            Ok(confirm) => under_way.push((item, confirm)),
            Err(error) => {
                ended = Err(outbox.publish_error(&error));
                break;
            }
        }
    }
    for (item, confirm) in under_way {
        match confirm.await {
            Ok(confirmation) => match refusal(&confirmation) {
                None => confirmed.push(item),
                Some(message) => ended = Err(outbox.return_error(message)),
            },
            Err(error) => ended = Err(outbox.publish_error(&error)),
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn echoed_password_is_not_in_the_reason() {
        let url = BrokerUrl::queue("amqp://callbridge@127.0.0.1/?queue=dead").expect("a URL");
        let to = Destination::from_url(&url, Secret::Value("secret word".into()));
        let text = "low on secret%20word".to_owned();
        for error in [
            Error::Lost(text.clone()),
            Error::Blocked(text.clone()),
            Error::NotTaken {
                what: "queue dead".to_owned(),
                message: text.clone(),
                fix: "make it".to_owned(),
            },
        ] {
            let error = error.redacted(&to.login);
            assert_eq!(error.reason(), "low on [redacted]");
            assert!(error.to_string().contains("low on [redacted]"), "{error}");
        }
    }
}
