//! What a process knows of the turn before its own, and what that turn has left to it. Pure.
//!
//! Who stops in order says so with the last tick of its turn: it sends nothing any more, and these
//! slots of its budget still count. Whoever is fed next need not be silent then, if nobody else has
//! sent in between. The message itself proves nothing of that: it may be late, or come again. What
//! proves it is the queue:
//!
//! - Leave rests on a tick that carries the turn of its publisher, came back to it, and is not
//!   acknowledged before another such tick has come back. So, whoever held last, a tick of its turn
//!   comes to us marked as redelivered before anything newer does.
//! - Of all marked ticks on this channel, therefore, every one that carries a turn has to carry the
//!   turn that the last tick is of. Had anybody held since, a tick of its turn would be among them.
//! - The slots are ours with a tick of our own that we published after we had the last tick, and
//!   that came back with no other turn's tick before it: nobody was fed and held meanwhile. That
//!   tick carries our turn, and goes to whoever is fed after us.
//!
//! Made-up messages bring nobody leave: a turn is known to those alone who were fed its ticks.

use super::tick::{SlotAges, TickId, TurnId};
use std::time::Duration;

/// A window of more than this is not taken over. What waits in the queue for some minutes is
/// dropped there, the tick of a turn before what came later.
const WINDOW_MAX: Duration = Duration::from_secs(120);
/// Two clocks may run apart by so much of a window: 1 in 50.
const DRIFT: u32 = 50;

/// The state of the succession on the open channel; the module's comment explains its rules.
#[derive(Clone, Debug, Default)]
pub(crate) struct Succession {
    before: Before,
    /// A last tick that may be believed, and the ends of the requests before it.
    offer: Option<(TickId, Vec<Duration>)>,
}

/// Turns whose redelivered ticks came on this channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Before {
    #[default]
    Nobodys,
    One(TurnId),
    Several,
}

impl Succession {
    /// Takes in another's tick of this turn.
    pub(crate) fn on_tick(&mut self, turn: TurnId, redelivered: bool) {
        if redelivered && self.before != Before::One(turn) {
            self.before = match self.before {
                Before::Nobodys => Before::One(turn),
                Before::One(_) | Before::Several => Before::Several,
            };
            self.offer = None;
        }
    }

    /// The last tick of this turn came; slots are counted here in windows of `window`.
    pub(crate) fn offered(
        &mut self,
        now: Duration,
        (tick, turn): (TickId, TurnId),
        slots: &SlotAges,
        window: Duration,
    ) {
        let counted_in = Duration::from_millis(slots.window_ms);
        if self.before == Before::One(turn) && (window..=WINDOW_MAX).contains(&counted_in) {
            self.offer = Some((tick, slots.ended(now, window / DRIFT)));
        }
    }

    /// The last tick that may be believed so far.
    pub(crate) fn offer(&self) -> Option<TickId> {
        self.offer.as_ref().map(|it| it.0)
    }

    /// A tick of ours came back that was published when this was the offer: the slots, if it still
    /// is.
    pub(crate) fn accept(&mut self, offer: Option<TickId>) -> Option<Vec<Duration>> {
        self.offer.take_if(|it| offer == Some(it.0)).map(|it| it.1)
    }
}
