//! Our own clock is plainly wrong, as on a board without a battery at its boot: what is told is
//! kept, and nothing is finished until the clock is right.

use super::Assembler;
use crate::units::EventTime;

/// What waits for the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// The stream ended meanwhile.
    ended: bool,
}

impl Assembler {
    /// Finishes nothing from here on, whatever is told, until [`Assembler::release`].
    pub fn hold(&mut self) {
        self.held.get_or_insert_default();
    }

    /// The stream ended, and calls are held: `true`.
    pub(super) fn is_held_at_end(&mut self) -> bool {
        let Some(held) = &mut self.held else {
            return false;
        };
        held.ended = true;
        true
    }

    /// Our clock is right, and shows `now`. What arrived before `right_from` by it arrived while it
    /// was wrong: it counts as having arrived now. An event whose only time that was has none,
    /// which its call remembers since it came.
    pub fn release(&mut self, now: EventTime, right_from: EventTime) {
        let wrong = |at: &EventTime| *at < right_from;
        for key in self.calls.arrived_before(right_from) {
            self.calls.arrived(key, now, right_from);
            self.changes.insert(key);
            self.settles_still(key);
            self.doubt_or_not(key);
        }
        self.stream = self.stream.filter(|at| !wrong(at));
        self.stream_arrived = self.stream_arrived.filter(|at| !wrong(at)).or(Some(now));
        if self.held.take().is_some_and(|held| held.ended) {
            self.finish_all(now);
        }
    }
}
