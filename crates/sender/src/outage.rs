//! When failures in a row are an outage, and when no more than the faults of single requests.
//!
//! | what fails | it is an outage |
//! |---|---|
//! | no connection, no name, no trust | at once: nothing gets through |
//! | 502 to 504 that are not the service's own; pages that cannot be read | three in a row |
//! | anything else | nothing but failures for 10 s, over five calls or all that wait |
//!
//! Where a share of the requests fails anyhow, chance has to be ruled out as well: [`Share`] knows
//! that share, and how likely failures in a row are by it.

use callbridge_call::EventTime;
use callbridge_spool::RowId;
use std::collections::VecDeque;
use std::time::Duration;

/// After this many gateway errors in a row there is an outage.
const GATEWAYS: u32 = 3;

/// Shortest time with only failures that is an outage.
const LASTS: Duration = Duration::from_secs(10);

/// Calls that must have failed in that time. Fewer if fewer wait.
const CALLS: u64 = 5;

/// Requests that must have failed in that time, if they are not about calls.
const REQUESTS: u32 = 3;

/// If this many failures in a row are less probable than this, they are an outage.
const CHANCE: f64 = 1e-5;

/// The same probability for failures that last for `LONG`, like timeouts.
const RARE: f64 = 0.005;
const LONG: Duration = Duration::from_secs(30);

/// If failures in a row are less probable than this, an outage is suspected.
const SUSPECT: f64 = 0.01;

/// Calls whose failures are distinguished.
const KNOWN_MAX: usize = 64;

/// The last tries that are remembered: enough to tell 5 % from 30 %, and soon replaced.
const TRIES_KEPT: usize = 128;

/// Ways in which a request fails that its call did not cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// No connection, no DNS name, no valid certificate. Other requests would fail, too.
    Unreached,
    /// 502 to 504, or a 404 to a poll, from a proxy.
    Gateway,
    Unreadable,
    /// A reset, a timeout, a 5xx: perhaps only for this request.
    Request,
}

#[derive(Clone, Copy, Debug)]
pub struct Failure<'a> {
    /// The call of the request.
    pub call: Option<RowId>,
    /// Time since boot at which it was sent.
    pub sent: Duration,
    /// Kind of the failure. One [`Fault::Unreached`] is enough for an outage.
    pub fault: Fault,
    /// Message of the CRM or the transport.
    pub why: &'a str,
    /// Failures of this call while others passed. From the second on, the call probably causes
    /// them.
    pub alone: u32,
}

impl Failure<'_> {
    /// Returns `true` if it says something about the CRM, not only about its call.
    pub const fn is_evidence(&self) -> bool {
        self.alone < 2 || matches!(self.fault, Fault::Unreached | Fault::Gateway)
    }
}

/// Uninterrupted failures of one part of the CRM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failures {
    /// Time since boot since which nothing has passed.
    pub since: Duration,
    /// The same by the wall clock.
    pub began: EventTime,
    /// Message of the newest failure.
    pub why: String,
    /// Time since boot since which an outage is suspected.
    pub suspected: Option<Duration>,
    /// The failures are certain to be an outage.
    pub outage: bool,
    /// The newest request did not get through: no connection, no DNS name, no valid certificate.
    pub unreached: bool,
    /// The calls that failed. `true` if a call had not failed before while others passed.
    pub calls: Vec<(RowId, bool)>,
    /// Number of failed requests, including those that are not about calls.
    pub count: u32,
    pub(crate) gateways: u32,
}

impl Failures {
    /// Adds a failure. `share` of the requests fails normally, and `waiting` calls wait for this
    /// part.
    pub fn add(&mut self, now: Duration, failure: Failure, share: f64, waiting: u64) {
        self.count = self.count.saturating_add(1);
        failure.why.clone_into(&mut self.why);
        self.unreached = failure.fault == Fault::Unreached;
        self.gateways = match failure.fault {
            Fault::Gateway => self.gateways + 1,
            // a page and the token's record always have the same form
            Fault::Unreadable if failure.call.is_none() => self.gateways + 1,
            Fault::Unreached | Fault::Unreadable | Fault::Request => 0,
        };
        if let Some(call) = failure.call
            && self.calls.len() < KNOWN_MAX
            && !self.calls.iter().any(|(known, _)| *known == call)
        {
            self.calls.push((call, failure.alone == 0));
        }
        self.outage |= self.is_outage(now, share, waiting);
        if self.outage || by_chance(share, self.count) <= SUSPECT {
            self.suspected.get_or_insert(now);
        }
    }

