//! What an answer changes: steps and slots for the spool, the gate, the counters.

use super::confirmation::Circumstances;
use super::core::Core;
use super::gate::Passed;
use super::in_flight::InFlight;
use super::outage::Failure;
use super::outcome::Outcome;
use super::plan::Task;
use super::schedule::next_poll;
use super::tokens::Standing;
use super::verdict::{Bar, Fault, StopReason, Verdict, judge};
use crate::lead_requests;
use callbridge_crm::{ApiError, ApiReply, ApiResponse, ApiResult, Endpoint, Page, TokenInfo};
use callbridge_leads::lead_request;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_model::clock::Now;
use callbridge_model::{Reason, TokenFingerprint};
use callbridge_spool::{
    FIRST_POLL, IfAbsent, Op, OutcomeSource, PeerOutcome, RowId, Step, Unconfirmed,
};
use serde_json::Value;

/// So often a poll that failed is made again soon.
const FAULTY_POLLS: u32 = 5;

/// An answer that was judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// To be committed.
    pub ops: Vec<Op>,
    /// The call it was about.
    pub row: Option<RowId>,
    /// The requestId that was given, or asked with.
    pub request_id: Option<String>,
    /// The endpoint.
    pub endpoint: Endpoint,
    /// What came of it.
    pub outcome: Outcome,
    /// It has to be tried again, or the call to be looked for.
    pub again: bool,
    /// The verdict's word, as in metrics.
    pub verdict: &'static str,
    /// What the service or the transport said, where it refused or failed.
    pub words: String,
    /// What a sweep told of the calls it was about.
    pub swept: Vec<(Unconfirmed, Step)>,
    /// The lead request, and its answer for whoever asked for it, with the token that it was asked
    /// with.
    pub lead_request: Option<(LeadRequest, ApiResult, TokenFingerprint)>,
}

impl Core {
    /// Judges the answer to the request of a slot. `None` when no request is under way there.
    pub fn answered(&mut self, now: Now, slot: u32, response: ApiResponse) -> Option<Answered> {
        let in_flight = self.in_flight.remove(slot)?;
        let mut ops = Vec::new();
        ops.extend(
            self.budget
                .answered(now, slot, &in_flight, &response.answer),
        );
        if let Some(days) = response.token_days_left {
            self.tokens.warned(days);
        }
        let shown = shown(now, &response.answer);
        let beside = self.rights.ended(slot);
        if let Task::LeadRequest(lead_request) = &in_flight.plan.task {
            let lead_request = (**lead_request).clone();
            self.rights_doubted(now, Some(&lead_request), &response.answer);
            ops.extend(shown);
            return Some(self.lead_request_answered(
                now,
                &in_flight,
                lead_request,
                response.answer,
                ops,
            ));
        }
        let endpoint = in_flight.plan.task.endpoint();
        self.rights_doubted(now, None, &response.answer);
        let verdict = judge(endpoint, response.answer, self.context(&in_flight));
        // whether the CRM works is for the calls to tell
        let unread = beside && says_nothing(&verdict);
        if unread {
            self.rights.unread(now.boot);
        }
        let (word, outcome) = (verdict.word(), verdict.outcome());
        self.count(endpoint, word);
        let request_id = request_id(&verdict, &in_flight.plan.task);
        let row = in_flight.plan.row();
        self.confirmation.answered(now, row, outcome);
        let mut swept = Vec::new();
        match (&verdict, &in_flight.plan.task) {
            (Verdict::Swept(page), Task::Search { .. }) => {
                let size = self.confirmation.page_strategy().size;
                ops.extend(self.confirmation.search.heard(now, page, size));
                self.gate.passed(passed_sweep(now));
            }
            (Verdict::Swept(page), _) => swept = self.swept(now, page),
            (_, _) => {}
        }
        let steps = (swept.iter()).map(|(call, step)| Op::step(call.row, step.clone(), now.wall));
        ops.extend(steps.chain(shown));
        let words = match verdict {
            Verdict::Fault { why, .. } | Verdict::Stop { why, .. } if unread => why,
            verdict => self.apply(now, &in_flight, verdict, &mut ops),
        };
        // no letter before the journal was asked
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

    /// Judges the answer to a lead request: a dead token and a 429 close the gate, all else is the
    /// lead request's own affair.
    fn lead_request_answered(
        &mut self,
        now: Now,
        in_flight: &InFlight,
        lead_request: LeadRequest,
        answer: ApiResult,
        mut ops: Vec<Op>,
    ) -> Answered {
        let endpoint = in_flight.plan.task.endpoint();
        let mut outcome = Outcome::LeadRequest;
        match &answer {
            Err(error @ ApiError::TokenRefused { .. }) => {
                outcome = Outcome::TokenRefused;
                self.tokens.over(&in_flight.token);
                if self.tokens.is_current(&in_flight.token) {
                    let why = error.to_string();
                    self.stopped(now, &in_flight.token, StopReason::TokenRefused, &why);
                }
            }
            // calls that wait are not asked for in vain either
            Err(error @ ApiError::Forbidden { .. }) if endpoint == Endpoint::Poll => {
                self.rights.bar_polls(now, &error.to_string());
            }
            Err(ApiError::TooMany { own }) => {
                outcome = Outcome::TooMany;
                self.too_many(in_flight, now, *own, &mut ops);
            }
            Ok(_) | Err(_) => {}
        }
        let settled = lead_request::settle(now.wall, &lead_request, &answer, &in_flight.token);
        let unchanged = settled.changes.is_empty();
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
            lead_request: Some((lead_request, answer, in_flight.token.clone())),
        }
    }

