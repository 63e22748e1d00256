//! The hard limit on requests, and their pace within that limit.
//!
//! The CRM counts requests per token in a fixed 60 s window that opens with the first request
//! (Limits). A slot is consumed when a request is sent, and becomes available one window after its
//! **response**. That way, no window can contain more requests than there are slots, wherever it
//! opens:
//!
//! > Suppose that N + 1 requests arrive in one window, which begins at w. The one that was planned
//! > last was planned at some s < w + 60. The other N arrived at or after w, and their responses
//! > came after that, so their slots are taken until after w + 60 > s. Since all N slots were taken
//! > at s, that request can't have been sent.
//!
//! A request without a response ends once it can no longer arrive: 5 s after the timeout closed its
//! connection, or [`LOST_ARRIVE`] after this process lost track of it. Since the CRM's clock and
//! ours may drift apart by 1 in 2000, windows here are longer by that fraction.
//!
//! If the rate has a shorter window (`30/30s`), a slot counts against the rate for that window, but
//! is remembered for the CRM's window. So the CRM's limit is respected as well, even across a
//! restart with a different rate. N and 60 s above then stand for either pair of numbers, and the
//! proof holds for both.
//!
//! Stored slots use the time since boot, so they remain valid across restarts. After a reboot, or
//! when in doubt, nothing is sent for a full window, since unknown requests may still count.

use super::rate::Rate;
use callbridge_spool::SilenceReason;
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of consecutive windows with a 429 after which we conclude that another program uses the
/// token.
const WINDOWS_SHARED: u32 = 3;

/// Time without a 429 after which a lowered rate is doubled.
const DOUBLED_AFTER: Duration = Duration::from_secs(600);

/// A rate is never lowered below a quarter of the full rate.
const LOWEST_PART: u32 = 4;

/// How long after its connection was closed a request can still arrive.
pub const STRAGGLER: Duration = Duration::from_secs(5);

/// How long after its launch a request may still be written to its connection. After that, it isn't
/// sent at all.
///
/// The slot is stored beforehand, and a process that takes over the state relies on this limit.
pub const SEND_WITHIN: Duration = Duration::from_secs(5);

/// How long a request can still arrive after this process has lost track of it, because it was
/// restarted, lost the state, or took it over from another process. The request is written up to
/// [`SEND_WITHIN`] after its slot was stored, its connection is closed 30 s later, and
/// [`STRAGGLER`] is added to that.
pub const LOST_ARRIVE: Duration = Duration::from_secs(45);

/// [`LOST_ARRIVE`] for requests through a proxy, which may deliver them later.
pub const LOST_ARRIVE_BY_PROXY: Duration = Duration::from_secs(180);

/// Returns how long a request can still arrive after this process has lost track of it.
pub const fn lost_arrive(by_proxy: bool) -> Duration {
    if by_proxy {
        LOST_ARRIVE_BY_PROXY
    } else {
        LOST_ARRIVE
    }
}

/// Returns how long nothing may be sent after requests whose slots are unknown. `late` is how long
/// they can still arrive, and `window` is the CRM's longest window that one of them may open.
pub fn silence_after(late: Duration, window: Duration) -> Duration {
    late + reach(window)
}

/// How a lane's requests are spread out within the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As soon as there's a slot, for live calls and the few requests about the token.
    AtOnce,
    /// Evenly over the window after a small burst. At the default rate, this leaves a slot for a
    /// live call every second.
    Even,
    /// Like [`Pace::Even`], but only while half of the slots are available, so that requests that
    /// can wait never delay a live call.
    Spare,
}

/// A slot's use, in time since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// When the slot's request was planned, which is never after it was sent.
    pub sent: Duration,
    /// When the response arrived or the request could no longer arrive, or `None` while it's in
    /// flight.
    pub ended: Option<Duration>,
}

/// A period during which nothing is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SilentTime {
    /// When it ends, as time since boot.
    pub(crate) until: Duration,
    pub(crate) why: SilenceReason,
}

/// One process's budget.
#[derive(Debug)]
pub struct Pacer {
    pub(crate) rate: Rate,
    uses: BTreeMap<u32, Use>,
    /// How long a request can still arrive after this process has lost track of it.
    late: Duration,
    /// The silence that ends last.
    silent: Option<SilentTime>,
    shape: Shape,
    shared: Option<Shared>,
    refused: Option<RefusedWindows>,
}

/// A lowered rate, because another program uses the token.
#[derive(Clone, Copy, Debug)]
struct Shared {
    allowed: u32,
    /// Time of the last 429.
    since: Duration,
}

