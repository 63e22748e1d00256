//! The slots of the sender's budget, and the silence that is kept while requests without a slot
//! still count against it.

use super::silence;
use crate::{Db, Error, Silence, SlotRow, Store};
use std::time::Duration;

/// Converts a time into nanoseconds for storage, which works for up to 292 years.
fn nanos(since_boot: Duration) -> i64 {
    i64::try_from(since_boot.as_nanos()).unwrap_or(i64::MAX)
}

pub(crate) fn set_slot(store: &mut Store, slot: &SlotRow) -> Result<(), Error> {
    end_silence(store, slot.sent)?;
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

/// Stores a silence, unless the one already stored ends later in the same boot.
pub(crate) fn begin_silence(store: &mut Store, silence: &Silence) -> Result<(), Error> {
    let is_covered = (store.silence.as_ref())
        .is_some_and(|kept| kept.boot_id == silence.boot_id && kept.until >= silence.until);
    if !is_covered {
        silence::replace(store, silence)?;
        store.silence = Some(silence.clone());
    }
    Ok(())
}

/// Removes the silence if it was over by the time a request was sent at `sent`.
fn end_silence(store: &mut Store, sent: Duration) -> Result<(), Error> {
    if (store.silence.as_ref()).is_none_or(|silence| silence.until > sent) {
        return Ok(());
    }
    silence::remove(store)?;
    store.silence = None;
    Ok(())
}

pub(crate) fn drop_slot(db: &Db, slot: u32) -> Result<(), Error> {
    db.run("DELETE FROM slots WHERE slot = ?1", [slot])
}

/// Returns all used slots, in order of their numbers.
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
