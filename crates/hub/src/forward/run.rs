//! The loop that forwards calls, connecting the core to the spool, the clock, the token, and the
//! client.

use super::batch::batch;
use super::client::{HubClient, Sender};
use super::core::{ForwardCore, ForwardProblem, Next, Outcome, POSITION, Reply, SENDER_ID};
use crate::token::new_id;
use callbridge_model::status::{BranchReport, Pause};
use callbridge_model::{Heartbeat, Secret, SecretPlace, clock};
use callbridge_spool::tables::forward;
use callbridge_spool::{Error, Handle, HubPosition, Offer, Op};
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Wait before a failed write to the spool is retried.
const SPOOL_AGAIN: Duration = Duration::from_secs(1);
/// Time before the first report, which leaves the sources time to connect. An earlier report would
/// show them as down.
const FIRST_REPORT_AFTER: Duration = Duration::from_secs(3);
/// Maximum time between two turns of the loop.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// Time left for the last calls and the last report when the collector stops.
const FINISH_WITHIN: Duration = Duration::from_secs(4);

/// A function that creates this collector's report.
pub type ReportSource =
    Box<dyn Fn() -> Pin<Box<dyn Future<Output = Option<BranchReport>> + Send>> + Send + Sync>;

/// The state of the connection to the hub, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardView {
    /// Address of the hub that gets the next request.
    pub hub: String,
    pub pause: Option<Pause>,
    /// When the hub last responded, in epoch seconds.
    pub answered_at: Option<i64>,
    pub position: Option<HubPosition>,
}

/// What the loop works with.
pub struct Forwarder {
    pub spool: Handle,
    pub hubs: Vec<HubClient>,
    /// Where the branch's token is. A file is reread for each request.
    pub token: SecretPlace,
    pub report: ReportSource,
    pub seed: u64,
    pub pulse: Heartbeat,
}

struct Loop {
    with: Forwarder,
    /// ID of the collector's state, empty until it's stored.
    sender_id: String,
    core: ForwardCore,
    shown: watch::Sender<ForwardView>,
    answered_at: Option<i64>,
    reported: Option<ForwardProblem>,
}

impl Forwarder {
    /// Forwards calls until `stop`, and then the calls that are ready by then, followed by a last
    /// report.
    ///
    /// # Errors
    /// Returns an error if the spool fails, for example because it's closed.
    pub async fn run(
        self,
        shown: watch::Sender<ForwardView>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let now = clock::now();
        let text = self.spool.meta(POSITION).await?;
        let seen = text.and_then(|text| serde_json::from_str(&text).ok());
        let hubs = self
            .hubs
            .iter()
            .map(|hub| hub.address().as_str().to_owned());
        let first_report = now.boot + FIRST_REPORT_AFTER;
        let mut work = Loop {
            sender_id: String::new(),
            core: ForwardCore::new(hubs.collect(), seen, self.seed, first_report),
            with: self,
            shown,
            answered_at: None,
            reported: None,
        };
        let stopped = tokio::select! {
            ended = work.begin() => ended,
            () = stop => Ok(()),
        };
        stopped?;
        if timeout(FINISH_WITHIN, work.finish()).await.is_err() {
            tracing::info!("the hub did not answer the last report in time");
        }
        Ok(())
    }
}

impl Loop {
    /// Makes calls ready that an earlier run sent to a CRM without learning their outcome, and then
    /// forwards calls.
    async fn begin(&mut self) -> Result<(), Error> {
        let stored = self.with.spool.meta(SENDER_ID).await?;
        let sender_id = stored.unwrap_or_else(new_id);
        let keep_id = Op::meta(SENDER_ID, sender_id.clone());
        let offer = Offer::Unconfirmed;
        let at = clock::now().wall;
        self.write(vec![keep_id, Op::Offer { offer, at }]).await?;
        self.sender_id = sender_id;
        self.forward().await
    }

