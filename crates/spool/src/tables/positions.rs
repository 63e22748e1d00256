//! How far each source is read.

use super::finish::json;
use crate::Error;
use crate::op::{Done, RowId};
use crate::store::{Store, sql};
use rusqlite::OptionalExtension as _;

impl Store {
    pub(crate) fn set_position(
        &self,
        source: &str,
        position: &serde_json::Value,
    ) -> Result<Done, Error> {
        let position = json("a position", position)?;
        self.execute(
            "INSERT OR REPLACE INTO positions (source, position) VALUES (?1, ?2)",
            (source, position),
        )?;
        Ok(Done::Stored)
    }

    /// How far a source is read; `None` for one never read.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn position(&self, source: &str) -> Result<Option<serde_json::Value>, Error> {
        let mut found = self.prepare("SELECT position FROM positions WHERE source = ?1")?;
        let text = found.query_row([source], |row| row.get::<_, String>(0));
        let text = sql(self, text.optional())?;
        text.map(|text| self.read_json(RowId(0), &text)).transpose()
    }
}
