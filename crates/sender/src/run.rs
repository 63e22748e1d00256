//! The loop that owns the budget and connects the core to the spool, the clock, the token, and the
//! client.

use crate::budget::pacer::SEND_WITHIN;
use crate::core::Core;
use crate::crm_proxy::{ProxyReply, Question, Questions};
use crate::log::{Call, SenderView, log_answer, log_doubts, log_step};
use crate::plan::{Decision, Known, Launch, Plan, Settings};
use crate::status::{self, SenderStatus, TOKEN_MISSING};
use crate::token::{TokenCheck, TokenSource, Watch};
use crate::token_update::{Tokens, print};
use callbridge_crm::{ApiError, ApiResponse, Client};
use callbridge_leads::lead_request::due::{LeadRequest, RequestId};
use callbridge_model::status::Pause;
use callbridge_model::{Heartbeat, Now, Secret, TokenFingerprint, clock};
use callbridge_spool::{Error, Handle, Op, QueueQuery, Store, WorkQueue, tables};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};
use tracing::{debug, error, info, warn};

/// Time between two checks of the token file.
const TOKEN_CHECK: Duration = Duration::from_secs(1);

/// Wait before the spool is used again after an error.
const SPOOL_AGAIN: Duration = Duration::from_secs(1);

/// Maximum time that a shutdown waits for requests in flight.
const FINISH: Duration = Duration::from_secs(8);

/// What the sender's loop works with.
pub struct Sender {
    /// Holds the calls, the budget's slots, and the sender's memory.
    pub spool: Handle,
    pub client: Arc<Client>,
    /// The token's source, which the loop watches.
    pub token: TokenSource,
    /// The sender's settings, including the seed for its jitter.
    pub settings: Settings,
    /// Receives each request's duration.
    pub request_times: RequestTimes,
    /// Commands' questions, which are sent to the CRM after live calls.
    pub questions: Questions,
    /// The loop's heartbeat.
    pub pulse: Heartbeat,
}

/// Receives how long a request took from the start of its task, before the connection was made,
/// until the response arrived.
pub type RequestTimes = Box<dyn Fn(Duration) + Send + Sync>;

type Response = (task::Id, ApiResponse);

struct Loop {
    with: Sender,
    core: Core,
    watch: Watch,
    tokens: Option<Tokens>,
    /// Commands waiting for a response, by request.
    asking: BTreeMap<RequestId, oneshot::Sender<ProxyReply>>,
    next_ticket: u64,
    /// Message saying why there's no token.
    no_token: Option<String>,
    in_flight: JoinSet<ApiResponse>,
    /// Each `in_flight` task's slot and start time.
    tasks: HashMap<task::Id, (u32, Instant)>,
    calls: BTreeMap<u32, Call>,
    /// Operations that the spool couldn't store yet. Nothing is sent until they're stored.
    unwritten: VecDeque<Vec<Op>>,
    trouble: Option<Error>,
    head: WorkQueue,
    shown: SenderView,
}

