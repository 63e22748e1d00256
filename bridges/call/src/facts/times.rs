//! When an open call was heard of, by the clock of its events and by our own.

use crate::units::EventTime;
use serde::{Deserialize, Serialize};

/// The moments of a call by which it is judged to be over, or silent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// Set when the call's first event arrived within 5 s of its own time, and none since came late
    /// from a source that keeps them.
    pub(crate) live: bool,
    /// Time of its first event, and when that arrived.
    pub(crate) opened: EventTime,
    pub(crate) opened_arrived: EventTime,
    /// Arrival of the last event, and, in `latest`, the latest time of an event.
    #[serde(rename = "heard_arrived")]
    pub(crate) latest_arrived: EventTime,
    #[serde(rename = "heard")]
    pub(crate) latest: EventTime,
    /// The last event heard was older than one before it.
    #[serde(default)]
    pub(crate) backwards: bool,
    /// Time at which the last channel hung up or came, in both clocks.
    pub(crate) quiet: EventTime,
    pub(crate) quiet_arrived: EventTime,
    /// Events of which the time of arrival was taken for their own.
    pub(crate) clamped: u32,
    /// Time of the last `LINKEDID_END`, by which no channel of the linkedid is left.
    #[serde(default)]
    pub(crate) linkedid_ended: Option<EventTime>,
    /// Events whose time is that of no clock.
    #[serde(default)]
    pub(crate) untimed: u32,
}

impl Times {
    pub(super) fn new(at: EventTime, arrived: EventTime, live: bool) -> Self {
        Self {
            live,
            opened: at,
            opened_arrived: arrived,
            latest_arrived: arrived,
            latest: at,
            quiet: at,
            quiet_arrived: arrived,
            ..Self::default()
        }
    }

    /// An event of this moment arrived.
    pub(crate) fn on_event(&mut self, at: EventTime, arrived: EventTime) {
        self.backwards = at < self.latest;
        self.latest = self.latest.max(at);
        self.latest_arrived = self.latest_arrived.max(arrived);
    }

    /// A channel came or hung up at this moment; from here on it may be quiet.
    pub(crate) fn rest(&mut self, at: EventTime, arrived: EventTime) {
        self.quiet = self.quiet.max(at);
        self.quiet_arrived = self.quiet_arrived.max(arrived);
    }

    pub(super) fn absorb(&mut self, other: &Self) {
        if other.opened < self.opened {
            self.live = other.live;
        }
        self.opened = self.opened.min(other.opened);
        self.opened_arrived = self.opened_arrived.min(other.opened_arrived);
        self.latest = self.latest.max(other.latest);
        self.latest_arrived = self.latest_arrived.max(other.latest_arrived);
        self.rest(other.quiet, other.quiet_arrived);
        self.clamped += other.clamped;
        self.linkedid_ended = self.linkedid_ended.max(other.linkedid_ended);
        self.untimed += other.untimed;
    }
}
