//! What an answer changes: steps and slots for the spool, the gate, the counters.

use crate::schedule::{next_check, next_poll};
use crate::verdict::judge;
use crate::{
    Core, Failure, Fault, Findings, InFlight, OLD_POLL, Outcome, Passed, Standing, StopReason,
    Task, Verdict, lead_requests, unresolved,
};
use callbridge_call::EventTime;
use callbridge_crm::{ApiError, ApiReply, ApiResponse, ApiResult, Endpoint, Page, TokenInfo};
use callbridge_leads::lead_request;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_model::{Now, Reason, TokenFingerprint};
use callbridge_spool::{
    CallFailure, FIRST_POLL, IfAbsent, Op, OutcomeSource, RowId, Step, Unconfirmed,
};
use serde_json::Value;
use std::time::Duration;

/// Minimum time between two reconciliations that both count a call as absent.
const APART: Duration = Duration::from_secs(60);

/// Time after `persisting` at which an unresolved call is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// Failed polls are retried quickly up to this many times.
const FAULTY_POLLS: u32 = 5;

#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Operations to commit: the call's step, the slot's final state, and news from the answer.
    pub ops: Vec<Op>,
    /// The call of the request.
    pub row: Option<RowId>,
    /// The requestId from the answer, or from the poll.
    pub request_id: Option<String>,
    pub endpoint: Endpoint,
    /// Kind of the verdict. The log chooses its line by it.
    pub outcome: Outcome,
    /// The request must be made again, or its call must be looked for in the journal.
    pub again: bool,
    /// The verdict's word in metrics.
    pub verdict: &'static str,
    /// Message of the CRM or the transport after a refusal or a failure. Empty otherwise.
    pub words: String,
    /// Steps that result from a reconciliation's page, with their calls.
    pub swept: Vec<(Unconfirmed, Step)>,
    /// The lead request, its answer for the command that asked, and the token of the request.
    pub lead_request: Option<(LeadRequest, ApiResult, TokenFingerprint)>,
}

/// A finished request, and the operations to commit.
struct FinishedRequest {
    in_flight: InFlight,
    now: Now,
    ops: Vec<Op>,
}

impl FinishedRequest {
    fn task(&self) -> &Task {
        &self.in_flight.plan.task
    }

    fn row(&self) -> Option<RowId> {
        self.in_flight.plan.row()
    }

    fn step(&mut self, step: Step) {
        let steps = self.row().map(|row| Op::step(row, step, self.now.wall));
        self.ops.extend(steps);
    }
}

impl Core {
    /// Judges the answer to the request of a slot. `None` if the slot has no request in flight.
    pub fn answered(&mut self, now: Now, slot: u32, response: ApiResponse) -> Option<Answered> {
        let in_flight = self.in_flight.by_slot.remove(&slot)?;
        let answer = response.answer;
        let slot_ended = self.budget.answered(now, &in_flight, &answer);
        let mut request = FinishedRequest {
            ops: slot_ended.into_iter().collect(),
            in_flight,
            now,
        };
        if let Some(days) = response.token_days_left {
            self.tokens.expires_in_days = Some(days);
        }
        let shown = shown(now, &answer);
        let beside = self.rights.ended(slot);
        let lead_request = request.task().lead_request().cloned();
        // the answer contradicts the token's record
        if self.tokens.is_doubted_by(lead_request.as_ref(), &answer) {
            self.rights.doubt(now.boot);
        }
        if let Some(lead_request) = lead_request {
            request.ops.extend(shown);
            return Some(self.lead_request_answered(request, lead_request, answer));
        }
        let endpoint = request.in_flight.endpoint;
        let verdict = judge(endpoint, answer, self.context(&request.in_flight));
        // only calls show whether the CRM works
        let unread = beside && says_nothing(&verdict);
        if unread {
            self.rights.unread(now.boot);
        }
        let (word, outcome) = (verdict.word(), verdict.outcome());
        self.count(endpoint, word);
        let request_id = match &verdict {
            Verdict::Submitted(request_id) => Some(request_id.clone()),
            _ => request.task().poll().and_then(|it| it.request_id.clone()),
        };
        let row = request.row();
        self.confirmation.answered(now, row, outcome);
        let mut swept = Vec::new();
        if let Verdict::PageShown(page) = &verdict {
            swept = self.swept(now, page);
        }
        let steps = (swept.iter()).map(|(call, step)| Op::step(call.row, step.clone(), now.wall));
        request.ops.extend(steps.chain(shown));
        let words = match verdict {
            Verdict::Fault(_, why) | Verdict::Stop(_, why) if unread => why,
            verdict => self.apply(&mut request, verdict),
        };
        let mut ops = request.ops;
        // the journal is asked before a call becomes a dead letter
        let again = outcome.is_again() || ops.iter().any(is_unresolved);
        self.remember(now, &mut ops);
        Some(Answered {
            lead_request: None,
            swept,
            ops,
            row,
            request_id,
            endpoint,
            outcome,
            again,
            verdict: word,
            words,
        })
    }

