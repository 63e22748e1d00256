//! Applies the effects of a response one by one, as operations for the spool and changes to the
//! sender's state.

use super::Core;
use crate::breaker::pause::{Pause, Paused};
use crate::breaker::retry::FailedSend;
use crate::budget::pacer::STRAGGLER;
use crate::confirm::{self, WRITTEN_WITHIN, next_poll};
use crate::in_flight::InFlight;
use crate::lead_requests;
use crate::outcome::{Effect, Verdict, VerdictKind, effects, judge};
use crate::queue::Work;
use crate::tokens::Standing;
use callbridge_crm::{ApiError, ApiReply, ApiResponse, ApiResult, Endpoint, Page, TokenInfo};
use callbridge_leads::lead_request;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_model::{Now, Reason, TokenFingerprint};
use callbridge_spool::{CallFailure, IfAbsent, Op, RowId, Step, Unconfirmed};
use serde_json::Value;
use std::time::Duration;

/// If a call keeps failing for this long while no other call is waiting and `token/info` succeeds,
/// it's given up.
const ALONE_FOR: Duration = Duration::from_secs(24 * 3600);

/// A response that has been judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Operations to commit: the call's step, the slot's final state, and anything learned from the
    /// response.
    pub ops: Vec<Op>,
    /// The row of the call that the request was about, or `None` for other requests.
    pub row: Option<RowId>,
    /// The requestId from the response or the poll.
    pub request_id: Option<String>,
    pub endpoint: Endpoint,
    /// `None` for lead requests.
    pub kind: Option<VerdictKind>,
    /// Whether the request must be repeated, or its call looked for in the journal.
    pub again: bool,
    /// The verdict's label in metrics.
    pub verdict: &'static str,
    /// Message from the CRM or the transport after a refusal or a failure, otherwise empty.
    pub message: String,
    /// Steps resulting from a journal page, with their calls.
    pub steps: Vec<(Unconfirmed, Step)>,
    /// The lead request, its response for the command that asked, and the token it was sent with.
    pub lead_request: Option<(LeadRequest, ApiResult, TokenFingerprint)>,
}

/// A request that has ended, with the changes that its response causes.
struct Ended<'a> {
    core: &'a mut Core,
    now: Now,
    in_flight: InFlight,
    ops: Vec<Op>,
    steps: Vec<(Unconfirmed, Step)>,
}

/// Judges a response and applies its effects.
pub(super) fn judge_answer(
    core: &mut Core,
    now: Now,
    in_flight: InFlight,
    response: ApiResponse,
) -> Answered {
    let ApiResponse {
        answer,
        token_days_left,
    } = response;
    if let Some(days) = token_days_left {
        core.tokens.expires_in_days = Some(days);
    }
    let mut ended = Ended {
        ops: Vec::from_iter(core.budget.note_answer(now, &in_flight, &answer)),
        core,
        now,
        in_flight,
        steps: Vec::new(),
    };
    ended.ops.extend(shown_calls(now, &answer));
    let lead_request = ended.in_flight.plan.task.work.lead_request().cloned();
    if ended
        .core
        .tokens
        .is_contradicted(lead_request.as_ref(), &answer)
    {
        ended.core.tokens.doubt_record(now.boot);
    }
    match lead_request {
        Some(lead_request) => ended.answer_lead_request(lead_request, answer),
        None => ended.answer(answer),
    }
}

/// Returns the operation that stores all the calls on a journal page, not only those that were
/// looked for.
fn shown_calls(now: Now, answer: &ApiResult) -> Option<Op> {
    match answer {
        Ok(ApiReply::Page(page)) if !page.shown.is_empty() => Some(Op::Shown {
            calls: page.shown.clone(),
            at: now.wall,
        }),
        _ => None,
    }
}

