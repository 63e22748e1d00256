//! Shows whether the loops of the program still run. Each loop records its passes, and the thread
//! for systemd's watchdog checks how long ago the last pass was. A loop that waits for a long time
//! still records passes. A loop that hangs does not.

use crate::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The heartbeat of one loop, which owns it. A loop that has ended is not stalled.
#[derive(Debug)]
pub struct Heartbeat(HeartbeatMonitor);

/// A handle that observes a [`Heartbeat`] from elsewhere.
#[derive(Clone, Debug)]
pub struct HeartbeatMonitor {
    name: &'static str,
    /// Time of the last beat, in milliseconds since the machine started.
    last: Arc<AtomicU64>,
}

impl Heartbeat {
    /// Starts the heartbeat of the loop with this name.
    pub fn new(name: &'static str) -> Self {
        let pulse = Self(HeartbeatMonitor {
            name,
            last: Arc::default(),
        });
        pulse.beat();
        pulse
    }

    /// Records one pass of the loop.
    pub fn beat(&self) {
        self.beat_at(clock::now().boot);
    }

    fn beat_at(&self, now: Duration) {
        self.0.last.store(millis(now), Ordering::Relaxed);
    }

    /// Returns a handle for the watchdog.
    pub fn vital(&self) -> HeartbeatMonitor {
        self.0.clone()
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.last.store(u64::MAX, Ordering::Relaxed);
    }
}

impl HeartbeatMonitor {
    /// Returns the loop's name if its last beat is older than `longer_than`. `None` for a loop that
    /// beats or has ended.
    pub fn stalled(&self, now: Duration, longer_than: Duration) -> Option<&'static str> {
        let last = self.last.load(Ordering::Relaxed);
        if millis(now).saturating_sub(last) > millis(longer_than) {
            Some(self.name)
        } else {
            None
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the names of the stalled loops.
pub fn stalled(
    vitals: &[HeartbeatMonitor],
    now: Duration,
    longer_than: Duration,
) -> Vec<&'static str> {
    let names = vitals.iter().map(|vital| vital.stalled(now, longer_than));
    names.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the loops whose last beat is more than 15 s before second `now`.
    fn stalled_at(monitors: &[HeartbeatMonitor], now: u32) -> Vec<&'static str> {
        stalled(monitors, now * SECOND, 15 * SECOND)
    }

    #[test]
    fn stalled_loop_is_reported_until_its_next_heartbeat() {
        let (sender, intake) = (Heartbeat::new("sender"), Heartbeat::new("intake"));
        let all = [sender.vital(), intake.vital()];
        sender.beat_at(100 * SECOND);
        intake.beat_at(110 * SECOND);
        assert!(stalled_at(&all, 115).is_empty());
        assert_eq!(stalled_at(&all, 116), ["sender"]);
        assert_eq!(stalled_at(&all, 126), ["sender", "intake"]);
        sender.beat_at(126 * SECOND);
        assert_eq!(stalled_at(&all, 126), ["intake"]);
        assert!(
            stalled_at(&all, 90).is_empty(),
            "a clock that lags is no stall"
        );
        drop(intake);
        assert!(
            stalled_at(&all, 130).is_empty(),
            "a loop that ended has not stalled"
        );
    }
}