impl Sender {
    /// Runs until `shutdown`, publishing its state to `status`. It then starts no more requests,
    /// waits up to 8 s for those in flight, and commits their responses. Calls without a response
    /// are resent after the next start.
    ///
    /// # Errors
    /// Returns an error if the spool can't be read at startup or is closed.
    pub async fn run(
        self,
        status: watch::Sender<SenderStatus>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let mut work = self.open(status).await?;
        let mut changed = work.with.spool.changed();
        let mut looks = tokio::time::interval(TOKEN_CHECK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watched = work.watch.is_worthwhile();
        tokio::pin!(shutdown);
        loop {
            work.with.pulse.beat();
            changed.borrow_and_update();
            let until = work.turn().await?;
            let far = Duration::from_secs(3600);
            let wait = until.map_or(far, |at| at.saturating_sub(clock::now().boot));
            let until = Instant::now() + wait;
            let news = async {
                loop {
                    tokio::select! {
                        Some(answered) = work.in_flight.join_next_with_id() => {
                            work.handle_answer(answer_or_lost(answered));
                        }
                        ended = changed.changed() => return ended.map_err(|_| Error::Closed),
                        () = sleep_until(until) => {}
                        () = work.watch.changed() => {
                            work.check_token();
                        }
                        Some(question) = work.with.questions.0.recv() => {
                            work.take_question(question);
                        }
                        _ = looks.tick() => {
                            work.with.pulse.beat();
                            if !(watched && work.check_token()) {
                                continue;
                            }
                        }
                    }
                    return Ok(());
                }
            };
            tokio::select! {
                () = &mut shutdown => break,
                news = news => news?,
            }
        }
        work.finish().await
    }

    async fn open(self, status: watch::Sender<SenderStatus>) -> Result<Loop, Error> {
        let boot_id = clock::boot_id();
        let (known, sending) = self
            .spool
            .read(|store| Ok((Known::read(store, boot_id)?, tables::calls::sending(store)?)))
            .await?;
        let now = clock::now();
        let (core, mut ops) = Core::start(self.settings.clone(), known, now);
        log_doubts(&core.doubts);
        ops.extend(core.interrupted(&sending, now));
        if !sending.is_empty() {
            info!(
                calls = sending.len(),
                "requests were under way when callbridge last stopped: they are looked for before \
                 they are sent again"
            );
        }
        let mut work = Loop {
            core,
            watch: Watch::new(self.token.clone()),
            tokens: None,
            asking: BTreeMap::new(),
            next_ticket: 0,
            no_token: None,
            in_flight: JoinSet::new(),
            tasks: HashMap::new(),
            calls: BTreeMap::new(),
            unwritten: VecDeque::from([ops]),
            trouble: None,
            head: WorkQueue::default(),
            shown: SenderView::new(status),
            with: self,
        };
        work.check_token();
        Ok(work)
    }
}

impl Loop {
    /// Does everything that can be done now, returning the time since boot of the next check.
    async fn turn(&mut self) -> Result<Option<Duration>, Error> {
        let until = loop {
            let now = clock::now();
            if !self.write_back().await? {
                break Some(now.boot + SPOOL_AGAIN);
            }
            let Some(head) = self.read(now, tables::work_queue::head).await? else {
                return Ok(Some(now.boot + SPOOL_AGAIN));
            };
            self.head = head;
            let decision = self.core.next(now, &self.head);
            match decision {
                Decision::Send(plan) => {
                    self.send(plan).await?;
                    if self.trouble.is_some() {
                        return Ok(Some(now.boot + SPOOL_AGAIN));
                    }
                }
                Decision::Settle(call) => {
                    let step = self.core.settle(now, &call);
                    log_step(&call, &step);
                    let step = Op::step(call.row, step, now.wall);
                    self.unwritten.push_back(vec![step]);
                }
                Decision::Commit(ops) => self.unwritten.push_back(ops),
                Decision::WaitUntil(at) => break Some(at),
                Decision::Idle => break None,
            }
        };
        self.publish();
        Ok(until)
    }

    /// Runs `read` on the spool with the core's query, or returns `None` if the spool can't be read
    /// now.
    async fn read<T: Send + 'static>(
        &mut self,
        now: Now,
        read: impl FnOnce(&Store, &QueueQuery) -> Result<T, Error> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let ask = self.core.ask(now);
        match self.with.spool.read(move |store| read(store, &ask)).await {
            Ok(found) => Ok(Some(found)),
            Err(trouble) => self.note_trouble(trouble).map(|()| None),
        }
    }

