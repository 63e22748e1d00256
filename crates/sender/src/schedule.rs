//! When to try again, when to ask again.
//!
//! While nothing but failures come back, requests go out as probes:
//!
//! ```text
//! outage so far     0   1   2   3   4   5.3  7.1  9.5  12.7 … 95   125   155 … 360   420   480 …
//! one more after    1 s at least, a third of it              30 s at most     60 s at most
//! ```
//! So an outage of 15 s is over within 5 s of its end, one of five minutes within 30, of an hour
//! within 60, and an hour of it costs fewer than 90 requests.

use callbridge_call::EventTime;
use callbridge_spool::RowId;
use std::collections::BTreeMap;
use std::time::Duration;

/// A requestId is readable for 24 hours (§4.6). An hour before, polls go before everything else.
pub const DEADLINE: Duration = Duration::from_secs(23 * 3600);

/// This long before a token expires, its requestIds are polled before everything else, because no
/// other token can read them (§4.6).
pub const TOKEN_END: Duration = Duration::from_secs(15 * 60);

/// Time that a call waits after its acceptance to be confirmed together with others.
pub const TOGETHER: Duration = Duration::from_secs(5);

/// From this age on, an unconfirmed call is old. It is reconciled even while calls wait to be
/// submitted, or polled in turns with them.
pub const OLD_POLL: Duration = Duration::from_secs(5 * 60);

/// Pause between probes while the CRM refuses us: one per minute.
pub const PROBE: Duration = Duration::from_secs(60);

/// Time beyond the next probe that a call waits if it failed together with all others. The probe
/// then takes another call.
const OTHERS_FIRST: Duration = Duration::from_secs(1);

/// A call has the longest backoff after this many failures, but not before its failures in a row
/// are about this improbable at the share that fails normally.
const UNLIKELY: (f64, f64) = (5.0, 1e-6);

/// The backoff counts a larger share as this one. More failures are not chance.
const SHARE_MAX: f64 = 0.7;

/// Time between two questions on an idle line: a call is known to be journaled within 5 s.
const IDLE: Duration = Duration::from_secs(4);

/// Age up to which a call is polled this often.
const IDLE_FOR: Duration = Duration::from_secs(5 * 60);

/// Minimum time between two probes of an outage.
pub const PROBE_LEAST: Duration = Duration::from_secs(1);

/// Outages shorter than this are probed often, because an operator is probably watching.
const YOUNG: Duration = Duration::from_secs(6 * 60);

/// Maximum seconds between two probes: of a young outage, of an older one, and if other requests
/// replace the failing ones.
const PROBE_MOST_SECONDS: [u64; 3] = [30, 60, 600];

/// Waits are shortened by a share between these, in 1024ths, so that programs do not all ask at the
/// same time. They are never extended, so the figures above are maximums.
pub const SHORTER: (u32, u32) = (20, 60);

/// Calls whose failures are remembered.
const BLAMED_MAX: usize = 10_000;

/// During an outage, a call waits for at most this many probes, so others can be probes before it.
const PROBES_MAX: u32 = 4;

/// Time at which a submitted call is polled: 2, 5, 15, then 60 s after its submission or last poll.
/// On an idle line after 2 and 5 s, then every 4 s for five minutes. `polls` is the number of its
/// polls, including this one.
pub fn next_poll(submitted: EventTime, polls: u32, idle: bool, now: EventTime) -> EventTime {
    let at = match polls {
        0 => submitted.plus(Duration::from_secs(2)),
        1 => submitted.plus(Duration::from_secs(5)),
        2.. if idle && now.since(submitted) < IDLE_FOR => now.plus(IDLE),
        2 => submitted.plus(Duration::from_secs(15)),
        3.. => now.plus(Duration::from_secs(60)),
    };
    // under load a poll comes late, but the next one is not due at once
    at.max(now.plus(Duration::from_secs(1)))
}

/// Time of the next check for a call that a reconciliation did not show, at this age since it was
/// accepted.
pub fn next_check(age: Duration, idle: bool, now: EventTime) -> EventTime {
    if idle && age < IDLE_FOR {
        return now.plus(IDLE);
    }
    now.plus(age.clamp(TOGETHER, PROBE))
}

