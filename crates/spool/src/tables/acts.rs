//! What people did with letters, kept with their calls.

use crate::db::json;
use crate::{ACTS_MAX, Act, Db, Error, RowId};

/// One more act. Unreadable bytes have none: all that can be done with them is to discard them.
pub(crate) fn note(db: &Db, row: RowId, act: &Act) -> Result<(), Error> {
    let mut all = acts(db, row)?;
    if all.len() >= ACTS_MAX {
        all.remove(1);
    }
    all.push(act.clone());
    let all = json("acts", &all)?;
    db.run("UPDATE calls SET acts = ?2 WHERE id = ?1", (row.0, all))
}

/// What was done with a call while it was a letter, oldest first.
pub fn acts(db: &Db, row: RowId) -> Result<Vec<Act>, Error> {
    let text: Option<Option<String>> =
        db.first_value("SELECT acts FROM calls WHERE id = ?1", [row.0])?;
    read(db, row, text.flatten().as_deref())
}

/// The column as it is stored.
pub(crate) fn read(db: &Db, row: RowId, text: Option<&str>) -> Result<Vec<Act>, Error> {
    text.map_or_else(|| Ok(Vec::new()), |text| db.read_json(row, text))
}