    fn is_outage(&self, now: Duration, share: f64, waiting: u64) -> bool {
        if self.unreached || self.gateways >= GATEWAYS {
            return true;
        }
        let lasts = now.saturating_sub(self.since);
        let enough = match self.calls.len() {
            0 => self.count >= REQUESTS,
            calls => self.count >= 2 && calls as u64 >= CALLS.min(waiting.max(1)),
        };
        let (least, lasting) = match lasts >= LONG {
            true => (RARE, LONG),
            false => (CHANCE, LASTS),
        };
        lasts >= lasting && enough && by_chance(share, self.count) <= least
    }
}

/// The last tries of one part of the CRM, and whether each failed. Tries during an outage do not
/// count. Once a call has failed while others passed, its later tries do not count either, because
/// the call itself can be the cause, not chance.
#[derive(Clone, Debug, Default)]
pub struct Share(VecDeque<(Option<RowId>, bool)>);

impl Share {
    /// Adds a try, and drops the oldest of 128.
    pub fn tried(&mut self, call: Option<RowId>, failed: bool) {
        if self.0.len() >= TRIES_KEPT {
            self.0.pop_front();
        }
        self.0.push_back((call, failed));
    }

    /// The share by which an outage is distinguished from chance. A CRM that little is known about
    /// counts as good, so its first outage is found soon.
    pub fn expected(&self) -> f64 {
        let failed = self.0.iter().filter(|(_, failed)| *failed).count();
        (float(failed) + 0.5) / (float(self.0.len()) + 10.0)
    }

    /// The highest plausible share, used before a call is given up for its failures. It is the
    /// share of the other calls, with `failing` current failures, plus two standard deviations.
    pub fn feared(&self, call: RowId, failing: usize) -> f64 {
        let others = || self.0.iter().filter(|(other, _)| *other != Some(call));
        let all = failing + others().count();
        let failed = failing + others().filter(|(_, failed)| *failed).count();
        let share = (float(failed) + 1.0) / (float(all) + 2.0);
        let deviation = (share * (1.0 - share) / float(all + 2)).sqrt();
        (share + 2.0 * deviation).min(1.0)
    }
}

