//! Waiting for the event itself, never for a time.

use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Nothing in these tests takes this long unless it never comes.
pub const DEADLINE: Duration = Duration::from_secs(180);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits for `future`, and fails with `what` when it does not come.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(DEADLINE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {DEADLINE:?}"),
    }
}

/// Looks until it holds.
pub async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looking = async {
        while !holds().await {
            looks.tick().await;
        }
    };
    soon(what, looking).await;
}
