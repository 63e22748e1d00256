//! Leave to send requests, until a moment of the boot clock.
//!
//! Where one of several machines sends, whoever holds the lease grants it, and it ends by itself:
//! a process that was frozen finds it ended when it goes on, whatever its tasks have missed.

use crate::clock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Nothing was sent: leave to send had ended before the first byte left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: this process does not hold the lease")]
pub struct NotPermitted;

/// Leave to send. Cheap to clone; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Permit {
    /// Milliseconds since boot; `None` where nobody else sends, and it never ends.
    until: Option<Arc<AtomicU64>>,
}

impl Permit {
    /// Leave that never ends: nobody else sends.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// Leave that has to be granted first.
    pub fn withheld() -> Self {
        Self {
            until: Some(Arc::new(AtomicU64::new(0))),
        }
    }

    /// It may end, or be withheld.
    pub const fn is_limited(&self) -> bool {
        self.until.is_some()
    }

    /// Leave until this moment since boot, or none from now on. Of leave that never ends nothing
    /// can be taken.
    pub fn set(&self, until: Option<Duration>) {
        if let Some(shared) = &self.until {
            let until = until.unwrap_or_default().as_millis();
            // down to the millisecond: it never ends later than it was granted for
            shared.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
    }

    /// Whether a request may leave at this moment since boot.
    pub fn is_held_at(&self, now: Duration) -> bool {
        let until = self.until.as_ref().map(|it| it.load(Ordering::SeqCst));
        until.is_none_or(|until| now < Duration::from_millis(until))
    }

    /// Whether a request may leave now.
    pub fn is_held(&self) -> bool {
        !self.is_limited() || self.is_held_at(clock::now().boot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn leave_ends_at_its_moment_for_all_who_share_it_and_can_be_withdrawn() {
        let permit = Permit::withheld();
        let shared = permit.clone();
        assert!(!shared.is_held_at(at(0)) && !shared.is_held());
        permit.set(Some(at(5_000) + Duration::from_micros(900)));
        assert!(shared.is_held_at(at(4_999)));
        assert!(!shared.is_held_at(at(5_000)), "never later than granted");
        permit.set(Some(at(9_000)));
        assert!(shared.is_held_at(at(8_999)));
        permit.set(None);
        assert!(!shared.is_held_at(at(0)));
    }

    #[test]
    fn where_nobody_else_sends_leave_never_ends() {
        let permit = Permit::unlimited();
        permit.set(None);
        assert!(permit.is_held() && permit.is_held_at(Duration::MAX));
        assert!(!permit.is_limited() && Permit::withheld().is_limited());
    }
}
