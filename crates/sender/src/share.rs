//! Which share of the requests fails by chance, and how likely failures in a row are by it.

use callbridge_spool::RowId;
use std::collections::VecDeque;

/// The last tries that are remembered: enough to tell 5 % from 30, and soon forgotten.
const LAST: usize = 128;

/// One try, and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Try {
    call: Option<RowId>,
    failed: bool,
}

/// The last tries of one part of the service. An outage is none of them, and of a call no try
/// after the first that failed while others passed: what is wrong with one call is no chance.
#[derive(Clone, Debug, Default)]
pub struct Share {
    last: VecDeque<Try>,
}

impl Share {
    /// Adds a try, in place of the oldest of 128.
    pub fn tried(&mut self, call: Option<RowId>, failed: bool) {
        if self.last.len() >= LAST {
            self.last.pop_front();
        }
        self.last.push_back(Try { call, failed });
    }

    /// The share by which an outage is told from chance: a service that little is known of is
    /// taken for a good one, so that its first outage is soon found.
    pub fn expected(&self) -> f64 {
        let failed = self.last.iter().filter(|it| it.failed).count();
        (float(failed) + 0.5) / (float(self.last.len()) + 10.0)
    }

    /// The largest share that has to be feared where a call is to be given up for its failures:
    /// that of the other calls, `failing` just now among them, and two standard deviations more.
    pub fn feared(&self, call: RowId, failing: usize) -> f64 {
        let others = self.last.iter().filter(|it| it.call != Some(call));
        let (mut all, mut failed) = (failing, failing);
        for other in others {
            all += 1;
            failed += usize::from(other.failed);
        }
        let share = (float(failed) + 1.0) / (float(all) + 2.0);
        let deviation = (share * (1.0 - share) / float(all + 2)).sqrt();
        (share + 2.0 * deviation).min(1.0)
    }
}

/// Probability of so many failures in a row where this share fails.
pub fn by_chance(share: f64, times: u32) -> f64 {
    share.powi(i32::try_from(times).unwrap_or(i32::MAX))
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many calls of which every `nth` failed.
    fn tried(calls: i64, nth: i64) -> Share {
        let mut share = Share::default();
        for id in 0..calls {
            share.tried(Some(RowId(id)), id % nth == 0);
        }
        share
    }

    #[test]
    fn little_known_is_taken_for_good_where_an_outage_is_at_stake_and_for_bad_where_a_call_is() {
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
        assert_eq!(share.last.len(), LAST);
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
