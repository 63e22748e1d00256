//! An open database of either engine, which runs statements and converts the engine's errors into
//! [`Error`].
//!
//! Statements refer to their values as `?1`, `?2`, and so on. Values and rows look the same for
//! both engines ([`Value`](crate::value::Value)).

use crate::postgres::{Session, Slot};
use crate::value::{Columns, Values};
use crate::{Error, RowId, StatementHook};
use rusqlite::Connection;
use serde::de::DeserializeOwned;
use std::cell::{Cell, OnceCell};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

mod sqlite;
#[cfg(test)]
mod statements;

/// The connection, along with the name of its file or database for error messages.
///
/// Only the holder of the lock can write. PostgreSQL's lock belongs to the session, whereas
/// SQLite's is a file. Once the session is lost, all further statements fail, because another
/// process may have written since.
pub struct Db {
    engine: Engine,
    pub(crate) path: PathBuf,
    /// Number of statements so far.
    count: Cell<u64>,
    hook: Option<StatementHook>,
    /// The error that ended the session.
    lost: OnceCell<Error>,
    #[cfg(test)]
    statements: statements::Statements,
}

#[derive(Debug)]
enum Engine {
    Sqlite(Connection),
    Postgres(Box<Session>),
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db")
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

impl Db {
    pub(crate) fn sqlite(connection: Connection, path: &Path) -> Self {
        Self::new(Engine::Sqlite(connection), path)
    }

    pub(crate) fn postgres(session: Session) -> Self {
        let path = session.place().to_path_buf();
        Self::new(Engine::Postgres(Box::new(session)), &path)
    }

    fn new(engine: Engine, path: &Path) -> Self {
        Self {
            engine,
            path: path.to_path_buf(),
            count: Cell::new(0),
            hook: None,
            lost: OnceCell::new(),
            #[cfg(test)]
            statements: statements::Statements::default(),
        }
    }

    pub(crate) fn set_hook(&mut self, hook: Option<StatementHook>) {
        self.hook = hook;
    }

    /// Returns SQLite's connection, or `None` for another engine.
    pub(crate) fn sqlite_connection(&self) -> Option<&Connection> {
        match &self.engine {
            Engine::Sqlite(connection) => Some(connection),
            Engine::Postgres(_) => None,
        }
    }

    /// Returns PostgreSQL's session, or `None` for another engine.
    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.engine {
            Engine::Sqlite(_) => None,
            Engine::Postgres(session) => Some(session),
        }
    }

    /// Measures how long the database takes to respond to a statement that does nothing, returning
    /// `None` for a file.
    ///
    /// # Errors
    /// Returns an error if the session is lost.
    pub fn measure_round_trip(&self) -> Result<Option<Duration>, Error> {
        let Engine::Postgres(session) = &self.engine else {
            return Ok(None);
        };
        self.count_statement()?;
        let began = Instant::now();
        self.check_answer(session.script("SELECT 1"))?;
        Ok(Some(began.elapsed()))
    }

    /// Returns the error that ended the session, or `None` while it works.
    pub(crate) fn lost(&self) -> Option<&Error> {
        self.lost.get()
    }

    /// Makes the database usable again after the session was lost, returning `true` if it was.
    pub(crate) fn regain(&mut self) -> bool {
        self.lost.take().is_some()
    }

    /// Converts SQLite's error into [`Error`].
    pub(crate) fn sql<T>(&self, answer: rusqlite::Result<T>) -> Result<T, Error> {
        answer.map_err(|error| Error::sqlite(&self.path, &error))
    }

