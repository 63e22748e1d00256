//! Waiting for the event itself; and the passing of time where a scenario needs some to pass.

use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Nothing in these tests takes this long unless it never comes.
pub const DEADLINE: Duration = Duration::from_secs(1_800);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

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

/// Lets time pass: a fault lasts, a kill comes at any moment. Nothing is asserted about it.
pub async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}