    /// Judges the answer to a lead request. An invalid token and a 429 close the gate. Everything
    /// else only concerns the lead request.
    fn lead_request_answered(
        &mut self,
        mut request: FinishedRequest,
        lead_request: LeadRequest,
        answer: ApiResult,
    ) -> Answered {
        let (now, endpoint) = (request.now, request.in_flight.endpoint);
        let token = request.in_flight.token.clone();
        let mut outcome = Outcome::LeadRequest;
        match &answer {
            Err(error @ ApiError::TokenRefused { .. }) => {
                outcome = Outcome::TokenRefused;
                self.tokens.over(&token);
                if self.tokens.is_current(&token) {
                    self.stopped(now, &token, StopReason::TokenRefused, &error.to_string());
                }
            }
            // then waiting calls are not polled either
            Err(error @ ApiError::Forbidden(..)) if endpoint == Endpoint::Poll => {
                self.rights.bar_polls(now, &error.to_string());
            }
            Err(ApiError::TooMany(own)) => {
                outcome = Outcome::TooMany;
                self.too_many(&mut request, *own);
            }
            Ok(_) | Err(_) => {}
        }
        let settled = lead_request::settle(now.wall, &lead_request, &answer, &token);
        let unchanged = settled.changes.is_empty();
        let mut ops = request.ops;
        ops.extend(settled.changes.into_iter().map(Op::Lead));
        self.lead_requests.answered(now, &lead_request, unchanged);
        let verdict = lead_requests::word(&answer);
        self.count(endpoint, verdict);
        self.remember(now, &mut ops);
        Answered {
            ops,
            row: None,
            request_id: None,
            endpoint,
            outcome,
            again: !settled.done,
            verdict,
            words: settled.words,
            swept: Vec::new(),
            lead_request: Some((lead_request, answer, token)),
        }
    }

    /// Counts one more request with this verdict.
    fn count(&mut self, endpoint: Endpoint, verdict: &str) {
        let key = (endpoint.word().to_owned(), verdict.to_owned());
        *self.requests.entry(key).or_insert(0) += 1;
    }

