//! The sender's state machine: the head of the spool and `now` in, one request at a time out;
//! an answer in, steps for the spool out.
//!
//! A request has three moments. [`Core::next`] chooses it and takes its slot; [`Core::launch`]
//! makes it and gives the operations to commit **before** it leaves; [`Core::answered`] judges
//! its answer and gives the operations to commit after it.

use super::line::Line;
use super::pacer::{Pacer, Past, STRAGGLER, Use};
use super::plan::{Known, Launch, Plan, Settings, Task};
use super::schedule::Jitter;
use super::status::{self, SenderStatus};
use super::verdict::Context;
use crate::clock::Now;
use crate::crm::{Answer, Request, TokenInfo, request};
use crate::journal::Reason;
use crate::ops::status::{Pause, Requests};
use crate::spool::{Binding, Head, Op, Row, RowId, SlotRow, State, Step, TokenPrint};
use std::collections::BTreeMap;
use std::time::Duration;

/// Requests under way at one time: one slow answer does not stop the line.
pub const UNDER_WAY_MAX: usize = 4;

/// Calls whose failures are remembered.
const BLAMED_MAX: usize = 10_000;

/// A request under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) plan: Plan,
    pub(super) token: TokenPrint,
    pub(super) wall_sent: callbridge_call::EventTime,
    pub(super) resubmits: u32,
}

/// Failures of one call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Blame {
    /// All of them.
    pub(super) tries: u32,
    /// Those after which others passed.
    pub(super) alone: u32,
    /// None has passed since the last.
    pub(super) open: bool,
}

/// The sender's state.
#[derive(Debug)]
pub struct Core {
    pub(super) settings: Settings,
    pub(super) boot_id: String,
    pub(super) pacer: Pacer,
    pub(super) line: Line,
    pub(super) jitter: Jitter,
    pub(super) token: Option<TokenPrint>,
    pub(super) info: Option<TokenInfo>,
    pub(super) binding: Binding,
    pub(super) flights: BTreeMap<u32, Flight>,
    pub(super) blamed: BTreeMap<RowId, Blame>,
    pub(super) requests: Requests,
    pub(super) expires_in_days: Option<u32>,
    pub(super) polled_last: bool,
}

impl Core {
    /// A sender at its start, and what to commit before its first request.
    pub fn start(settings: Settings, known: Known, now: Now) -> (Self, Vec<Op>) {
        let past = past(&known, now);
        let pacer = Pacer::start(settings.rate, past, now.boot);
        let mut core = Self {
            jitter: Jitter::new(settings.seed),
            settings,
            boot_id: known.boot_id.unwrap_or_default(),
            pacer,
            line: Line::new(),
            token: None,
            info: None,
            binding: known.binding,
            flights: BTreeMap::new(),
            blamed: BTreeMap::new(),
            requests: Requests::new(),
            expires_in_days: None,
            polled_last: false,
        };
        core.line.token(false);
        let kept: BTreeMap<u32, Use> = core.pacer.uses(now.boot).collect();
        let ops = known
            .slots
            .into_iter()
            .map(|row| match kept.get(&row.slot) {
                Some(one) => Op::Slot(SlotRow {
                    boot_id: core.boot_id.clone(),
                    sent: one.sent,
                    answered: one.ended,
                    ..row
                }),
                None => Op::SlotGone { slot: row.slot },
            });
        let ops = ops.collect();
        (core, ops)
    }

    /// What was under way when the process ended goes back to ready: to be sent again with the
    /// same uuid, which makes no second record (§4.5.4).
    pub fn interrupted(&self, rows: &[Row], now: Now) -> Vec<Op> {
        let under_way: Vec<RowId> = self.flights.values().filter_map(|f| f.plan.row()).collect();
        let lost = rows
            .iter()
            .filter(|row| row.state == State::Sending && !under_way.contains(&row.id));
        let mut ops: Vec<Op> = lost
            .map(|row| Op::Step {
                row: row.id,
                step: Step::Returned {
                    not_before: now.wall,
                    why: "callbridge ended while the request was under way".to_owned(),
                },
                at: now.wall,
            })
            .collect();
        if !ops.is_empty() {
            let by = u64::try_from(ops.len()).unwrap_or(u64::MAX);
            ops.push(Op::Count {
                counter: "interrupted_requests".to_owned(),
                by,
            });
        }
        ops
    }

