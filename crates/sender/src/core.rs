//! The sender's state machine: the head of the spool and `now` in, one request at a time out;
//! an answer in, steps for the spool out.
//!
//! A request has three moments. [`Core::next`] chooses it and takes its slot; [`Core::launch`]
//! makes it and gives the operations to commit **before** it leaves; [`Core::answered`] judges
//! its answer and gives the operations to commit after it.

use crate::budget::Budget;
use crate::lead_requests::LeadRequests;
use crate::memory::{KEY, Memory};
use crate::{
    Before, Confirmation, Context, Extent, Gate, InFlight, InFlightRequests, Known, KnownTokens,
    Load, Part, PauseCause, Retry, Rights, SenderStatus, Settings, Task, status,
};
use callbridge_model::status::{DegradedPart, Pause, Requests};
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::{IfAbsent, Op, QueueQuery, Row, State, WorkQueue};

/// Advice if the machine's clock is plainly wrong.
const CLOCK_CURE: &str = "this machine's clock shows a time before this program was made: set it \
                          (timedatectl, NTP); calls are kept until then";

/// Advice in a dry run.
const DRY_RUN_CURE: &str = "start without --dry-run: until then nothing is submitted";

/// State machine of the sender. It uses no clock, socket or file.
#[derive(Debug)]
pub struct Core {
    pub(super) settings: Settings,
    pub(super) budget: Budget,
    pub(super) gate: Gate,
    pub(super) retry: Retry,
    pub(super) tokens: KnownTokens,
    pub(super) in_flight: InFlightRequests,
    pub(super) requests: Requests,
    pub(super) confirmation: Confirmation,
    pub(super) lead_requests: LeadRequests,
    pub(super) rights: Rights,
    pub(super) load: Load,
    /// The memory's text as it is stored. If the text of the start has changed, it is stored again
    /// before anything is sent.
    pub(super) memory: String,
    /// Faults of the stored text that were found at the start.
    pub(super) doubts: Vec<String>,
}

impl Core {
    /// Starts a sender. Also returns the operations to commit before its first request.
    pub fn start(settings: Settings, known: Known, now: Now) -> (Self, Vec<Op>) {
        let memory = Memory::read(known.memory.as_deref());
        let (budget, mut ops) = Budget::start(settings.rate, &known, &memory, now);
        let mut core = Self {
            retry: Retry::new(settings.seed),
            settings,
            budget,
            gate: Gate::new(memory.streaks),
            tokens: KnownTokens::new(&known, &memory, now),
            in_flight: InFlightRequests::default(),
            requests: Requests::new(),
            confirmation: Confirmation::new(memory.page_strategy),
            lead_requests: LeadRequests::default(),
            rights: Rights::default(),
            load: Load::default(),
            memory: known.memory.unwrap_or_default(),
            doubts: memory.doubts,
        };
        core.gate.token(false, None);
        core.remember(now, &mut ops);
        (core, ops)
    }

    /// Marks the calls that were in flight when the process ended as unresolved. They may have
    /// arrived, so the journal is asked before anything is sent twice.
    pub fn interrupted(&self, rows: &[Row], now: Now) -> Vec<Op> {
        let is_lost = |row: &&Row| row.state == State::Sending && !self.in_flight.has_call(row.id);
        let unresolved = |row: &Row| {
            let why = "callbridge ended while the request was under way".to_owned();
            (self.confirmation).unresolved(now, row.id, IfAbsent::Resubmit, why)
        };
        let mut ops: Vec<Op> = rows.iter().filter(is_lost).map(unresolved).collect();
        if !ops.is_empty() {
            let by = u64::try_from(ops.len()).unwrap_or(u64::MAX);
            ops.push(Op::count("interrupted_requests", by));
        }
        ops
    }

    /// Query for the part of the spool on which the next decision depends.
    pub fn ask(&self, now: Now) -> QueueQuery {
        QueueQuery {
            now: now.wall,
            tokens: self.tokens.living(now).cloned().collect(),
            confirmable_before: self.confirmation.confirmable_before(now, self.load),
            untried_first: self.gate.troubles.next(Part::Submissions).is_some(),
        }
    }

    /// The CRM accepts no calls, but requests of commands are still made.
    pub fn asks_all_the_same(&self) -> bool {
        let cause = self.gate.pause_cause().map(|(cause, _)| cause);
        cause == Some(PauseCause::Outage(Extent::Submissions)) && !self.settings.dry_run
    }

    /// Updates the number of waiting calls from the spool's head.
    pub(super) fn update_load(&mut self, head: &WorkQueue) {
        let ready = head.live.is_some() || head.backlog.is_some();
        self.load = Load {
            loaded: ready && !self.gate.troubles.fails(Part::Submissions),
            unsent: head.ready + head.sending,
            waiting: head.submitted,
        };
        if !ready && self.load.unsent == 0 {
            self.gate.troubles.nothing_waits(Part::Submissions);
        }
    }