    fn sender(&self) -> Sender<'_> {
        Sender {
            id: &self.sender_id,
            seen: self.core.seen(),
        }
    }

    async fn forward(&mut self) -> Result<(), Error> {
        let mut changed = self.with.spool.changed();
        loop {
            self.with.pulse.beat();
            self.publish();
            changed.borrow_and_update();
            let read = self
                .with
                .spool
                .read(|store| Ok(Some(store.books().ready > 0)));
            let ready = read.await.or_else(wait_if_retryable)?.unwrap_or(false);
            match self.core.next(clock::now().boot, ready) {
                Next::Calls { hub, lines } => self.send_calls(hub, lines).await?,
                Next::Report { hub } => self.send_report(hub, false).await?,
                Next::WaitUntil(until) => {
                    let wait = until.saturating_sub(clock::now().boot).min(TURN_WITHIN);
                    let is_spaced = wait < TURN_WITHIN;
                    tokio::select! {
                        () = sleep(wait) => {}
                        // A newly ready call doesn't cut short the wait between two requests.
                        ended = changed.changed(), if !is_spaced => {
                            ended.map_err(|_| Error::Closed)?;
                        }
                    }
                }
            }
        }
    }

    async fn send_calls(&mut self, hub: usize, lines: usize) -> Result<(), Error> {
        let read = self
            .with
            .spool
            .read(move |store| forward::next_calls(store, lines).map(Some));
        let Some(rows) = read.await.or_else(wait_if_retryable)? else {
            return Ok(());
        };
        let batch = batch(&rows);
        if batch.calls.is_empty() {
            return Ok(());
        }
        let reply = match self.token().await {
            Ok(token) => {
                let client = &self.with.hubs[hub];
                client.calls(&token, self.sender(), batch.body).await
            }
            Err(reply) => reply,
        };
        self.note_answer(&reply);
        let outcome = self
            .core
            .calls_answered(clock::now().boot, &batch.calls, reply);
        self.store(outcome).await
    }

    async fn send_report(&mut self, hub: usize, stopping: bool) -> Result<(), Error> {
        let Some(mut report) = (self.with.report)().await else {
            return Ok(());
        };
        report.stopping = stopping;
        let body = serde_json::to_vec(&report).unwrap_or_default();
        let reply = match self.token().await {
            Ok(token) => {
                let client = &self.with.hubs[hub];
                client.report(&token, self.sender(), body).await
            }
            Err(reply) => reply,
        };
        self.note_answer(&reply);
        let outcome = self.core.report_answered(clock::now().boot, reply);
        self.store(outcome).await
    }

    async fn finish(&mut self) -> Result<(), Error> {
        if self.core.problem().is_some() || self.sender_id.is_empty() {
            return Ok(());
        }
        // The last request goes to the current hub immediately, no matter what the core is waiting
        // for.
        let hub = self.core.hub_number();
        self.send_calls(hub, crate::protocol::LINES_MAX).await?;
        if self.core.problem().is_none() {
            self.send_report(hub, true).await?;
        }
        Ok(())
    }

    async fn token(&self) -> Result<Secret, Reply> {
        let place = self.with.token.clone();
        let reading = tokio::task::spawn_blocking(move || place.read());
        match reading.await {
            Ok(Ok(token)) => Ok(token),
            Ok(Err(error)) => Err(Reply::NoToken(error.to_string())),
            Err(_) => Err(Reply::NoToken("the token cannot be read".to_owned())),
        }
    }

    fn note_answer(&mut self, reply: &Reply) {
        if let Reply::Answer { status: 200, .. } = reply {
            self.answered_at = Some(clock::now().wall.floor_seconds().get());
        }
    }

    /// Commits the changes that result from a response, waiting until the disk accepts writes.
    async fn store(&mut self, outcome: Outcome) -> Result<(), Error> {
        self.publish();
        let at = clock::now().wall;
        if outcome.new_incarnation {
            tracing::warn!(
                "the hub has lost stored calls: this collector sends all of its calls again"
            );
        }
        for (row, message) in &outcome.refused {
            tracing::warn!(call = %row, reason = message, "the hub refused a call");
        }
        let (mut ops, steps) = outcome.ops(at);
        ops.extend(steps.iter().cloned());
        if ops.is_empty() {
            return Ok(());
        }
        match self.write(ops.clone()).await {
            Err(Error::Refused(..) | Error::NoRow(_)) => {}
            written => return written,
        }
        // Someone has changed one of the calls in the meantime. Store each step separately, so that
        // the other calls are stored.
        ops.truncate(ops.len() - steps.len());
        self.write(ops).await?;
        for step in steps {
            match self.write(vec![step]).await {
                Ok(()) | Err(Error::Refused(..) | Error::NoRow(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn write(&self, ops: Vec<Op>) -> Result<(), Error> {
        loop {
            self.with.pulse.beat();
            match self.with.spool.write(ops.clone()).await {
                Err(error) if error.is_retryable() => {
                    tracing::debug!(%error, "the hub's answer is not stored yet");
                    sleep(SPOOL_AGAIN).await;
                }
                written => return written.map(drop),
            }
        }
    }

    fn publish(&mut self) {
        let problem = self.core.problem();
        if problem != self.reported.as_ref() {
            match problem {
                Some(problem) => {
                    tracing::warn!(reason = problem.message, "calls are not forwarded");
                }
                None => tracing::info!(hub = self.core.hub(), "calls are forwarded again"),
            }
            self.reported = problem.cloned();
        }
        let problem = self.core.problem();
        let pause = problem.map(|problem| Pause::new(problem.reason, &problem.message));
        self.shown.send_replace(ForwardView {
            hub: self.core.hub().to_owned(),
            pause,
            answered_at: self.answered_at,
            position: self.core.seen().cloned(),
        });
    }
}

/// Turns a spool error into `None` if the spool may work again later, and returns any other error.
fn wait_if_retryable<T>(error: Error) -> Result<Option<T>, Error> {
    if error.is_retryable() {
        Ok(None)
    } else {
        Err(error)
    }
}