/// Time from a request to the next one, `so_far` after the first failure. `replaced`: other
/// requests do the work of the failing ones.
pub fn until_probe(so_far: Duration, replaced: bool, shorter: u32) -> Duration {
    let [young, later, least_urgent] = PROBE_MOST_SECONDS.map(Duration::from_secs);
    let wait = match (replaced, so_far < YOUNG) {
        (true, _) => so_far.min(least_urgent),
        (false, true) => (so_far / 3).min(young),
        (false, false) => later,
    };
    let (least, most) = SHORTER;
    let shorter = shorter.clamp(least, most);
    (wait - wait * shorter / 1024).max(PROBE_LEAST)
}

/// Small pseudorandom numbers for jitter: splitmix64, so a seed repeats a run.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A random time between zero and `most`.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let share = (bits ^ (bits >> 31)) >> 54; // of 1024
        most * u32::try_from(share).unwrap_or(0) / 1024
    }

    /// Wait after a call's `tries`-th failure, from 1: 2 s, then 15 s, 1, 5, 15 min, and up to a
    /// quarter more. If a `share` of all requests fails, the steps come later, because failures
    /// then say less about the call.
    pub fn backoff(&mut self, tries: u32, share: f64) -> Duration {
        let (times, chance) = UNLIKELY;
        let each = times * share.min(SHARE_MAX).ln() / f64::ln(chance);
        let unlikely = f64::from(tries) * each.min(1.0);
        let seconds = match unlikely {
            it if it < 1.5 => 2,
            it if it < 2.5 => 15,
            it if it < 3.5 => 60,
            it if it < 4.5 => 300,
            _ => 900,
        };
        let base = Duration::from_secs(seconds);
        base + self.up_to(base / 4)
    }

    /// The share by which the waits of an outage are shortened, in 1024ths.
    pub fn shorter(&mut self) -> u32 {
        let (least, most) = SHORTER;
        let more = self.up_to(Duration::from_secs(u64::from(most - least)));
        least + u32::try_from(more.as_secs()).unwrap_or(0)
    }

    /// Wait after the `times`-th 429 in a row, from 1 (§7.7): 1, 2, 4, 8 s and up to half a second
    /// more, then until the window must be over.
    pub fn after_429(&mut self, times: u32, window: Duration) -> Duration {
        let (wait, more_ms) = match times {
            0..=4 => (Duration::from_secs(1 << times.saturating_sub(1)), 500),
            5.. => (window, 1_000),
        };
        wait + self.up_to(Duration::from_millis(more_ms))
    }
}

/// Failures of one call, by what happened to others meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct FailureCounts {
    /// Failures at a time when others passed, as far as was known.
    tries: u32,
    /// Failures after which others passed.
    alone: u32,
    /// Failures since others last passed.
    together: u32,
    /// No other call has passed since the last failure.
    open: bool,
}

/// Failures of calls, which show whether the calls cause them, and the randomness of the waits.
#[derive(Debug)]
pub(super) struct Retry {
    pub(super) jitter: Jitter,
    blamed: BTreeMap<RowId, FailureCounts>,
}

