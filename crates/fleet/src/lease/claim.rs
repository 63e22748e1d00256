//! The rules of the lease: ticks and `now` in, leave to send out.
//!
//! The queue is replicated: what is delivered from it was committed by a majority, in one order,
//! and the broker feeds one consumer at a time. What a consumer has not acknowledged goes back to
//! the front of the queue when it is fed no more, and comes to the next one marked as redelivered.
//!
//! 1. A tick of ours that comes back proves that we were fed after it was published: leave lasts
//!    until [`HOLDS_FOR`] after its publishing, by our clock. Another's tick proves nothing, nor
//!    does one that comes back later than that.
//! 2. The last tick that counted stays unacknowledged until a later one counts which carries our
//!    turn ([`TurnId`]). So whoever is fed after us gets it first, before anything newer.
//! 3. Another's tick that is redelivered says that another was fed since: we begin anew, as if we
//!    had never held.
//! 4. Whoever begins keeps silent for [`Terms::silence`]; who lapses begins anew.
//! 5. Silence is not needed where the turn before was ended in order and left us its slots:
//!    [`super::succession`] says when that can be believed.
//!
//! Why two never have leave at one time, A and B say. Each has a tick that was published within
//! the last ten seconds, and began more than `silence` before, which is longer. Say B's tick was
//! delivered after A's. Then B was fed at its beginning, A when its tick was delivered, B again
//! after that. At that change A's tick, or a tick of whoever was fed between and had acknowledged
//! it (2), was handed to B before B's own newer one, redelivered: B began anew then (3), which is
//! not `silence` ago. So there are not two. By the same chain, all leave of A ends at the latest
//! `HOLDS_FOR` after B began, however the queue passes to and fro; the rest of the silence is for
//! A's last request to time out, and for the service's window to end.
//!
//! What is left: a process that is frozen after it has asked for leave and before the bytes leave.

use super::succession::Succession;
use super::tick::{SlotAges, TickId, TurnId};
use callbridge_model::status::LeasePhase;
use std::{collections::VecDeque, time::Duration};

/// Interval between two ticks that a process publishes.
pub const TICK_EVERY: Duration = Duration::from_secs(3);
/// Time after its publishing for which a tick gives leave to send.
pub const HOLDS_FOR: Duration = Duration::from_secs(10);
/// Ticks of ours that are known again. An older one is taken for another's.
const KNOWN_MAX: usize = 200;
/// Two clocks may run apart by so much of any time: 1 in 50, of which quartz needs 1 in 5000.
const DRIFT: u32 = 50;

/// Time spans that all processes of one lease agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time for which a new holder sends nothing.
    pub silence: Duration,
    /// The window in which requests are counted.
    pub window: Duration,
}

impl Terms {
    /// Terms for requests that can no longer arrive after `request`, counted in windows of
    /// `window`.
    pub fn new(request: Duration, window: Duration) -> Self {
        let sum = HOLDS_FOR + request + window;
        Self {
            silence: sum + sum / DRIFT,
            window,
        }
    }
}

/// A message of the queue, as it was delivered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delivered {
    /// The message's delivery tag on its channel, from 1.
    pub tag: u64,
    /// The id of the tick; `None` for a message that is no tick.
    pub tick: Option<TickId>,
    /// The turn that the tick carries; `None` before its publisher had one.
    pub turn: Option<TurnId>,
    /// The slots that it leaves, as the last of that turn.
    pub slots: Option<SlotAges>,
    /// The broker gave the message to a consumer before.
    pub redelivered: bool,
}

/// The consequences of one delivery, for the caller to carry out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// All through this place on the channel are to be acknowledged.
    pub ack_through: Option<u64>,
    /// Time since the tick was published; `None` where the delivery does not count.
    pub round_trip: Option<Duration>,
    /// The turn before has left this: when its requests ended, in time since boot. They count as
    /// ours before anything is sent.
    pub inherited: Option<Vec<Duration>>,
}

/// A tick that this process has published.
#[derive(Clone, Copy, Debug)]
struct Published {
    tick: TickId,
    /// Time since boot, read before the first byte of the tick left.
    at: Duration,
    /// The turn that the tick carries; `None` before this process had one.
    turn: Option<TurnId>,
    /// The last tick of another turn that could be believed then.
    offer: Option<TickId>,
}

/// The claim of one process to the lease.
#[derive(Clone, Debug)]
pub struct Claim {
    terms: Terms,
    /// Published ticks that are still recognised, oldest first; at most `KNOWN_MAX`.
    ours: VecDeque<Published>,
    /// Time since boot at which the silence of this claim ends or ended; `None` while this process
    /// stands by.
    pub silent_until: Option<Duration>,
    /// The turn of this claim, from its first tick on.
    turn: Option<TurnId>,
    succession: Succession,
    /// Time since boot until which the ticks that counted give leave.
    proven_until: Duration,
    /// No tick gives leave that was published before: the clock has jumped since.
    doubted: Duration,
    /// Acknowledged on this channel through here.
    acknowledged: u64,
}

