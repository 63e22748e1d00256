//! The request budget. Based on responses and what's stored about earlier requests, it decides
//! whether a request may be sent now, and which slots to store.
//!
//! After a reboot, a takeover from another process, or lost commits, as well as in a copied state,
//! the slots don't account for every request that counts. In that case, nothing is sent until such
//! requests no longer count. This quiet period is stored ([`Known::silence`]), so it survives a
//! restart.
//!
//! After each of the first four consecutive 429s, the sender waits 1, 2, 4, and 8 s, plus up to
//! half a second (§7.7). After any further one, it waits a full window. From then on, requests are
//! sent one at a time until the CRM has handled one that was sent after the last 429.

pub mod pacer;
pub mod rate;

use crate::budget::pacer::{LOST_ARRIVE_BY_PROXY, Pacer, STRAGGLER, Use};
use crate::budget::rate::Rate;
use crate::in_flight::InFlight;
use crate::jitter::Jitter;
use crate::memory::{Memory, Shared};
use crate::plan::{Decision, Known, Plan, Settings};
use crate::queue::Task;
use callbridge_call::EventTime;
use callbridge_crm::{ApiError, ApiResult};
use callbridge_model::clock::ClockOffset;
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::{Op, Silence, SilenceReason, SlotRow};
use std::collections::BTreeMap;
use std::time::Duration;

/// The longest possible silence: the longest window that a rate can have (1 h) including its clock
/// drift, plus the time that another process's request can still take to arrive through a proxy.
const SILENCE_MAX: Duration =
    Duration::from_secs(3600 + 3600 / 2000 + 1 + LOST_ARRIVE_BY_PROXY.as_secs());

/// Maximum jitter added to a wait after a 429 (§7.7), doubled from the fifth consecutive 429 on.
const MORE: Duration = Duration::from_millis(500);

/// The budget for requests under the CRM's limit. Its slots are stored, so they survive a restart.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) pacer: Pacer,
    boot_id: String,
    /// Difference between the wall clock and the time since boot. If it jumps, the clock was set.
    offset: ClockOffset,
    jitter: Jitter,
    /// Set while the CRM is rate limiting us.
    limit: Option<RateLimit>,
    /// End of the stored silence, as time since boot.
    stored: Option<Duration>,
}

/// A series of 429s. All times are measured since boot.
#[derive(Clone, Copy, Debug)]
struct RateLimit {
    /// Number of waits so far.
    steps: u32,
    /// Time of the last 429.
    last: Duration,
    /// Nothing is sent before this time.
    until: Duration,
}

impl Budget {
    /// Restores the budget, also returning the operations that store the slots that still count and
    /// remove all others.
    pub(super) fn start(
        settings: &Settings,
        known: &Known,
        memory: &Memory,
        now: Now,
    ) -> (Self, Vec<Op>) {
        let budget = Self {
            pacer: pacer(settings.rate, settings.late(), known, memory, now),
            boot_id: known.boot_id.clone().unwrap_or_default(),
            offset: now.offset(),
            jitter: Jitter::new(settings.seed),
            limit: None,
            stored: None,
        };
        let kept: BTreeMap<u32, Use> = budget.pacer.uses(now.boot).collect();
        let ops = known.slots.iter().map(|row| match kept.get(&row.slot) {
            Some(one) => budget.row(row.slot, &row.token, row.wall_sent, *one),
            None => Op::SlotGone(row.slot),
        });
        let ops = ops.collect();
        (budget, ops)
    }

    /// Takes a slot for this task, or returns when to ask again.
    pub(super) fn take(&mut self, now: Now, task: Task) -> Decision {
        if let Some(until) = self.limited_until(now.boot) {
            return Decision::WaitUntil(until);
        }
        match self.pacer.take(now.boot, task.lane.pace()) {
            Ok(slot) => Decision::Send(Plan { slot, task }),
            Err(Some(at)) => Decision::WaitUntil(at),
            Err(None) => Decision::Idle,
        }
    }

