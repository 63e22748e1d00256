//! Waiting for the lock of a state folder. A command without a daemon holds it for a moment, a
//! daemon that starts or stops holds it and does not answer yet or any more: neither is a reason
//! for the other to give up at once.

use std::time::Duration;
use tokio::time::Instant;

/// So long a lock is waited for.
const WITHIN: Duration = Duration::from_secs(4);
const TRY_EVERY: Duration = Duration::from_millis(40);

/// One wait for a lock, with the moment at which it is given up.
#[derive(Clone, Copy, Debug)]
pub struct LockWait {
    until: Instant,
}

impl LockWait {
    /// Returns a wait that begins now and lasts at most 4 s.
    pub fn begin() -> Self {
        Self {
            until: Instant::now() + WITHIN,
        }
    }

    /// Waits a little; false, and at once, when it has waited long enough.
    pub async fn has_more(self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(TRY_EVERY).await;
        true
    }
}