    /// Applies the verdict. Returns the message to log.
    fn apply(&mut self, request: &mut FinishedRequest, verdict: Verdict) -> String {
        let now = request.now;
        let token = request.in_flight.token.clone();
        // a refusal of an old token says nothing about the new one
        let current = self.tokens.is_current(&token);
        match verdict {
            Verdict::Submitted(request_id) => {
                self.passed(request, true);
                request.step(Step::Accepted { request_id, token });
            }
            Verdict::Journaled => {
                self.rights.barred = None;
                self.passed(request, true);
                if let Some(call) = request.task().poll() {
                    self.confirmation.polled(now, call);
                }
                request.step(Step::Journaled(OutcomeSource::Confirmation));
            }
            Verdict::NotYet => {
                self.rights.barred = None;
                self.passed(request, false);
                self.ask_later(request);
            }
            Verdict::Known(info) if current => self.known(info, now, &mut request.ops),
            Verdict::Known(_) | Verdict::PageShown(_) => {}
            Verdict::TooMany { own } => self.too_many(request, own),
            Verdict::PageRefused(bar, why) => {
                self.passed(request, false);
                self.confirmation.unswept(now, bar);
                return why;
            }
            Verdict::Dead(reason, message, errors) => {
                self.died(request, reason, message.clone(), errors);
                return message;
            }
            // A right is missing. Calls are confirmed in other ways, if there are any. If there are
            // none, they are still sent, because the right to submit is enough to journal them.
            Verdict::Unpolled(why) => {
                self.rights.bar_polls(now, &why);
                self.passed(request, false);
                self.ask_later(request);
                return why;
            }
            Verdict::Lost(why) => {
                self.passed(request, false);
                // the requestId cannot be polled: ask the journal
                request.step(Step::Unresolved {
                    next_check: now.wall,
                    if_absent: IfAbsent::Resubmit,
                    why: why.clone(),
                });
                return why;
            }
            Verdict::Fault(fault, why) => {
                self.failing(request, fault, &why);
                self.failed(request, fault, &why);
                return why;
            }
            Verdict::Stop(stop, why) => {
                if current {
                    self.stopped(now, &token, stop, &why);
                } else if stop == StopReason::TokenRefused {
                    self.tokens.over(&token);
                }
                self.back(request, &why);
                return why;
            }
        }
        String::new()
    }

    fn too_many(&mut self, request: &mut FinishedRequest, own: bool) {
        let boot = request.now.boot;
        let window = self.budget.pacer.rate.window();
        // a proxy counts separately and does not know who shares a token
        let is_shared = own && self.budget.pacer.refused(boot);
        let jitter = &mut self.retry.jitter;
        self.gate.too_many(boot, |times| {
            // if the token is shared, no request is spent on finding out when its window is over
            let times = if is_shared { u32::MAX } else { times };
            jitter.after_429(times, window)
        });
        self.back(request, "429");
    }

    /// The steps that result from a page of the journal: first for the calls it shows, then for
    /// those it should show and does not.
    pub(super) fn swept(&mut self, now: Now, page: &Page) -> Vec<(Unconfirmed, Step)> {
        let loaded = self.load.loaded;
        let findings = (self.confirmation.reconciliation).on_page(now.wall, page, loaded);
        for call in &findings.found {
            self.confirmation.settled(now, call);
        }
        let found = (findings.found.iter()).map(|call| (call.clone(), unresolved::found(call)));
        let absent =
            (findings.absent.iter()).map(|call| (call.clone(), self.absent(now, call, &findings)));
        let steps = found.chain(absent).collect();
        let passed = Passed {
            now: now.boot,
            endpoint: Endpoint::Filter,
            call: None,
            first: true,
        };
        self.gate.passed(passed, !findings.found.is_empty());
        self.confirmation.probe = findings.probe;
        steps
    }