    /// One more request with this verdict.
    fn count(&mut self, endpoint: Endpoint, verdict: &str) {
        let key = (endpoint.word().to_owned(), verdict.to_owned());
        *self.requests.entry(key).or_insert(0) += 1;
    }

    /// The verdict's consequences; the words to log.
    fn apply(
        &mut self,
        now: Now,
        in_flight: &InFlight,
        verdict: Verdict,
        ops: &mut Vec<Op>,
    ) -> String {
        // what an old token was told says nothing about the new one
        let current = self.tokens.is_current(&in_flight.token);
        match verdict {
            Verdict::Submitted { request_id } => {
                self.passed(now, in_flight, true);
                let token = in_flight.token.clone();
                step(in_flight, now, Step::Accepted { request_id, token }, ops);
                String::new()
            }
            Verdict::Journaled => {
                self.rights.polls_work();
                self.passed(now, in_flight, true);
                if let Task::Poll(call) = &in_flight.plan.task {
                    self.confirmation.polled(now, call);
                }
                let journaled = Step::Journaled(OutcomeSource::Confirmation);
                step(in_flight, now, journaled, ops);
                String::new()
            }
            Verdict::NotYet => {
                self.rights.polls_work();
                self.passed(now, in_flight, false);
                self.ask_later(in_flight, now, ops);
                String::new()
            }
            Verdict::Known(info) => {
                if current {
                    self.known(info, now, ops);
                }
                String::new()
            }
            Verdict::Swept(_) => String::new(),
            Verdict::Unswept { why, bar } => {
                self.unswept(now, bar);
                why
            }
            Verdict::Dead {
                reason,
                message,
                errors,
            } => {
                self.died(in_flight, now, reason, &message, errors, ops);
                message
            }
            Verdict::Unpolled { why } => self.poll_refused(now, in_flight, why, ops),
            Verdict::Lost { why } => {
                self.passed(now, in_flight, false);
                step(in_flight, now, lost(now, &why), ops);
                why
            }
            Verdict::Fault { why, fault } => {
                self.failing(now, in_flight, fault, &why);
                self.failed(in_flight, now, fault, &why, ops);
                why
            }
            Verdict::Stop { stop, why } => {
                if current {
                    self.stopped(now, &in_flight.token, stop, &why);
                } else if stop == StopReason::TokenRefused {
                    self.tokens.over(&in_flight.token);
                }
                self.back(in_flight, now, &why, ops);
                why
            }
            Verdict::TooMany { own } => {
                self.too_many(in_flight, now, own, ops);
                String::new()
            }
        }
    }

    /// For want of a right: calls are confirmed in other ways, where there are any. Where there are
    /// none they go out all the same, for the right to submit is enough to journal them.
    fn poll_refused(
        &mut self,
        now: Now,
        in_flight: &InFlight,
        why: String,
        ops: &mut Vec<Op>,
    ) -> String {
        self.rights.bar_polls(now, &why);
        self.passed(now, in_flight, false);
        self.ask_later(in_flight, now, ops);
        why
    }

    fn too_many(&mut self, in_flight: &InFlight, now: Now, own: bool, ops: &mut Vec<Op>) {
        let window = self.budget.window();
        // what stands in between counts by itself, and knows nothing of who shares a token
        let is_shared = own && self.budget.refused(now);
        let retry = &mut self.retry;
        self.gate
            .too_many(now.boot, |times| retry.after_429(times, is_shared, window));
        self.back(in_flight, now, "429", ops);
    }

