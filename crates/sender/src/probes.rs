//! When the next request goes out while nothing but failures come back.
//!
//! ```text
//! outage so far     0   1   2   3   4   5.3  7.1  9.5  12.7 … 95   125   155 … 360   420   480 …
//! one more after    1 s at least, a third of it              30 s at most     60 s at most
//! ```
//! So an outage of 15 s is over within 5 s of its end, one of five minutes within 30, of an hour
//! within 60, and an hour of it costs fewer than 90 requests.

use std::time::Duration;

/// Never more than one in this time.
pub const LEAST: Duration = Duration::from_secs(1);

/// For so long an outage is young: who looks at it waits for its end.
const YOUNG: Duration = Duration::from_secs(6 * 60);

/// The most between two while it is young, afterwards, and where nothing waits for it since the
/// same is done by other requests.
const MOST: [Duration; 3] = [
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(600),
];

/// Waits are shortened by a share between these, in 1024, lest many programs ask at one moment.
/// They are never made longer: the figures above hold.
pub const SHORTER: (u32, u32) = (20, 60);

/// Time from a request to the next one, so long after the first that failed (`so_far`). `replaced`:
/// other requests do what those do that fail.
pub fn wait(so_far: Duration, replaced: bool, shorter: u32) -> Duration {
    let wait = match (replaced, so_far < YOUNG) {
        (true, _) => so_far.min(MOST[2]),
        (false, true) => (so_far / 3).min(MOST[0]),
        (false, false) => (so_far / 3).min(MOST[1]),
    };
    let (least, most) = SHORTER;
    let shorter = shorter.clamp(least, most);
    (wait - wait * shorter / 1024).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// When requests go out in an outage, each answered at once.
    fn schedule(until: Duration, shorter: u32) -> Vec<Duration> {
        let mut sent = vec![Duration::ZERO];
        let mut next = wait(Duration::ZERO, false, shorter);
        while next < until {
            sent.push(next);
            next += wait(next, false, shorter);
        }
        sent.push(next);
        sent
    }

    #[test]
    fn outages_of_any_length_are_over_soon_after_their_end_and_cost_little() {
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
            assert!(sent.windows(2).all(|two| two[1] - two[0] >= LEAST));
        }
    }

    #[test]
    fn what_others_do_meanwhile_is_looked_at_seldom() {
        let waits = [0, 5, 100, 5000].map(|so_far| wait(so_far * S, true, 20).as_secs());
        assert_eq!(waits, [1, 4, 98, 588]);
    }
}
