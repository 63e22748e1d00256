//! Waiting for the event itself; and the passing of time where a scenario needs some to pass.

use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Nothing in these tests takes this long unless it never comes.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// Between two looks: a tenth of the time waited so far, within these. A look asks a program for
/// its status, and hundreds of programs wait beside each other on two cores.
const CHECK_EVERY: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(250)];

/// Waits for `future`, and fails with `what` when it does not come.
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

/// Blocks this thread for a while, with every task that runs on it.
pub fn stand_still(time: Duration) {
    std::thread::sleep(time);
}

/// Lets time pass: a fault lasts, a kill comes at any moment. Nothing is asserted about it.
pub async fn pass(time: Duration) {
    let _ = timeout(time, std::future::pending::<()>()).await;
}