    /// Sets the previous token, while it is valid.
    pub fn before(&mut self, before: Option<Before>) {
        self.tokens.before = before.filter(|(token, _)| !self.tokens.is_current(token));
    }

    /// Sets the current token. `None` if there is none. The same token again changes nothing.
    pub fn token(&mut self, token: Option<TokenFingerprint>) {
        if self.tokens.current == token {
            return;
        }
        if self.tokens.replace(token) {
            self.confirmation.reconciliation.renewed();
        }
        let present = self.tokens.current.is_some();
        self.gate.token(present, self.tokens.refused_until());
        self.confirmation.probe = None;
        self.rights.forget_token();
    }

    /// Adds the operation that stores the sender's memory, if it has changed.
    pub(super) fn remember(&mut self, now: Now, ops: &mut Vec<Op>) {
        let memory = Memory {
            page_strategy: self.confirmation.page_strategy().clone(),
            window: Some(self.budget.pacer.rate.window()),
            silence: self.budget.silence(now),
            shared: self.budget.shared(now),
            streaks: self.gate.streaks,
            token: self.tokens.last.clone(),
            refused: self.tokens.refused.as_ref().map(|(it, _)| it.clone()),
            doubts: Vec::new(),
        };
        let text = memory.text();
        if text != self.memory {
            self.memory.clone_from(&text);
            ops.push(Op::meta(KEY, text));
        }
    }

    /// Nothing is sent, because our times would be wrong, in the journal and for the token.
    pub(super) fn clock_is_wrong(&self, now: Now) -> bool {
        (self.settings.clock_right_from).is_some_and(|right_from| now.wall < right_from)
    }

    /// Snapshot of the sender for `status`, metrics and the log.
    pub fn status(&self, now: Now, head: &WorkQueue) -> SenderStatus {
        let cause = self.gate.pause_cause();
        let place = &self.settings.token_place;
        let pause = match cause {
            _ if self.clock_is_wrong(now) => Some(Pause::new("clock", CLOCK_CURE)),
            Some((cause, why)) => {
                let fix = status::fix(cause, why, place);
                Some(Pause::new(status::word(cause), fix))
            }
            None if self.settings.dry_run => Some(Pause::new("dry_run", DRY_RUN_CURE)),
            None => None,
        };
        let pacer = &self.budget.pacer;
        let may_reconcile = self.choice(now, head).may_reconcile();
        // number of calls that one request confirms
        let confirmed_at_once = match may_reconcile {
            true => self.confirmation.reconciliation.worth_under_load(),
            false => 1,
        };
        let (info, present) = (self.tokens.info.as_ref(), self.tokens.current.is_some());
        SenderStatus {
            token: status::token(info, cause.map(|(cause, _)| cause), present),
            pause,
            degraded: self.degraded(now),
            requests: self.requests.clone(),
            backlog: status::backlog(head, pacer, confirmed_at_once, now.boot),
            expires_in_days: self.tokens.expires_in_days,
            under_way: self.in_flight.by_slot.len(),
            token_shared: pacer.is_shared(now.boot),
            slots: status::Slots {
                limit: pacer.allowed(now.boot),
                window: pacer.rate.window(),
                frees: pacer.frees(now.boot).collect(),
                silent_until: pacer.silent_until,
            },
            ..SenderStatus::default()
        }
    }

    /// Describes the parts of the CRM that fail while the rest works.
    fn degraded(&self, now: Now) -> Vec<DegradedPart> {
        let beside = self.gate.troubles.beside();
        let pages = self.confirmation.page_strategy().is_readable(now.wall);
        let webhooks = !self.confirmation.webhooks.left(now.wall).is_zero();
        let barred = self.rights.degraded(pages, webhooks);
        let other_works = beside.len() == 1 && barred.is_none();
        let degraded = beside.into_iter().map(|(part, it)| DegradedPart {
            part: part.word().to_owned(),
            reason: it.why.clone(),
            fallback: status::fallback(part, other_works).to_owned(),
            since: it.began.floor_seconds().get(),
        });
        degraded.chain(barred).collect()
    }

    pub(super) fn context(&self, in_flight: &InFlight) -> Context {
        let Task::Submit(row) = in_flight.plan.task else {
            return Context::default();
        };
        let troubles = &self.gate.troubles;
        Context {
            failures: self.retry.failures(row),
            share: troubles.feared(row),
            trouble: troubles.next(Part::Submissions).is_some(),
        }
    }
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "confirmation_tests.rs"]
mod confirmation_tests;

#[cfg(test)]
#[path = "doubt_tests.rs"]
mod doubt_tests;

#[cfg(test)]
#[path = "lead_requests_tests.rs"]
mod lead_requests_tests;

#[cfg(test)]
#[path = "restart_tests.rs"]
mod restart_tests;

#[cfg(test)]
#[path = "rights_tests.rs"]
mod rights_tests;

#[cfg(test)]
#[path = "tokens_tests.rs"]
mod tokens_tests;
