//! The sender without a clock, sockets, or files. From the head of the spool, `now`, and responses,
//! it derives one request at a time, along with operations to commit.
//!
//! A request goes through three stages. [`Core::next`] chooses it and takes a slot.
//! [`Core::launch`] builds it, returning the operations to commit **before** it's sent.
//! [`Core::judge_answer`] judges the response, applies its effects, and returns the operations to
//! commit afterwards.

pub mod answered;
mod refused;
mod view;

use crate::breaker::Breakers;
use crate::breaker::pause::{Pause, Paused, Probe};
use crate::breaker::refusals::Refusals;
use crate::breaker::retry::CallFailures;
use crate::budget::Budget;
use crate::confirm::{self, Confirm, ENDS_SOON, REQUEST_ID_LIFE, WRITTEN_WITHIN};
use crate::in_flight::{InFlight, InFlightRequests};
use crate::lead_requests::LeadRequests;
use crate::memory::{KEY, Memory};
use crate::plan::{Decision, Known, Launch, Plan, RequestInputs, Settings};
use crate::queue::{self, Lane, View, Work};
use crate::status::{self, SenderStatus};
use crate::tokens::{Before, KnownTokens};
use callbridge_crm::{ApiResponse, PageSize, Request, request};
use callbridge_model::status::Requests;
use callbridge_model::{Now, Reason, TokenFingerprint};
use callbridge_spool::{IfAbsent, Op, QueueQuery, Row, RowId, State, Step, Unconfirmed, WorkQueue};
use std::time::Duration;

use answered::Answered;
use refused::reopen;

/// Time between two checks while the clock is wrong, too many requests are in flight, or an
/// unconfirmed call is too young.
const CHECK: Duration = Duration::from_secs(1);

/// Time between two checks of lead requests that have to wait.
const LEAD_REQUEST_CHECK: Duration = Duration::from_secs(5);

/// How far to plan ahead at most, because the wall clock may be set in the meantime.
const PLAN_AHEAD_MAX: Duration = Duration::from_secs(60);

/// Wait after a journal reading that had no calls to look for.
const PAGE_AGAIN: Duration = Duration::from_secs(1);

/// The sender's state.
#[derive(Debug)]
pub struct Core {
    pub(crate) settings: Settings,
    pub(crate) budget: Budget,
    pub(crate) breakers: Breakers,
    pub(crate) paused: Option<Paused>,
    pub(crate) refusals: Refusals,
    pub(crate) failures: CallFailures,
    pub(crate) confirm: Confirm,
    pub(crate) tokens: KnownTokens,
    pub(crate) in_flight: InFlightRequests,
    pub(crate) requests: Requests,
    pub(crate) lead_requests: LeadRequests,
    /// Number of calls that the CRM hasn't accepted yet, including those in flight, as of the last
    /// time the head of the spool was read.
    unsent: u64,
    /// Whether the last request was a confirmation.
    confirmed_last: bool,
    /// Time since boot before which no page is read.
    page_from: Duration,
    /// URL at which the CRM has accepted a call.
    accepted_at: Option<String>,
    /// The sender's memory as stored, to tell whether it has to be stored again.
    memory: String,
    /// Messages about parts of the stored memory that can't be read.
    pub(crate) doubts: Vec<String>,
    /// The branches that showed that another database is in use. Nothing is sent meanwhile.
    split_by: Option<String>,
}

impl Core {
    /// Starts a sender, also returning the operations to commit before its first request.
    pub fn start(settings: Settings, known: Known, now: Now) -> (Self, Vec<Op>) {
        let memory = Memory::read(known.memory.as_deref());
        let (seed, late) = (settings.seed, settings.late());
        let (budget, mut ops) = Budget::start(&settings, &known, &memory, now);
        let page_size = memory.page_size.unwrap_or(PageSize::LARGEST);
        let mut core = Self {
            settings,
            budget,
            breakers: Breakers::new(seed.wrapping_add(1), memory.submit_failing_since),
            paused: None,
            refusals: memory.refusals.clone(),
            failures: CallFailures::new(
                seed.wrapping_add(2),
                memory.submit_failing_since.is_some(),
            ),
            confirm: Confirm::new(memory.pages_off_until, page_size),
            tokens: KnownTokens::new(&known, &memory, now, late),
            in_flight: InFlightRequests::default(),
            requests: Requests::new(),
            lead_requests: LeadRequests::default(),
            unsent: 0,
            confirmed_last: false,
            page_from: Duration::ZERO,
            accepted_at: memory.accepted_at,
            memory: known.memory.unwrap_or_default(),
            doubts: memory.doubts,
            split_by: None,
        };
        // A restart ends a pause due to refused calls, because the flags may have changed.
        core.end_pause(now, &mut ops);
        core.pause_for_token(now, &mut ops);
        core.remember(now, &mut ops);
        (core, ops)
    }