    /// A reconciliation did not show this call. That proves nothing. After two of them, a minute
    /// apart, the call is polled individually. An unresolved call cannot be polled.
    pub(super) fn absent(&self, now: Now, call: &Unconfirmed, findings: &Findings) -> Step {
        let ahead = |at: EventTime| at > now.wall; // the clock was set back since
        let apart = |at| now.wall.since(at) >= APART || ahead(at);
        let apart = call.absent_at.is_none_or(apart);
        let counts = apart && findings.conclusive;
        let times = call.absent.saturating_add(u32::from(counts));
        let unresolved = !self.tokens.reads(now, &call.token);
        let age = call.age(now.wall);
        let given_time = age >= self.confirmation.page_strategy().persisting + PATIENCE;
        if unresolved && given_time && (findings.complete && findings.conclusive || times >= 2) {
            return unresolved::absent(call, true);
        }
        let barred = self.rights.polls_barred(now.boot);
        if barred && !unresolved && times >= 2 && age >= OLD_POLL {
            return unresolved::absent(&self.rights.with_bar(call), true);
        }
        // an unresolved call is never left to polls, and neither is any call while polls are
        // refused
        let (times, alone) = match unresolved || barred {
            true => (times.min(1), false),
            false => (times, times >= 2),
        };
        let absent = Some(times);
        let next_check = if alone {
            now.wall
        } else if unresolved && given_time && findings.conclusive {
            // the journal is longer than the part that is read: until then, absence does not count
            let counted = call.absent_at.filter(|at| !counts && !ahead(*at));
            counted.unwrap_or(now.wall).plus(APART)
        } else {
            // if absence proves nothing, another range can show it soon
            let soon = !self.load.loaded || !findings.conclusive;
            next_check(age, soon, now.wall)
        };
        Step::NotYet { next_check, absent }
    }

    fn passed(&mut self, request: &FinishedRequest, good: bool) {
        // the state before this answer
        let passed = self.is_passed(request);
        if let Task::Submit(row) = request.task() {
            self.retry.others_passed(*row);
        }
        self.gate.passed(passed, good);
    }

    fn is_passed(&self, request: &FinishedRequest) -> Passed {
        let call = request.row();
        Passed {
            now: request.now.boot,
            endpoint: request.in_flight.endpoint,
            call,
            first: call.is_none_or(|row| self.retry.failures(row) == 0),
        }
    }

    /// Counts a failure that its call did not cause as evidence against the CRM.
    fn failing(&mut self, request: &FinishedRequest, fault: Fault, why: &str) {
        let call = request.row();
        let failure = Failure {
            call,
            sent: request.in_flight.sent.boot,
            fault,
            why,
            alone: call.map_or(0, |row| self.retry.failures(row)),
        };
        let endpoint = request.in_flight.endpoint;
        let waiting = match endpoint {
            Endpoint::Submit => self.load.unsent,
            _ => self.load.waiting,
        };
        self.gate.troubles.shorter = self.retry.jitter.shorter();
        self.gate.failed(request.now, endpoint, failure, waiting);
    }

    fn died(
        &mut self,
        request: &mut FinishedRequest,
        reason: Reason,
        message: String,
        errors: Value,
    ) {
        let (now, row) = (request.now, request.row());
        let passed = self.is_passed(request);
        if reason == Reason::ServerError {
            self.failing(request, Fault::Request, &message);
        }
        if let Some(row) = row {
            self.retry.forget(row);
        }
        let readable = self.confirmation.page_strategy().is_readable(now.wall);
        match (reason, request.task()) {
            (Reason::ServerError, _) => {
                if let Some(row) = row.filter(|_| readable) {
                    // it may have been written
                    let if_absent = IfAbsent::ServerError;
                    let unresolved = self.confirmation.unresolved(now, row, if_absent, message);
                    return request.ops.push(unresolved);
                }
            }
            // calls after it are journaled, so the call causes the fault
            (_, Task::Poll(poll)) if poll.submitted_at < self.confirmation.settled_to => {
                self.gate.passed(passed, false);
            }
            (_, task) => {
                if let Task::Submit(row) = task {
                    self.retry.others_passed(*row);
                }
                self.gate.refused(passed, reason, &message);
            }
        }
        if reason == Reason::Failed
            && let Some(row) = row
        {
            // the spool decides the next step
            let at = now.wall;
            return request.ops.push(Op::FailedCall(CallFailure {
                row,
                message,
                errors,
                at,
            }));
        }
        request.step(Step::Died {
            reason,
            message,
            errors,
        });
    }