    /// The token in use; `None` when there is none. The same one again changes nothing.
    pub fn token(&mut self, token: Option<TokenPrint>) {
        if self.token != token {
            self.line.token(token.is_some());
            self.token = token;
            self.info = None;
            self.expires_in_days = None;
        }
    }

    /// Makes the chosen request. `row` is the call it is about, as stored.
    pub fn launch(&mut self, now: Now, plan: Plan, row: Option<&Row>) -> Launch {
        let slot = plan.slot;
        let mut ops = Vec::new();
        let (Some(token), Some(request)) = (
            self.token.clone(),
            self.request(now, &plan.task, row, &mut ops),
        ) else {
            self.pacer.never_sent(slot);
            return Launch::Not { ops };
        };
        self.polled_last = matches!(plan.task, Task::Poll(_));
        let flight = Flight {
            plan,
            token,
            wall_sent: now.wall,
            resubmits: row.map_or(0, |row| row.resubmits),
        };
        let one = Use {
            sent: now.boot,
            ended: None,
        };
        ops.push(self.slot_row(slot, &flight, one));
        self.line.sent(now.boot);
        self.flights.insert(slot, flight);
        Launch::Go { request, ops }
    }

    /// The token changed since this call was accepted: its outcome can no longer be asked for, so
    /// it is sent again with its uuid, which makes no second record (§4.5.4).
    pub fn revive(&self, row: &Row, now: Now) -> Vec<Op> {
        let orphan = row.state == State::Submitted && row.token != self.token;
        let why = "the token changed before its outcome was known".to_owned();
        let step = Op::Step {
            row: row.id,
            step: Step::Resubmit { why },
            at: now.wall,
        };
        orphan.then_some(step).into_iter().collect()
    }

    /// The operations of a launch could not be committed: nothing was sent.
    pub fn grounded(&mut self, slot: u32) {
        self.flights.remove(&slot);
        self.pacer.never_sent(slot);
    }

    /// Requests under way.
    pub fn under_way(&self) -> usize {
        self.flights.len()
    }

    /// Nothing is sent: times of ours would be wrong, in the journal as in the token's.
    pub(super) fn clock_is_wrong(&self, now: Now) -> bool {
        (self.settings.clock_right_from).is_some_and(|right_from| now.wall < right_from)
    }

    /// What to show.
    pub fn status(&self, now: Now, head: &Head) -> SenderStatus {
        let cause = self.line.pause_cause();
        let mut pause = cause.map(|(cause, why)| Pause {
            reason: status::word(cause).to_owned(),
            cure: status::cure(cause, why),
        });
        if self.clock_is_wrong(now) {
            pause = Some(Pause {
                reason: "clock".to_owned(),
                cure: "our clock shows a time before this program was made: set it (timedatectl, \
                       NTP); calls are kept meanwhile"
                    .to_owned(),
            });
        }
        if pause.is_none() && self.settings.dry_run {
            pause = Some(Pause {
                reason: "dry_run".to_owned(),
                cure: "start without --dry-run: until then nothing is submitted".to_owned(),
            });
        }
        let present = self.token.is_some();
        SenderStatus {
            token: status::token(self.info.as_ref(), cause.map(|(cause, _)| cause), present),
            pause,
            requests: self.requests.clone(),
            backlog: status::backlog(head, &self.pacer, now.boot),
            expires_in_days: self.expires_in_days,
            under_way: self.flights.len(),
            ..SenderStatus::default()
        }
        .with_pacer(&self.pacer, now.boot)
    }

    pub(super) fn slot_row(&self, slot: u32, flight: &Flight, one: Use) -> Op {
        Op::Slot(SlotRow {
            slot,
            token: flight.token.clone(),
            boot_id: self.boot_id.clone(),
            sent: one.sent,
            answered: one.ended,
            wall_sent: flight.wall_sent,
        })
    }