/// Consecutive windows with a 429 below our own cap.
#[derive(Clone, Copy, Debug)]
struct RefusedWindows {
    count: u32,
    /// Time of the first 429 in the last of these windows.
    began: Duration,
}

impl Pacer {
    /// Creates the budget at startup from the stored slots (`uses`). `now` is the time since boot,
    /// and `late` is how long a request that was in flight can still arrive.
    pub fn start(rate: Rate, mut uses: BTreeMap<u32, Use>, now: Duration, late: Duration) -> Self {
        for one in uses.values_mut() {
            one.ended = one.ended.or(Some(now + late));
        }
        Self {
            rate,
            uses,
            late,
            silent: None,
            shape: Shape::new(rate, now),
            shared: None,
            refused: None,
        }
    }

    /// Returns the slots that still count, along with their numbers. All others can be removed from
    /// the spool.
    pub fn uses(&self, now: Duration) -> impl Iterator<Item = (u32, Use)> + '_ {
        let within = self.rate.longest_window();
        let counts = (self.uses.iter()).filter(move |(_, one)| one.counts(within, now));
        counts.map(|(slot, one)| (*slot, *one))
    }

    /// Takes a slot for a request that's about to be sent. The error is the time since boot at
    /// which to ask again, or `None` for after the next response.
    pub fn take(&mut self, now: Duration, pace: Pace) -> Result<u32, Option<Duration>> {
        if let Some(silent) = self.silent(now) {
            return Err(Some(silent.until));
        }
        let within = self.rate.longest_window();
        self.uses.retain(|_, one| one.counts(within, now));
        let allowed = match pace {
            Pace::AtOnce | Pace::Even => self.allowed(now),
            Pace::Spare => self.allowed(now).div_ceil(2),
        };
        self.room(allowed, self.rate.window(), now)?;
        if !self.rate.exceeds_service() {
            self.room(Rate::SERVICE.limit(), Rate::SERVICE.window(), now)?;
        }
        if let Err(at) = self.shape.check(now)
            && pace != Pace::AtOnce
        {
            return Err(Some(at));
        }
        let free = (0..).find(|slot| !self.uses.contains_key(slot));
        let slot = free.unwrap_or(u32::MAX);
        let ended = None;
        self.uses.insert(slot, Use { sent: now, ended });
        Ok(slot)
    }

    /// Notes that a slot's request got its response, or can no longer arrive, at `ended`. Returns
    /// the updated use, or `None` if the slot is unused.
    pub fn note_end(&mut self, slot: u32, ended: Duration) -> Option<Use> {
        let one = self.uses.get_mut(&slot)?;
        one.ended = Some(ended.max(one.sent));
        Some(*one)
    }

    /// Frees the slot of a request that was never sent.
    pub fn never_sent(&mut self, slot: u32) {
        self.uses.remove(&slot);
    }

    /// Handles a 429 that we got despite staying below our cap. The third consecutive window with
    /// such a 429 halves the rate, because another program must be using the token.
    pub fn note_limit(&mut self, now: Duration) {
        let allowed = self.allowed(now);
        if let Some(shared) = &mut self.shared {
            *shared = Shared {
                allowed,
                since: now,
            };
        }
        let window = self.shared_window();
        let count = match self.refused {
            Some(last) if now < last.began + window => return,
            Some(last) if now < last.began + 2 * window => last.count + 1,
            Some(_) | None => 1,
        };
        self.refused = Some(RefusedWindows { count, began: now });
        if count >= WINDOWS_SHARED {
            self.refused = Some(RefusedWindows {
                count: 0,
                began: now,
            });
            self.shared = Some(Shared {
                allowed: (allowed / 2).max(self.lowest()),
                since: now,
            });
        }
    }

    /// Sends nothing for a while, because unknown requests may have been sent until `now`. `before`
    /// is the longest window of the rate at which they were sent, if known.
    pub fn await_unknown(&mut self, now: Duration, before: Option<Duration>, why: SilenceReason) {
        let window = self.rate.longest_window().max(before.unwrap_or_default());
        self.silence(now + silence_after(self.late, window), why);
    }

    /// Sends nothing before `until` (time since boot).
    pub fn silence(&mut self, until: Duration, why: SilenceReason) {
        if self
            .silent
            .as_ref()
            .is_none_or(|silent| silent.until < until)
        {
            self.silent = Some(SilentTime { until, why });
        }
    }

    /// Returns the silence at this time since boot, or `None` if requests may be sent.
    pub(crate) fn silent(&self, now: Duration) -> Option<&SilentTime> {
        self.silent.as_ref().filter(|silent| silent.until > now)
    }

    /// Returns the lowered rate in requests per window and the time since boot of the last 429, or
    /// `None` if the rate wasn't lowered.
    pub fn shared(&self) -> Option<(u32, Duration)> {
        self.shared.map(|shared| (shared.allowed, shared.since))
    }

    /// Restores the lowered rate after a restart, from the values that [`Pacer::shared`] returned.
    pub fn share(&mut self, allowed: u32, since: Duration) {
        self.shared = Some(Shared {
            allowed: allowed.max(self.lowest()),
            since,
        });
    }

    fn lowest(&self) -> u32 {
        self.rate.limit().div_ceil(LOWEST_PART)
    }

    /// Returns `true` if another program uses the token.
    pub fn is_shared(&self, now: Duration) -> bool {
        self.allowed(now) < self.rate.limit()
    }

    /// Returns the number of requests per window allowed now. A lowered rate doubles after every
    /// ten minutes without a 429.
    pub fn allowed(&self, now: Duration) -> u32 {
        let limit = self.rate.limit();
        let Some(shared) = self.shared else {
            return limit;
        };
        let doublings = now.saturating_sub(shared.since).as_secs() / DOUBLED_AFTER.as_secs();
        if doublings >= 2 {
            // Two doublings restore even the lowest rate, a quarter, to the full rate.
            return limit;
        }
        limit.min(shared.allowed << doublings)
    }

    /// Returns the window in which another program's requests count along with ours.
    fn shared_window(&self) -> Duration {
        self.rate.window().min(Rate::SERVICE.window())
    }

    /// Returns when each counted slot becomes available, or `None` for a request in flight.
    pub fn frees(&self, now: Duration) -> impl Iterator<Item = Option<Duration>> + '_ {
        self.counting(self.rate.window(), now)
    }

    /// Checks that fewer than `limit` requests count in a window. The error says when to ask again.
    fn room(&self, limit: u32, window: Duration, now: Duration) -> Result<(), Option<Duration>> {
        let used = self.counting(window, now).count();
        if u32::try_from(used).is_ok_and(|used| used < limit) {
            return Ok(());
        }
        Err(self.counting(window, now).flatten().min())
    }

    /// Returns the time until which each use can count in a window, or `None` for a request in
    /// flight.
    fn counting(&self, window: Duration, now: Duration) -> impl Iterator<Item = Option<Duration>> {
        let counts = (self.uses.values()).filter(move |one| one.counts(window, now));
        counts.map(move |one| one.counts_until(window))
    }
}

