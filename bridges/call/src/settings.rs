//! The assembler's settings.

use crate::trunk::Endpoints;
use std::time::Duration;

/// If an event's time differs from its arrival by more than this, it belongs to a backlog, or a
/// clock is wrong.
pub(crate) const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// What the assembler needs to know about the PBX, and the settings chosen by its administrator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Endpoints of the PBX's trunks.
    pub endpoints: Endpoints,
    /// How long a call must have had no live channels, without a new one appearing, before it's
    /// finished.
    pub settle: Duration,
    /// How long calls over a trunk that [awaits a CDR](crate::TrunkEndpoint::awaits_cdr) wait for a
    /// CDR with a user field, or `None` if calls don't wait.
    pub cdr_wait: Option<Duration>,
    /// Whether CDRs arrive separately from the events. In a backlog, one of them may be read long
    /// before the other, so event times don't show that a CDR is overdue.
    pub cdr_apart: bool,
    /// How long a call may stay open before it's ended as incomplete.
    pub max_call: Duration,
    /// Maximum number of open calls. Beyond that, the one that has gone the longest without an
    /// event is ended as incomplete.
    pub max_open_calls: usize,
    /// Maximum size in bytes of all open calls as stored, beyond which the largest call is ended as
    /// incomplete. `None` means 16 KiB for each of `max_open_calls`, but at least 64 MiB.
    pub max_open_bytes: Option<usize>,
    /// Maximum number of facts and channels in a call. A call with more is incomplete.
    pub max_facts: usize,
    /// How long after a gap a call that was open during it may go without an event before what's
    /// known of it is emitted as incomplete. The call stays open, and is emitted again once its end
    /// is received.
    pub lost_after: Duration,
    /// Whether a catch-up file fills gaps (`--catch-up`). If so, a call that may have lost events
    /// is incomplete and waits for that file.
    pub caught_up: bool,
    /// Whether the events are history, so that only their own times count, not when they arrive.
    pub history: bool,
}

/// Budget for one open call in bytes. A call with five channels and forty facts uses half of it.
const BYTES_A_CALL: usize = 16 * 1024;
/// Minimum budget for all open calls in bytes, in case `max_open_calls` is small.
const OPEN_BYTES_MIN: usize = 64 << 20;

impl Settings {
    /// Returns the maximum size of all open calls in bytes.
    pub(crate) fn open_bytes_max(&self) -> usize {
        let many = self.max_open_calls.saturating_mul(BYTES_A_CALL);
        self.max_open_bytes.unwrap_or(many.max(OPEN_BYTES_MIN))
    }

    /// Returns `true` if calls over at least one trunk wait for a CDR.
    pub(crate) fn awaits_cdr(&self) -> bool {
        self.cdr_wait.is_some() && self.endpoints.iter().any(|endpoint| endpoint.awaits_cdr)
    }

    /// Creates the same settings as [`Settings::default`], but with these trunks.
    pub fn new(endpoints: Endpoints) -> Self {
        Self {
            endpoints,
            ..Self::default()
        }
    }
}

impl Default for Settings {
    /// Returns the command line's defaults, which are 500 ms, no waiting for CDRs, 12 hours, and
    /// 10,000 calls.
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
