//! The settings of the assembler.

use crate::trunk::Endpoints;
use std::time::Duration;

/// If the times of an event and of its arrival differ by more than this, the event belongs to a
/// backlog, or a clock is wrong.
pub(crate) const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// Facts of the PBX and settings of its administrator that the assembler needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Endpoints of the PBX's trunks.
    pub endpoints: Endpoints,
    /// A call is finished when all its channels have hung up and no new one has appeared for this
    /// time.
    pub settle: Duration,
    /// Time for which calls over a trunk that [awaits a CDR](crate::TrunkEndpoint::awaits_cdr) wait
    /// for a CDR with a user field. `None`: calls do not wait.
    pub cdr_wait: Option<Duration>,
    /// `true` if CDRs arrive separately from the events. In a backlog, one can be read long before
    /// the other, so the times of events do not show that a CDR is overdue.
    pub cdr_apart: bool,
    /// A call that is still open after this time is ended as incomplete.
    pub max_call: Duration,
    /// If more calls than this are open, the one that has been silent longest is ended as
    /// incomplete.
    pub max_open_calls: usize,
    /// Maximum size of all open calls, as they are stored, in bytes. Above it, the largest call is
    /// ended as incomplete. `None`: 16 KiB for each of `max_open_calls`, and at least 64 MiB.
    pub max_open_bytes: Option<usize>,
    /// Maximum number of facts and channels in one call. A call with more is incomplete.
    pub max_facts: usize,
    /// If a call was open during a gap, and is silent for this time after it, it is emitted with
    /// its known values, as incomplete. It stays open, and is emitted again when its end is
    /// received.
    pub lost_after: Duration,
    /// `true` if a catch-up file fills gaps (`--catch-up`). A call that may have lost events is
    /// incomplete, and waits for that file.
    pub caught_up: bool,
    /// `true` if the events are history. Only their own times count, not when they arrive.
    pub history: bool,
}

/// Budget for one open call, in bytes. A call with five channels and forty facts takes half of it.
const BYTES_A_CALL: usize = 16 * 1024;
/// Minimum budget of all open calls, in bytes, for a small `max_open_calls`.
const OPEN_BYTES_MIN: usize = 64 << 20;

impl Settings {
    /// Returns the maximum size of all open calls, in bytes.
    pub(crate) fn open_bytes_max(&self) -> usize {
        let many = self.max_open_calls.saturating_mul(BYTES_A_CALL);
        self.max_open_bytes.unwrap_or(many.max(OPEN_BYTES_MIN))
    }

    /// Returns `true` if calls over at least one trunk wait for a CDR.
    pub(crate) fn awaits_cdr(&self) -> bool {
        self.cdr_wait.is_some() && self.endpoints.iter().any(|endpoint| endpoint.awaits_cdr)
    }

    /// Makes the settings of [`Settings::default`], with these trunks.
    pub fn new(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            ..Self::default()
        }
    }
}

impl Default for Settings {
    /// The defaults of the command line: 500 ms, no wait for CDRs, 12 hours, 10,000 calls.
    fn default() -> Self {
        Self {
            endpoints: Endpoints::default(),
            settle: Duration::from_millis(500),
            cdr_wait: None,
            cdr_apart: false,
            max_call: Duration::from_secs(12 * 3600),
            max_open_calls: 10_000,
            max_open_bytes: None,
            max_facts: 4096,
            lost_after: Duration::from_secs(60),
            caught_up: false,
            history: false,
        }
    }
}
