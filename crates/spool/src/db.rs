//! An open database: its statements, and what SQLite answers in our errors.

use crate::{Error, RowId};
use callbridge_call::EventTime;
use callbridge_model::{CallUuid, Reason};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params, Row, RowIndex};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod statements;

/// The connection, with the name of its file for errors.
#[derive(Debug)]
pub struct Db {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
    #[cfg(test)]
    statements: statements::Statements,
}

/// Reads columns of types that SQLite does not have itself.
pub(crate) trait Columns {
    fn moment(&self, at: impl RowIndex) -> rusqlite::Result<EventTime>;
    fn maybe_moment(&self, at: impl RowIndex) -> rusqlite::Result<Option<EventTime>>;
    fn uuid(&self, at: impl RowIndex) -> rusqlite::Result<CallUuid>;
    fn maybe_uuid(&self, at: impl RowIndex) -> rusqlite::Result<Option<CallUuid>>;
    fn reason(&self, at: impl RowIndex) -> rusqlite::Result<Reason>;
    fn maybe_reason(&self, at: impl RowIndex) -> rusqlite::Result<Option<Reason>>;
}

struct StoredReason(Reason);

impl FromSql for StoredReason {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let word = value.as_str()?;
        let known = Reason::from_word(word).map(Self);
        known.ok_or_else(|| FromSqlError::Other(format!("there is no reason {word}").into()))
    }
}

impl Columns for Row<'_> {
    fn moment(&self, at: impl RowIndex) -> rusqlite::Result<EventTime> {
        self.get(at).map(EventTime::from_micros)
    }

    fn maybe_moment(&self, at: impl RowIndex) -> rusqlite::Result<Option<EventTime>> {
        Ok(self.get::<_, Option<i64>>(at)?.map(EventTime::from_micros))
    }

    fn uuid(&self, at: impl RowIndex) -> rusqlite::Result<CallUuid> {
        Ok(CallUuid(uuid::Uuid::from_bytes(self.get(at)?)))
    }

    fn maybe_uuid(&self, at: impl RowIndex) -> rusqlite::Result<Option<CallUuid>> {
        let bytes: Option<[u8; 16]> = self.get(at)?;
        Ok(bytes.map(|bytes| CallUuid(uuid::Uuid::from_bytes(bytes))))
    }

    fn reason(&self, at: impl RowIndex) -> rusqlite::Result<Reason> {
        self.get(at).map(|StoredReason(reason)| reason)
    }

    fn maybe_reason(&self, at: impl RowIndex) -> rusqlite::Result<Option<Reason>> {
        Ok(self.get::<_, Option<StoredReason>>(at)?.map(|it| it.0))
    }
}

impl From<Error> for rusqlite::Error {
    /// Wraps an error of a reader of rows, on its way through SQLite.
    fn from(error: Error) -> Self {
        Self::ToSqlConversionFailure(Box::new(error))
    }
}

impl Db {
    pub(crate) fn new(connection: Connection, path: &Path) -> Self {
        Self {
            connection,
            path: path.to_path_buf(),
            #[cfg(test)]
            statements: statements::Statements::default(),
        }
    }

    /// SQLite's answer with our errors; what a reader of rows said of a value is passed on.
    pub(crate) fn sql<T>(&self, answer: rusqlite::Result<T>) -> Result<T, Error> {
        answer.map_err(|error| match error {
            rusqlite::Error::ToSqlConversionFailure(own) => match own.downcast::<Error>() {
                Ok(own) => *own,
                Err(other) => self.damaged(other.to_string()),
            },
            other => Error::sqlite(&self.path, &other),
        })
    }

    #[cfg_attr(test, track_caller)]
    pub(crate) fn prepare(&self, text: &str) -> Result<CachedStatement<'_>, Error> {
        #[cfg(test)]
        self.statements.note(text);
        self.sql(self.connection.prepare_cached(text))
    }

    #[cfg_attr(test, track_caller)]
    pub(crate) fn execute(&self, text: &str, values: impl Params) -> Result<usize, Error> {
        let mut statement = self.prepare(text)?;
        self.sql(statement.execute(values))
    }

    /// [`Db::execute`] where nobody asks how many rows it changed.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn run(&self, text: &str, values: impl Params) -> Result<(), Error> {
        self.execute(text, values).map(drop)
    }

    /// Reads the one row that there is.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_one<T>(
        &self,
        text: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let mut statement = self.prepare(text)?;
        self.sql(statement.query_row(values, read))
    }

    /// Reads the first row, where there is one.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_first<T>(
        &self,
        text: &str,
        values: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, Error> {
        let mut statement = self.prepare(text)?;
        self.sql(statement.query_row(values, read).optional())
    }

    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_all<T, C: FromIterator<T>>(
        &self,
        text: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<C, Error> {
        let mut statement = self.prepare(text)?;
        let rows = statement.query_map(values, read);
        self.sql(rows.and_then(Iterator::collect))
    }

    /// Reads all rows but those that no version of ours wrote: their readers say `None`.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_known<T>(
        &self,
        text: &str,
        values: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<Option<T>>,
    ) -> Result<Vec<T>, Error> {
        let rows: Vec<Option<T>> = self.query_all(text, values, read)?;
        Ok(rows.into_iter().flatten().collect())
    }

    /// The first column of the one row that there is.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn value<T: FromSql>(&self, text: &str, values: impl Params) -> Result<T, Error> {
        self.query_one(text, values, |row| row.get(0))
    }

    /// The first column of the first row, where there is one.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn first_value<T: FromSql>(
        &self,
        text: &str,
        values: impl Params,
    ) -> Result<Option<T>, Error> {
        self.query_first(text, values, |row| row.get(0))
    }

    /// Reads the first column of all rows.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn values<T: FromSql>(
        &self,
        text: &str,
        values: impl Params,
    ) -> Result<Vec<T>, Error> {
        self.query_all(text, values, |row| row.get(0))
    }

    /// Returns `true` where there is such a row.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn exists(&self, text: &str, values: impl Params) -> Result<bool, Error> {
        let mut statement = self.prepare(text)?;
        self.sql(statement.exists(values))
    }

    pub(crate) fn damaged(&self, why: String) -> Error {
        let path = self.path.clone();
        Error::Damaged { path, why }
    }

    pub(crate) fn read_json<T: DeserializeOwned>(&self, id: RowId, text: &str) -> Result<T, Error> {
        serde_json::from_str(text).map_err(|error| self.damaged(format!("{id}: {error}")))
    }

    /// Reads a column that may be NULL, which stands for the default.
    pub(crate) fn read_maybe<T>(&self, id: RowId, text: Option<String>) -> Result<T, Error>
    where
        T: DeserializeOwned + Default,
    {
        text.map_or_else(|| Ok(T::default()), |text| self.read_json(id, &text))
    }
}

/// Serializes a value for a text column.
pub(crate) fn json<T: serde::Serialize>(what: &'static str, value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Unstorable {
        what,
        why: error.to_string(),
    })
}

/// A limit as SQLite takes it.
pub(crate) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