    fn unswept(&mut self, now: Now, bar: Bar) {
        self.gate.passed(passed_sweep(now));
        self.confirmation.unswept(now, bar);
    }

    /// What a page of the journal tells of the calls it was about.
    pub(super) fn swept(&mut self, now: Now, page: &Page) -> Vec<(Unconfirmed, Step)> {
        let around = Circumstances {
            load: self.load,
            tokens: &self.tokens,
            rights: &self.rights,
        };
        let (told, any) = self.confirmation.swept(now, page, around);
        if any {
            self.gate.good(passed_sweep(now));
        } else {
            self.gate.passed(passed_sweep(now));
        }
        told
    }

    fn passed(&mut self, now: Now, in_flight: &InFlight, good: bool) {
        let passed = self.is_passed(now, in_flight);
        if let Task::Submit(row) = in_flight.plan.task {
            self.retry.others_passed(row);
        }
        if good {
            self.gate.good(passed);
        } else {
            self.gate.passed(passed);
        }
    }

    fn is_passed(&self, now: Now, in_flight: &InFlight) -> Passed {
        let call = in_flight.plan.row();
        Passed {
            now: now.boot,
            endpoint: in_flight.plan.task.endpoint(),
            call,
            first: call.is_none_or(|row| self.retry.failures(row) == 0),
        }
    }

    /// It failed by no fault of its call: what that says of the service.
    fn failing(&mut self, now: Now, in_flight: &InFlight, fault: Fault, why: &str) {
        let call = in_flight.plan.row();
        let failure = Failure {
            call,
            sent: in_flight.sent,
            fault,
            why,
            alone: call.map_or(0, |row| self.retry.failures(row)),
        };
        let endpoint = in_flight.plan.task.endpoint();
        let waiting = match endpoint {
            Endpoint::Submit => self.load.unsent,
            _ => self.load.waiting,
        };
        let shorter = self.retry.shorter();
        self.gate.failed(now, endpoint, failure, waiting, shorter);
    }

    fn died(
        &mut self,
        in_flight: &InFlight,
        now: Now,
        reason: Reason,
        message: &str,
        errors: Value,
        ops: &mut Vec<Op>,
    ) {
        let passed = self.is_passed(now, in_flight);
        let message = message.to_owned();
        if reason == Reason::ServerError {
            self.failing(now, in_flight, Fault::Request, &message);
        }
        if let Some(row) = in_flight.plan.row() {
            self.retry.forget(row);
        }
        if reason == Reason::ServerError {
            if let Some(row) = in_flight
                .plan
                .row()
                .filter(|_| self.confirmation.page_strategy().is_readable(now.wall))
            {
                // it may have been written all the same
                return ops.push(self.confirmation.unresolved(
                    now,
                    row,
                    IfAbsent::ServerError,
                    message,
                ));
            }
        } else {
            if let Task::Submit(row) = in_flight.plan.task {
                self.retry.others_passed(row);
            }
            match &in_flight.plan.task {
                // calls after it are journaled: the fault is its own
                Task::Poll(poll) if self.confirmation.is_overtaken(poll) => {
                    self.gate.passed(passed);
                }
                Task::Poll(_)
                | Task::Submit(_)
                | Task::Sweep { .. }
                | Task::Search { .. }
                | Task::TokenInfo
                | Task::LeadRequest(_) => {
                    self.gate.refused(passed, reason, &message);
                }
            }
        }
        step(
            in_flight,
            now,
            Step::Died {
                reason,
                message,
                errors,
            },
            ops,
        );
    }

    /// 5xx and its like: a submission goes back and waits, a poll is made later.
    fn failed(
        &mut self,
        in_flight: &InFlight,
        now: Now,
        fault: Fault,
        why: &str,
        ops: &mut Vec<Op>,
    ) {
        match &in_flight.plan.task {
            Task::Submit(row) => {
                let until_probe = self.gate.until_probe(now.boot);
                let share = self.gate.troubles().expected();
                let wait = self.retry.wait(*row, until_probe, share, self.load.unsent);
                let not_before = now.wall.plus(wait);
                step(
                    in_flight,
                    now,
                    Step::Returned {
                        not_before,
                        why: why.to_owned(),
                        failures: self.retry.failures(*row),
                    },
                    ops,
                );
            }
            Task::Poll(poll) => {
                let next_look = match poll.polls < FAULTY_POLLS {
                    true => now.wall.plus(FIRST_POLL),
                    false => {
                        let polls = poll.polls.saturating_add(1);
                        next_poll(poll.submitted_at, polls, self.load.is_idle(), now.wall)
                    }
                };
                let absent = None;
                step(in_flight, now, Step::NotYet { next_look, absent }, ops);
            }
            Task::Sweep { .. } => {
                let unreadable = fault == Fault::Unreadable;
                self.confirmation.sweep_failed(now, unreadable);
            }
            // The page is asked for again.
            Task::Search { .. } if fault == Fault::Unreadable => {
                self.confirmation.sweep_failed(now, true);
            }
            Task::Search { .. } | Task::TokenInfo | Task::LeadRequest(_) => {}
        }
    }

