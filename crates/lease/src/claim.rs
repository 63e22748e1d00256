//! The rules of the lease: ticks and `now` in, leave to send out.
//!
//! The queue is replicated: what is delivered from it was committed by a majority, in one order,
//! and the broker feeds one consumer at a time. What a consumer has not acknowledged goes back to
//! the front of the queue when it is fed no more, and comes to the next one marked as redelivered.
//!
//! 1. A tick of ours that comes back proves that we were fed after it was published: leave lasts
//!    until [`HOLDS_FOR`] after its publishing, by our clock. Another's tick proves nothing, nor
//!    does one that comes back later than that.
//! 2. The last tick that counted stays unacknowledged until a later one counts. So whoever is fed
//!    after us gets it first, before anything newer.
//! 3. Another's tick that is redelivered says that another was fed since: we begin anew, as if we
//!    had never held.
//! 4. Whoever begins keeps silent for [`Terms::silence`]; who lapses begins anew.
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

use super::tick::TickId;
use callbridge_model::status::LeasePhase;
use std::collections::VecDeque;
use std::time::Duration;

/// Between two ticks.
pub const TICK_EVERY: Duration = Duration::from_secs(3);
/// How long after its publishing a tick gives leave to send.
pub const HOLDS_FOR: Duration = Duration::from_secs(10);
/// Ticks of ours that are known again. An older one is taken for another's.
const KNOWN_MAX: usize = 200;
/// Two clocks may run apart by so much of any time: 1 in 50, of which quartz needs 1 in 5000.
const DRIFT: u32 = 50;

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How long a new holder keeps silent.
    pub silence: Duration,
}

impl Terms {
    /// For requests that can no longer arrive after `request`, counted in windows of `window`.
    pub fn new(request: Duration, window: Duration) -> Self {
        let sum = HOLDS_FOR + request + window;
        Self {
            silence: sum + sum / DRIFT,
        }
    }
}

/// A message of the queue, as it was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its place on the channel, from 1.
    pub tag: u64,
    /// Which tick it is; `None` for anything else.
    pub tick: Option<TickId>,
    /// It was given to a consumer before.
    pub redelivered: bool,
}

/// What a delivery came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// All through this place on the channel are to be acknowledged.
    pub ack_through: Option<u64>,
    /// It counts: how long ago it was published.
    pub round_trip: Option<Duration>,
}

/// The claim of one process to the lease.
#[derive(Clone, Debug)]
pub struct Claim {
    terms: Terms,
    /// Ticks of ours, and when each was published, in time since boot.
    ours: VecDeque<(TickId, Duration)>,
    /// When it began, where it has.
    began: Option<Duration>,
    /// Until then the ticks that counted give leave.
    proven_until: Duration,
    /// No tick gives leave that was published before: the clock has jumped since.
    doubted: Duration,
    /// Acknowledged on this channel through here.
    acknowledged: u64,
}