    /// Counts a statement and runs the hook before the statement runs. Returns an error if the
    /// session is lost or the hook ends it.
    fn count_statement(&self) -> Result<(), Error> {
        if let Some(error) = self.lost() {
            return Err(error.clone());
        }
        self.count.set(self.count.get() + 1);
        match &self.hook {
            Some(hook) if !hook(self.count.get()) => {
                let why = "another process took the lock".to_owned();
                self.check_answer(Err(Error::SessionLost(self.path.clone(), why)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Returns `answer`, a statement's result. If it's [`Error::SessionLost`], the error is kept so
    /// that no further statements run.
    fn check_answer<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        if let Err(error @ Error::SessionLost(..)) = &answer
            && self.lost.set(error.clone()).is_ok()
        {
            match &self.engine {
                Engine::Sqlite(connection) if !connection.is_autocommit() => {
                    self.sql(connection.execute_batch("ROLLBACK")).ok();
                }
                Engine::Sqlite(_) => {}
                Engine::Postgres(session) => session.abandon(),
            }
        }
        answer
    }

    /// Runs a statement, returning the number of rows that it changed.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn execute(&self, text: &str, values: impl Values) -> Result<usize, Error> {
        #[cfg(test)]
        self.statements.note(text);
        self.count_statement()?;
        self.check_answer(match &self.engine {
            Engine::Sqlite(connection) => sqlite::execute(connection, &self.path, text, &values),
            Engine::Postgres(session) => session.execute(text, &values),
        })
    }

    /// Runs a statement. In a PostgreSQL transaction, an error is reported by a later statement, or
    /// at the latest by the commit.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn run(&self, text: &str, values: impl Values) -> Result<(), Error> {
        #[cfg(test)]
        self.statements.note(text);
        self.count_statement()?;
        match &self.engine {
            Engine::Sqlite(connection) => {
                sqlite::execute(connection, &self.path, text, &values).map(drop)
            }
            Engine::Postgres(session) => self.check_answer(session.run(text, &values)),
        }
    }

    /// Sends a query whose result is read later. Until then, further statements are sent to
    /// PostgreSQL without waiting.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        text: &str,
        values: impl Values,
    ) -> Result<Asked<T>, Error> {
        #[cfg(test)]
        self.statements.note(text);
        self.count_statement()?;
        match &self.engine {
            Engine::Sqlite(connection) => {
                let rows = sqlite::rows(connection, &self.path, text, &values, usize::MAX);
                rows.map(Asked::Here)
            }
            Engine::Postgres(session) => self
                .check_answer(session.ask(text, &values))
                .map(Asked::UnderWay),
        }
    }

    /// Sends a query like [`Db::ask`], but for many rows at once. Each of the statement's values is
    /// an array with one element per row. PostgreSQL only.
    pub(crate) fn ask_many<T: DeserializeOwned>(
        &self,
        text: &str,
        columns: Columns,
    ) -> Result<Asked<T>, Error> {
        #[cfg(test)]
        self.statements.note(text);
        self.count_statement()?;
        match &self.engine {
            Engine::Sqlite(_) => Err(self.without_arrays()),
            Engine::Postgres(session) => self
                .check_answer(session.ask_many(text, columns))
                .map(Asked::UnderWay),
        }
    }

    /// Runs a statement like [`Db::run`], but for many rows at once, in a PostgreSQL transaction.
    /// Each of the statement's values is an array with one element per row. If `rows` is given,
    /// it's an error if a different number of rows was changed.
    pub(crate) fn run_many(
        &self,
        text: &str,
        columns: Columns,
        rows: Option<usize>,
    ) -> Result<(), Error> {
        #[cfg(test)]
        self.statements.note(text);
        self.count_statement()?;
        match &self.engine {
            Engine::Sqlite(_) => Err(self.without_arrays()),
            Engine::Postgres(session) => self.check_answer(session.run_many(text, columns, rows)),
        }
    }

    fn without_arrays(&self) -> Error {
        Error::Sql(self.path.clone(), "SQLite has no arrays".to_owned())
    }

    /// Waits for the results of all statements sent so far.
    ///
    /// # Errors
    /// Returns the first error of a statement sent by [`Db::run`] or [`Db::run_many`].
    pub(crate) fn flush(&self) -> Result<(), Error> {
        match &self.engine {
            Engine::Sqlite(_) => Ok(()),
            Engine::Postgres(session) => self.check_answer(session.flush()),
        }
    }

    pub(crate) fn savepoint(&self) -> Result<(), Error> {
        self.run("SAVEPOINT request", ())
    }

    pub(crate) fn rollback_to_savepoint(&self) -> Result<(), Error> {
        if let Engine::Postgres(session) = &self.engine {
            self.check_answer(session.forget_errors())?;
        }
        self.run("ROLLBACK TO request", ())
    }

    pub(crate) fn release_savepoint(&self) -> Result<(), Error> {
        self.run("RELEASE request", ())
    }

    /// Reads up to `limit` rows. See [`columns`](crate::columns) for how rows become values.
    #[cfg_attr(test, track_caller)]
    fn rows<T: DeserializeOwned>(
        &self,
        text: &str,
        values: impl Values,
        limit: usize,
    ) -> Result<Vec<T>, Error> {
        #[cfg(test)]
        self.statements.note(text);
        self.count_statement()?;
        self.check_answer(match &self.engine {
            Engine::Sqlite(connection) => {
                sqlite::rows(connection, &self.path, text, &values, limit)
            }
            Engine::Postgres(session) => session.rows(text, &values, limit),
        })
    }

    /// Reads the first row, returning an error if there is none.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_one<T: DeserializeOwned>(
        &self,
        text: &str,
        values: impl Values,
    ) -> Result<T, Error> {
        let row = self.rows(text, values, 1)?.pop();
        row.ok_or_else(|| Error::Sql(self.path.clone(), "a statement returned no row".into()))
    }

