//! The position of each source, and the calls still in progress. After a restart, sources are read
//! from their stored positions and stored calls are picked up again.

use crate::{Db, Error, RowId, json};

pub(crate) fn set_position(
    db: &Db,
    source: &str,
    position: &serde_json::Value,
) -> Result<(), Error> {
    let position = json("a position", position)?;
    let text = "INSERT INTO positions (source, position)
         VALUES (?1, ?2)
         ON CONFLICT (source) DO UPDATE SET position = excluded.position";
    db.run(text, (source, position))
}

/// Reads a source's position, if one was stored.
pub fn position(db: &Db, source: &str) -> Result<Option<serde_json::Value>, Error> {
    let text = "SELECT position FROM positions WHERE source = ?1";
    let text = db.query_first::<String>(text, [source])?;
    text.map(|text| db.read_json(RowId(0), &text)).transpose()
}

pub(crate) fn set_open(db: &Db, pbx: &str, key: u64, snapshot: Option<&[u8]>) -> Result<(), Error> {
    let key = key.cast_signed();
    match snapshot {
        Some(bytes) => db.run(
            "INSERT INTO open_calls (pbx, key, snapshot) VALUES (?1, ?2, ?3)
             ON CONFLICT (pbx, key) DO UPDATE SET snapshot = excluded.snapshot",
            (pbx, key, bytes),
        ),
        None => {
            let text = "DELETE FROM open_calls WHERE pbx = ?1 AND key = ?2";
            db.run(text, (pbx, key))
        }
    }
}

/// Returns the PBX, key, and snapshot of every open call, in the order in which they were first
/// saved.
pub fn all_open_calls(db: &Db) -> Result<Vec<(String, u64, Vec<u8>)>, Error> {
    let text = "SELECT pbx, key, snapshot FROM open_calls ORDER BY id";
    db.query_known(text, (), |(pbx, key, snapshot)| {
        Some((pbx, i64::cast_unsigned(key), snapshot))
    })
}

/// Counts the open calls across all PBXs.
pub fn open_call_count(db: &Db) -> Result<u64, Error> {
    db.query_one("SELECT count(*) FROM open_calls", ())
}
