//! The hard limit on requests, and the pace within it.
//!
//! The CRM counts requests per token in a fixed window of 60 s that opens with a first request
//! (Limits). A slot is taken when a request is sent, and is free again one window after its
//! **answer**. Then no window, wherever it opens, can hold more requests than there are slots:
//!
//! > Take N + 1 arrivals in one window that begins at w. The one planned last was planned at some
//! > s < w + 60. The other N arrived at or after w, so their answers came after w, so their slots
//! > are taken until after w + 60 > s. All N slots were taken at s, so that request was not sent.
//!
//! A request without an answer ends when it can no longer arrive: 5 s after the timeout closed its
//! connection, or [`LOST_ARRIVE`] after this process has lost track of it.
//! The CRM's clock and ours can drift apart by 1 in 2000, so a window here is longer by this part.
//!
//! With a rate of a shorter window (`30/30s`), a slot is counted for that window against the rate,
//! and remembered for the CRM's window. So the CRM's limit is also kept, even over a restart with
//! another rate. N and 60 s above then stand for both pairs of numbers, and the proof is true for
//! each.
//!
//! Stored slots use the time since boot, so they stay valid across restarts. After a reboot, or in
//! doubt, nothing is sent for a whole window, because unknown requests may still count.

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

/// Number of windows in a row with a 429 that shows that another program uses the token.
const WINDOWS_SHARED: u32 = 3;

/// Time without a 429 after which a lowered rate is doubled.
const DOUBLED_AFTER: Duration = Duration::from_secs(600);

/// A lowered rate is at least this part of the full rate: a quarter.
const LOWEST_PART: u32 = 4;

/// Longest time for which a request can still arrive after its connection was closed.
pub const STRAGGLER: Duration = Duration::from_secs(5);

/// A request is written to its connection within this time after its launch, or not at all. Its
/// slot is stored before. A process that takes over the state depends on this limit.
pub const SEND_WITHIN: Duration = Duration::from_secs(5);

/// How long a request can still arrive after this process has lost track of it, because it was
/// restarted, lost the state, or took it over from another process. The request is written up to
/// [`SEND_WITHIN`] after its slot was stored, its connection is closed 30 s later, and
/// [`STRAGGLER`] follows.
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

/// Returns how long nothing may be sent after requests of which no slot is known. `late` is how long
/// they can still arrive, and `window` is the CRM's longest window that one of them may open.
pub fn silence_after(late: Duration, window: Duration) -> Duration {
    late + reach(window)
}

/// How the requests of a lane are spread within the cap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At once if there is a slot: live calls, and the few requests about the token.
    AtOnce,
    /// Evenly over the window after a small burst. At the default rate, a slot becomes free every
    /// second for a live call.
    Even,
    /// Like [`Pace::Even`], but only while half of the slots are free. Requests that can wait never
    /// delay a live call.
    Spare,
}

/// The use of a slot, in time since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Time at which the slot's request was planned, at or before it was sent.
    pub sent: Duration,
    /// Time at which the request was answered or could no longer arrive. `None` while in flight.
    pub ended: Option<Duration>,
}

/// A time in which nothing is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Silent {
    /// Its end, as time since boot.
    pub(crate) until: Duration,
    pub(crate) why: SilenceReason,
}

/// The budget of one process.
#[derive(Debug)]
pub struct Pacer {
    pub(crate) rate: Rate,
    uses: BTreeMap<u32, Use>,
    /// How long a request that this process has lost track of can still arrive.
    late: Duration,
    /// The silence with the latest end.
    silent: Option<Silent>,
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

/// Windows in a row with a 429 below our own cap.
#[derive(Clone, Copy, Debug)]
struct RefusedWindows {
    count: u32,
    /// Time of the first 429 in the last of these windows.
    began: Duration,
}

impl Pacer {
    /// Creates the budget from the stored slots (`uses`) at startup. `now` is the time since boot.
    /// `late` is how long a request that was in flight can still arrive.
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

    /// Returns the slots that still count, each with its number. All others can be removed from the
    /// spool.
    pub fn uses(&self, now: Duration) -> impl Iterator<Item = (u32, Use)> + '_ {
        let within = self.rate.longest_window();
        let counts = (self.uses.iter()).filter(move |(_, one)| one.counts(within, now));
        counts.map(|(slot, one)| (*slot, *one))
    }

