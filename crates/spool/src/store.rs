//! All SQL. A [`Store`] is synchronous and knows no clock and no thread.

#[cfg(test)]
mod asked;

#[cfg(test)]
pub(super) use asked::Stored;

use crate::appeared::Appeared;
use crate::op::{Done, Op, RowId};
use crate::tables::books::Tally;
use crate::tables::directory::Awaited;
use crate::tables::finish::FinishRow;
use crate::tables::schema::{self, Found, MIGRATIONS};
use crate::{Error, Settings};
use callbridge_leads::errand::LeadChange;
use rusqlite::config::DbConfig;
use rusqlite::{CachedStatement, Connection};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

/// The database, and the books of its last commit.
#[derive(Debug)]
pub struct Store {
    pub(crate) db: Connection,
    pub(crate) path: PathBuf,
    pub(crate) settings: Settings,
    pub(crate) tally: Tally,
    pub(crate) next_id: i64,
    pub(crate) restored: bool,
    pub(crate) appeared: Appeared,
    pub(crate) moved: Appeared,
    pub(crate) awaited: RefCell<Awaited>,
    /// A page of leads was answered since the start.
    pub(crate) backfill_begun: Cell<bool>,
    /// Where the purge of tombstones goes on.
    pub(crate) tombstone_cursor: (String, String),
    #[cfg(test)]
    asked: asked::Asked,
}

/// temp_store: savepoints copy pages into memory, not into files.
const PRAGMAS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 16777216; \
     PRAGMA wal_autocheckpoint = 2000;";

/// An operation with its JSON made: that is the caller's work, not the one thread's.
#[derive(Debug)]
pub(super) enum Work {
    Finish(Box<FinishRow>),
    Other(Box<Op>),
}

/// Makes the JSON of all operations.
pub(super) fn prepare(ops: Vec<Op>) -> Result<Vec<Work>, Error> {
    let work = ops.into_iter().map(|op| match op {
        Op::Finish(finished) => FinishRow::new(&finished).map(|row| Work::Finish(Box::new(row))),
        other => Ok(Work::Other(Box::new(other))),
    });
    work.collect()
}

/// SQLite's answer with our errors.
pub(crate) fn sql<T>(store: &Store, answer: rusqlite::Result<T>) -> Result<T, Error> {
    answer.map_err(|error| Error::sqlite(&store.path, &error))
}

impl Store {
    /// A store that lives in memory and ends with this value.
    ///
    /// # Errors
    /// No memory.
    pub fn in_memory(settings: Settings) -> Result<Self, Error> {
        let path = Path::new(":memory:");
        let db = Connection::open_in_memory().map_err(|error| Error::sqlite(path, &error))?;
        Self::over(db, path, settings)
    }

    /// The store over an open connection, brought up to date.
    pub(super) fn over(db: Connection, path: &Path, settings: Settings) -> Result<Self, Error> {
        let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        let path = path.to_path_buf();
        match schema::inspect(&db, MIGRATIONS).map_err(told(&path))? {
            // auto_vacuum counts only before the first table.
            Found::New => db.execute_batch("PRAGMA auto_vacuum = INCREMENTAL"),
            Found::Current | Found::Migrated(_) => Ok(()),
            Found::Foreign => return Err(Error::Foreign { path }),
            Found::Newer(found) => return Err(Error::NewerSchema { path, found, known }),
        }
        .map_err(told(&path))?;
        db.execute_batch(PRAGMAS).map_err(told(&path))?;
        db.set_prepared_statement_cache_capacity(64);
        // Else a value bound to a statement that a partial index may serve plans it anew each time.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
            .map_err(told(&path))?;
        schema::migrate(&db, MIGRATIONS).map_err(told(&path))?;
        let tally = Tally::load(&db).map_err(told(&path))?;
        let mut store = Self {
            db,
            path,
            settings,
            tally,
            next_id: 1,
            restored: false,
            appeared: Appeared::letters(),
            moved: Appeared::moves(),
            awaited: RefCell::default(),
            backfill_begun: Cell::new(false),
            tombstone_cursor: (String::new(), String::new()),
            #[cfg(test)]
            asked: asked::Asked::default(),
        };
        store.next_id = store.highest_id()? + 1;
        Ok(store)
    }