    /// Returns the operations that mark calls whose requests were in flight when the process ended.
    /// Such calls may have arrived, so pages are read before they're resent. A call that's sent
    /// twice doesn't create a second record (§4.5.4).
    pub fn interrupted(&self, rows: &[Row], now: Now) -> Vec<Op> {
        let mut ops = Vec::new();
        for row in rows {
            if row.state != State::Sending || self.in_flight.has_call(row.id) {
                continue;
            }
            let step = Step::Unresolved {
                next_check: now.wall.plus(self.settings.late()),
                if_absent: IfAbsent::Interrupted,
                why: "callbridge stopped while the request was under way".to_owned(),
            };
            ops.push(Op::step(row.id, step, now.wall));
        }
        if !ops.is_empty() {
            let by = u64::try_from(ops.len()).unwrap_or(u64::MAX);
            ops.push(Op::count("interrupted_requests", by));
        }
        ops
    }

    /// Returns a query for everything in the spool that the next decision depends on.
    pub fn ask(&self, now: Now) -> QueueQuery {
        QueueQuery {
            now: now.wall,
            tokens: self.tokens.valid_tokens(now).cloned().collect(),
            confirmable_before: self.confirm.written_before(now.wall),
            ending_before: now.wall.minus(REQUEST_ID_LIFE - ENDS_SOON),
            untried_first: self.breakers.is_any_open(),
            suspended: self
                .refusals
                .suspended(now.boot, |branch| self.in_flight.submits_for(branch)),
        }
    }

    /// Sets the previous token and its expiry, unless it's also the current one.
    pub fn set_previous_token(&mut self, before: Option<Before>) {
        self.tokens.before = before.filter(|(token, _)| !self.tokens.is_current(token));
    }

    /// Sets the current token, or `None` if there is none, and returns the operations to commit.
    /// Setting the same token again has no effect.
    pub fn token(&mut self, now: Now, token: Option<TokenFingerprint>) -> Vec<Op> {
        let mut ops = Vec::new();
        if self.tokens.current == token {
            return ops;
        }
        if self.tokens.replace(token) {
            self.confirm.forget_refusals();
            self.end_pause(now, &mut ops);
        }
        self.pause_for_token(now, &mut ops);
        ops
    }

    /// Pauses if there's no token or it was refused before, and otherwise ends such a pause.
    fn pause_for_token(&mut self, now: Now, ops: &mut Vec<Op>) {
        if self.tokens.current.is_none() {
            self.paused = Some(Paused::new(now.boot, Pause::TokenMissing));
        } else if let Some(next) = self.tokens.refused_until() {
            let refused = Pause::TokenRefused("401".to_owned());
            self.paused = Some(Paused::with_probe_at(now.boot, refused, next));
        } else if self.paused.is_some() {
            self.end_pause(now, ops);
        }
    }

    /// Ends the pause. Calls that were refused in a row are resent.
    fn end_pause(&mut self, now: Now, ops: &mut Vec<Op>) {
        self.paused = None;
        let rows = self.refusals.take();
        reopen(rows, now, ops);
    }