    /// Returns `true` during a series of 429s, in which requests are sent one at a time to find out
    /// whether the CRM is still rate limiting us.
    pub(super) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns the end of the wait after a 429 as time since boot, or `None` if there's no such
    /// wait.
    pub(super) fn limited_until(&self, now: Duration) -> Option<Duration> {
        let until = self.limit.map(|limit| limit.until);
        until.filter(|until| *until > now)
    }

    /// Handles a 429 for a request sent at `sent`. Requests that were in flight together count as
    /// one step. `own` tells whether the 429 came from the CRM itself rather than a proxy, since
    /// proxies count separately and only the CRM's own 429s may lower the rate.
    fn rate_limited(&mut self, now: Duration, sent: Duration, own: bool) {
        if own {
            self.pacer.note_limit(now);
        }
        let steps = match &mut self.limit {
            Some(limit) if sent <= limit.last => {
                limit.last = now;
                return;
            }
            Some(limit) => limit.steps.saturating_add(1),
            None => 1,
        };
        let (wait, more) = match steps {
            0..=4 => (Duration::from_secs(1 << (steps - 1)), MORE),
            5.. => (self.pacer.rate.window(), 2 * MORE),
        };
        self.limit = Some(RateLimit {
            steps,
            last: now,
            until: now + wait + self.jitter.up_to(more),
        });
    }

    /// Returns the operation that stores the slot of a request that's about to be sent.
    pub(super) fn launched(&self, request: &InFlight) -> Op {
        self.row(
            request.plan.slot,
            &request.token,
            request.sent.wall,
            Use {
                sent: request.sent.boot,
                ended: None,
            },
        )
    }

    /// Handles the response to a request, returning the operation that stores when its slot ended.
    /// If the response was lost, the request may still arrive, so its slot ends [`STRAGGLER`]
    /// later.
    ///
    /// A series of 429s ends when the CRM handles a request sent after the last of them. Earlier
    /// requests may have arrived before the limit was reached, and a failure says nothing about it.
    pub(super) fn note_answer(
        &mut self,
        now: Now,
        request: &InFlight,
        answer: &ApiResult,
    ) -> Option<Op> {
        match answer {
            Err(ApiError::TooMany(own)) => self.rate_limited(now.boot, request.sent.boot, *own),
            Ok(_)
            | Err(
                ApiError::Forbidden(_)
                | ApiError::NotFound { own: true, .. }
                | ApiError::Rejected { .. },
            ) => {
                self.limit.take_if(|limit| limit.last < request.sent.boot);
            }
            Err(_) => {}
        }
        let straggles = matches!(answer, Err(ApiError::TimedOut | ApiError::Lost { .. }));
        let ended = now.boot + STRAGGLER * u32::from(straggles);
        let one = self.pacer.note_end(request.plan.slot, ended)?;
        Some(self.row(request.plan.slot, &request.token, request.sent.wall, one))
    }

    /// Starts a silence if the wall clock has jumped forward since the last check, because the
    /// slots can't be relied on after that.
    pub(super) fn check_clock(&mut self, now: Now) {
        let offset = now.offset();
        if self.offset.has_jumped(offset) {
            let why = SilenceReason::UncertainSlots;
            self.pacer.await_unknown(now.boot, None, why);
        }
        self.offset = offset;
    }

    /// Applies a silence that the spool has stored since startup. One from an earlier boot was
    /// already applied at startup. Returns the operation that stores the end of a silence that
    /// begins now.
    pub(super) fn keep_silence(&mut self, now: Now, silence: &Silence) -> Option<Op> {
        if let Some(until) = known_end(silence, &self.boot_id, now) {
            self.pacer.silence(until, silence.why.clone());
        } else if silence.boot_id.is_empty() && !self.boot_id.is_empty() {
            self.pacer
                .await_unknown(now.boot, None, silence.why.clone());
            // The row has no end yet, even if the current silence ends later and was stored before.
            self.forget_stored();
            return self.store_silence(now);
        }
        None
    }