    /// The highest id ever given; purged rows count through the setting `highest_id`.
    fn highest_id(&self) -> Result<i64, Error> {
        let highest = self.db.query_row(
            "SELECT max(ifnull((SELECT max(id) FROM calls), 0),
                        ifnull((SELECT max(id) FROM unreadable), 0),
                        ifnull((SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?1), 0))",
            [crate::tables::meta::HIGHEST_ID],
            |row| row.get(0),
        );
        sql(self, highest)
    }

    pub(crate) fn new_id(&mut self) -> RowId {
        let id = RowId(self.next_id);
        self.next_id += 1;
        id
    }

    #[cfg_attr(test, track_caller)]
    pub(crate) fn prepare(&self, text: &str) -> Result<CachedStatement<'_>, Error> {
        #[cfg(test)]
        self.asked.note(text);
        sql(self, self.db.prepare_cached(text))
    }

    #[cfg_attr(test, track_caller)]
    pub(crate) fn execute(
        &self,
        text: &str,
        values: impl rusqlite::Params,
    ) -> Result<usize, Error> {
        let mut statement = self.prepare(text)?;
        sql(self, statement.execute(values))
    }

    pub(crate) fn damaged(&self, why: String) -> Error {
        Error::Damaged {
            path: self.path.clone(),
            why,
        }
    }

    /// Writes the log into the file, syncs it, and begins the log anew. After a kill the log may
    /// end in a commit whose sync had failed: it is read from the system's memory, and is not on
    /// the disk. Whatever followed it in the log would be lost with it when the power fails.
    pub(super) fn fold(&self) -> Result<(), Error> {
        let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
        sql(self, self.db.query_row(fold, [], |_| Ok(())))
    }

    /// A whole copy of this state into an empty file.
    pub(super) fn copy_to(&self, file: &Path) -> Result<(), Error> {
        let name = file.to_str().ok_or_else(|| Error::NotWritable {
            path: file.to_path_buf(),
            why: "its name is not UTF-8".to_owned(),
        })?;
        let copied = self.db.execute("VACUUM INTO ?1", [name]);
        copied.map(drop).map_err(told(file))
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings.clone()
    }

    /// Stores all of `ops` in one transaction, or nothing.
    ///
    /// # Errors
    /// As each [`Op`] says; [`Error::Full`] and [`Error::Disk`] may pass by themselves.
    pub fn write(&mut self, ops: Vec<Op>) -> Result<Vec<Done>, Error> {
        let request = prepare(ops)?;
        let mut answers = self.write_group(std::slice::from_ref(&request));
        answers.pop().unwrap_or(Err(Error::Closed))
    }

    /// Stores each request as one unit, all that succeed in one transaction.
    ///
    /// A group is first tried without savepoints, for these copy every page they touch; when a
    /// request fails, which is rare, the group is done anew with one around each.
    pub(super) fn write_group(&mut self, requests: &[Vec<Work>]) -> Vec<Result<Vec<Done>, Error>> {
        let whole = self.in_transaction(|store| {
            let done = requests.iter().map(|request| store.apply_all(request));
            done.collect::<Result<Vec<_>, Error>>()
        });
        let error = match whole {
            Ok(all) => return all.into_iter().map(Ok).collect(),
            Err(error) => error,
        };
        if requests.len() == 1 {
            return vec![Err(error)];
        }
        let each = self.in_transaction(|store| {
            let answers = requests.iter().map(|request| store.in_savepoint(request));
            answers.collect::<Result<Vec<_>, Error>>()
        });
        match each {
            Ok(answers) => answers,
            Err(error) => requests.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.execute("BEGIN IMMEDIATE", [])?;
        let answer = work(self).and_then(|answer| {
            sql(self, self.tally.write(&self.db))?;
            self.execute("COMMIT", [])?;
            Ok(answer)
        });
        if answer.is_ok() {
            let (letters, moved) = self.tally.committed();
            self.appeared.add(letters);
            self.moved.add(moved);
        } else {
            // A full disk may have ended the transaction already.
            if !self.db.is_autocommit() {
                self.execute("ROLLBACK", []).ok();
            }
            self.tally.rolled_back();
        }
        answer
    }

    /// `Err` when the whole transaction is gone, `Ok(Err)` when only this request is.
    fn in_savepoint(&mut self, request: &[Work]) -> Result<Result<Vec<Done>, Error>, Error> {
        let mark = self.tally.mark();
        self.execute("SAVEPOINT request", [])?;
        let answer = self.apply_all(request);
        if let Err(error) = &answer {
            self.tally.back_to(mark);
            if self.db.is_autocommit() {
                return Err(error.clone());
            }
            self.execute("ROLLBACK TO request", [])?;
        }
        self.execute("RELEASE request", [])?;
        Ok(answer)
    }

    fn apply_all(&mut self, request: &[Work]) -> Result<Vec<Done>, Error> {
        request.iter().map(|work| self.apply(work)).collect()
    }

    fn apply(&mut self, work: &Work) -> Result<Done, Error> {
        let op = match work {
            Work::Finish(row) => return self.finish(row),
            Work::Other(op) => op.as_ref(),
        };
        match op {
            Op::Finish(finished) => self.finish(&FinishRow::new(finished)?),
            Op::Open { pbx, key, snapshot } => self.set_open(pbx, *key, snapshot.as_deref()),
            Op::Position { source, position } => self.set_position(source, position),
            Op::Unreadable {
                source,
                pbx,
                bytes,
                why,
                at,
            } => self.keep_unreadable(source, pbx, bytes, why, *at),
            Op::Step { row, step, at } => self.step(*row, step, *at),
            Op::Slot(slot) => self.set_slot(slot),
            Op::SlotGone { slot } => self.drop_slot(*slot),
            Op::Meta { key, value } => self.set_meta(key, value),
            Op::MetaGone { key } => self.drop_meta(key),
            Op::Count { counter, by } => {
                self.tally.count(counter, *by);
                Ok(Done::Stored)
            }
            Op::NoticeSent { notice } => self.drop_notice(*notice),
            Op::BindAddress { address, rebind } => self.bind_address(address, *rebind),
            Op::BindCompany {
                company,
                application,
            } => self.bind_company(company, application),
            Op::Delivery(delivery) => self.deliver(delivery).map(Done::Delivered),
            Op::Lead(LeadChange::Request { told, at }) => self.told(told, *at),
            Op::Lead(LeadChange::Backfill { page, heard, at }) => self.backfilled(page, heard, *at),
            Op::Purge { now } => self.purge(*now),
            Op::Learn(news) => self.learn(news),
        }
    }
}

/// SQLite's error with our words, before there is a store.
fn told(path: &Path) -> impl Fn(rusqlite::Error) -> Error + '_ {
    move |error| Error::sqlite(path, &error)
}

#[cfg(test)]
impl Store {
    /// As if the disk had room for so many pages.
    pub(super) fn limit_pages(&self, pages: u32) {
        let text = format!("PRAGMA max_page_count = {pages}");
        let limit: u32 = self
            .db
            .query_row(&text, [], |row| row.get(0))
            .expect("a limit");
        assert_eq!(limit, pages);
    }

    /// No transaction is open.
    pub(super) fn is_settled(&self) -> bool {
        self.db.is_autocommit()
    }
}
