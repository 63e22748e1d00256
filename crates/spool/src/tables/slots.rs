//! The slots of the sender's budget.

use super::meta;
use crate::Db;
use crate::Error;
use crate::Store;
use crate::op::{Done, SlotRow};
use callbridge_call::EventTime;
use callbridge_model::TokenFingerprint;
use std::time::Duration;

/// 292 years fit.
fn nanos(since_boot: Duration) -> i64 {
    i64::try_from(since_boot.as_nanos()).unwrap_or(i64::MAX)
}

fn since_boot(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

pub(crate) fn set_slot(store: &Store, slot: &SlotRow) -> Result<Done, Error> {
    meta::settle_identity(store)?;
    store.execute(
        "INSERT OR REPLACE INTO slots (slot, token, boot_id, sent, answered, wall_sent)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        (
            slot.slot,
            slot.token.as_str(),
            &slot.boot_id,
            nanos(slot.sent),
            slot.answered.map(nanos),
            slot.wall_sent.micros(),
        ),
    )?;
    Ok(Done::Stored)
}

pub(crate) fn drop_slot(db: &Db, slot: u32) -> Result<Done, Error> {
    db.execute("DELETE FROM slots WHERE slot = ?1", [slot])?;
    Ok(Done::Stored)
}

/// All slots taken, by number.
pub fn slots(db: &Db) -> Result<Vec<SlotRow>, Error> {
    db.query_all(
        "SELECT slot, token, boot_id, sent, answered, wall_sent FROM slots ORDER BY slot",
        [],
        |row| {
            Ok(SlotRow {
                slot: row.get(0)?,
                token: TokenFingerprint::stored(row.get(1)?),
                boot_id: row.get(2)?,
                sent: since_boot(row.get(3)?),
                answered: row.get::<_, Option<i64>>(4)?.map(since_boot),
                wall_sent: EventTime::from_micros(row.get(5)?),
            })
        },
    )
}
