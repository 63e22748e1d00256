//! The circuit breaker of an installation (§6.9.3).
//!
//! ```text
//! closed ──10 of the last 20 failed retryably──▶ open 30 s ──▶ one probe
//!    ▲                                             ▲             │
//!    └───────────── answered otherwise ────────────┼─────────────┤
//!                                                  └── failed ───┘
//! ```

use callbridge_call::EventTime;
use std::collections::VecDeque;
use std::time::Duration;

/// How many of the last deliveries are looked at.
pub const WINDOW: usize = 20;
/// So many failures among them are half.
pub const HALF: usize = 10;
/// How long deliveries pause.
pub const PAUSE: Duration = Duration::from_secs(30);

/// May a delivery leave?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerGate {
    /// Yes.
    Open,
    /// It is blocked, which counts as a retryable failure of its own.
    Blocked,
    /// It leaves as the one probe.
    Probe,
    /// It waits until the probe is back.
    Probing,
}

/// The state of one installation's breaker.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    /// The last outcomes, oldest first; true failed retryably.
    last: VecDeque<bool>,
    paused_until: Option<EventTime>,
    probing: bool,
}

impl Breaker {
    /// Looks whether a delivery may leave.
    pub fn gate(&self, now: EventTime) -> BreakerGate {
        match self.paused_until {
            None => BreakerGate::Open,
            Some(until) if now < until => BreakerGate::Blocked,
            Some(_) if self.probing => BreakerGate::Probing,
            Some(_) => BreakerGate::Probe,
        }
    }

    /// The probe leaves.
    pub const fn probe_leaves(&mut self) {
        self.probing = true;
    }

    /// The probe came back, or died on its way.
    pub const fn probe_is_back(&mut self) {
        self.probing = false;
    }

    /// Takes an outcome. While it pauses only the probe's counts: what was under way when it
    /// opened tells nothing new.
    pub fn note(&mut self, at: EventTime, probe: bool, failed: bool) {
        if self.paused_until.is_some() {
            if probe {
                self.probing = false;
                self.last.clear();
                self.paused_until = failed.then(|| at.plus(PAUSE));
            }
            return;
        }
        if self.last.len() == WINDOW {
            self.last.pop_front();
        }
        self.last.push_back(failed);
        if self.last.iter().filter(|failed| **failed).count() >= HALF {
            self.last.clear();
            self.paused_until = Some(at.plus(PAUSE));
        }
    }

    /// Until when deliveries pause; past moments mean that a probe is due.
    pub const fn paused_until(&self) -> Option<EventTime> {
        self.paused_until
    }

    /// Failures among the last deliveries, and how many these are.
    pub fn failures(&self) -> (usize, usize) {
        let failed = self.last.iter().filter(|failed| **failed).count();
        (failed, self.last.len())
    }
}
