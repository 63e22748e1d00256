//! How far each source is read.

use crate::db::json;
use crate::{Db, Error, RowId};

pub(crate) fn set_position(
    db: &Db,
    source: &str,
    position: &serde_json::Value,
) -> Result<(), Error> {
    let position = json("a position", position)?;
    db.run(
        "INSERT OR REPLACE INTO positions (source, position) VALUES (?1, ?2)",
        (source, position),
    )
}

/// Reads the progress of a source; `None` for one never read.
pub fn position(db: &Db, source: &str) -> Result<Option<serde_json::Value>, Error> {
    let text =
        db.first_value::<String>("SELECT position FROM positions WHERE source = ?1", [source])?;
    text.map(|text| db.read_json(RowId(0), &text)).transpose()
}