impl Retry {
    /// Starts without failures. The seed is that of the jitter.
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            jitter: Jitter::new(seed),
            blamed: BTreeMap::new(),
        }
    }

    /// Failures of this call while others passed.
    pub(super) fn failures(&self, row: RowId) -> u32 {
        self.blamed.get(&row).map_or(0, |blame| blame.alone)
    }

    /// Counts another failure of a call, caused by itself or shared with others.
    fn blame(&mut self, row: RowId, itself: bool) -> FailureCounts {
        if self.blamed.len() >= BLAMED_MAX && !self.blamed.contains_key(&row) {
            self.blamed.pop_first();
        }
        let blame = self.blamed.entry(row).or_default();
        blame.tries = blame.tries.saturating_add(u32::from(itself));
        blame.together = blame.together.saturating_add(1);
        blame.open = true;
        *blame
    }

    /// A submission passed: earlier failures of other calls were their own.
    pub(super) fn others_passed(&mut self, row: RowId) {
        self.blamed.remove(&row);
        for blame in self.blamed.values_mut().filter(|blame| blame.open) {
            blame.open = false;
            blame.together = 0;
            blame.alone = blame.alone.saturating_add(1);
        }
    }

    /// The call is no longer tried.
    pub(super) fn forget(&mut self, row: RowId) {
        self.blamed.remove(&row);
    }

    /// Restores the number of the call's own failures from before the last start.
    pub(super) fn recall(&mut self, row: RowId, failures: u32) {
        if failures > 0 {
            self.blamed.entry(row).or_insert(FailureCounts {
                tries: failures,
                alone: failures,
                together: 0,
                open: false,
            });
        }
    }

    /// Returns how long a call waits after a failure. During an outage (`until_probe` is set), the
    /// only unsent call waits until the next probe. If there are others, it waits for one probe per
    /// failure since others last passed, at most one per other call, and a little longer, so the
    /// probes take other calls. Without an outage, the wait grows as its failures get less likely.
    pub(super) fn wait(
        &mut self,
        row: RowId,
        until_probe: Option<Duration>,
        share: f64,
        unsent: u64,
    ) -> Duration {
        let Some(until) = until_probe else {
            let tries = self.blame(row, true).tries;
            return self.jitter.backoff(tries, share);
        };
        let together = self.blame(row, false).together;
        let others = u32::try_from(unsent.saturating_sub(1)).unwrap_or(u32::MAX);
        match together.min(others).min(PROBES_MAX) {
            0 => until,
            probes => until * probes + OTHERS_FIRST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_polled_after_2_5_and_15_s_and_then_every_minute() {
        let submitted = EventTime::from_seconds(1000);
        let mut now = submitted;
        let mut seen = Vec::new();
        for polls in 0..6 {
            now = next_poll(submitted, polls, false, now);
            seen.push(now.since(submitted).as_secs());
        }
        assert_eq!(seen, [2, 5, 15, 75, 135, 195]);
    }

    #[test]
    fn on_an_idle_line_no_five_seconds_pass_without_a_look() {
        let submitted = EventTime::from_seconds(1000);
        let mut now = submitted;
        let mut polls = 0;
        while now.since(submitted) < IDLE_FOR {
            let next = next_poll(submitted, polls, true, now);
            assert!(next.since(now) < Duration::from_secs(5), "{polls}");
            (now, polls) = (next, polls + 1);
        }
        let old = submitted.plus(IDLE_FOR);
        assert_eq!(next_poll(submitted, polls, true, old).since(old), PROBE);
        let look = |age, idle| {
            next_check(Duration::from_secs(age), idle, now)
                .since(now)
                .as_secs()
        };
        assert_eq!(
            [look(2, true), look(299, true), look(300, true)],
            [4, 4, 60]
        );
        assert_eq!(
            [look(2, false), look(30, false), look(900, false)],
            [5, 30, 60]
        );
    }

    #[test]
    fn a_late_poll_is_not_followed_by_another_at_once() {
        let submitted = EventTime::from_seconds(1000);
        let late = EventTime::from_seconds(1100);
        assert_eq!(
            next_poll(submitted, 1, false, late),
            EventTime::from_seconds(1101)
        );
    }

    #[test]
    fn after_a_429_it_waits_1_2_4_8_s_and_then_a_window() {
        let mut jitter = Jitter::new(7);
        let window = Duration::from_secs(60);
        for (times, least) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 60), (9, 60)] {
            let wait = jitter.after_429(times, window);
            let least = Duration::from_secs(least);
            assert!(
                wait >= least && wait <= least + Duration::from_secs(1),
                "{times}: {wait:?}"
            );
        }
    }

    #[test]
    fn a_backoff_grows_and_stays_bounded() {
        let mut jitter = Jitter::new(7);
        let mut last = Duration::ZERO;
        for tries in 1..=5 {
            let wait = jitter.backoff(tries, 0.01);
            assert!(wait > last);
            last = wait;
        }
        assert!(jitter.backoff(u32::MAX, 1.0) <= Duration::from_secs(1125));
    }

    #[test]
    fn backoff_grows_slower_if_many_requests_fail() {
        let waits = |share| {
            [1, 2, 3, 5, 7, 9, 12].map(|tries| {
                let wait = Jitter::new(7).backoff(tries, share).as_secs();
                [2, 15, 60, 300, 900]
                    .into_iter()
                    .rfind(|base| *base <= wait)
            })
        };
        assert_eq!(waits(0.3), [2, 2, 2, 15, 60, 300, 900].map(Some));
        assert_eq!(waits(0.05), [2, 15, 60, 900, 900, 900, 900].map(Some));
        assert_eq!(waits(1.0), waits(SHARE_MAX));
    }

    #[test]
    fn waits_of_a_trouble_are_made_shorter_and_never_longer() {
        let all: Vec<u32> = (0..500).map(|seed| Jitter::new(seed).shorter()).collect();
        let (least, most) = SHORTER;
        assert_eq!(all.iter().min(), Some(&least));
        assert_eq!(all.iter().max(), Some(&(most - 1)));
    }

    #[test]
    fn jitter_is_splitmix64_in_parts_of_1024() {
        let mut jitter = Jitter::new(7);
        let shares = [(); 6].map(|()| jitter.up_to(Duration::from_secs(1024)).as_secs());
        // from the published generator, for seed 7
        assert_eq!(shares, [399, 17, 922, 596, 463, 255]);
    }

    #[test]
    fn a_backoff_is_its_step_and_up_to_a_quarter_more() {
        let of = |tries| {
            let mut waits: Vec<_> = (0..2000)
                .map(|seed| Jitter::new(seed).backoff(tries, 0.01).as_millis())
                .collect();
            waits.sort_unstable();
            let (least, most) = (waits[0], waits[waits.len() - 1]);
            let base = least / 1000;
            assert!(
                most > base * 1240 && most < base * 1250,
                "{least} to {most}"
            );
            base
        };
        let waits: Vec<_> = (0..8).map(of).collect();
        assert_eq!(waits, [2, 2, 15, 60, 300, 900, 900, 900]);
    }

    #[test]
    fn after_many_429s_it_waits_a_window_and_up_to_a_second() {
        let window = Duration::from_secs(7);
        let waits = (0..2000).map(|seed| Jitter::new(seed).after_429(5, window));
        let (least, most) = (waits.clone().min(), waits.max());
        assert_eq!(least.map(|it| it.as_millis()), Some(7_000));
        assert!(most > Some(Duration::from_millis(7_990)) && most < Some(Duration::from_secs(8)));
        let short = (0..2000).map(|seed| Jitter::new(seed).after_429(1, window));
        assert!(short.clone().max() > Some(Duration::from_millis(1_490)));
        assert!(short.max() < Some(Duration::from_millis(1_500)));
    }

    const S: Duration = Duration::from_secs(1);

    /// Times of requests during an outage, each answered at once.
    fn schedule(until: Duration, shorter: u32) -> Vec<Duration> {
        let mut sent = vec![Duration::ZERO];
        let mut next = until_probe(Duration::ZERO, false, shorter);
        while next < until {
            sent.push(next);
            next += until_probe(next, false, shorter);
        }
        sent.push(next);
        sent
    }

    #[test]
    fn an_outage_is_young_for_six_minutes() {
        let least = |seconds: u64| {
            let whole = Duration::from_secs(seconds);
            whole - whole * SHORTER.0 / 1024
        };
        let young = YOUNG - Duration::from_nanos(1);
        assert_eq!(until_probe(young, false, 0), least(30));
        assert_eq!(until_probe(YOUNG, false, 0), least(60));
    }

    #[test]
    fn outage_end_is_found_soon_with_few_probes() {
        let (least, most) = SHORTER;
        for shorter in [0, least, 40, most, 1024] {
            let sent = schedule(3600 * S, shorter);
            assert!(sent.len() <= 85, "{}", sent.len());
            for (end, within) in [(15, 5), (300, 30), (3600, 60)] {
                for end in [end * S, end * S - S / 2, end * S - 2 * S] {
                    let next = sent.iter().find(|at| **at >= end).expect("one more");
                    assert!(*next - end < within * S, "{end:?}: {next:?}");
                }
            }
            assert!(sent.windows(2).all(|two| two[1] - two[0] >= PROBE_LEAST));
        }
    }

    #[test]
    fn what_others_do_meanwhile_is_looked_at_seldom() {
        let waits = [0, 5, 100, 5000].map(|so_far| until_probe(so_far * S, true, 20).as_secs());
        assert_eq!(waits, [1, 4, 98, 588]);
    }

    const ONE: RowId = RowId(1);
    const OTHER: RowId = RowId(2);

    impl Retry {
        /// The step of the wait after a failure of a call while others pass.
        fn alone(&mut self, row: RowId) -> u64 {
            let wait = self.wait(row, None, 0.01, 9).as_secs();
            let steps = [2, 15, 60, 300, 900];
            steps
                .into_iter()
                .rfind(|step| *step <= wait)
                .expect("2 s at least")
        }
    }

    #[test]
    fn failing_call_backs_off_longer_until_success() {
        let mut retry = Retry::new(7);
        assert_eq!([(); 3].map(|()| retry.alone(ONE)), [2, 15, 60]);
        assert_eq!(retry.alone(OTHER), 2, "each call for itself");
        retry.others_passed(ONE);
        assert_eq!(retry.alone(ONE), 2);
        assert_eq!(retry.alone(OTHER), 15);
        retry.forget(OTHER);
        assert_eq!(retry.alone(OTHER), 2);
    }

    #[test]
    fn failures_after_which_others_passed_are_a_calls_own() {
        let mut retry = Retry::new(7);
        retry.alone(ONE);
        assert_eq!(retry.failures(ONE), 0, "none has passed yet");
        retry.others_passed(OTHER);
        retry.others_passed(OTHER);
        assert_eq!(retry.failures(ONE), 1);
        retry.alone(ONE);
        retry.others_passed(OTHER);
        assert_eq!(retry.failures(ONE), 2);
    }

    #[test]
    fn recalled_failures_continue_count_without_overwrite() {
        let mut retry = Retry::new(7);
        retry.recall(ONE, 0);
        assert!(retry.blamed.is_empty());
        retry.recall(ONE, 2);
        retry.recall(ONE, 1);
        assert_eq!(retry.failures(ONE), 2);
        retry.others_passed(OTHER);
        assert_eq!(retry.failures(ONE), 2, "it has not failed since");
        assert_eq!(retry.alone(ONE), 60);
    }

    #[test]
    fn failed_call_in_outage_waits_for_probes_of_other_calls() {
        let mut retry = Retry::new(7);
        let mut wait = |unsent| retry.wait(ONE, Some(10 * S), 0.9, unsent).as_secs();
        assert_eq!([wait(0), wait(1)], [10, 10], "it is the only one");
        assert_eq!(wait(2), 11, "there is one more");
        assert_eq!([wait(9), wait(9), wait(9)], [41, 41, 41]);
        retry.others_passed(OTHER);
        let mut wait = |unsent| retry.wait(ONE, Some(10 * S), 0.9, unsent).as_secs();
        assert_eq!([wait(9), wait(9)], [11, 21]);
        assert_eq!(
            retry.alone(ONE),
            2,
            "what failed with others says nothing of it"
        );
    }

    #[test]
    fn failure_counts_beyond_limit_evict_oldest_call() {
        let mut retry = Retry::new(7);
        let most = i64::try_from(BLAMED_MAX).expect("a number");
        let rows = |retry: &Retry| {
            let first = retry.blamed.keys().next().copied();
            (retry.blamed.len(), first)
        };
        for row in 0..most {
            retry.alone(RowId(row));
        }
        retry.alone(RowId(most / 2));
        assert_eq!(rows(&retry), (BLAMED_MAX, Some(RowId(0))));
        retry.alone(RowId(most));
        assert_eq!(rows(&retry), (BLAMED_MAX, Some(RowId(1))));
    }
}
