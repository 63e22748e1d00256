//! An open database: its statements, and what SQLite answers in our errors.

use crate::{Error, RowId, columns};
use rusqlite::{CachedStatement, Connection, OptionalExtension as _, Params};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

#[cfg(test)]
mod statements;

/// The connection, with the name of its file for error messages.
#[derive(Debug)]
pub struct Db {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
    #[cfg(test)]
    statements: statements::Statements,
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

    /// Converts SQLite's error into ours.
    pub(crate) fn sql<T>(&self, answer: rusqlite::Result<T>) -> Result<T, Error> {
        answer.map_err(|error| match error {
            // so `columns::reader` reports which value does not fit
            rusqlite::Error::ToSqlConversionFailure(words) => self.damaged(words.to_string()),
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

    /// [`Db::execute`] for callers that do not need the number of changed rows.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn run(&self, text: &str, values: impl Params) -> Result<(), Error> {
        self.execute(text, values).map(drop)
    }

    /// Reads the only row, as [`columns`] does.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_one<T: DeserializeOwned>(
        &self,
        text: &str,
        values: impl Params,
    ) -> Result<T, Error> {
        let mut statement = self.prepare(text)?;
        self.sql(statement.query_row(values, columns::reader()))
    }

    /// Reads the first row, if there is one.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_first<T: DeserializeOwned>(
        &self,
        text: &str,
        values: impl Params,
    ) -> Result<Option<T>, Error> {
        let mut statement = self.prepare(text)?;
        self.sql(statement.query_row(values, columns::reader()).optional())
    }

    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_all<T: DeserializeOwned>(
        &self,
        text: &str,
        values: impl Params,
    ) -> Result<Vec<T>, Error> {
        let mut statement = self.prepare(text)?;
        let rows = statement.query_map(values, columns::reader());
        self.sql(rows.and_then(Iterator::collect))
    }

    /// Reads all rows except those that no version of callbridge wrote, for which `known` returns
    /// `None`.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_known<R: DeserializeOwned, T>(
        &self,
        text: &str,
        values: impl Params,
        known: impl FnMut(R) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let rows = self.query_all(text, values)?;
        Ok(rows.into_iter().filter_map(known).collect())
    }

    #[cfg_attr(test, track_caller)]
    pub(crate) fn exists(&self, text: &str, values: impl Params) -> Result<bool, Error> {
        let mut statement = self.prepare(text)?;
        self.sql(statement.exists(values))
    }

    pub(crate) fn damaged(&self, why: String) -> Error {
        Error::Damaged(self.path.clone(), why)
    }

    pub(crate) fn read_json<T: DeserializeOwned>(&self, id: RowId, text: &str) -> Result<T, Error> {
        serde_json::from_str(text).map_err(|error| self.damaged(format!("{id}: {error}")))
    }
}

pub(crate) fn json<T: serde::Serialize>(what: &'static str, value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Unstorable(what, error.to_string()))
}

/// A limit in SQLite's integer type.
pub(crate) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