    /// Returns the operation that stores the current silence, since it must survive a restart, or
    /// `None` if it's already stored or requests may be sent.
    pub(super) fn store_silence(&mut self, now: Now) -> Option<Op> {
        let silent = self.pacer.silent(now.boot)?;
        if self.stored.replace(silent.until) == Some(silent.until) {
            return None;
        }
        Some(Op::Silence(Silence {
            boot_id: self.boot_id.clone(),
            until: silent.until,
            why: silent.why.clone(),
        }))
    }

    /// Makes [`Budget::store_silence`] return the silence again, since it may not have been stored.
    pub(super) fn forget_stored(&mut self) {
        self.stored = None;
    }

    /// Returns the rate to which we were lowered after getting 429s below our cap, or `None` if it
    /// wasn't lowered. It's stored because it must survive a restart.
    pub(super) fn shared(&self, now: Now) -> Option<Shared> {
        let (allowed, since) = self.pacer.shared()?;
        let since = now.wall.minus(now.boot.saturating_sub(since));
        Some(Shared { allowed, since })
    }

    /// Returns the operation that stores a slot. `wall` is the wall-clock time at which its request
    /// was sent.
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

    /// Returns how many slots count in the current window.
    #[cfg(test)]
    pub(super) fn used(&self, now: Now) -> u32 {
        u32::try_from(self.pacer.frees(now.boot).count()).unwrap_or(u32::MAX)
    }
}

/// Restores the pacer from the stored slots. It starts a silence if there may be requests that the
/// slots don't account for.
fn pacer(rate: Rate, late: Duration, known: &Known, memory: &Memory, now: Now) -> Pacer {
    let mut slots = known.slots.iter();
    let sure = slots.all(|row| is_known(row, known, now, late));
    let uses = known.slots.iter().map(|row| {
        let (sent, ended) = if sure {
            (row.sent, row.answered)
        } else {
            (now.boot, Some(now.boot + late))
        };
        (row.slot, Use { sent, ended })
    });
    let mut pacer = Pacer::start(rate, uses.collect(), now.boot, late);
    let before = memory.window;
    // If the last run used another window, it may have dropped slots that still count in the longer
    // of the two.
    let has_other_window = before.is_some_and(|before| before != rate.window());
    if !sure || !memory.doubts.is_empty() || has_other_window {
        pacer.await_unknown(now.boot, before, SilenceReason::UncertainSlots);
    }
    if let Some(silence) = &known.silence {
        let why = silence.why.clone();
        match known_end(silence, known.boot_id.as_deref().unwrap_or_default(), now) {
            Some(until) => pacer.silence(until, why),
            None => pacer.await_unknown(now.boot, before, why),
        }
    }
    if let Some(Shared { allowed, since }) = memory.shared {
        pacer.share(allowed, now.boot.saturating_sub(now.wall.since(since)));
    }
    pacer
}

/// Returns the end of a stored silence as time since this boot, or `None` if the silence must start
/// over because it's from another boot or exceeds [`SILENCE_MAX`], which is impossible.
fn known_end(silence: &Silence, boot_id: &str, now: Now) -> Option<Duration> {
    let is_of_this_boot = !boot_id.is_empty() && silence.boot_id == boot_id;
    let is_possible = silence.until <= now.boot + SILENCE_MAX;
    (is_of_this_boot && is_possible).then_some(silence.until)
}

/// Returns `true` if this slot's times can be relied on: they're from this boot, not ahead of our
/// clock, and not from before the wall clock was set forward. A single uncertain slot casts doubt
/// on all of them.
fn is_known(row: &SlotRow, known: &Known, now: Now, late: Duration) -> bool {
    let boot = known.boot_id.as_deref().filter(|boot| !boot.is_empty());
    boot == Some(row.boot_id.as_str())
        && row.sent <= now.boot
        && row.answered.is_none_or(|at| at <= now.boot + late)
        && !ClockOffset::from_readings(row.wall_sent, row.sent).has_jumped(now.offset())
}