    /// Chooses the next request and takes its slot, or returns what to do instead.
    pub fn next(&mut self, now: Now, head: &WorkQueue) -> Decision {
        if self.clock_is_wrong(now) {
            return Decision::WaitUntil(now.boot + CHECK);
        }
        self.budget.check_clock(now);
        if let Some(silence) = &head.silence {
            let begun = self.budget.keep_silence(now, silence);
            if let Some(op) = begun {
                return Decision::Commit(vec![op]);
            }
        }
        self.split_by.clone_from(&head.split_by);
        if self.split_by.is_some() {
            return Decision::Idle;
        }
        self.unsent = head.ready + head.sending;
        if self.confirm.note_webhook(head.webhook_pace.clone())
            && let Some(pace) = &head.webhook_pace
        {
            let mut ops = Vec::new();
            self.note_webhook(now, &pace.turn, &mut ops);
            if !ops.is_empty() {
                return Decision::Commit(ops);
            }
        }
        if !self.in_flight.has_room(now) {
            return Decision::WaitUntil(now.boot + CHECK);
        }
        if self.budget.is_limited() && !self.in_flight.is_empty() {
            return Decision::Idle;
        }
        let view = view::view(self, now, head);
        let Some(task) = queue::next(&view) else {
            return self.wait(now, head, &view);
        };
        if let Work::Settle(call) = task.work {
            return Decision::Settle(call);
        }
        let is_spare = task.lane == Lane::SpareLead;
        match self.budget.take(now, task) {
            // A request that can wait must not delay calls.
            Decision::WaitUntil(at) if is_spare => match self.wait(now, head, &view) {
                Decision::WaitUntil(sooner) => Decision::WaitUntil(at.min(sooner)),
                _ => Decision::WaitUntil(at),
            },
            decision => decision,
        }
    }

    /// Decides that nothing can be sent, and when to check again.
    fn wait(&self, now: Now, head: &WorkQueue, view: &View) -> Decision {
        let mut moments = vec![
            self.breakers.next_probe(),
            self.paused.as_ref().and_then(Paused::next),
            self.tokens.record_due(),
            self.refusals.next_trial(),
            Some(self.page_from),
        ];
        for at in [
            head.next_not_before,
            head.next_poll,
            head.lead_requests.next,
        ] {
            // The wall clock may be set in the meantime, so check again within a minute.
            moments.push(at.map(|at| {
                let wait = at.since(now.wall);
                now.boot + wait.clamp(Duration::from_millis(1), PLAN_AHEAD_MAX)
            }));
        }
        if let Some((_, age)) = &view.unconfirmed.poll
            && *age < WRITTEN_WITHIN
        {
            moments.push(Some(now.boot + CHECK));
        }
        for call in &head.polls {
            let left = self
                .confirm
                .webhook_wait()
                .saturating_sub(call.age(now.wall));
            moments.push(Some(now.boot + left));
        }
        if !head.lead_requests.due.is_empty() || !self.lead_requests.asked.is_empty() {
            moments.push(Some(now.boot + LEAD_REQUEST_CHECK));
        }
        let later = moments.into_iter().flatten().filter(|at| *at > now.boot);
        later.min().map_or(Decision::Idle, Decision::WaitUntil)
    }

    /// Returns the step for a call that needs no request.
    pub fn settle(&self, now: Now, call: &Unconfirmed) -> Step {
        if self.tokens.can_read(now, &call.token) {
            return self.confirm.expired_step(call, now.wall);
        }
        self.confirm.settle(call, now.wall, false)
    }

    /// Builds the chosen request from its stored rows ([`Work::inputs`]).
    pub fn launch(&mut self, now: Now, plan: Plan, inputs: RequestInputs) -> Launch {
        let slot = plan.slot;
        let failures = inputs.row.as_ref().map_or(0, |row| row.failures);
        let call = self.sent_call(&plan.task.work, &inputs);
        let mut ops = Vec::new();
        let mut request = None;
        if let Some(token) = self.tokens.fitting(now, &plan.task.work) {
            let made = self.make(now, &plan.task.work, inputs, &mut ops);
            request = made.map(|made| (made, token));
        }
        let Some((sent, token)) = &request else {
            self.budget.pacer.never_sent(slot);
            return Launch { request, ops };
        };
        let in_flight = InFlight {
            endpoint: sent.endpoint(),
            token: token.clone(),
            sent: now,
            failures,
            call,
            plan,
        };
        ops.push(self.budget.launched(&in_flight));
        if self.tokens.launched(now, token) {
            self.remember(now, &mut ops);
        }
        self.note_launch(now, &in_flight);
        self.in_flight.by_slot.insert(slot, in_flight);
        Launch { request, ops }
    }

