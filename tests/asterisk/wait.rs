//! Waits for events with a deadline, and lets times of a story pass.

use anyhow::{Context, Result};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// A wait that takes this long has failed.
pub const DEADLINE: Duration = Duration::from_secs(40);

/// Waits for `future`. Fails with `what` if it is not ready within [`DEADLINE`].
pub async fn finish_in_time<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    let came = timeout(DEADLINE, future).await;
    came.with_context(|| format!("{what} did not come within {DEADLINE:?}"))
}

/// Waits for `span`, or until `happens` is ready. Returns the result of `happens`, or `None` after
/// `span`.
pub async fn wait_at_most<T>(span: Duration, happens: impl Future<Output = T>) -> Option<T> {
    timeout(span, happens).await.ok()
}

/// Repeats `look` until it returns a value. Fails with `what` after [`DEADLINE`].
pub async fn repeat_until<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let mut looks = interval(Duration::from_millis(50));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let looking = async {
        loop {
            looks.tick().await;
            if let Some(found) = look().await? {
                return Ok(found);
            }
        }
    };
    finish_in_time(what, looking).await?
}
