//! The times of an open call's events, both by their clock and by ours, and the gaps during which
//! no events were received.

use super::fact::{Fact, FactKind};
use super::leg::Leg;
use crate::{ClockDifference, EventStamp, EventTime, Kind, Origin, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The moments that determine whether a call is over or quiet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Times {
    /// Whether the call's events arrive as they happen. If the source keeps events until they're
    /// read, each one must have been delivered within 5 s of its timestamp.
    pub(crate) live: bool,
    /// Time of the first event, which arrived at `opened_arrived`.
    pub(crate) opened: EventTime,
    pub(crate) opened_arrived: EventTime,
    /// Arrival of the last event, whereas `latest` is the latest time of an event.
    pub(crate) latest_arrived: EventTime,
    pub(crate) latest: EventTime,
    /// Whether the last event received was older than one before it.
    pub(crate) backwards: bool,
    /// When a channel was last added or hung up. `quiet_arrived` is the same by our clock.
    pub(crate) quiet: EventTime,
    pub(crate) quiet_arrived: EventTime,
    /// The offset between the PBX's clock and our boot clock, based on the event with the smallest
    /// delay.
    pub(crate) clock_ahead: ClockDifference,
    /// How far our wall clock was ahead of the clock used for arrivals when the call was opened.
    pub(crate) wall_ahead: ClockDifference,
    /// Whether an event had no timestamp, so that its arrival time was used instead.
    pub(crate) by_arrival: bool,
    /// Whether an event without a timestamp arrived over a stalled connection or over one that
    /// stalled later.
    pub(crate) stalled: bool,
    /// Whether the PBX's clock was set during the call.
    pub(crate) clock_set: bool,
    /// Time of the last `LINKEDID_END`, which reports that no channel with the linkedid is left.
    pub(crate) linkedid_ended: Option<EventTime>,
    /// Number of events whose time doesn't come from a clock.
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
            clock_ahead: ClockDifference::between(at, arrived),
            ..Self::default()
        }
    }

    /// Records the time and arrival of an event.
    pub(crate) fn on_event(&mut self, at: EventTime, arrived: EventTime) {
        self.backwards = at < self.latest;
        let ahead = ClockDifference::between(at, arrived);
        self.clock_ahead = self.clock_ahead.max(ahead);
        self.latest = self.latest.max(at);
        self.latest_arrived = self.latest_arrived.max(arrived);
    }

    /// Records that a channel was added or hung up at this moment, after which the call may be
    /// quiet.
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
        self.clock_ahead = self.clock_ahead.max(other.clock_ahead);
        self.by_arrival |= other.by_arrival;
        self.stalled |= other.stalled;
        self.clock_set |= other.clock_set;
        self.linkedid_ended = self.linkedid_ended.max(other.linkedid_ended);
        self.untimed += other.untimed;
    }
}

impl Leg {
    /// Returns the time of the first `HangupRequest` after which the channel didn't enter another
    /// bridge, ignoring an entry already in progress, which may be reported up to 100 ms later.
    pub(crate) fn requested_end(&self) -> Option<EventTime> {
        const ENTRY_DELAY_MAX: Duration = Duration::from_millis(100);
        let is_entry = |fact: &&Fact| fact.what.passage().is_some_and(|passage| passage.enters);
        let entered = self.facts.iter().filter(is_entry).map(|fact| fact.at).max();
        let requests = self
            .facts
            .iter()
            .filter(|fact| fact.what == FactKind::HangupRequested);
        requests
            .map(|fact| fact.at)
            .filter(|at| entered.is_none_or(|entered| entered <= at.plus(ENTRY_DELAY_MAX)))
            .min()
    }

    /// Ends the channel's links at `at`, when its process ended.
    pub(crate) fn unlink(&mut self, at: EventTime) {
        let mut partners: BTreeMap<UniqueId, EventTime> = BTreeMap::new();
        for fact in self.facts.iter().filter(|fact| fact.at <= at) {
            if let Some((with, _)) = fact.what.link() {
                let last = partners.entry(with.clone()).or_insert(fact.at);
                *last = fact.at.max(*last);
            }
        }
        for (with, last) in partners {
            // A link that started at that very moment must end after it.
            let ended = at.max(last.plus(Duration::from_micros(1)));
            let unlinked = FactKind::Unlinked { with };
            self.facts.push(Fact::new(ended, Origin::Channel, unlinked));
        }
    }

