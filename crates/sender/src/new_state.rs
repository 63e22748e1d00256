//! The slots that a new state starts with.
//!
//! `check` sends up to three requests, but without a state it has nowhere to store their slots. A
//! new state therefore starts with three slots taken, so that `check` and the `run` that follows it
//! never exceed the budget.

use crate::plan::Known;
use callbridge_model::{TokenFingerprint, clock};
use callbridge_spool::{Error, Handle, Op, SlotRow};

/// Maximum number of requests that `check` sends.
pub const CHECK_REQUESTS_MAX: u32 = 3;

/// Stores three taken slots in a new state, to account for an earlier `check`. Does nothing if the
/// state already has slots, a memory, or a silence.
///
/// # Errors
/// Returns an error if the spool can't be read or written.
pub async fn take_slots(spool: &Handle) -> Result<(), Error> {
    let known = spool
        .read(|store| Known::read(store, clock::boot_id()))
        .await?;
    if known.silence.is_some() || known.memory.is_some() || !known.slots.is_empty() {
        return Ok(());
    }
    let now = clock::now();
    let boot_id = known.boot_id.unwrap_or_default();
    let slots = (0..CHECK_REQUESTS_MAX).map(|slot| {
        Op::Slot(SlotRow {
            slot,
            // The earlier `check`'s token is unknown.
            token: TokenFingerprint::of(""),
            boot_id: boot_id.clone(),
            sent: now.boot,
            answered: Some(now.boot),
            wall_sent: now.wall,
        })
    });
    spool.write(slots.collect()).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_spool::{Settings, open, tables};

    async fn stored_slots(spool: &Handle) -> Vec<SlotRow> {
        let read = spool.read(|store| tables::slots::slots(store)).await;
        read.expect("readable")
    }

    #[tokio::test]
    async fn new_state_uses_three_slots_only_before_its_first_request() {
        let dir = tempfile::tempdir().expect("a folder");
        let (spool, guard) = open(dir.path(), Settings::default()).expect("opens");
        take_slots(&spool).await.expect("stored");
        let taken = stored_slots(&spool).await;
        assert_eq!(taken.len(), 3);
        take_slots(&spool).await.expect("stored");
        assert_eq!(stored_slots(&spool).await, taken, "once");
        // A sender ran, and its slots have become available again.
        let mut ops: Vec<Op> = (0..3).map(Op::SlotGone).collect();
        ops.push(Op::meta(crate::memory::KEY, "{}"));
        spool.write(ops).await.expect("stored");
        take_slots(&spool).await.expect("stored");
        assert_eq!(stored_slots(&spool).await, []);
        guard.close();
    }
}