impl Claim {
    /// Of a process that has not begun.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            ours: VecDeque::new(),
            began: None,
            proven_until: Duration::ZERO,
            doubted: Duration::ZERO,
            acknowledged: 0,
        }
    }

    /// A channel was opened; what the one before it was given and had not acknowledged goes back.
    pub fn channel_opened(&mut self) {
        self.acknowledged = 0;
    }

    /// This tick is published right after this moment since boot.
    pub fn publishing(&mut self, now: Duration, tick: TickId) {
        if self.ours.len() == KNOWN_MAX {
            self.ours.pop_front();
        }
        self.ours.push_back((tick, now));
    }

    /// A message of the queue has come.
    pub fn received(&mut self, now: Duration, delivered: Delivered) -> Receipt {
        self.look(now);
        let published = delivered.tick.and_then(|tick| {
            let mut ours = self.ours.iter().rev();
            ours.find(|(id, _)| *id == tick).map(|(_, at)| *at)
        });
        let Some(published) = published else {
            if delivered.redelivered {
                self.began = None;
            }
            return Receipt::default();
        };
        let proven = published + HOLDS_FOR;
        if proven <= now {
            return Receipt::default();
        }
        self.proven_until = self.proven_until.max(proven);
        self.began.get_or_insert(now);
        let before = delivered.tag.saturating_sub(1);
        let ack_through = (before > self.acknowledged).then_some(before);
        self.acknowledged = self.acknowledged.max(before);
        Receipt {
            ack_through,
            round_trip: Some(now.saturating_sub(published)),
        }
    }

    /// Its turn is given away: nothing that was published before gives leave any more.
    pub fn give_away(&mut self) {
        self.ours.clear();
        self.began = None;
        self.proven_until = Duration::ZERO;
    }

    /// The wall clock has jumped against the time since boot: the machine may have stood still, and
    /// all ticks with it. Leave is given again by one that is published from now on.
    pub fn clock_jumped(&mut self, now: Duration) {
        self.doubted = now;
    }

    /// Lapses, where nothing that counts came for too long.
    pub fn look(&mut self, now: Duration) {
        if now >= self.proven_until {
            self.began = None;
        }
    }

    /// How it stands at this moment since boot.
    pub fn phase(&self, now: Duration) -> LeasePhase {
        match self.silent_until() {
            Some(_) if now >= self.proven_until => LeasePhase::Standby,
            Some(until) if now < until || self.is_doubted() => LeasePhase::Silent,
            Some(_) => LeasePhase::Holding,
            None => LeasePhase::Standby,
        }
    }

    /// Until when requests may leave, where they may at this moment.
    pub fn leave(&self, now: Duration) -> Option<Duration> {
        (self.phase(now) == LeasePhase::Holding).then_some(self.proven_until)
    }

    /// Until when it keeps silent, or kept it.
    pub fn silent_until(&self) -> Option<Duration> {
        self.began.map(|began| began + self.terms.silence)
    }

    /// No tick that counts was published after the clock's last jump.
    fn is_doubted(&self) -> bool {
        self.proven_until < self.doubted + HOLDS_FOR
    }

    /// When [`Claim::phase`] changes by itself.
    pub fn next_change(&self, now: Duration) -> Option<Duration> {
        match self.phase(now) {
            LeasePhase::Standby => None,
            LeasePhase::Silent if self.is_doubted() => Some(self.proven_until),
            LeasePhase::Silent => self.silent_until().map(|at| at.min(self.proven_until)),
            LeasePhase::Holding => Some(self.proven_until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms = Terms {
        silence: Duration::from_secs(100),
    };

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    fn tick(number: u128) -> TickId {
        TickId::from_number(number)
    }

    fn delivered(tag: u64, number: u128) -> Delivered {
        Delivered {
            tag,
            tick: Some(tick(number)),
            redelivered: false,
        }
    }

    /// Ticks that come back at once, every three seconds from `from` until `to`.
    fn fed(claim: &mut Claim, from: u32, to: u32) {
        for second in (from..=to).step_by(3) {
            let number = second.into();
            claim.publishing(at(second.into()), tick(number));
            let tag = u64::from(second);
            claim.received(at(second.into()), delivered(tag, number));
        }
    }

    #[test]
    fn the_silence_is_the_sum_with_room_for_two_clocks() {
        let terms = Terms::new(Duration::from_secs(35), Duration::from_secs(60));
        assert_eq!(terms.silence, Duration::from_millis(107_100));
    }

    #[test]
    fn who_is_fed_keeps_silent_first_and_then_holds_until_ten_seconds_after_a_tick_was_published() {
        let mut claim = Claim::new(TERMS);
        assert_eq!(claim.phase(at(0.0)), LeasePhase::Standby);
        fed(&mut claim, 3, 102);
        assert_eq!(claim.phase(at(102.5)), LeasePhase::Silent);
        assert_eq!(claim.next_change(at(102.5)), Some(at(103.0)));
        assert_eq!(claim.leave(at(102.9)), None);
        assert_eq!(claim.leave(at(103.0)), Some(at(112.0)));
        assert_eq!(claim.phase(at(111.9)), LeasePhase::Holding);
        assert_eq!(claim.phase(at(112.0)), LeasePhase::Standby);
        // it lapsed, so it begins anew
        fed(&mut claim, 112, 112);
        assert_eq!(claim.phase(at(112.1)), LeasePhase::Silent);
        assert_eq!(claim.silent_until(), Some(at(212.0)));
    }

    #[test]
    fn a_turn_that_is_given_away_comes_back_by_no_tick_from_before() {
        let mut claim = Claim::new(TERMS);
        fed(&mut claim, 3, 120);
        claim.publishing(at(121.0), tick(121));
        claim.give_away();
        assert_eq!(claim.phase(at(121.0)), LeasePhase::Standby);
        claim.received(at(122.0), delivered(121, 121));
        assert_eq!(claim.phase(at(122.0)), LeasePhase::Standby);
        fed(&mut claim, 123, 123);
        assert_eq!(claim.silent_until(), Some(at(223.0)));
    }

    #[test]
    fn after_the_clock_has_jumped_only_a_tick_that_is_published_then_gives_leave() {
        let mut claim = Claim::new(TERMS);
        fed(&mut claim, 3, 120);
        claim.publishing(at(121.0), tick(121));
        assert!(claim.leave(at(122.0)).is_some());
        claim.clock_jumped(at(122.0));
        assert_eq!(claim.leave(at(122.0)), None);
        assert_eq!(claim.next_change(at(122.0)), Some(at(130.0)));
        claim.received(at(123.0), delivered(121, 121));
        assert_eq!(claim.phase(at(123.0)), LeasePhase::Silent, "from before");
        fed(&mut claim, 124, 124);
        assert_eq!(
            claim.leave(at(124.0)),
            Some(at(134.0)),
            "it was fed all along"
        );
        // without one it lapses as ever
        claim.clock_jumped(at(125.0));
        assert_eq!(claim.phase(at(134.0)), LeasePhase::Standby);
    }

    #[test]
    fn a_tick_counts_by_when_it_was_published_and_a_late_one_not_at_all() {
        let mut claim = Claim::new(TERMS);
        claim.publishing(at(1.0), tick(1));
        let late = claim.received(at(11.0), delivered(1, 1));
        assert_eq!(late, Receipt::default());
        assert_eq!(claim.phase(at(11.0)), LeasePhase::Standby);
        claim.publishing(at(12.0), tick(2));
        let slow = claim.received(at(21.5), delivered(2, 2));
        assert_eq!(slow.round_trip, Some(at(9.5)));
        assert_eq!(claim.next_change(at(21.5)), Some(at(22.0)));
    }

    #[test]
    fn the_last_tick_that_counted_is_kept_and_all_before_it_acknowledged() {
        let mut claim = Claim::new(TERMS);
        for (second, number) in [(0.0, 1), (1.0, 2), (2.0, 3)] {
            claim.publishing(at(second), tick(number));
        }
        assert_eq!(claim.received(at(3.0), delivered(1, 77)).ack_through, None);
        assert_eq!(
            claim.received(at(3.0), delivered(2, 1)).ack_through,
            Some(1)
        );
        assert_eq!(claim.received(at(3.0), delivered(3, 78)).ack_through, None);
        assert_eq!(
            claim.received(at(3.0), delivered(4, 2)).ack_through,
            Some(3)
        );
        // another channel counts from 1 again
        claim.channel_opened();
        assert_eq!(claim.received(at(4.0), delivered(1, 2)).ack_through, None);
        assert_eq!(
            claim.received(at(4.0), delivered(2, 3)).ack_through,
            Some(1)
        );
    }

    #[test]
    fn anothers_tick_that_was_given_before_begins_the_silence_anew_and_ones_own_does_not() {
        let mut claim = Claim::new(TERMS);
        fed(&mut claim, 3, 150);
        let again = |tag, number| Delivered {
            redelivered: true,
            ..delivered(tag, number)
        };
        claim.channel_opened();
        claim.received(at(151.0), again(1, 150));
        assert_eq!(claim.phase(at(151.0)), LeasePhase::Holding);
        claim.received(at(151.0), delivered(2, 7_000));
        assert_eq!(claim.phase(at(151.0)), LeasePhase::Holding);
        claim.received(at(151.0), again(3, 7_001));
        assert_eq!(claim.phase(at(151.0)), LeasePhase::Standby);
        fed(&mut claim, 153, 153);
        assert_eq!(claim.silent_until(), Some(at(253.0)));
    }

    #[test]
    fn what_is_no_tick_is_anothers() {
        let mut claim = Claim::new(TERMS);
        fed(&mut claim, 3, 150);
        let garbage = |redelivered| Delivered {
            tag: 900,
            tick: None,
            redelivered,
        };
        assert_eq!(claim.received(at(151.0), garbage(false)).ack_through, None);
        assert_eq!(claim.phase(at(151.0)), LeasePhase::Holding);
        claim.received(at(151.0), garbage(true));
        assert_eq!(claim.phase(at(151.0)), LeasePhase::Standby);
    }

    #[test]
    fn an_older_tick_that_comes_late_takes_no_leave_away() {
        let mut claim = Claim::new(TERMS);
        fed(&mut claim, 3, 150);
        claim.publishing(at(151.0), tick(1_001));
        claim.publishing(at(152.0), tick(1_002));
        claim.received(at(153.0), delivered(901, 1_002));
        claim.received(at(153.0), delivered(902, 1_001));
        assert_eq!(claim.leave(at(153.0)), Some(at(162.0)));
        assert_eq!(claim.next_change(at(153.0)), Some(at(162.0)));
        assert_eq!(
            claim.next_change(at(162.0)),
            None,
            "a standby waits for a tick"
        );
    }

    #[test]
    fn of_many_ticks_that_never_came_back_the_oldest_are_taken_for_anothers() {
        let mut claim = Claim::new(TERMS);
        fed(&mut claim, 3, 150);
        for number in 0..=KNOWN_MAX as u128 {
            claim.publishing(at(151.0), tick(10_000 + number));
        }
        assert_eq!(claim.ours.len(), KNOWN_MAX);
        let again = |number| Delivered {
            redelivered: true,
            ..delivered(901, number)
        };
        claim.received(at(151.0), again(10_001));
        assert_eq!(claim.phase(at(151.0)), LeasePhase::Holding);
        claim.received(at(151.0), again(10_000));
        assert_eq!(claim.phase(at(151.0)), LeasePhase::Standby);
    }
}
