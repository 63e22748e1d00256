//! The `silence` table, which never has more than one row.

use crate::db::Asked;
use crate::{Db, Error, Silence, SilenceReason};
use std::time::Duration;

/// The columns of the row, in the order of the query in [`ask`].
type Stored = (String, u64, String);

/// Sends the query for the row, whose result is read with [`read`].
pub(crate) fn ask(db: &Db) -> Result<Asked<Stored>, Error> {
    db.ask("SELECT boot_id, until, why FROM silence", ())
}

pub(crate) fn read(db: &Db, asked: Asked<Stored>) -> Result<Option<Silence>, Error> {
    let row = asked.first(db)?;
    Ok(row.map(|(boot_id, until, why)| Silence {
        boot_id,
        until: Duration::from_nanos(until),
        why: SilenceReason::parse(&why),
    }))
}

/// Writes the row.
pub(crate) fn replace(db: &Db, silence: &Silence) -> Result<(), Error> {
    let text = "INSERT INTO silence (id, boot_id, until, why) VALUES (1, ?1, ?2, ?3)
         ON CONFLICT (id) DO UPDATE SET boot_id = excluded.boot_id, until = excluded.until,
             why = excluded.why";
    let until = i64::try_from(silence.until.as_nanos()).unwrap_or(i64::MAX);
    db.run(text, (&silence.boot_id, until, silence.why.text()))
}

pub(crate) fn remove(db: &Db) -> Result<(), Error> {
    db.run("DELETE FROM silence", ())
}
