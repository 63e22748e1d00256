//! Whether messages from a PBX are currently arriving. Only then does silence mean that nothing is
//! happening.

use crate::units::EventTime;
use std::time::Duration;

/// Whether a PBX's messages are arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// Messages are arriving.
    Arriving {
        /// When the source was last connected or reading last began, by our own clock.
        since: EventTime,
    },
    /// Messages aren't being read, but a queue or file is keeping them. Until they're read, nothing
    /// is decided by our own clock.
    Kept,
    /// Messages are being lost, e.g., because the connection is broken.
    Lost,
}

impl Default for Reception {
    /// Returns the state in which messages have always been arriving.
    fn default() -> Self {
        let since = EventTime::MIN;
        Self::Arriving { since }
    }
}

impl Reception {
    /// Corrects the state for a clock that shows `now`, because it may have been set back.
    pub(crate) fn correct_for_clock(self, now: EventTime) -> Self {
        match self {
            Self::Arriving { since } => Self::Arriving {
                since: since.min(now),
            },
            Self::Kept | Self::Lost => self,
        }
    }

    /// Returns when messages started arriving, or the earliest possible time if they have always
    /// been arriving or aren't arriving at all.
    pub(crate) fn arriving_since(self) -> EventTime {
        match self {
            Self::Arriving { since } => since,
            Self::Kept | Self::Lost => EventTime::MIN,
        }
    }

    /// Returns `at` or the time when messages will have been arriving for `wait`, whichever is
    /// later, because kept messages arrive first. Returns `None` while messages are being kept.
    pub(crate) fn at_earliest(self, at: EventTime, wait: Duration) -> Option<EventTime> {
        match self {
            Self::Arriving { since } => Some(at.max(since.plus(wait))),
            Self::Kept => None,
            Self::Lost => Some(at),
        }
    }

    /// Returns the time to compare with deadlines that depend on silence. That's `now` if messages
    /// have been arriving for `wait`, or else the earliest possible time, so that nothing is due.
    pub(crate) fn clock(self, now: EventTime, wait: Duration) -> EventTime {
        match self.at_earliest(now, wait) {
            Some(at) if at <= now => now,
            Some(_) | None => EventTime::MIN,
        }
    }
}
