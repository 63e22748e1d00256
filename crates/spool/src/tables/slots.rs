//! The slots of the sender's budget.

use super::meta;
use crate::{Columns as _, Db, Error, SlotRow, Store};
use callbridge_model::TokenFingerprint;
use std::time::Duration;

/// Nanoseconds as they are stored: 292 years fit.
fn nanos(since_boot: Duration) -> i64 {
    i64::try_from(since_boot.as_nanos()).unwrap_or(i64::MAX)
}

pub(crate) fn set_slot(store: &Store, slot: &SlotRow) -> Result<(), Error> {
    // A request is made: the doubt is over for those who open the file after us.
    if store.restored {
        meta::drop_meta(store, meta::RESTORED)?;
    }
    let text = "INSERT OR REPLACE INTO slots (slot, token, boot_id, sent, answered, wall_sent)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
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

/// All slots taken, by number.
pub fn slots(db: &Db) -> Result<Vec<SlotRow>, Error> {
    let text = "SELECT slot, token, boot_id, sent, answered, wall_sent FROM slots ORDER BY slot";
    db.query_all(text, [], |row| {
        Ok(SlotRow {
            slot: row.get(0)?,
            token: TokenFingerprint::stored(row.get(1)?),
            boot_id: row.get(2)?,
            sent: row.get(3).map(Duration::from_nanos)?,
            answered: row.get::<_, Option<u64>>(4)?.map(Duration::from_nanos),
            wall_sent: row.moment(5)?,
        })
    })
}