impl Use {
    /// Returns `true` if this request can count in a window that's open now.
    fn counts(&self, window: Duration, now: Duration) -> bool {
        self.counts_until(window).is_none_or(|until| until > now)
    }

    fn counts_until(&self, window: Duration) -> Option<Duration> {
        self.ended.map(|ended| ended + reach(window))
    }
}

/// Returns how long after its end a request can still count in a window, allowing for clock drift.
fn reach(window: Duration) -> Duration {
    window + window / 2000
}

/// A governor limiter that spreads requests evenly, with the time passed in.
#[derive(Debug)]
struct Shape {
    clock: ManualClock,
    limiter: RateLimiter<NotKeyed, InMemoryState, ManualClock, NoOpMiddleware<Duration>>,
}

impl Shape {
    fn new(rate: Rate, now: Duration) -> Self {
        let clock = ManualClock::default();
        clock.set(now);
        let burst = NonZeroU32::new(rate.limit() / 4).unwrap_or(NonZeroU32::MIN);
        let every = (rate.window() / rate.limit()).max(Duration::from_nanos(1));
        let quota = Quota::with_period(every).unwrap_or(Quota::per_second(NonZeroU32::MIN));
        let limiter = RateLimiter::direct_with_clock(quota.allow_burst(burst), clock.clone());
        Self { clock, limiter }
    }

    /// Takes a cell from the limiter. The error is the time since boot at which a cell becomes
    /// available.
    fn check(&self, now: Duration) -> Result<(), Duration> {
        self.clock.set(now);
        (self.limiter.check()).map_err(|not| not.earliest_possible().max(now))
    }
}

/// The clock that governor reads, which shows the last `now`.
#[derive(Clone, Debug, Default)]
struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    fn set(&self, now: Duration) {
        let nanos = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.0.store(nanos, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
#[path = "pacer_tests.rs"]
mod tests;
