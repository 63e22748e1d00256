//! Leave to send requests, until a moment of the boot clock.
//!
//! Where one of several machines sends, whoever holds the lease grants it, and it ends by itself:
//! a process that was frozen finds it ended when it goes on, whatever its tasks have missed. With
//! leave that another has handed over come the slots of the budget that it has used.

use crate::clock::{self, ClockOffset, Now};
use std::mem::take;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Nothing was sent: leave to send had ended before the first byte left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: this process does not hold the lease")]
pub struct NotPermitted;

/// Leave to send. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Permit {
    /// `None` where nobody else sends, and it never ends.
    granted: Option<Arc<Granted>>,
}

/// The shared state of leave that ends by itself or is withheld.
#[derive(Debug, Default)]
struct Granted {
    /// Milliseconds since boot at which the leave ends; 0 while it is withheld.
    until: AtomicU64,
    /// The clocks' offset in microseconds when the leave was granted: a machine that stood still
    /// since then finds it ended, though its time since boot stood still as well.
    offset: AtomicI64,
    slots: Mutex<HandedSlots>,
}

/// Times since boot at which requests ended whose slots pass from one process to another.
#[derive(Debug, Default)]
struct HandedSlots {
    inherited: Vec<Duration>,
    left: Option<Vec<Duration>>,
}

impl Granted {
    fn slots(&self) -> MutexGuard<'_, HandedSlots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Leave that never ends: nobody else sends.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// Leave that has to be granted first.
    pub fn withheld() -> Self {
        Self {
            granted: Some(Arc::default()),
        }
    }

    /// Returns `true` where the leave may end or be withheld: another process may send.
    pub const fn is_limited(&self) -> bool {
        self.granted.is_some()
    }

    /// Leave until this moment since boot, or none from now on. Of leave that never ends nothing
    /// can be taken.
    pub fn set(&self, now: Now, until: Option<Duration>) {
        if let Some(shared) = &self.granted {
            let until = until.unwrap_or_default().as_millis();
            // none while the two do not belong together
            shared.until.store(0, Ordering::SeqCst);
            shared.offset.store(now.offset().micros(), Ordering::SeqCst);
            // down to the millisecond: it never ends later than it was granted for
            let until = u64::try_from(until).unwrap_or(u64::MAX);
            shared.until.store(until, Ordering::SeqCst);
        }
    }

    /// Counts another's requests as ours from now on: the times since boot at which they ended.
    /// Called before the leave that came with them is set.
    pub fn inherit(&self, ended: Vec<Duration>) {
        if let Some(shared) = &self.granted {
            shared.slots().inherited.extend(ended);
        }
    }

    /// Takes another's requests that are to be counted before a request leaves; each is returned
    /// once.
    pub fn take_inherited(&self) -> Vec<Duration> {
        let shared = self.granted.as_ref();
        shared.map_or_else(Vec::new, |it| take(&mut it.slots().inherited))
    }

    /// Nothing leaves any more, and all that has left and may still count ended then, since boot.
    pub fn leave_behind(&self, ended: Vec<Duration>) {
        if let Some(shared) = &self.granted {
            shared.slots().left = Some(ended);
        }
    }

    /// Returns the times set by [`Permit::leave_behind`]; `None` before it was called, and for
    /// leave that never ends.
    pub fn left_behind(&self) -> Option<Vec<Duration>> {
        self.granted.as_ref()?.slots().left.clone()
    }

    /// Returns `true` while a request may leave at this moment: the leave has not ended, and the
    /// wall clock has not jumped since it was granted.
    pub fn is_held_at(&self, now: Now) -> bool {
        let Some(shared) = &self.granted else {
            return true;
        };
        let until = Duration::from_millis(shared.until.load(Ordering::SeqCst));
        let granted = ClockOffset::from_micros(shared.offset.load(Ordering::SeqCst));
        now.boot < until && !granted.has_jumped(now.offset())
    }

    /// Returns `true` while a request may leave now, by the clocks of this machine.
    pub fn is_held(&self) -> bool {
        !self.is_limited() || self.is_held_at(clock::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_call::EventTime;

    fn at(millis: u64) -> Now {
        let boot = Duration::from_millis(millis);
        let wall = EventTime::from_seconds(1_795_000_000).plus(boot);
        Now { wall, boot }
    }

    #[test]
    fn leave_ends_at_its_moment_for_all_who_share_it_and_can_be_withdrawn() {
        let permit = Permit::withheld();
        let shared = permit.clone();
        assert!(!shared.is_held_at(at(0)) && !shared.is_held());
        permit.set(at(0), Some(at(5_000).boot + Duration::from_micros(900)));
        assert!(shared.is_held_at(at(4_999)));
        assert!(!shared.is_held_at(at(5_000)), "never later than granted");
        permit.set(at(0), Some(at(9_000).boot));
        assert!(shared.is_held_at(at(8_999)));
        permit.set(at(0), None);
        assert!(!shared.is_held_at(at(0)));
    }

    #[test]
    fn a_machine_that_stood_still_with_its_clocks_finds_leave_ended_once_it_is_told_the_time() {
        let permit = Permit::withheld();
        permit.set(at(1_000), Some(at(11_000).boot));
        let told_later = |seconds| Now {
            wall: at(1_500).wall.plus(Duration::from_secs(seconds)),
            ..at(1_500)
        };
        assert!(
            permit.is_held_at(told_later(2)),
            "clocks are corrected, too"
        );
        assert!(!permit.is_held_at(told_later(3)));
        // leave that is granted after it holds
        permit.set(told_later(3), Some(at(12_000).boot));
        assert!(permit.is_held_at(told_later(3)));
    }

    #[test]
    fn slots_pass_to_all_who_share_it_and_are_inherited_once() {
        let permit = Permit::withheld();
        let shared = permit.clone();
        assert_eq!(shared.left_behind(), None);
        permit.inherit(vec![at(1).boot]);
        permit.inherit(vec![at(2).boot]);
        assert_eq!(shared.take_inherited(), [at(1).boot, at(2).boot]);
        assert_eq!(shared.take_inherited(), []);
        shared.leave_behind(vec![at(3).boot]);
        assert_eq!(permit.left_behind(), Some(vec![at(3).boot]));
        let alone = Permit::unlimited();
        alone.inherit(vec![at(1).boot]);
        alone.leave_behind(Vec::new());
        assert_eq!(
            (alone.take_inherited(), alone.left_behind()),
            (vec![], None)
        );
    }

    #[test]
    fn where_nobody_else_sends_leave_never_ends() {
        let permit = Permit::unlimited();
        permit.set(at(0), None);
        assert!(permit.is_held() && permit.is_held_at(at(u64::MAX >> 20)));
        assert!(!permit.is_limited() && Permit::withheld().is_limited());
    }
}
