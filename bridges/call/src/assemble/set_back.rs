//! A PBX's clock that is set back while calls are open, as the PBX itself tells it: the number that
//! a process gives to each event grows, and so does the time it says to be up, whatever its clock
//! shows and however late and in whatever order its events arrive.
//!
//! ```text
//! number    11    12    13                 14    15
//! clock   10.0  12.0  15.0 ── set back ──▶ 9.0  11.0
//! call A    ├─────────────────────────────────────┤   how long it lasted, nobody can tell
//! call B                                   ├────┤     as it was
//! ```

use super::Assembler;
use crate::event::EventStamp;
use crate::facts::gaps::SetBack;
use crate::units::EventTime;
use std::collections::VecDeque;
use std::time::Duration;

/// An event has its time a moment before or after its number; by more, a clock was set.
const AT_ONCE: Duration = Duration::from_millis(500);
/// So many events overtake one that is late. What comes later than that says nothing of the clock:
/// calls of several recordings side by side have each their own numbers.
const OVERTAKEN_MAX: u64 = 16;
/// Remembered of one process, for events that are still on their way.
const SET_BACKS_MAX: usize = 8;

/// Facts of a numbered event by which a clock that was set back shows.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    /// Something happened at this moment, by the process's clock.
    Happened(EventTime),
    /// The process lives, and was started then by its clock.
    Lives { since: EventTime },
}

/// The latest event of a process by its number, and the times that its clock was set back.
#[derive(Clone, Debug, Default)]
pub(super) struct Counter {
    last: Option<EventStamp>,
    /// Last sign of life that had an uptime, with the start of the process by the clock of then.
    pub(super) beat: Option<(EventStamp, EventTime)>,
    set_backs: VecDeque<SetBack>,
}

impl Counter {
    /// An event of this number; `true` if it tells that the clock was set back.
    fn counts(&mut self, stamp: EventStamp) -> bool {
        let last = self.last.unwrap_or(stamp);
        if stamp.number.saturating_add(OVERTAKEN_MAX) < last.number {
            return false;
        }
        let (earlier, later) = match stamp.number < last.number {
            true => (stamp, last),
            false => (last, stamp),
        };
        self.last = Some(later);
        earlier.at.since(later.at) > AT_ONCE && self.was_set_back(earlier.number, later.number)
    }

    /// Returns `true` when the event happened after it was sent, which shows a set-back not known
    /// yet.
    fn is_stamped_before(&mut self, at: EventTime, stamp: EventStamp) -> bool {
        let around = (
            stamp.number.saturating_sub(1),
            stamp.number.saturating_add(1),
        );
        at.since(stamp.at) > AT_ONCE && self.was_set_back(around.0, around.1)
    }

    /// A sign of life of this number, of a process that began then by its clock.
    fn beats(&mut self, stamp: EventStamp, began: EventTime) -> bool {
        let (before, begun) = self.beat.unwrap_or((stamp, began));
        if stamp.number < before.number {
            return false;
        }
        self.beat = Some((stamp, began));
        begun.since(began) > AT_ONCE && self.was_set_back(before.number, stamp.number)
    }

    /// Between these two numbers, unless a moment between them is known.
    fn was_set_back(&mut self, from: u64, until: u64) -> bool {
        let within = |it: &SetBack| it.from >= from && it.until <= until;
        if self.set_backs.iter().any(within) {
            return false;
        }
        if self.set_backs.len() == SET_BACKS_MAX {
            self.set_backs.pop_front();
        }
        self.set_backs.push_back(SetBack { from, until });
        true
    }

    /// Returns a set-back of the clock that a call lived through which began with the event of this
    /// number; `None` if there was none.
    pub(super) fn set_back(&self, first: u64) -> Option<SetBack> {
        let mut known = self.set_backs.iter().copied();
        known.find(|it| first < it.until)
    }

    /// An open call was restored: what it was told last counts on.
    pub(super) fn restored(
        &mut self,
        last: Option<EventStamp>,
        beat: Option<(EventStamp, EventTime)>,
    ) {
        self.last = self.last.max(last);
        self.beat = self.beat.max(beat);
    }
}

impl Assembler {
    /// A process told this of what happened `at` that moment, or that it lives.
    pub(super) fn is_counted(
        &mut self,
        process: Option<u64>,
        stamp: Option<EventStamp>,
        what: What,
    ) {
        let known = process.and_then(|it| Some((it, self.processes.counter(it)?, stamp?)));
        let Some((process, counter, stamp)) = known else {
            return;
        };
        let by_number = counter.counts(stamp);
        let by_time = match what {
            What::Happened(at) => counter.is_stamped_before(at, stamp),
            What::Lives { since } => counter.beats(stamp, since),
        };
        if !by_number && !by_time {
            return;
        }
        self.processes.set_back(process, stamp.at);
        for key in self.calls.keys() {
            self.asks_set_back(key, process);
        }
    }

    /// Notes in the call that the clock of this process was set back since it began, if it was.
    pub(super) fn asks_set_back(&mut self, key: u64, process: u64) {
        let (processes, calls) = (&mut self.processes, &mut self.calls);
        let counter = processes.counter(process);
        let call = calls.get_mut(key).filter(|call| {
            let of = &call.of;
            of.process == Some(process) && of.set_back.is_none()
        });
        let known = counter.zip(call);
        let Some((set_back, call)) = known.and_then(|(counter, call)| {
            let first = call.of.first_number?;
            Some((counter.set_back(first)?, call))
        }) else {
            return;
        };
        call.of.set_back = Some(set_back);
        self.changes.insert(key);
    }
}