impl Ended<'_> {
    fn answer(mut self, answer: ApiResult) -> Answered {
        let endpoint = self.in_flight.endpoint;
        let verdict = judge(endpoint, answer, self.core.has_accepted());
        let kind = verdict.kind();
        let word = verdict.word();
        let message = verdict.message().to_owned();
        let request_id = match &verdict {
            Verdict::Accepted(request_id) => Some(request_id.clone()),
            _ => self.poll().and_then(|call| call.request_id.clone()),
        };
        self.count(word);
        for effect in effects(endpoint, verdict) {
            self.apply(effect);
        }
        self.core.breakers.release(self.in_flight.plan.slot);
        self.core.remember(self.now, &mut self.ops);
        Answered {
            again: kind.is_again() || self.ops.iter().any(is_unresolved),
            row: self.row(),
            request_id,
            endpoint,
            kind: Some(kind),
            verdict: word,
            message,
            ops: self.ops,
            steps: self.steps,
            lead_request: None,
        }
    }

    /// Handles the response to a lead request. A refused token or a 429 affects all requests, and a
    /// 403 for a poll affects all polls. Any other response affects only the lead request.
    fn answer_lead_request(mut self, lead_request: LeadRequest, answer: ApiResult) -> Answered {
        let now = self.now;
        let endpoint = self.in_flight.endpoint;
        let token = self.in_flight.token.clone();
        match &answer {
            Err(error @ ApiError::TokenRefused { .. }) => {
                self.apply(Effect::Pause(Pause::TokenRefused(error.to_string())));
            }
            // Without the grant, calls can't be polled either.
            Err(error @ ApiError::Forbidden(_)) if endpoint == Endpoint::Poll => {
                self.core.confirm.refuse_polls(now, &error.to_string());
            }
            Ok(_) | Err(_) => {}
        }
        let settled = lead_request::settle(now.wall, &lead_request, &answer, &token);
        let unchanged = settled.changes.is_empty();
        self.ops.extend(settled.changes.into_iter().map(Op::Lead));
        self.core
            .lead_requests
            .note_answer(now, &lead_request, unchanged);
        let verdict = lead_requests::word(&answer);
        self.count(verdict);
        self.core.remember(now, &mut self.ops);
        Answered {
            ops: self.ops,
            row: None,
            request_id: None,
            endpoint,
            kind: None,
            again: !settled.done,
            verdict,
            message: settled.message,
            steps: Vec::new(),
            lead_request: Some((lead_request, answer, token)),
        }
    }

    /// Counts another request with this verdict in the metrics.
    fn count(&mut self, verdict: &str) {
        let key = (
            self.in_flight.endpoint.word().to_owned(),
            verdict.to_owned(),
        );
        *self.core.requests.entry(key).or_insert(0) += 1;
    }

    fn work(&self) -> &Work {
        &self.in_flight.plan.task.work
    }

    fn row(&self) -> Option<RowId> {
        self.work().row()
    }

    fn poll(&self) -> Option<&Unconfirmed> {
        self.work().poll()
    }

    fn step(&mut self, step: Step) {
        if let Some(row) = self.row() {
            self.ops.push(Op::step(row, step, self.now.wall));
        }
    }

    fn apply(&mut self, effect: Effect) {
        let now = self.now;
        let slot = self.in_flight.plan.slot;
        let endpoint = self.in_flight.endpoint;
        match effect {
            Effect::EndpointWorks => {
                self.core.breakers.note_success(slot, endpoint);
                self.core.failures.note_works();
            }
            Effect::EndpointFails(why) => {
                self.core
                    .breakers
                    .note_failure(now, slot, endpoint, &why, false);
            }
            Effect::CrmUnreachable(why) => {
                self.core
                    .breakers
                    .note_failure(now, slot, endpoint, &why, true);
            }
            Effect::Pause(pause) => self.pause(pause),
            Effect::RestEndpoint(why) if endpoint == Endpoint::Poll => {
                self.core.confirm.refuse_polls(now, &why);
            }
            Effect::RestEndpoint(why) => self.core.confirm.refuse_pages(now, &why),
            Effect::ReadRecord(info) => self.read_record(info),
            Effect::CallAccepted(request_id) => self.call_accepted(request_id),
            Effect::CallJournaled => self.call_journaled(),
            Effect::CallRefused(reason, message, errors) => {
                self.call_refused(reason, message, errors);
            }
            Effect::CallFailed(why) => self.call_failed(&why),
            Effect::RequestIdLost(why) => {
                if let Some(call) = self.poll() {
                    let step = self.core.confirm.lost_step(call, now.wall, &why);
                    self.step(step);
                }
            }
            Effect::GiveBack(why) => self.give_back(&why),
            Effect::ReadPage(page) => self.read_page(&page),
            Effect::ShrinkPages => self.core.confirm.shrink_pages(now.wall),
            Effect::RestPages => self.core.confirm.rest_pages(now.wall),
        }
    }

    /// Begins a pause, unless it was an old token that was refused, since that says nothing about
    /// the current one.
    fn pause(&mut self, pause: Pause) {
        let now = self.now;
        let token = &self.in_flight.token;
        let is_refused = matches!(pause, Pause::TokenRefused(_));
        if !self.core.tokens.is_current(token) {
            if is_refused {
                self.core.tokens.drop_previous(token);
            }
            return;
        }
        // `token/info` has been read before, so the URL is right, and other errors from it don't
        // begin a pause.
        let is_record = self.in_flight.endpoint == Endpoint::TokenInfo;
        if is_record && self.core.tokens.is_verified && !is_refused {
            return;
        }
        if is_refused {
            self.core.tokens.refuse(now, token);
        } else if self
            .core
            .paused
            .as_ref()
            .is_some_and(Paused::is_about_token)
        {
            return;
        }
        self.core.paused = Some(Paused::new(now.boot, pause));
    }

    /// Checks the token's record to see whether the token belongs to us and has the grants we need,
    /// and begins or ends a pause accordingly.
    fn read_record(&mut self, info: TokenInfo) {
        let now = self.now;
        if !self.core.tokens.is_current(&self.in_flight.token) {
            return;
        }
        self.core.confirm.token_read(now.boot);
        match self.core.tokens.read(now, info, &mut self.ops) {
            Standing::Good => {
                if let Some(paused) = &mut self.core.paused
                    && paused.began_before(self.in_flight.sent.boot)
                    && paused.token_verified(now.boot)
                {
                    self.core.end_pause(now, &mut self.ops);
                }
            }
            Standing::Foreign(why) => {
                self.core.paused = Some(Paused::new(now.boot, Pause::WrongCompany(why)));
            }
            Standing::NoGrant => {
                let pause = Pause::NoGrant(String::new());
                self.core.paused = Some(Paused::new(now.boot, pause));
            }
        }
    }

    fn call_accepted(&mut self, request_id: String) {
        if let Some(row) = self.row() {
            self.core.failures.note_success(row);
        }
        self.core.accepted_at = Some(self.core.tokens.address().to_owned());
        let token = self.in_flight.token.clone();
        self.step(Step::Accepted { request_id, token });
        let sent = self.in_flight.sent.boot;
        if let Some(call) = &self.in_flight.call {
            let rows = self.core.refusals.note_accepted(call, sent);
            super::refused::reopen(rows, self.now, &mut self.ops);
        }
        if let Some(paused) = &self.core.paused
            && paused.began_before(sent)
            && paused.is_ended_by_accepted()
        {
            self.core.end_pause(self.now, &mut self.ops);
        }
    }

    fn call_journaled(&mut self) {
        if let Some(call) = self.poll().cloned() {
            self.core.confirm.note_journaled(self.now.wall, &call);
            self.step(confirm::found_step(&call));
        }
        if let Some(call) = &self.in_flight.call {
            self.core.note_journaled(self.now, call, &mut self.ops);
        }
    }

    fn call_refused(&mut self, reason: Reason, message: String, errors: Value) {
        let now = self.now;
        let Some(row) = self.row() else {
            return;
        };
        self.core.failures.forget(row);
        // Calls that were accepted later have been journaled, so this call itself is the cause.
        let is_own = self
            .poll()
            .is_some_and(|call| self.core.confirm.is_passed_by(call));
        if !is_own && let Some(call) = self.in_flight.call.clone() {
            let sent = self.in_flight.sent.boot;
            (self.core.refusals).note_refusal(now.boot, reason, &message, call, sent);
        }
        if reason == Reason::Failed {
            // The spool decides whether the next step is another lead or a dead letter.
            self.ops.push(Op::FailedCall(CallFailure {
                row,
                message,
                errors,
                at: now.wall,
            }));
            return;
        }
        self.step(Step::Died {
            reason,
            message,
            errors,
        });
    }

    fn call_failed(&mut self, why: &str) {
        let Some(row) = self.row() else {
            return;
        };
        let failures = &mut self.core.failures;
        let FailedSend { counted, wait } =
            failures.note_failure(self.now.boot, row, self.in_flight.failures);
        // The next wait depends on whether the CRM works otherwise, and there's no other call to
        // show it.
        if self.core.unsent <= 1 {
            self.core.tokens.read_record_at(self.now.boot);
        }
        if let Some(wait) = wait
            && !self.fails_alone()
        {
            self.step(Step::Returned {
                not_before: self.now.wall.plus(wait),
                why: why.to_owned(),
                failures: counted,
            });
            return;
        }
        self.core.failures.forget(row);
        let message = if wait.is_some() {
            format!("submissions have failed for 24 hours; the last error: {why}")
        } else {
            format!(
                "the CRM failed on this call {counted} times while it accepted other calls; the \
                 last error: {why}"
            )
        };
        if !self.core.confirm.reads_pages(self.now.wall) {
            self.step(confirm::give_up(&message));
            return;
        }
        // The CRM may have written the call.
        self.step(Step::Unresolved {
            next_check: self.now.wall.plus(STRAGGLER + WRITTEN_WITHIN),
            if_absent: IfAbsent::ServerError,
            why: message,
        });
    }

    /// Returns `true` if this is the only call, and submissions have been failing for 24 hours
    /// while `token/info` succeeds.
    fn fails_alone(&self) -> bool {
        let since = self.core.breakers.submit_failing_since();
        let is_long = since.is_some_and(|since| self.now.wall.since(since) >= ALONE_FOR);
        let works = self.core.tokens.is_record_recent(self.now.boot);
        is_long && works && self.core.unsent <= 1
    }

    /// Makes a failed request's call ready again, or schedules another poll, because the call
    /// didn't cause the failure. If a page failed, the reading ends.
    fn give_back(&mut self, why: &str) {
        let now = self.now.wall;
        let step = match self.work() {
            Work::Submit(_) => Step::Returned {
                not_before: now,
                why: why.to_owned(),
                failures: self.in_flight.failures,
            },
            Work::Poll(call) => {
                let polls = call.polls.saturating_add(1);
                let end = self.core.tokens.request_id_end(call);
                Step::NotYet {
                    next_check: next_poll(call, polls, now, end),
                    absent: None,
                }
            }
            Work::Page { .. } => return self.core.confirm.drop_reading(),
            Work::TokenInfo | Work::Lead(_) | Work::Settle(_) => return,
        };
        self.step(step);
    }

    fn read_page(&mut self, page: &Page) {
        let now = self.now;
        let findings = self.core.confirm.on_page(now.wall, page);
        for call in findings.found {
            let sent = self.core.submitted(&call);
            self.core.note_journaled(now, &sent, &mut self.ops);
            let step = confirm::found_step(&call);
            self.steps.push((call, step));
        }
        for call in findings.absent {
            let step = if self.core.tokens.can_read(now, &call.token) {
                let end = self.core.tokens.request_id_end(&call);
                self.core.confirm.absent_step(&call, now.wall, end)
            } else {
                self.core
                    .confirm
                    .settle(&call, now.wall, findings.is_complete)
            };
            self.steps.push((call, step));
        }
        for (call, step) in &self.steps {
            self.ops.push(Op::step(call.row, step.clone(), now.wall));
        }
    }
}

/// Returns `true` if this step means that its call must be looked for in the journal.
fn is_unresolved(op: &Op) -> bool {
    matches!(
        op,
        Op::Step {
            step: Step::Unresolved { .. },
            ..
        }
    )
}