    /// Takes a slot for a request that is sent now. The error is the time since boot at which to
    /// ask again. `None` means after the next answer.
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

    /// Notes that the request of a slot was answered, or can no longer arrive, at `ended`. Returns
    /// the changed use. `None` if the slot is free.
    pub fn note_end(&mut self, slot: u32, ended: Duration) -> Option<Use> {
        let one = self.uses.get_mut(&slot)?;
        one.ended = Some(ended.max(one.sent));
        Some(*one)
    }

    /// Frees the slot of a request that was never sent.
    pub fn never_sent(&mut self, slot: u32) {
        self.uses.remove(&slot);
    }

    /// Handles a 429 that came although we kept our cap. The third window in a row with such a 429
    /// halves the rate, because another program uses the token.
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
    /// is the longest window of the rate that they were sent at, if that's known.
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
            self.silent = Some(Silent { until, why });
        }
    }

    /// Returns the silence at this time since boot. `None` if requests can be sent.
    pub(crate) fn silent(&self, now: Duration) -> Option<&Silent> {
        self.silent.as_ref().filter(|silent| silent.until > now)
    }

    /// Returns the lowered rate in requests per window, and the time since boot of the last 429.
    /// `None` if the rate was not lowered.
    pub fn shared(&self) -> Option<(u32, Duration)> {
        self.shared.map(|shared| (shared.allowed, shared.since))
    }

    /// Restores the lowered rate after a restart. The parameters are the values of
    /// [`Pacer::shared`].
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

    /// Returns the requests per window that are allowed now. A lowered rate doubles after every ten
    /// minutes without a 429.
    pub fn allowed(&self, now: Duration) -> u32 {
        let limit = self.rate.limit();
        let Some(shared) = self.shared else {
            return limit;
        };
        let doublings = now.saturating_sub(shared.since).as_secs() / DOUBLED_AFTER.as_secs();
        if doublings >= 2 {
            // Two doublings bring the lowest rate, a quarter, back to the full rate.
            return limit;
        }
        limit.min(shared.allowed << doublings)
    }

    /// Returns the window in which another program's requests count with ours.
    fn shared_window(&self) -> Duration {
        self.rate.window().min(Rate::SERVICE.window())
    }

    /// Returns the time at which each counting slot becomes free. `None` if its request is in
    /// flight.
    pub fn frees(&self, now: Duration) -> impl Iterator<Item = Option<Duration>> + '_ {
        self.counting(self.rate.window(), now)
    }

    /// Checks that fewer than `limit` requests count in a window. The error is when to ask again.
    fn room(&self, limit: u32, window: Duration, now: Duration) -> Result<(), Option<Duration>> {
        let used = self.counting(window, now).count();
        if u32::try_from(used).is_ok_and(|used| used < limit) {
            return Ok(());
        }
        Err(self.counting(window, now).flatten().min())
    }

    /// Returns the time until which each use can still count in a window. `None` if its request is
    /// in flight.
    fn counting(&self, window: Duration, now: Duration) -> impl Iterator<Item = Option<Duration>> {
        let counts = (self.uses.values()).filter(move |one| one.counts(window, now));
        counts.map(move |one| one.counts_until(window))
    }
}

impl Use {
    /// Returns `true` if the request of this use can count in a window that is open now.
    fn counts(&self, window: Duration, now: Duration) -> bool {
        self.counts_until(window).is_none_or(|until| until > now)
    }

    fn counts_until(&self, window: Duration) -> Option<Duration> {
        self.ended.map(|ended| ended + reach(window))
    }
}

/// Returns how long after its end a request can still count in a window, with the clock drift.
fn reach(window: Duration) -> Duration {
    window + window / 2000
}

/// A limiter of the governor crate that spreads requests evenly. The time is an argument.
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

    /// Takes a cell of the limiter. The error is the time since boot at which a cell is free.
    fn check(&self, now: Duration) -> Result<(), Duration> {
        self.clock.set(now);
        (self.limiter.check()).map_err(|not| not.earliest_possible().max(now))
    }
}

/// The clock that governor reads: the last `now`.
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