    fn note_launch(&mut self, now: Now, in_flight: &InFlight) {
        let task = &in_flight.plan.task;
        self.confirmed_last = matches!(task.work, Work::Poll(_) | Work::Page { .. });
        if let Work::Poll(call) = &task.work {
            self.confirm.is_polled(call);
        }
        if task.work == Work::TokenInfo {
            self.tokens.record_asked(now.boot);
        }
        if let (Work::Submit(_), Some(call)) = (&task.work, &in_flight.call) {
            self.refusals.note_sent(&call.branch, now.boot);
        }
        if let Some(endpoint) = task.work.endpoint() {
            let stands_in = task.lane == Lane::StandIn;
            self.breakers
                .note_sent(in_flight.plan.slot, endpoint, stands_in);
        }
        if let Some(paused) = &mut self.paused {
            let is_probe = match paused.probe(now.boot) {
                Probe::TokenInfo => task.work == Work::TokenInfo,
                Probe::Submission => matches!(task.work, Work::Submit(_)),
                Probe::Never => false,
            };
            if is_probe {
                paused.probe_sent(now.boot);
            }
        }
    }

    fn make(
        &mut self,
        now: Now,
        work: &Work,
        inputs: RequestInputs,
        ops: &mut Vec<Op>,
    ) -> Option<Request> {
        match work {
            Work::TokenInfo => Some(Request::TokenInfo),
            Work::Poll(call) => Some(Request::Poll {
                request_id: call.request_id.clone()?,
            }),
            Work::Page { .. } => self.make_page(now, inputs.unconfirmed),
            Work::Submit(id) => {
                let mut row = inputs.row?;
                if let Some(onward) = inputs.onward
                    && row.state == State::Ready
                {
                    row.record.clone_from(&onward.record);
                    // The call's lead is known to have been merged, so send the call to the
                    // surviving lead right away instead of letting it fail first.
                    ops.push(Op::step(*id, Step::moved(onward, ""), now.wall));
                }
                self.make_submission(now, *id, &row, ops)
            }
            Work::Lead(request) => self.lead_requests.request(now, request, inputs.write, ops),
            Work::Settle(_) => None,
        }
    }

    fn make_page(&mut self, now: Now, mut calls: Vec<Unconfirmed>) -> Option<Request> {
        calls.retain(|call| !self.in_flight.has_call(call.row));
        let living: Vec<TokenFingerprint> = self.tokens.valid_tokens(now).cloned().collect();
        let page = self.confirm.page(now.wall, calls, &living);
        if page.is_none() {
            self.page_from = now.boot + PAGE_AGAIN;
        }
        page.map(Request::Filter)
    }

    fn make_submission(
        &self,
        now: Now,
        id: RowId,
        row: &Row,
        ops: &mut Vec<Op>,
    ) -> Option<Request> {
        if row.state != State::Ready {
            return None;
        }
        let body = request::submission(&row.record, &self.settings.fields);
        let step = if body.is_some() {
            Step::Send
        } else {
            // Our rules never make such a call ready, but if there is one, it must not block the
            // queue.
            confirm::dead_step(
                Reason::NoLead,
                "the call has no lead, no uuid, or no known direction, so it cannot be sent"
                    .to_owned(),
            )
        };
        ops.push(Op::step(id, step, now.wall));
        body.map(Request::Submit)
    }

    /// Undoes a launch whose operations couldn't be committed, so that nothing was sent.
    pub fn abort(&mut self, slot: u32) {
        if let Some(in_flight) = self.in_flight.by_slot.remove(&slot)
            && matches!(in_flight.plan.task.work, Work::Page { .. })
        {
            self.confirm.drop_reading();
        }
        self.breakers.release(slot);
        self.budget.pacer.never_sent(slot);
        // The memory may not have been stored, so store it again with the next response.
        self.memory.clear();
        self.budget.forget_stored();
    }

    /// Judges the response to a slot's request, or returns `None` if there's none in flight.
    pub fn judge_answer(&mut self, now: Now, slot: u32, response: ApiResponse) -> Option<Answered> {
        let in_flight = self.in_flight.by_slot.remove(&slot)?;
        Some(answered::judge_answer(self, now, in_flight, response))
    }

    /// Adds the operation that stores the sender's memory if it has changed.
    fn remember(&mut self, now: Now, ops: &mut Vec<Op>) {
        let memory = Memory {
            pages_off_until: self.confirm.pages_off_until,
            page_size: Some(self.confirm.page_size),
            accepted_at: self.accepted_at.clone(),
            submit_failing_since: self.breakers.submit_failing_since(),
            window: Some(self.budget.pacer.rate.window()),
            shared: self.budget.shared(now),
            refusals: self.refusals.clone(),
            token: self.tokens.last.clone(),
            refused: self
                .tokens
                .refused
                .as_ref()
                .map(|(refused, _)| refused.clone()),
            doubts: Vec::new(),
        };
        ops.extend(self.budget.store_silence(now));
        let text = memory.text();
        if text != self.memory {
            self.memory.clone_from(&text);
            ops.push(Op::meta(KEY, text));
        }
    }

