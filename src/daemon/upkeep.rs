//! Forgets what is long over, a little at a time, so that nobody waits for it.

use super::lists::passed;
use callbridge_intake::release::expire;
use callbridge_model::clock;
use callbridge_source::EventTime;
use callbridge_spool::{Done, Error, Handle, Op};
use std::time::Duration;
use tokio::time::Instant;

/// Between two looks whether there is something to forget.
const EVERY: Duration = Duration::from_secs(60);
/// While there is more, the spool's thread rests this many times as long as a round took.
const REST: u32 = 4;
/// And at least so long.
const REST_MIN: Duration = Duration::from_millis(20);

/// Works until it is dropped: ends the wait of parked calls after their time, and purges.
///
/// # Errors
/// When the spool is gone for good.
pub(crate) async fn keep(spool: Handle) -> anyhow::Result<()> {
    // Not at the start, which has better things to do.
    let mut look = tokio::time::interval_at(Instant::now() + EVERY, EVERY);
    loop {
        look.tick().await;
        let mut more = true;
        while more {
            let began = Instant::now();
            let done = round(&spool, clock::now().wall).await;
            more = matches!(done, Ok(1..));
            passed(done)?;
            if more {
                tokio::time::sleep((began.elapsed() * REST).max(REST_MIN)).await;
            }
        }
    }
}

/// One round; 0 when nothing is left to do.
async fn round(spool: &Handle, now: EventTime) -> Result<u64, Error> {
    let ended = expire(spool, now).await?;
    let done = spool.write(vec![Op::Purge { now }]).await?;
    let more = done
        .iter()
        .any(|done| matches!(done, Done::Purged(purged) if purged.more));
    Ok(ended + u64::from(more))
}
