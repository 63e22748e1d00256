//! The `hub` table, which never has more than one row.

use crate::db::Asked;
use crate::hub::{HubPosition, HubRow, Sighting};
use crate::{Db, Error};
use callbridge_call::EventTime;
use serde::Deserialize;

/// The row as the query in [`ask`] reads it.
#[derive(Deserialize)]
pub(crate) struct Stored {
    incarnation: String,
    seq: u64,
    began: EventTime,
    revealed_by: Option<String>,
    sighted_by: Option<String>,
    sighted_at: Option<EventTime>,
    split_by: Option<String>,
}

/// Reads the row in the `hub` table, or returns `None` if no hub has used this state.
pub(crate) fn load(db: &Db) -> Result<Option<HubRow>, Error> {
    let asked = ask(db)?;
    read(db, asked)
}

/// Sends the query for the row, whose result is read with [`read`].
pub(crate) fn ask(db: &Db) -> Result<Asked<Stored>, Error> {
    let text = "SELECT incarnation, seq, began, revealed_by, sighted_by, sighted_at, split_by
         FROM hub";
    db.ask(text, ())
}

/// Reads the result of the query in [`ask`], or returns `None` if no hub has used this state.
pub(crate) fn read(db: &Db, asked: Asked<Stored>) -> Result<Option<HubRow>, Error> {
    let Some(row) = asked.first(db)? else {
        return Ok(None);
    };
    let sighted = row.sighted_by.zip(row.sighted_at);
    Ok(Some(HubRow {
        position: HubPosition {
            incarnation: row.incarnation,
            seq: row.seq,
        },
        began: row.began,
        revealed_by: row.revealed_by,
        sighting: sighted.map(|(branch, at)| Sighting { branch, at }),
        split_by: row.split_by,
    }))
}