/// Probability of this many failures in a row if this share fails.
pub fn by_chance(share: f64, times: u32) -> f64 {
    share.powi(i32::try_from(times).unwrap_or(i32::MAX))
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn fresh() -> Failures {
        Failures::default()
    }

    const fn failure(call: i64, fault: Fault) -> Failure<'static> {
        Failure {
            call: Some(RowId(call)),
            sent: Duration::ZERO,
            fault,
            why: "500",
            alone: 0,
        }
    }

    /// Second at which it is an outage, if another of this many calls fails each second.
    fn found(fault: Fault, calls: i64, waiting: u64, share: f64) -> Option<u32> {
        let mut failures = fresh();
        (0..60).find(|at| {
            let call = i64::from(*at) % calls;
            failures.add(S * *at, failure(call, fault), share, waiting);
            failures.outage
        })
    }

    #[test]
    fn where_nothing_gets_through_the_first_request_tells() {
        assert_eq!(found(Fault::Unreached, 9, 300, 0.01), Some(0));
        assert_eq!(found(Fault::Unreached, 1, 1, 0.3), Some(0));
    }

    #[test]
    fn three_answers_of_a_gateway_in_a_row_tell() {
        assert_eq!(found(Fault::Gateway, 9, 300, 0.3), Some(2));
        let mut failures = fresh();
        for (call, fault) in (0..).zip([
            Fault::Gateway,
            Fault::Gateway,
            Fault::Request,
            Fault::Gateway,
            Fault::Gateway,
        ]) {
            failures.add(S, failure(call, fault), 0.01, 300);
        }
        assert!(!failures.outage, "not in a row");
    }

    #[test]
    fn outage_needs_ten_seconds_and_five_or_all_waiting_calls() {
        assert_eq!(found(Fault::Request, 9, 300, 0.01), Some(10));
        assert_eq!(found(Fault::Request, 1, 1, 0.01), Some(10), "one call");
        assert_eq!(found(Fault::Request, 2, 2, 0.01), Some(10), "both");
        assert_eq!(found(Fault::Request, 4, 300, 0.01), None, "four of many");
        assert_eq!(found(Fault::Unreadable, 5, 300, 0.01), Some(10));
    }

    #[test]
    fn on_a_flaky_way_chance_is_ruled_out_first() {
        assert_eq!(found(Fault::Request, 9, 300, 0.3), Some(10), "0.3¹¹");
        assert_eq!(found(Fault::Request, 9, 300, 0.5), Some(16), "0.5¹⁷");
        let mut failures = fresh();
        failures.add(S * 11, failure(1, Fault::Request), 0.01, 1);
        assert!(!failures.outage, "one time-out is one");
        failures.add(S * 31, failure(1, Fault::Request), 0.01, 1);
        assert!(failures.outage);
    }

    #[test]
    fn a_first_failure_is_suspect_only_where_few_requests_fail() {
        let suspect = |share: f64| {
            let mut failures = fresh();
            (1..20).find(|at| {
                failures.add(S, failure(*at, Fault::Request), share, 300);
                failures.suspected.is_some()
            })
        };
        assert_eq!([0.01, 0.05, 0.15, 0.3].map(suspect), [1, 2, 3, 4].map(Some));
    }

    #[test]
    fn requests_about_no_call_are_counted_themselves() {
        let mut failures = fresh();
        for at in [0, 5, 11] {
            assert!(!failures.outage);
            let failure = Failure {
                call: None,
                ..failure(0, Fault::Request)
            };
            failures.add(S * at, failure, 0.02, 300);
        }
        assert!(failures.outage);
    }

    /// This many calls, of which every `nth` failed.
    fn tried(calls: i64, nth: i64) -> Share {
        let mut share = Share::default();
        for id in 0..calls {
            share.tried(Some(RowId(id)), id % nth == 0);
        }
        share
    }

    #[test]
    fn fresh_share_has_low_expected_and_high_feared_value() {
        let fresh = Share::default();
        assert!(fresh.expected() <= 0.05);
        assert!(by_chance(fresh.feared(RowId(1), 0), 1000) > 0.5);
        let good = tried(128, 1000);
        assert!(good.expected() < 0.02 && good.feared(RowId(0), 0) < 0.03);
    }

    #[test]
    fn a_share_is_that_of_the_last_tries() {
        let mut share = tried(128, 10);
        assert!((0.09..0.11).contains(&share.expected()));
        assert!((0.1..0.2).contains(&share.feared(RowId(-1), 0)));
        for id in 0..128 {
            share.tried(Some(RowId(id)), true);
        }
        assert!(share.expected() > 0.9);
        assert_eq!(share.0.len(), TRIES_KEPT);
    }

    #[test]
    fn a_call_s_own_failures_say_nothing_of_the_others() {
        let mut share = tried(60, 1000);
        for _ in 0..40 {
            share.tried(Some(RowId(77)), true);
        }
        assert!(share.feared(RowId(77), 0) < 0.1);
        assert!(share.feared(RowId(78), 0) > 0.4);
        assert!(share.feared(RowId(77), 60) > 0.5, "others fail just now");
    }

    #[test]
    fn failures_in_a_row_are_the_less_likely_the_fewer_fail() {
        assert!((by_chance(0.1, 3) - 0.001).abs() < 1e-9);
        assert!((by_chance(0.3, 0) - 1.0).abs() < f64::EPSILON);
    }
}
