//! Whether messages of a PBX arrive now. Only then does silence mean that nothing happens.

use crate::units::EventTime;
use std::time::Duration;

/// State of the messages of a PBX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// Messages arrive.
    Arriving {
        /// Last moment at which the source was connected or its reading began, by our own clock.
        since: EventTime,
    },
    /// Messages are not read, and a queue or a file keeps them. Before they are read, nothing is
    /// decided by our own clock.
    Kept,
    /// Messages are lost, as when a connection is broken.
    Lost,
}

impl Default for Reception {
    /// Returns the state in which messages have always arrived.
    fn default() -> Self {
        let since = EventTime::MIN;
        Self::Arriving { since }
    }
}

impl Reception {
    /// Corrects the state for a clock that shows `now`, because it can have been set back.
    pub(crate) fn correct_for_clock(self, now: EventTime) -> Self {
        match self {
            Self::Arriving { since } => Self::Arriving {
                since: since.min(now),
            },
            Self::Kept | Self::Lost => self,
        }
    }

    /// Returns the moment since which messages have arrived. If none arrive, or they have always
    /// arrived, returns the earliest moment.
    pub(crate) fn arriving_since(self) -> EventTime {
        match self {
            Self::Arriving { since } => since,
            Self::Kept | Self::Lost => EventTime::MIN,
        }
    }

    /// Returns the later of `at` and the moment at which messages will have arrived for `wait`,
    /// because kept messages arrive first. Returns `None` while messages are kept.
    pub(crate) fn at_earliest(self, at: EventTime, wait: Duration) -> Option<EventTime> {
        match self {
            Self::Arriving { since } => Some(at.max(since.plus(wait))),
            Self::Kept => None,
            Self::Lost => Some(at),
        }
    }

    /// Returns the time to compare with deadlines that depend on silence. This is `now` if messages
    /// have arrived for `wait`. Otherwise, it is a moment before all others, so nothing is due.
    pub(crate) fn clock(self, now: EventTime, wait: Duration) -> EventTime {
        match self.at_earliest(now, wait) {
            Some(at) if at <= now => now,
            Some(_) | None => EventTime::MIN,
        }
    }
}
