//! What the assembler is told at its beginning.

use crate::trunk::Endpoints;
use std::time::Duration;

/// Event and arrival times that differ by more belong to a backlog, or to a wrong clock.
pub(crate) const CLOCK_TOLERANCE: Duration = Duration::from_secs(5);

/// Facts of the PBX and settings of its administrator that the assembler needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Endpoints of the PBX's trunks.
    pub endpoints: Endpoints,
    /// A call is finished when all its channels have hung up and this long no new one came.
    pub settle: Duration,
    /// Time for which calls over a trunk that [awaits a CDR](crate::TrunkEndpoint::awaits_cdr)
    /// wait for one with a user field; `None`: not at all.
    pub cdr_wait: Option<Duration>,
    /// CDRs come by a way of their own. Of a backlog, the one way may be read long before the
    /// other, so that times of events do not tell that a CDR should have come by now.
    pub cdr_apart: bool,
    /// A call still open after this long is ended, and incomplete.
    pub max_call: Duration,
    /// More open calls than this: the one longest silent is ended, and incomplete.
    pub max_open_calls: usize,
    /// Bytes that all open calls may take, as they are written down; `None`: so many as that many
    /// calls need. Beyond it the largest is ended, and incomplete.
    pub max_open_bytes: Option<usize>,
    /// Facts and channels that one call may hold; a call with more is incomplete.
    pub max_facts: usize,
    /// A call that was open while nobody listened, and is silent for this long after that, is given
    /// out as far as it is known, and incomplete. It stays open, and is given out again when its
    /// end is heard.
    pub lost_after: Duration,
    /// Another account tells what was missed (`--catch-up`): a call of which anything may have been
    /// missed is incomplete, and waits for that account.
    pub caught_up: bool,
    /// Set where the events are history: whenever they arrive, their own times alone count.
    pub history: bool,
}

/// Bytes of an open call: one of five channels and forty facts takes half of it.
const BYTES_A_CALL: usize = 16 * 1024;
/// Few calls may take so much.
const OPEN_BYTES_MIN: usize = 64 << 20;

impl Settings {
    /// Bytes that all open calls may take.
    pub(crate) fn open_bytes_max(&self) -> usize {
        let many = self.max_open_calls.saturating_mul(BYTES_A_CALL);
        self.max_open_bytes.unwrap_or(many.max(OPEN_BYTES_MIN))
    }

    /// Calls of one of the trunks wait for a CDR.
    pub(crate) fn awaits_cdr(&self) -> bool {
        self.cdr_wait.is_some() && self.endpoints.iter().any(|it| it.awaits_cdr)
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
