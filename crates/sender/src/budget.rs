//! The budget of requests: the slots, what is stored of them, and the silence for what is not
//! known to have been sent.

use crate::memory::{Memory, Shared, Silence};
use crate::{Decision, InFlight, Known, Lane, Pace, Pacer, Plan, Rate, STRAGGLER, Task, Use};
use callbridge_call::EventTime;
use callbridge_crm::{ApiError, ApiResult};
use callbridge_model::clock::ClockOffset;
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::{Op, SlotRow};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest possible silence, after the longest window of a rate.
const SILENCE_MAX: Duration = Duration::from_secs(3600 + 3600 / 2000 + 1 + STRAGGLER.as_secs());

/// Slots of requests under the CRM's limit, as they are stored over restarts.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) pacer: Pacer,
    boot_id: String,
    /// Difference between the wall clock and the time since boot. A jump shows that the clock was
    /// set.
    offset: ClockOffset,
}

impl Budget {
    /// Restores the budget. Also returns its slots to store now.
    pub(super) fn start(rate: Rate, known: &Known, memory: &Memory, now: Now) -> (Self, Vec<Op>) {
        let budget = Self {
            pacer: pacer(rate, known, memory, now),
            boot_id: known.boot_id.clone().unwrap_or_default(),
            offset: now.offset(),
        };
        let kept: BTreeMap<u32, Use> = budget.pacer.uses(now.boot).collect();
        let ops = known.slots.iter().map(|row| match kept.get(&row.slot) {
            Some(one) => budget.row(row.slot, &row.token, row.wall_sent, *one),
            None => Op::SlotGone(row.slot),
        });
        let ops = ops.collect();
        (budget, ops)
    }

    /// Takes a slot for a request of this lane, or returns when to ask again.
    pub(super) fn take(&mut self, now: Now, lane: Lane, task: Task) -> Decision {
        let pace = match lane {
            Lane::Token | Lane::Deadline | Lane::Live => Pace::AtOnce,
            Lane::OldPoll | Lane::Reconcile | Lane::Backlog | Lane::Confirm | Lane::LeadRequest => {
                Pace::Even
            }
            Lane::Spare => Pace::Spare,
        };
        match self.pacer.take(now.boot, pace) {
            Ok(slot) => Decision::Send(Plan { slot, lane, task }),
            Err(Some(at)) => Decision::WaitUntil(at),
            Err(None) => Decision::Idle,
        }
    }

    /// The slot of a request that leaves now, in its stored form.
    pub(super) fn launched(&self, it: &InFlight) -> Op {
        let (sent, ended) = (it.sent.boot, None);
        self.row(it.plan.slot, &it.token, it.sent.wall, Use { sent, ended })
    }

    /// Handles the answer to a request, and returns its slot in its stored form. If the answer was
    /// lost, the request can still arrive, and counts until it cannot.
    pub(super) fn answered(&mut self, now: Now, it: &InFlight, answer: &ApiResult) -> Option<Op> {
        let straggles = matches!(answer, Err(ApiError::TimedOut | ApiError::Lost { .. }));
        let ended = now.boot + STRAGGLER * u32::from(straggles);
        let one = self.pacer.ended(it.plan.slot, ended)?;
        Some(self.row(it.plan.slot, &it.token, it.sent.wall, one))
    }

    /// Checks whether the wall clock was set forward.
    pub(super) fn check_clock(&mut self, now: Now) {
        let offset = now.offset();
        if self.offset.has_jumped(offset) {
            self.pacer.doubt(now.boot);
        }
        self.offset = offset;
    }

    /// The silence that must outlive a restart.
    pub(super) fn silence(&self, now: Now) -> Option<Silence> {
        let until = self.pacer.silent_until.filter(|until| *until > now.boot)?;
        let boot_id = self.boot_id.clone();
        Some(Silence { boot_id, until })
    }

    /// The rate since a 429 below our cap, which must outlive a restart.
    pub(super) fn shared(&self, now: Now) -> Option<Shared> {
        let (allowed, since) = self.pacer.shared()?;
        let since = now.wall.minus(now.boot.saturating_sub(since));
        Some(Shared { allowed, since })
    }

    /// A slot in its stored form.
    pub(super) fn row(&self, slot: u32, token: &TokenFingerprint, wall: EventTime, one: Use) -> Op {
        Op::Slot(SlotRow {
            slot,
            token: token.clone(),
            boot_id: self.boot_id.clone(),
            sent: one.sent,
            answered: one.ended,
            wall_sent: wall,
        })
    }

    /// Number of slots that count in the current window.
    #[cfg(test)]
    pub(super) fn used(&self, now: Now) -> u32 {
        u32::try_from(self.pacer.frees(now.boot).count()).unwrap_or(u32::MAX)
    }
}

/// Restores the pacer, with a silence for unknown requests.
fn pacer(rate: Rate, known: &Known, memory: &Memory, now: Now) -> Pacer {
    let sure = known.slots.iter().all(|row| is_known(row, known, now));
    let uses = known.slots.iter().map(|row| {
        let (sent, ended) = match sure {
            true => (row.sent, row.answered),
            false => (now.boot, None),
        };
        (row.slot, Use { sent, ended })
    });
    let mut pacer = Pacer::start(rate, uses.collect(), now.boot);
    let window = rate.window();
    if !sure || known.restored || !memory.doubts.is_empty() {
        pacer.doubt(now.boot);
    }
    if let Some(before) = memory.window.filter(|before| *before != window) {
        // slots of the shorter window before, or of a shorter window now, are forgotten too soon
        let longer = before.max(window);
        pacer.silence(now.boot + STRAGGLER + longer + longer / 2000);
    }
    if let Some(it) = &memory.silence {
        // no silence is longer than `SILENCE_MAX`, so a later end is wrong
        let is_known = it.until <= now.boot + SILENCE_MAX;
        match is_known && Some(&it.boot_id) == known.boot_id.as_ref() {
            true => pacer.silence(it.until),
            false => pacer.doubt(now.boot),
        }
    }
    if let Some(Shared { allowed, since }) = memory.shared {
        pacer.share(allowed, now.boot.saturating_sub(now.wall.since(since)));
    }
    pacer
}

/// Slots of this boot are known exactly. A slot makes all of them doubtful if it is of another
/// boot, ahead of our clock, or from before the clock was set forward.
fn is_known(row: &SlotRow, known: &Known, now: Now) -> bool {
    let boot = known.boot_id.as_deref().filter(|boot| !boot.is_empty());
    boot == Some(row.boot_id.as_str())
        && row.sent <= now.boot
        && row.answered.is_none_or(|at| at <= now.boot + STRAGGLER)
        && !ClockOffset::of(row.wall_sent, row.sent).has_jumped(now.offset())
}