    /// Sends the chosen request after committing its slot and the call's step.
    async fn send(&mut self, plan: Plan) -> Result<(), Error> {
        let slot = plan.slot;
        let work = plan.task.work.clone();
        let inputs = self
            .read(clock::now(), move |store, ask| work.inputs(store, ask))
            .await?;
        let Some(inputs) = inputs else {
            self.core.abort(slot);
            return Ok(());
        };
        let call = Call::from_plan(&plan, &inputs);
        let now = clock::now();
        let Launch { request, ops } = self.core.launch(now, plan, inputs);
        let Some((request, token)) = request else {
            self.unwritten.push_back(ops);
            return Ok(());
        };
        let Some(secret) = self.secret(&token) else {
            self.core.abort(slot);
            return Ok(());
        };
        if let Err(trouble) = self.with.spool.write(ops).await {
            self.core.abort(slot);
            if !matches!(trouble, Error::Refused { .. }) {
                return self.note_trouble(trouble);
            }
            // A webhook has settled the call since it was chosen.
            debug!(refused = %trouble, "not sent");
            return Ok(());
        }
        self.calls.insert(slot, call);
        let client = Arc::clone(&self.with.client);
        let send_by = now.boot + SEND_WITHIN;
        let sending = async move { client.send(&request, &secret, send_by).await };
        self.start(slot, sending);
        Ok(())
    }

    /// Sends the request in a task of its own.
    fn start(&mut self, slot: u32, sent: impl Future<Output = ApiResponse> + Send + 'static) {
        let task = self.in_flight.spawn(sent);
        self.tasks.insert(task.id(), (slot, Instant::now()));
    }

    fn handle_answer(&mut self, (task, response): Response) {
        let Some((slot, began)) = self.tasks.remove(&task) else {
            return;
        };
        let took = began.elapsed();
        (self.with.request_times)(took);
        let call = self.calls.remove(&slot).unwrap_or_default();
        if let Some(outcome) = self.core.judge_answer(clock::now(), slot, response) {
            log_answer(&outcome, &call, took);
            self.unwritten.push_back(outcome.ops);
            if let Some((LeadRequest::Asked(ticket, _), answer, token)) = outcome.lead_request
                && let Some(reply) = self.asking.remove(&ticket)
            {
                // The command that asked may have ended.
                let _ = reply.send(ProxyReply::Answer(answer, token));
            }
        }
    }

    /// Returns the current or previous token with this fingerprint.
    fn secret(&self, token: &TokenFingerprint) -> Option<Secret> {
        let tokens = self.tokens.as_ref()?;
        let before = tokens.previous.as_ref().map(|(secret, _)| secret);
        let mut both = std::iter::once(&tokens.current).chain(before);
        both.find(|secret| print(secret) == *token).cloned()
    }

    fn take_question(&mut self, Question { asked, reply }: Question) {
        let ticket = RequestId(self.next_ticket);
        self.next_ticket += 1;
        if self.core.lead_requests.ask(ticket, asked) {
            self.asking.insert(ticket, reply);
        } else {
            let _ = reply.send(ProxyReply::Busy);
        }
    }

    /// Tells all waiting commands about the `pause`, if there is one, and drops the requests of
    /// commands that have ended.
    fn answer_waiting(&mut self, pause: Option<&Pause>) {
        let mut over = Vec::new();
        for (ticket, reply) in &self.asking {
            if pause.is_some() || reply.is_closed() {
                over.push(*ticket);
            }
        }
        for ticket in over {
            if !self.core.lead_requests.drop_asked(ticket) {
                continue; // under way
            }
            let reply = self.asking.remove(&ticket);
            if let (Some(reply), Some(pause)) = (reply, pause.cloned()) {
                let _ = reply.send(ProxyReply::Paused(pause));
            }
        }
    }

    /// Stores the operations that haven't been stored yet, returning `false` if the spool can't
    /// store them now.
    async fn write_back(&mut self) -> Result<bool, Error> {
        while let Some(ops) = self.unwritten.front() {
            match self.with.spool.write(ops.clone()).await {
                Ok(_) => self.trouble = None,
                Err(trouble) if trouble.is_retryable() || trouble == Error::Closed => {
                    return self.note_trouble(trouble).map(|()| false);
                }
                Err(refused) => {
                    // The step no longer fits the row. The operations for the budget are still
                    // stored.
                    error!(error = %refused, "the spool refused a step of a call");
                    let mut kept = ops.clone();
                    kept.retain(|op| !matches!(op, Op::Step { .. } | Op::FailedCall(_)));
                    if kept.len() < ops.len() {
                        self.unwritten.push_front(kept);
                        self.unwritten.remove(1);
                        continue;
                    }
                }
            }
            self.unwritten.pop_front();
        }
        Ok(self.trouble.is_none())
    }

