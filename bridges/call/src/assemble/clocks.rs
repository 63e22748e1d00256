//! Finds open calls whose times cannot be right, because a clock was set or a line stalled.

use super::{Assembler, Line};
use crate::connection_clock::{ClockSet, ConnectionClock};
use crate::{ChannelEvent, ClockDifference, EventTime, UniqueId};
use std::collections::BTreeMap;

/// The clock of the PBX in the current connection or file of each source, and which of these lines
/// are stalled.
#[derive(Debug, Default)]
pub(super) struct Clocks(BTreeMap<u16, LineClock>);

#[derive(Debug)]
struct LineClock {
    connection: u64,
    clock: ConnectionClock,
    /// Difference between the PBX's clock and our boot clock in the previous connection.
    before: Option<ClockDifference>,
    is_stalled: bool,
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

    /// Returns the difference between the PBX's clock and our boot clock. If no event of this
    /// connection has had a time yet, the value of the previous connection is used.
    pub(super) fn difference(&self, line: Option<Line>) -> Option<ClockDifference> {
        self.0.get(&line?.source)?.difference()
    }

    /// Returns `true` while the line is stalled, so its messages may arrive late.
    pub(super) fn is_stalled(&self, line: Option<Line>) -> bool {
        let known = line.and_then(|line| self.0.get(&line.source));
        known.is_some_and(|known| known.is_stalled)
    }
}

impl LineClock {
    fn new(connection: u64, before: Option<ClockDifference>) -> Self {
        Self {
            connection,
            clock: ConnectionClock::default(),
            before,
            is_stalled: false,
        }
    }

    fn difference(&self) -> Option<ClockDifference> {
        self.clock.recent_difference().or(self.before)
    }
}

impl Assembler {
    /// Compares the time of an event of the channel `id` with the times of earlier events, and
    /// notes if the PBX's clock was set.
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
        // A file is not always in the order in which the events happened.
        if timing.kept && !self.calls.is_in_order(id, event) {
            return;
        }
        let arrived = if timing.kept { None } else { Some(arrived) };
        let clock = &mut self.clocks.line(line).clock;
        let was_set = match (event.channel.stamp, event.at) {
            // The event numbers of a switch show when its clock was set back (`processes`).
            (Some(stamp), _) => {
                let was_set = clock.on_event(stamp.at, arrived);
                was_set.filter(|set| *set == ClockSet::Ahead)
            }
            (None, Some(at)) => clock.on_event(at, arrived),
            (None, None) => None,
        };
        if was_set.is_some() {
            self.clock_was_set();
        }
    }

    /// Processes the PBX's time `at` in its answer to a ping. We sent the ping at `asked`, and the
    /// answer arrived at `answered`.
    pub fn on_answer(&mut self, line: Line, at: EventTime, asked: EventTime, answered: EventTime) {
        let clock = &mut self.clocks.line(line).clock;
        if clock.on_answer(at, asked, answered).is_some() {
            self.clock_was_set();
        }
    }

    /// Notes whether events of the line arrive late or are not read. If so, the arrival of an event
    /// without a time does not show when the event happened.
    pub fn set_stalled(&mut self, line: Line, is_stalled: bool) {
        self.clocks.line(line).is_stalled = is_stalled;
        self.change_each(|call| {
            let touched = call.times.by_arrival && !call.times.stalled && !call.is_over();
            call.times.stalled |= touched;
            touched
        });
    }

    /// Returns how far the PBX's clock was ahead of the clock of arrivals in the last minutes. The
    /// events with the smallest delay decide. `None` if no event has had a time.
    pub fn clock_ahead(&self) -> Option<ClockDifference> {
        let lines = self.clocks.0.values();
        lines
            .filter_map(|line| line.clock.recent_difference())
            .max()
    }

    /// Returns how far the PBX's clock was ahead in the last minutes, as [`Assembler::clock_ahead`]
    /// does, but by the events of one source only.
    pub fn clock_ahead_by(&self, source: u16) -> Option<ClockDifference> {
        self.clocks.0.get(&source)?.clock.recent_difference()
    }

    /// Notes that the PBX's clock was set, so the durations of the open calls are unknown.
    fn clock_was_set(&mut self) {
        self.counts.clock_set += 1;
        self.change_each(|call| {
            let touched = !call.times.clock_set && !call.is_over();
            call.times.clock_set |= touched;
            touched
        });
    }
}