    /// The moment from which the request of an answer no longer counts as under way.
    pub(super) fn end_of(answer: &Answer, now: Now) -> Duration {
        match answer {
            Answer::TimedOut | Answer::Lost { .. } => now.boot + STRAGGLER,
            Answer::Accepted { .. }
            | Answer::AcceptedWithoutId
            | Answer::NotAccepted { .. }
            | Answer::StatusSuccess
            | Answer::StatusFailed { .. }
            | Answer::StatusPending { .. }
            | Answer::Page(_)
            | Answer::TokenInfo(_)
            | Answer::Rejected { .. }
            | Answer::Unauthorized
            | Answer::TokenState { .. }
            | Answer::Forbidden { .. }
            | Answer::NotFound { .. }
            | Answer::WrongAddress { .. }
            | Answer::Conflict { .. }
            | Answer::OtherClientError { .. }
            | Answer::TooMany
            | Answer::ServerError { .. }
            | Answer::BrokenBody { .. }
            | Answer::NotConnected { .. }
            | Answer::TlsRefused { .. } => now.boot,
        }
    }

    fn request(
        &self,
        now: Now,
        task: &Task,
        row: Option<&Row>,
        ops: &mut Vec<Op>,
    ) -> Option<Request> {
        match task {
            Task::TokenInfo => Some(Request::TokenInfo),
            Task::Poll(poll) => Some(Request::Poll {
                request_id: poll.request_id.clone(),
            }),
            Task::Submit(id) => {
                let row = row.filter(|row| row.state == State::Ready)?;
                let body = request::submission(&row.record, &self.settings.fields);
                let step = match body {
                    Some(_) => Step::Send,
                    // no rule of ours lets such a call become ready; it must not stop the line
                    None => Step::Died {
                        reason: Reason::NoLead,
                        message: "the call has no lead or no uuid".to_owned(),
                        errors: serde_json::Value::Null,
                    },
                };
                ops.push(Op::Step {
                    row: *id,
                    step,
                    at: now.wall,
                });
                body.map(Request::Submit)
            }
        }
    }

    pub(super) fn context(&self, flight: &Flight) -> Context {
        let blame = flight.plan.row().and_then(|row| self.blamed.get(&row));
        Context {
            resubmits: flight.resubmits,
            failures: blame.map_or(0, |blame| blame.alone),
        }
    }

    /// A call failed once more; how often that makes.
    pub(super) fn blame(&mut self, row: RowId) -> u32 {
        if self.blamed.len() >= BLAMED_MAX && !self.blamed.contains_key(&row) {
            self.blamed.pop_first();
        }
        let blame = self.blamed.entry(row).or_default();
        blame.tries = blame.tries.saturating_add(1);
        blame.open = true;
        blame.tries
    }

    /// A submission passed: those that failed before it failed alone.
    pub(super) fn others_passed(&mut self, row: RowId) {
        self.blamed.remove(&row);
        for blame in self.blamed.values_mut().filter(|blame| blame.open) {
            blame.open = false;
            blame.alone = blame.alone.saturating_add(1);
        }
    }
}

/// The slots of this boot are known exactly; any of another one, or ahead of our clock, makes
/// all of them doubtful.
fn past(known: &Known, now: Now) -> Past {
    if known.slots.is_empty() {
        return Past::Fresh;
    }
    let sure = known.slots.iter().all(|row| {
        known
            .boot_id
            .as_deref()
            .is_some_and(|boot| !boot.is_empty() && boot == row.boot_id)
            && row.sent <= now.boot
            && row.answered.is_none_or(|at| at <= now.boot + STRAGGLER)
    });
    if !sure {
        return Past::Doubtful(known.slots.iter().map(|row| row.slot).collect());
    }
    let uses = known.slots.iter();
    Past::Known(
        uses.map(|row| {
            (
                row.slot,
                Use {
                    sent: row.sent,
                    ended: row.answered,
                },
            )
        })
        .collect(),
    )
}

#[cfg(test)]
#[path = "core_tests.rs"]
mod tests;