    /// Stopped by no fault of the call: it keeps its place.
    fn back(&mut self, in_flight: &InFlight, now: Now, why: &str, ops: &mut Vec<Op>) {
        match &in_flight.plan.task {
            Task::Submit(row) => {
                let returned = Step::Returned {
                    not_before: now.wall,
                    why: why.to_owned(),
                    failures: self.retry.failures(*row),
                };
                step(in_flight, now, returned, ops);
            }
            Task::Poll(_) => self.ask_later(in_flight, now, ops),
            Task::Sweep { .. } => self.confirmation.sweep_dropped(),
            Task::Search { .. } | Task::TokenInfo | Task::LeadRequest(_) => {}
        }
    }

    fn ask_later(&self, in_flight: &InFlight, now: Now, ops: &mut Vec<Op>) {
        if let Task::Poll(poll) = &in_flight.plan.task {
            let polls = poll.polls.saturating_add(1);
            let next_look = next_poll(poll.submitted_at, polls, self.load.is_idle(), now.wall);
            let absent = None;
            step(in_flight, now, Step::NotYet { next_look, absent }, ops);
        }
    }

    fn stopped(&mut self, now: Now, token: &TokenFingerprint, stop: StopReason, why: &str) {
        if stop == StopReason::TokenRefused {
            self.tokens.refuse(now, token);
        }
        self.gate.stopped(now.boot, stop, why);
    }

    /// The token's record: is it ours, and may it do what we do?
    fn known(&mut self, info: TokenInfo, now: Now, ops: &mut Vec<Op>) {
        if self.rights.read(now, &info, ops) {
            self.confirmation.granted();
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

    /// An answer says something else of the token's rights than its record.
    fn rights_doubted(&mut self, now: Now, lead_request: Option<&LeadRequest>, answer: &ApiResult) {
        if self.tokens.is_doubted_by(lead_request, answer) {
            self.rights.doubt(now.boot);
        }
    }
}

/// A page tells of every call that it shows, and not only of those that it was asked for.
fn shown(now: Now, answer: &ApiResult) -> Option<Op> {
    let Ok(ApiReply::Page(page)) = answer else {
        return None;
    };
    let (calls, at) = (page.shown.clone(), now.wall);
    let shown = Op::PeerOutcome(PeerOutcome::Shown { calls, at });
    (!page.shown.is_empty()).then_some(shown)
}

/// A call that is to be looked for in the journal.
const fn is_unresolved(op: &Op) -> bool {
    matches!(
        op,
        Op::Step {
            step: Step::Unresolved { .. },
            ..
        }
    )
}

/// An answer of the token's record that tells nothing of the token.
const fn says_nothing(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Stop { stop, .. } => !matches!(stop, StopReason::TokenRefused),
        other => matches!(other, Verdict::Fault { .. }),
    }
}

/// A sweep was answered.
const fn passed_sweep(now: Now) -> Passed {
    Passed {
        now: now.boot,
        endpoint: Endpoint::Filter,
        call: None,
        first: true,
    }
}

/// The one that was given, or asked with.
fn request_id(verdict: &Verdict, task: &Task) -> Option<String> {
    match (verdict, task) {
        (Verdict::Submitted { request_id }, _) => Some(request_id.clone()),
        (_, Task::Poll(poll)) => poll.request_id.clone(),
        (
            _,
            Task::Submit(_)
            | Task::Sweep { .. }
            | Task::Search { .. }
            | Task::TokenInfo
            | Task::LeadRequest(_),
        ) => None,
    }
}

/// The requestId cannot be read: the journal is asked.
fn lost(now: Now, why: &str) -> Step {
    Step::Unresolved {
        next_look: now.wall,
        fate: IfAbsent::Resubmit,
        why: why.to_owned(),
    }
}

fn step(in_flight: &InFlight, now: Now, step: Step, ops: &mut Vec<Op>) {
    if let Some(row) = in_flight.plan.row() {
        ops.push(Op::step(row, step, now.wall));
    }
}
