//! Finds open calls whose times can't be right because a clock was set or a connection stalled.

use super::{Assembler, Line};
use crate::connection_clock::{ClockSet, ConnectionClock, PROMPT_RESPONSE};
use crate::{ChannelEvent, ClockDifference, EventTime, Kind, UniqueId};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long before a late event a call may have ended and still be considered part of the same
/// burst.
const ONE_BURST: Duration = Duration::from_millis(500);

/// The PBX's clock in each source's current connection or file, and whether that connection or file
/// is stalled.
#[derive(Debug, Default)]
pub(super) struct Clocks(BTreeMap<u16, LineClock>);

#[derive(Debug)]
struct LineClock {
    connection: u64,
    clock: ConnectionClock,
    /// The clock offset from the previous connection, used until this one has its own.
    before: Option<ClockDifference>,
    is_stalled: bool,
    /// When the last late event arrived. Cleared once the line is known to be prompt again.
    late_since: Option<EventTime>,
    /// Whether the PBX has responded to a ping on this connection.
    responds: bool,
}

impl Clocks {
    fn line(&mut self, line: Line) -> &mut LineClock {
        let known = self
            .0
            .entry(line.source)
            .or_insert_with(|| LineClock::new(line.connection, None));
        if known.connection != line.connection {
            *known = LineClock::new(line.connection, known.difference());
        }
        known
    }

    /// Returns the offset between the PBX's clock and our boot clock, or the previous connection's
    /// offset if this one hasn't had an event with a timestamp yet.
    pub(super) fn difference(&self, line: Option<Line>) -> Option<ClockDifference> {
        self.0.get(&line?.source)?.difference()
    }

    /// Returns `true` while the connection is stalled, which means that its messages may arrive
    /// late.
    pub(super) fn is_stalled(&self, line: Option<Line>) -> bool {
        let known = line.and_then(|line| self.0.get(&line.source));
        known.is_some_and(|known| known.is_stalled || known.late_since.is_some())
    }
}

impl LineClock {
    fn new(connection: u64, before: Option<ClockDifference>) -> Self {
        Self {
            connection,
            clock: ConnectionClock::default(),
            before,
            is_stalled: false,
            late_since: None,
            responds: false,
        }
    }

    /// Records a prompt response to a ping. If the ping was sent after the last late event,
    /// everything that was held up has arrived by now.
    fn note_prompt_answer(&mut self, asked: EventTime) {
        self.responds = true;
        self.late_since = self.late_since.filter(|since| asked < *since);
    }

    fn difference(&self) -> Option<ClockDifference> {
        self.clock.recent_difference().or(self.before)
    }
}

impl Assembler {
    /// Compares the time of an event of channel `id` with those of earlier events, and records it
    /// if the PBX's clock was set.
    pub(super) fn check_clock(
        &mut self,
        id: &UniqueId,
        event: &ChannelEvent<'_>,
        arrived: EventTime,
    ) {
        let timing = self.stream.timing;
        let Some(line) = timing.line else {
            return;
        };
        // The events in a file aren't always in the order they happened.
        if timing.kept && !self.calls.is_in_order(id, event) {
            return;
        }
        let arrived = if timing.kept { None } else { Some(arrived) };
        let clock = &mut self.clocks.line(line).clock;
        let was_set = match (event.channel.stamp, event.at) {
            // Whether a switch's clock was set back is determined from its event numbers (see
            // `processes`).
            (Some(stamp), _) => {
                let was_set = clock.on_event(stamp.at, arrived);
                was_set.filter(|set| *set == ClockSet::Ahead)
            }
            (None, Some(at)) => clock.on_event(at, arrived),
            (None, None) => {
                if let Some(arrived) = arrived {
                    self.check_id(line, id, event, arrived);
                }
                None
            }
        };
        if was_set.is_some() {
            self.clock_was_set();
        }
    }

    /// Checks whether a new channel's event without a timestamp is late, judging by the second in
    /// the channel's unique ID. If it is, other events may be late as well.
    fn check_id(
        &mut self,
        line: Line,
        id: &UniqueId,
        event: &ChannelEvent<'_>,
        arrived: EventTime,
    ) {
        let is_new = matches!(event.kind, Kind::Born { .. });
        let Some(epoch) = UniqueId::epoch_in(id.as_str()).filter(|_| is_new) else {
            return;
        };
        let known = self.clocks.line(line);
        let second = EventTime::from_seconds(epoch);
        if known.clock.is_id_late(second, arrived) {
            known.late_since = Some(arrived);
            self.times_unknown(Some(arrived));
        } else if !known.responds {
            known.late_since = None;
        }
    }

    /// Processes a heartbeat, which provides the process's time even when there are no calls.
    pub(super) fn check_heartbeat(&mut self, at: EventTime, arrived: EventTime) {
        let timing = self.stream.timing;
        if let Some(line) = timing.line
            && !timing.kept
            && self.clocks.line(line).clock.on_event(at, Some(arrived)) == Some(ClockSet::Ahead)
        {
            self.clock_was_set();
        }
    }

    /// Processes the response to a ping that was sent at `asked` and answered at `answered`. `at`
    /// is the PBX's time in the response, if it contains one.
    pub fn on_answer(
        &mut self,
        line: Line,
        at: Option<EventTime>,
        asked: EventTime,
        answered: EventTime,
    ) {
        let known = self.clocks.line(line);
        if answered.since(asked) <= PROMPT_RESPONSE {
            known.note_prompt_answer(asked);
        }
        let was_set = at.and_then(|at| known.clock.on_answer(at, asked, answered));
        if was_set.is_some() {
            self.clock_was_set();
        }
    }

    /// Sets whether events on this connection arrive late or aren't being read. If so, the arrival
    /// of an event without a timestamp doesn't show when the event happened.
    pub fn set_stalled(&mut self, line: Line, is_stalled: bool) {
        self.clocks.line(line).is_stalled = is_stalled;
        self.times_unknown(None);
    }

    /// Marks open calls without timestamps as possibly having late events. If an event that arrived
    /// at `late` really was late, this includes calls that ended in the same burst.
    fn times_unknown(&mut self, late: Option<EventTime>) {
        self.change_each(|call| {
            let ended_now = match late {
                Some(late) => late.since(call.times.latest_arrived) <= ONE_BURST,
                None => false,
            };
            let is_affected = !call.is_over() || ended_now;
            let touched = call.times.by_arrival && !call.times.stalled && is_affected;
            call.times.stalled |= touched;
            touched
        });
    }

    /// Returns how far the PBX's clock was ahead of the clock used for arrivals in the last few
    /// minutes, based on the events with the smallest delay, or `None` if no event had a timestamp.
    pub fn clock_ahead(&self) -> Option<ClockDifference> {
        let lines = self.clocks.0.values();
        lines
            .filter_map(|line| line.clock.recent_difference())
            .max()
    }

    /// Like [`Assembler::clock_ahead`], but based on the events of a single source.
    pub fn clock_ahead_by(&self, source: u16) -> Option<ClockDifference> {
        self.clocks.0.get(&source)?.clock.recent_difference()
    }

    /// Records that the PBX's clock was set, which makes the durations of all open calls unknown.
    fn clock_was_set(&mut self) {
        self.counts.clock_set += 1;
        self.change_each(|call| {
            let touched = !call.times.clock_set && !call.is_over();
            call.times.clock_set |= touched;
            touched
        });
    }
}