    /// Sets the start of a listed channel whose creation wasn't received, using the time in its ID
    /// or else its age. Its state and bridge are taken from the list as well.
    pub(crate) fn begin_from_list(&mut self, at: EventTime, kind: &Kind<'_>) {
        let Kind::Listed { bridge, state, age } = kind else {
            return;
        };
        let by_id = UniqueId::epoch_in(self.id.as_str()).map(EventTime::from_seconds);
        let created = by_id.or(age.map(|age| at.minus(age)));
        self.first = self.first.min(created.unwrap_or(self.first));
        let state = Fact::new(at, Origin::Channel, FactKind::State(*state));
        self.facts.push(state);
        if !bridge.is_empty() {
            self.is_in(at, bridge);
        }
    }
}

/// Maximum number of gaps stored per call. Any further ones are merged with the last.
const BLINDS_MAX: usize = 32;
/// Anything shorter isn't enough time to leave a conversation, call someone, and come back.
const TOO_SHORT_TO_MATTER: Duration = Duration::from_secs(2);

/// A gap during which no events were received, by our own clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnobservedTime {
    /// The last moment at which the stream was complete.
    pub(crate) from: EventTime,
    /// When the stream continued, or `None` if it hasn't yet.
    pub(crate) until: Option<EventTime>,
}

impl UnobservedTime {
    /// Returns `true` if the gap is too short for someone to leave a conversation, call someone,
    /// and come back.
    pub(crate) fn is_short(&self) -> bool {
        self.until
            .is_some_and(|until| until.since(self.from) <= TOO_SHORT_TO_MATTER)
    }
}

/// Why events of a call may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Gaps {
    /// Gaps during the call.
    pub(crate) blinds: Vec<UnobservedTime>,
    /// When reception resumed, if one of the call's channels was first seen after that.
    pub(crate) late: Option<EventTime>,
    /// Whether the call was emitted without its end, which never arrived.
    pub(crate) overdue: bool,
    /// Whether the channel that the call's linkedid refers to has had no events and is no longer
    /// up.
    pub(crate) rootless: bool,
    /// Whether the process's last count of live channels left none for this call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) forgotten: bool,
}

impl Gaps {
    /// Starts a gap at `from`, unless one has already started, in which case the earlier start is
    /// kept.
    pub(crate) fn begin(&mut self, from: EventTime) {
        let room = self.blinds.len() < BLINDS_MAX;
        match self.blinds.last_mut() {
            Some(last) if last.until.is_none() => last.from = last.from.min(from),
            Some(last) if !room => last.until = None,
            Some(_) | None => self.blinds.push(UnobservedTime { from, until: None }),
        }
    }

    /// Ends the current gap at `at`, returning `false` if there is none.
    pub(crate) fn end(&mut self, at: EventTime) -> bool {
        let last = self.blinds.last_mut();
        let Some(last) = last.filter(|last| last.until.is_none()) else {
            return false;
        };
        last.until = Some(at.max(last.from));
        true
    }

    pub(super) fn absorb(&mut self, other: Self) {
        self.blinds.extend(other.blinds);
        self.late = self.late.max(other.late);
        self.overdue |= other.overdue;
        self.forgotten &= other.forgotten;
    }
}

/// State of the PBX process that an open call belongs to, which is stored with the call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallProcess {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<u64>,
    /// Time of the process's last heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) alive: Option<EventTime>,
    /// The lowest number among the call's events. `last_stamp` is the position of the one with the
    /// highest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) first_number: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_stamp: Option<EventStamp>,
    /// The process's last heartbeat, and when the process started by its clock at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) beat: Option<(EventStamp, EventTime)>,
    /// Whether the process's clock was set back after the call started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) set_back: Option<SetBack>,
}

/// The numbers of two events of a process between which its clock was set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetBack {
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl CallProcess {
    pub(crate) fn absorb(&mut self, other: &Self) {
        self.process = self.process.or(other.process);
        self.alive = self.alive.max(other.alive);
        let firsts = self.first_number.into_iter();
        self.first_number = firsts.chain(other.first_number).min();
        self.last_stamp = self.last_stamp.max(other.last_stamp);
        self.beat = self.beat.max(other.beat);
        self.set_back = self.set_back.or(other.set_back);
    }

    /// Records an event of the call.
    pub(crate) fn on_event(&mut self, process: Option<u64>, stamp: Option<EventStamp>) {
        self.process = self.process.or(process);
        let firsts = self.first_number.into_iter();
        self.first_number = firsts.chain(stamp.map(|stamp| stamp.number)).min();
        self.last_stamp = self.last_stamp.max(stamp);
    }

    /// Returns `true` if the clock was set back during the call.
    pub(crate) fn is_set_back(&self) -> bool {
        let last = self.last_stamp.map(|stamp| stamp.number);
        self.set_back
            .is_some_and(|set_back| last > Some(set_back.from))
    }
}