    /// Handles a 5xx or a similar failure. A submission returns and waits, a poll is made later.
    fn failed(&mut self, request: &mut FinishedRequest, fault: Fault, why: &str) {
        let now = request.now;
        match request.task() {
            Task::Submit(row) => {
                let until_probe = self.gate.until_probe(now.boot);
                let share = self.gate.troubles.expected();
                let wait = self.retry.wait(*row, until_probe, share, self.load.unsent);
                self.returned(request, now.wall.plus(wait), why);
            }
            Task::Poll(poll) if poll.polls < FAULTY_POLLS => {
                let (next_check, absent) = (now.wall.plus(FIRST_POLL), None);
                request.step(Step::NotYet { next_check, absent });
            }
            // unreadable pages do not get better within a minute
            Task::Reconcile { .. } if fault == Fault::Unreadable => {
                self.confirmation.reconciliation.failed(now.wall);
            }
            Task::Poll(_) | Task::Reconcile { .. } => self.back(request, why),
            Task::TokenInfo | Task::LeadRequest(_) => {}
        }
    }

    /// Stopped, but not because of the call. It keeps its place.
    fn back(&mut self, request: &mut FinishedRequest, why: &str) {
        match request.task() {
            Task::Submit(_) => self.returned(request, request.now.wall, why),
            Task::Poll(_) => self.ask_later(request),
            Task::Reconcile { .. } => self.confirmation.reconciliation.dropped(),
            Task::TokenInfo | Task::LeadRequest(_) => {}
        }
    }

    /// Returns a submission, to be sent from this time on.
    fn returned(&self, request: &mut FinishedRequest, not_before: EventTime, why: &str) {
        request.step(Step::Returned {
            not_before,
            why: why.to_owned(),
            failures: request.row().map_or(0, |row| self.retry.failures(row)),
        });
    }

    fn ask_later(&self, request: &mut FinishedRequest) {
        if let Some(poll) = request.task().poll() {
            let (polls, now) = (poll.polls.saturating_add(1), request.now.wall);
            let next_check = next_poll(poll.submitted_at, polls, self.load.is_idle(), now);
            let absent = None;
            request.step(Step::NotYet { next_check, absent });
        }
    }

    fn stopped(&mut self, now: Now, token: &TokenFingerprint, stop: StopReason, why: &str) {
        if stop == StopReason::TokenRefused {
            self.tokens.refuse(now, token);
        }
        self.gate.stopped(now.boot, stop, why);
    }

    /// Checks by the token's record that it belongs to us and has the rights that we need.
    fn known(&mut self, info: TokenInfo, now: Now, ops: &mut Vec<Op>) {
        if self.rights.read(now, &info, ops) {
            self.confirmation.reconciliation.granted();
        }
        match self.tokens.read(now, info, ops) {
            Standing::Good => {
                if self.gate.is_flowing() || !self.rights.beside {
                    self.gate.fine(now.boot);
                }
            }
            Standing::Foreign(why) => self.gate.wrong_company(why),
            Standing::NoGrant => {
                let stop = StopReason::NoGrant(Endpoint::Submit);
                self.gate.stopped(now.boot, stop, "");
            }
        }
    }
}

/// A page contains news about every call that it shows, not only about those that were looked for.
fn shown(now: Now, answer: &ApiResult) -> Option<Op> {
    let Ok(ApiReply::Page(page)) = answer else {
        return None;
    };
    let (calls, at) = (page.shown.clone(), now.wall);
    let shown = Op::Shown { calls, at };
    (!page.shown.is_empty()).then_some(shown)
}

/// Returns `true` for a call that must be looked for in the journal.
const fn is_unresolved(op: &Op) -> bool {
    matches!(
        op,
        Op::Step {
            step: Step::Unresolved { .. },
            ..
        }
    )
}

/// Returns `true` if an answer to `token/info` says nothing about the token.
const fn says_nothing(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Stop(stop, _) => !matches!(stop, StopReason::TokenRefused),
        other => matches!(other, Verdict::Fault(..)),
    }
}