    /// Reads the first row, if there is one.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_first<T: DeserializeOwned>(
        &self,
        text: &str,
        values: impl Values,
    ) -> Result<Option<T>, Error> {
        Ok(self.rows(text, values, 1)?.pop())
    }

    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_all<T: DeserializeOwned>(
        &self,
        text: &str,
        values: impl Values,
    ) -> Result<Vec<T>, Error> {
        self.rows(text, values, usize::MAX)
    }

    /// Reads all rows, skipping those for which `known` returns `None`, such as rows with a word
    /// that no version of callbridge has ever written.
    #[cfg_attr(test, track_caller)]
    pub(crate) fn query_known<R: DeserializeOwned, T>(
        &self,
        text: &str,
        values: impl Values,
        known: impl FnMut(R) -> Option<T>,
    ) -> Result<Vec<T>, Error> {
        let rows = self.query_all(text, values)?;
        Ok(rows.into_iter().filter_map(known).collect())
    }

    #[cfg_attr(test, track_caller)]
    pub(crate) fn exists(&self, text: &str, values: impl Values) -> Result<bool, Error> {
        let row: Option<serde::de::IgnoredAny> = self.query_first(text, values)?;
        Ok(row.is_some())
    }

    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.count_statement()?;
        self.check_answer(match &self.engine {
            Engine::Sqlite(connection) => self.sql(connection.execute_batch("BEGIN IMMEDIATE")),
            Engine::Postgres(session) => session.begin(),
        })
    }

    /// Begins a read-only transaction, in which all reads see the same commits.
    pub(crate) fn begin_snapshot(&self) -> Result<(), Error> {
        self.count_statement()?;
        self.check_answer(match &self.engine {
            Engine::Sqlite(connection) => self.sql(connection.execute_batch("BEGIN")),
            Engine::Postgres(session) => session.begin_snapshot(),
        })
    }

    pub(crate) fn commit(&self) -> Result<(), Error> {
        self.count_statement()?;
        self.check_answer(match &self.engine {
            Engine::Sqlite(connection) => self.sql(connection.execute_batch("COMMIT")),
            Engine::Postgres(session) => session.commit(),
        })
    }

    /// Rolls back the transaction, if there is one. A full disk may have ended it already.
    pub(crate) fn rollback(&self) {
        if !self.is_in_transaction() || self.count_statement().is_err() {
            return;
        }
        let ended = self.check_answer(match &self.engine {
            Engine::Sqlite(connection) => self.sql(connection.execute_batch("ROLLBACK")),
            Engine::Postgres(session) => session.rollback(),
        });
        // The error that required the rollback is the one that's reported.
        ended.ok();
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        match &self.engine {
            Engine::Sqlite(connection) => !connection.is_autocommit(),
            Engine::Postgres(session) => self.lost().is_none() && session.is_in_transaction(),
        }
    }

    /// Returns up to `most` of the SQLite file's free pages to the disk if there are more than
    /// `kept` of them. Does nothing for PostgreSQL, which has autovacuum.
    pub(crate) fn give_pages_back(&self, kept: i64, most: u32) -> Result<(), Error> {
        match &self.engine {
            Engine::Sqlite(connection) => self.sql(sqlite::give_pages_back(connection, kept, most)),
            Engine::Postgres(_) => Ok(()),
        }
    }

    pub(crate) fn damaged(&self, why: String) -> Error {
        Error::Damaged(self.path.clone(), why)
    }

    pub(crate) fn read_json<T: DeserializeOwned>(&self, id: RowId, text: &str) -> Result<T, Error> {
        serde_json::from_str(text).map_err(|error| self.damaged(format!("{id}: {error}")))
    }
}

/// A query's result, which may still be on its way with PostgreSQL.
pub(crate) enum Asked<T> {
    Here(Vec<T>),
    UnderWay(Slot),
}

impl<T: DeserializeOwned> Asked<T> {
    pub(crate) fn all(self, db: &Db) -> Result<Vec<T>, Error> {
        match (self, &db.engine) {
            (Self::Here(rows), _) => Ok(rows),
            (Self::UnderWay(slot), Engine::Postgres(session)) => {
                db.check_answer(session.rows_of(&slot, usize::MAX))
            }
            (Self::UnderWay(_), Engine::Sqlite(_)) => Err(Error::Closed),
        }
    }

    pub(crate) fn first(self, db: &Db) -> Result<Option<T>, Error> {
        Ok(self.all(db)?.into_iter().next())
    }
}

pub(crate) fn json<T: serde::Serialize>(what: &'static str, value: &T) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|error| Error::Unstorable(what, error.to_string()))
}

/// Converts a row limit into an integer for a statement.
pub(crate) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