    /// Notes an error from the spool, so that nothing is sent until it works again. Fails if the
    /// spool is closed.
    fn note_trouble(&mut self, trouble: Error) -> Result<(), Error> {
        if trouble == Error::Closed {
            return Err(trouble);
        }
        if self.trouble.as_ref() != Some(&trouble) {
            error!(error = %trouble, "the spool cannot be used; nothing is sent until it can");
        }
        // An empty write tests whether the spool works again.
        if self.unwritten.is_empty() {
            self.unwritten.push_back(Vec::new());
        }
        self.trouble = Some(trouble);
        self.publish();
        Ok(())
    }

    /// Checks the token, returning `true` if it has changed.
    fn check_token(&mut self) -> bool {
        match self.watch.check() {
            TokenCheck::Same => false,
            TokenCheck::Kept(why) => {
                warn!(error = %why, "cannot read the token again; the previous one stays in use");
                false
            }
            TokenCheck::Changed(token, why) => {
                if let Some(why) = &why {
                    warn!(error = %why, "no token");
                }
                self.no_token = why.map(|why| why.to_string());
                let before = token
                    .as_ref()
                    .and_then(|tokens| tokens.previous.as_ref())
                    .map(|(secret, until)| (print(secret), *until));
                let current = token.as_ref().map(|tokens| print(&tokens.current));
                let ops = self.core.token(clock::now(), current);
                self.unwritten.push_back(ops);
                self.core.tokens.company = token.as_ref().and_then(|tokens| tokens.company);
                self.core.set_previous_token(before);
                self.tokens = token;
                true
            }
        }
    }

    fn publish(&mut self) {
        let now = clock::now();
        let mut status = self.core.status(now, &self.head);
        if let (Some(why), Some(pause)) = (&self.no_token, &mut status.pause)
            && pause.reason == TOKEN_MISSING
        {
            let place = &self.core.settings.token_place;
            pause.fix = match &place.then {
                Some(_) => format!("put the token into {place}"),
                None => format!("{why}; it is read again automatically"),
            };
        }
        status.token_print = self.tokens.as_ref().map(|tokens| print(&tokens.current));
        status.token_taken = status::acceptance(&status.token);
        if let Some(kept) = self.watch.keeper_update() {
            kept.adorn(&mut status);
        }
        if let Some(trouble) = &self.trouble {
            status.pause = Some(Pause::new("disk", trouble.to_string()));
        }
        if self.trouble.is_some() || self.core.stops_commands(now) {
            self.answer_waiting(status.pause.as_ref());
        } else {
            self.answer_waiting(None);
        }
        let renewed = self.watch.keeper_update().is_some();
        let place = if renewed {
            None
        } else {
            Some(&self.core.settings.token_place)
        };
        let still_asking = self.core.is_asking();
        self.shown.publish(now, status, still_asking, place);
    }

    /// Completes and commits the requests in flight without starting new ones.
    async fn finish(mut self) -> Result<(), Error> {
        let landing = async {
            while let Some(answered) = self.in_flight.join_next_with_id().await {
                self.handle_answer(answer_or_lost(answered));
            }
        };
        if timeout(FINISH, landing).await.is_err() {
            let calls = self.in_flight.len();
            warn!(
                calls,
                "requests have no answer at the stop: they are sent again at the next start"
            );
        }
        self.in_flight.shutdown().await;
        self.write_back().await?;
        self.publish();
        Ok(())
    }
}

/// Returns a task's response. If the task panicked, its request may have been sent, so the response
/// counts as lost, and the call is looked for before it's resent.
fn answer_or_lost(answered: Result<Response, JoinError>) -> Response {
    answered.unwrap_or_else(|error| {
        let what = "a request's task ended without an answer: the request counts as lost and is \
                    looked for later";
        error!(%error, "{what}");
        let why = "callbridge failed during the request".to_owned();
        (error.id(), Err(ApiError::Lost(why)).into())
    })
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