    /// Returns `true` if the CRM has accepted a call at this URL.
    fn has_accepted(&self) -> bool {
        self.accepted_at.as_deref() == Some(self.tokens.address())
    }

    /// Returns `true` if our clock is wrong, in which case nothing is sent, since times in the
    /// journal and the token's expiry would be wrong.
    fn clock_is_wrong(&self, now: Now) -> bool {
        self.settings
            .clock_right_from
            .is_some_and(|right_from| now.wall < right_from)
    }

    /// Returns `true` if the call's requestId is older than 24 hours, while its token is still
    /// valid.
    fn is_expired(&self, now: Now, call: &Unconfirmed) -> bool {
        call.age(now.wall) >= REQUEST_ID_LIFE && self.tokens.can_read(now, &call.token)
    }

    /// Returns `true` if commands' requests must wait. Neither a single failing endpoint nor
    /// refused calls stop them.
    pub fn stops_commands(&self, now: Now) -> bool {
        let unreachable = (self.breakers.failing().iter()).any(|failing| failing.unreachable);
        unreachable || self.pause(now).is_some()
    }

    /// Returns the current pause. It's no longer returned once `token/info` has succeeded and a
    /// submission is testing whether the pause is over.
    pub(crate) fn pause(&self, now: Now) -> Option<Pause> {
        if self.clock_is_wrong(now) {
            return Some(Pause::WrongClock);
        }
        if let Some(branches) = &self.split_by {
            return Some(Pause::SplitDatabase(branches.clone()));
        }
        match &self.paused {
            Some(paused) if !paused.is_half_open() => Some(paused.pause.clone()),
            _ if self.tokens.is_expired(now) => {
                Some(Pause::TokenRefused("it has expired".to_owned()))
            }
            _ if self.settings.dry_run => Some(Pause::DryRun),
            _ => None,
        }
    }

    /// Returns `true` if we don't know yet whether the current token is accepted.
    pub(crate) fn is_asking(&self) -> bool {
        self.paused.is_none() && !self.tokens.is_verified
    }

    /// Returns a snapshot of the sender for `status`, metrics, and the log.
    pub fn status(&self, now: Now, head: &WorkQueue) -> SenderStatus {
        let mut pause = self.pause(now);
        let mut refused = self.refused_branches(head);
        let stops_all = self.refusals.stops_all_branches() || refused.len() as u64 >= head.branches;
        if stops_all && let Some(first) = refused.first() {
            pause.get_or_insert(Pause::CallsRefused(first.clone()));
            refused.clear();
        }
        let pages = view::access(self, now).pages.is_possible();
        let pacer = &self.budget.pacer;
        let confirmed_at_once = if pages { queue::PAGE_UNDER_LOAD } else { 1 };
        let failing = self.breakers.failing();
        let inputs = status::StatusInputs {
            pause: pause.as_ref(),
            silent: self.budget.pacer.silent(now.boot),
            limited: self.budget.limited_until(now.boot),
            failing: &failing,
            confirm: &self.confirm,
            place: &self.settings.token_place,
            is_verified: self.tokens.is_verified,
            now,
        };
        SenderStatus {
            token: status::token(
                self.tokens.info.as_ref(),
                pause.as_ref(),
                self.tokens.current.is_some(),
            ),
            pause: status::shown_pause(&inputs),
            paused_branches: status::paused_branches(&refused),
            degraded: status::degraded(&inputs),
            requests: self.requests.clone(),
            backlog: status::backlog(head, pacer, confirmed_at_once, now.boot),
            expires_in_days: self.tokens.expires_in_days,
            under_way: self.in_flight.by_slot.len(),
            token_shared: pacer.is_shared(now.boot),
            slots: status::Slots {
                limit: pacer.allowed(now.boot),
                window: pacer.rate.window(),
                frees: pacer.frees(now.boot).collect(),
                silent_until: pacer.silent(now.boot).map(|silent| silent.until),
            },
            ..SenderStatus::default()
        }
    }
}

#[cfg(test)]
mod tests;