impl Claim {
    /// The claim of a process that has not begun.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            ours: VecDeque::new(),
            silent_until: None,
            turn: None,
            succession: Succession::default(),
            proven_until: Duration::ZERO,
            doubted: Duration::ZERO,
            acknowledged: 0,
        }
    }

    /// Forgets what the channel before was given: all that it had not acknowledged goes back.
    pub fn channel_opened(&mut self) {
        // Nothing that came before says who was fed meanwhile.
        (self.acknowledged, self.succession) = (0, Succession::default());
    }

    /// Registers a tick that is published right after this moment since boot, and returns the turn
    /// that it is to carry.
    pub fn publishing(&mut self, now: Duration, tick: TickId) -> Option<TurnId> {
        let offer = self.succession.offer();
        if offer.is_some() {
            self.turn.get_or_insert(TurnId(tick));
        }
        if self.ours.len() == KNOWN_MAX {
            self.ours.pop_front();
        }
        self.ours.push_back(Published {
            tick,
            at: now,
            turn: self.turn,
            offer,
        });
        self.turn
    }

    /// A message of the queue has come.
    pub fn received(&mut self, now: Duration, delivered: Delivered) -> Receipt {
        self.check(now);
        let ours = delivered.tick.and_then(|tick| {
            let mut ours = self.ours.iter().rev();
            ours.find(|it| it.tick == tick).copied()
        });
        let Some(ours) = ours else {
            self.anothers(now, &delivered);
            return Receipt::default();
        };
        let proven = ours.at + HOLDS_FOR;
        if proven <= now {
            return Receipt::default();
        }
        self.proven_until = self.proven_until.max(proven);
        let silent_until = self.silent_until.get_or_insert(now + self.terms.silence);
        let turn = *self.turn.get_or_insert(TurnId(ours.tick));
        let mut receipt = Receipt {
            round_trip: Some(now.saturating_sub(ours.at)),
            ..Receipt::default()
        };
        if ours.turn != Some(turn) {
            return receipt;
        }
        if !delivered.redelivered
            && let Some(ended) = self.succession.accept(ours.offer)
            && now < *silent_until
        {
            *silent_until = now;
            receipt.inherited = Some(ended);
        }
        let before = delivered.tag.saturating_sub(1);
        receipt.ack_through = (before > self.acknowledged).then_some(before);
        self.acknowledged = self.acknowledged.max(before);
        receipt
    }

    fn anothers(&mut self, now: Duration, delivered: &Delivered) {
        if delivered.redelivered {
            self.begin_anew();
        }
        if let (Some(tick), Some(turn)) = (delivered.tick, delivered.turn) {
            self.succession.on_tick(turn, delivered.redelivered);
            if let Some(slots) = &delivered.slots {
                let window = self.terms.window;
                self.succession.offered(now, (tick, turn), slots, window);
            }
        }
    }

    fn begin_anew(&mut self) {
        (self.silent_until, self.turn) = (None, None);
    }

    /// Ends the turn at once: no tick published before gives leave any more.
    pub fn give_away(&mut self) {
        self.ours.clear();
        self.begin_anew();
        self.proven_until = Duration::ZERO;
    }

    /// The wall clock has jumped against the time since boot: the machine may have stood still, and
    /// all ticks with it. Leave is given again by one that is published from now on.
    pub fn clock_jumped(&mut self, now: Duration) {
        self.doubted = now;
    }

    /// Lapses, where nothing that counts came for too long.
    pub fn check(&mut self, now: Duration) {
        if now >= self.proven_until && self.silent_until.is_some() {
            self.begin_anew();
        }
    }

    /// The phase at this moment since boot.
    pub fn phase(&self, now: Duration) -> LeasePhase {
        match self.silent_until {
            Some(_) if now >= self.proven_until => LeasePhase::Standby,
            Some(until) if now < until || self.is_doubted() => LeasePhase::Silent,
            Some(_) => LeasePhase::Holding,
            None => LeasePhase::Standby,
        }
    }

    /// Returns the time since boot until which requests may leave; `None` where they may not at
    /// this moment.
    pub fn leave(&self, now: Duration) -> Option<Duration> {
        (self.phase(now) == LeasePhase::Holding).then_some(self.proven_until)
    }

    /// Returns `true` where another has left its slots: a tick published now proves that they are
    /// ours.
    pub fn is_offered(&self) -> bool {
        self.succession.offer().is_some()
    }

    /// The turn that requests leave in, where they may at this moment.
    pub fn turn(&self, now: Duration) -> Option<TurnId> {
        self.turn.filter(|_| self.leave(now).is_some())
    }

    /// No tick that counts was published after the clock's last jump.
    fn is_doubted(&self) -> bool {
        self.proven_until < self.doubted + HOLDS_FOR
    }

    /// Time since boot at which [`Claim::phase`] changes by itself; `None` while standing by.
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        match self.phase(now) {
            LeasePhase::Standby => None,
            LeasePhase::Silent if self.is_doubted() => Some(self.proven_until),
            LeasePhase::Silent => self.silent_until.map(|at| at.min(self.proven_until)),
            LeasePhase::Holding => Some(self.proven_until),
        }
    }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
