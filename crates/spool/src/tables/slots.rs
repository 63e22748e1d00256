//! The slots of the sender's budget.

use super::meta;
use crate::{Db, Error, SlotRow, Store};
use std::time::Duration;

/// Converts a time into nanoseconds as they are stored. Up to 292 years fit.
fn nanos(since_boot: Duration) -> i64 {
    i64::try_from(since_boot.as_nanos()).unwrap_or(i64::MAX)
}

pub(crate) fn set_slot(store: &Store, slot: &SlotRow) -> Result<(), Error> {
    // A request is being made, so later processes no longer treat the state as a possible copy.
    if store.restored {
        meta::drop_meta(store, meta::RESTORED)?;
    }
    let text = "INSERT INTO slots (slot, token, boot_id, sent, answered, wall_sent)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (slot) DO UPDATE SET token = excluded.token,
             boot_id = excluded.boot_id, sent = excluded.sent, answered = excluded.answered,
             wall_sent = excluded.wall_sent";
    let values = (
        slot.slot,
        slot.token.as_str(),
        &slot.boot_id,
        nanos(slot.sent),
        slot.answered.map(nanos),
        slot.wall_sent.micros(),
    );
    store.run(text, values)
}

pub(crate) fn drop_slot(db: &Db, slot: u32) -> Result<(), Error> {
    db.run("DELETE FROM slots WHERE slot = ?1", [slot])
}

/// Returns all taken slots, in the order of their numbers.
pub fn slots(db: &Db) -> Result<Vec<SlotRow>, Error> {
    let text = "SELECT slot, token, boot_id, sent, answered, wall_sent FROM slots ORDER BY slot";
    let rows = db.query_all(text, ())?.into_iter();
    let slots = rows.map(
        |(slot, token, boot_id, sent, answered, wall_sent)| SlotRow {
            slot,
            token,
            boot_id,
            sent: Duration::from_nanos(sent),
            answered: Option::map(answered, Duration::from_nanos),
            wall_sent,
        },
    );
    Ok(slots.collect())
}
