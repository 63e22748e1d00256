//! Waiting for an event with a deadline, and passing the time that a story speaks of.

use anyhow::{Context, Result};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Nothing that is waited for takes this long unless it never comes.
pub const DEADLINE: Duration = Duration::from_secs(40);

/// Waits for what must come.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T> {
    let came = timeout(DEADLINE, future).await;
    came.with_context(|| format!("{what} did not come within {DEADLINE:?}"))
}

/// Lets a time of the story pass, or ends before when something happens: what it was.
pub async fn for_at_most<T>(span: Duration, happens: impl Future<Output = T>) -> Option<T> {
    timeout(span, happens).await.ok()
}

/// Looks again and again until there is what was waited for.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
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
    within(what, looking).await?
}
