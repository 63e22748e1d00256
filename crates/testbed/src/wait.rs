//! Waiting for a condition with a deadline, and letting time pass where a scenario needs it.

use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Maximum wait. If a test waits this long, the event will not happen.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// Shortest and longest time between two checks. The time is a tenth of the wait so far, within
/// these limits. A check asks a program for its status, and hundreds of programs run at once on two
/// cores.
const CHECK_EVERY: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];

/// Waits for `future`, and fails with `what` if it is not ready in time.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    within(DEADLINE, what, future).await
}

/// Waits until the condition holds.
pub async fn until(what: &str, holds: impl AsyncFnMut() -> bool) {
    until_within(DEADLINE, what, holds).await;
}

/// Waits until the condition holds, for things that take longer.
pub async fn until_within(deadline: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    let looking = async {
        while !holds().await {
            sleep(pause_after(begun.elapsed())).await;
        }
    };
    within(deadline, what, looking).await;
}

/// Returns the time until the next check, if the test has waited this long.
pub fn pause_after(waited: Duration) -> Duration {
    let [least, most] = CHECK_EVERY;
    (waited / 10).clamp(least, most)
}

async fn within<T>(deadline: Duration, what: &str, future: impl Future<Output = T>) -> T {
    match timeout(deadline, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {deadline:?}"),
    }
}

/// Blocks this thread, with every task that runs on it.
pub fn stand_still(time: Duration) {
    std::thread::sleep(time);
}

/// Lets time pass, for example while a failure lasts or before a kill. Nothing is asserted about
/// it.
pub async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}
