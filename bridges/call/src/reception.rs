//! Whether what a PBX tells arrives now: only then does silence say that nothing happens.

use crate::units::EventTime;
use std::time::Duration;

/// What becomes of the messages of a PBX now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// They arrive, `since` that moment by our own clock.
    Arriving {
        /// When the source was connected, or began to be read, last.
        since: EventTime,
    },
    /// Nobody takes them, and a queue or a file keeps them: nothing that our own clock would decide
    /// is decided before they are read.
    Kept,
    /// They are lost for good, as those of a line that is cut.
    Lost,
}

impl Default for Reception {
    /// They have always arrived.
    fn default() -> Self {
        let since = EventTime::MIN;
        Self::Arriving { since }
    }
}

impl Reception {
    /// The same by a clock that shows `now`, and may have been set back since.
    pub(crate) fn until(self, now: EventTime) -> Self {
        match self {
            Self::Arriving { since } => Self::Arriving {
                since: since.min(now),
            },
            Self::Kept | Self::Lost => self,
        }
    }

    /// Returns the moment since which messages arrive; where none do, or always did, the earliest.
    pub(crate) fn since(self) -> EventTime {
        match self {
            Self::Arriving { since } => since,
            Self::Kept | Self::Lost => EventTime::MIN,
        }
    }

    /// Returns the later of `at` and the moment at which messages have arrived for `wait`, for what
    /// was kept comes first; `None` while they are kept.
    pub(crate) fn at_earliest(self, at: EventTime, wait: Duration) -> Option<EventTime> {
        match self {
            Self::Arriving { since } => Some(at.max(since.plus(wait))),
            Self::Kept => None,
            Self::Lost => Some(at),
        }
    }

    /// Returns what our own clock shows to what waits for silence: `now` once messages have arrived
    /// for `wait`, a moment before all others until then.
    pub(crate) fn clock(self, now: EventTime, wait: Duration) -> EventTime {
        match self.at_earliest(now, wait) {
            Some(at) if at <= now => now,
            Some(_) | None => EventTime::MIN,
        }
    }
}
