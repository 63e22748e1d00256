//! SQLite as an engine of [`Db`](crate::Db).

use crate::Error;
use crate::columns::{self, ResultRow};
use crate::value::{Value, Values};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, ToSql};
use serde::de::DeserializeOwned;
use std::cell::OnceCell;
use std::path::Path;

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Value::Null => ValueRef::Null,
            Value::Integer(number) => ValueRef::Integer(number),
            Value::Text(text) => ValueRef::Text(text.as_bytes()),
            Value::Blob(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl ResultRow for rusqlite::Row<'_> {
    fn count(&self) -> usize {
        self.as_ref().column_count()
    }

    fn name(&self, at: usize) -> &str {
        self.as_ref().column_name(at).unwrap_or_default()
    }

    fn value(&self, at: usize) -> Result<Value<'_>, String> {
        match self.get_ref(at).map_err(|error| error.to_string())? {
            ValueRef::Null => Ok(Value::Null),
            ValueRef::Integer(number) => Ok(Value::Integer(number)),
            ValueRef::Text(text) => {
                let text = str::from_utf8(text).map_err(|error| error.to_string())?;
                Ok(Value::Text(text))
            }
            ValueRef::Blob(bytes) => Ok(Value::Blob(bytes)),
            ValueRef::Real(number) => Err(format!("{number} is not an integer")),
        }
    }
}

fn bind_statement<'db>(
    db: &'db Connection,
    text: &str,
    values: &impl Values,
) -> rusqlite::Result<CachedStatement<'db>> {
    let mut statement = db.prepare_cached(text)?;
    for (value, number) in values.to_values().iter().zip(1..) {
        statement.raw_bind_parameter(number, value)?;
    }
    Ok(statement)
}

/// Runs a statement, returning the number of rows that it changed.
pub(super) fn execute(
    db: &Connection,
    path: &Path,
    text: &str,
    values: &impl Values,
) -> Result<usize, Error> {
    let changed =
        bind_statement(db, text, values).and_then(|mut statement| statement.raw_execute());
    changed.map_err(|error| Error::sqlite(path, &error))
}

/// Reads up to `limit` rows.
pub(super) fn rows<T: DeserializeOwned>(
    db: &Connection,
    path: &Path,
    text: &str,
    values: &impl Values,
    limit: usize,
) -> Result<Vec<T>, Error> {
    let mut statement =
        bind_statement(db, text, values).map_err(|error| Error::sqlite(path, &error))?;
    let mut rows = statement.raw_query();
    let mut read = Vec::new();
    let names = OnceCell::new();
    while read.len() < limit {
        let row = rows.next().map_err(|error| Error::sqlite(path, &error))?;
        let Some(row) = row else {
            break;
        };
        let value = columns::read(row, &names);
        read.push(value.map_err(|why| Error::Damaged(path.to_path_buf(), why))?);
    }
    Ok(read)
}

pub(super) fn give_pages_back(db: &Connection, kept: i64, most: u32) -> rusqlite::Result<()> {
    let free: i64 = db.query_row("PRAGMA freelist_count", [], |row| row.get(0))?;
    if free > kept {
        // SQLite frees one page per result row, so all rows must be read.
        let mut freed = db.prepare(&format!("PRAGMA incremental_vacuum({most})"))?;
        let mut pages = freed.query([])?;
        while pages.next()?.is_some() {}
    }
    Ok(())
}
