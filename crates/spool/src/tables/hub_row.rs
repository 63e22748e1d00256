//! The `hub` table, which never has more than one row.

use crate::db::Asked;
use crate::hub::{HubPosition, HubRow};
use crate::{Db, Error};
use callbridge_call::EventTime;

/// The row's columns, in the order of the query in [`ask`].
type Stored = (String, u64, EventTime, Option<String>);

/// Reads the row in the `hub` table, or returns `None` if no hub has used this state.
pub(crate) fn load(db: &Db) -> Result<Option<HubRow>, Error> {
    let asked = ask(db)?;
    read(db, asked)
}

/// Sends the query for the row, whose result is read with [`read`].
pub(crate) fn ask(db: &Db) -> Result<Asked<Stored>, Error> {
    let text = "SELECT incarnation, seq, began, revealed_by FROM hub";
    db.ask(text, ())
}

/// Reads the result of the query in [`ask`], or returns `None` if no hub has used this state.
pub(crate) fn read(db: &Db, asked: Asked<Stored>) -> Result<Option<HubRow>, Error> {
    let Some((incarnation, seq, began, revealed_by)) = asked.first(db)? else {
        return Ok(None);
    };
    Ok(Some(HubRow {
        position: HubPosition { incarnation, seq },
        began,
        revealed_by,
    }))
}
