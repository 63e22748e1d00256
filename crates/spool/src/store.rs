//! The store: opens the database, dispatches operations to the [`tables`], and commits. It is
//! synchronous and knows no clock and no thread.

use crate::appeared::Appeared;
use crate::op::{Done, Op, RowId};
use crate::tables::books::{Book, Tally};
use crate::tables::directory::Awaited;
use crate::tables::finish::FinishRow;
use crate::tables::schema::{self, Found, MIGRATIONS};
use crate::{Db, Error, Settings, State, UnreadMessage, tables};
use callbridge_leads::lead_request::LeadChange;
use callbridge_model::Phone;
use callbridge_model::status::Books;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::Path;

/// The database, and the books of its last commit. It reads as its [`Db`].
#[derive(Debug)]
pub struct Store {
    db: Db,
    pub(crate) settings: Settings,
    pub(crate) tally: Tally,
    pub(crate) next_id: i64,
    pub(crate) restored: bool,
    pub(crate) appeared: Appeared,
    pub(crate) moved: Appeared,
    pub(crate) awaited: RefCell<Awaited>,
    /// A page of leads was answered since the start.
    pub(crate) backfill_begun: Cell<bool>,
    /// Where the purge of seen calls goes on.
    pub(crate) seen_calls_cursor: (String, String),
}

impl Deref for Store {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

/// temp_store: savepoints copy pages into memory, not into files.
const PRAGMAS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 16777216; \
     PRAGMA wal_autocheckpoint = 2000;";

/// An operation with its JSON made: that is the caller's work, not the one thread's.
#[derive(Debug)]
pub(super) enum PreparedOp {
    Finish(Box<FinishRow>),
    Other(Box<Op>),
}

/// Makes the JSON of all operations.
pub(super) fn prepare(ops: Vec<Op>) -> Result<Vec<PreparedOp>, Error> {
    let work = ops.into_iter().map(|op| match op {
        Op::Finish(finished) => {
            FinishRow::new(*finished).map(|row| PreparedOp::Finish(Box::new(row)))
        }
        other => Ok(PreparedOp::Other(Box::new(other))),
    });
    work.collect()
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
    pub(super) fn over(
        connection: Connection,
        path: &Path,
        settings: Settings,
    ) -> Result<Self, Error> {
        let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        let (db, path) = (Db::new(connection, path), path.to_path_buf());
        let connection = &db.connection;
        match db.sql(schema::inspect(connection, MIGRATIONS))? {
            // auto_vacuum counts only before the first table.
            Found::New => db.sql(connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL"))?,
            Found::Current | Found::Migrated(_) => {}
            Found::Foreign => return Err(Error::Foreign { path }),
            Found::Newer(found) => return Err(Error::NewerSchema { path, found, known }),
        }
        db.sql(connection.execute_batch(PRAGMAS))?;
        connection.set_prepared_statement_cache_capacity(64);
        // Else a value bound to a statement that a partial index may serve plans it anew each time.
        db.sql(connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true))?;
        db.sql(schema::migrate(connection, MIGRATIONS))?;
        let tally = db.sql(Tally::load(connection))?;
        let mut store = Self {
            db,
            settings,
            tally,
            next_id: 1,
            restored: false,
            appeared: Appeared::letters(),
            moved: Appeared::moves(),
            awaited: RefCell::default(),
            backfill_begun: Cell::new(false),
            seen_calls_cursor: (String::new(), String::new()),
        };
        store.next_id = store.highest_id()? + 1;
        Ok(store)
    }

    /// The highest id ever given; purged rows count through the setting `highest_id`.
    fn highest_id(&self) -> Result<i64, Error> {
        self.value(
            "SELECT max(ifnull((SELECT max(id) FROM calls), 0),
                        ifnull((SELECT max(id) FROM unreadable), 0),
                        ifnull((SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?1), 0))",
            [tables::meta::HIGHEST_ID],
        )
    }

    pub(crate) fn new_id(&mut self) -> RowId {
        let id = RowId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Writes the log into the file, syncs it, and begins the log anew. After a kill the log may
    /// end in a commit whose sync had failed: it is read from the system's memory, and is not on
    /// the disk. Whatever followed it in the log would be lost with it when the power fails.
    pub(super) fn fold(&self) -> Result<(), Error> {
        let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.sql(self.connection.query_row(fold, [], |_| Ok(())))
    }

    /// A whole copy of this state into an empty file.
    pub(super) fn copy_to(&self, file: &Path) -> Result<(), Error> {
        let name = file.to_str().ok_or_else(|| Error::NotWritable {
            path: file.to_path_buf(),
            why: "its name is not UTF-8".to_owned(),
        })?;
        let copied = self.connection.execute("VACUUM INTO ?1", [name]);
        let wrong = |error| Error::sqlite(file, &error);
        copied.map(drop).map_err(wrong)
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings.clone()
    }

    /// The books. `finished` is always the sum of the eight states.
    pub fn books(&self) -> Books {
        let of = |book| u64::try_from(self.tally.get(book)).unwrap_or(0);
        Books {
            finished: of(Book::Finished),
            ready: of(Book::Of(State::Ready)),
            sending: of(Book::Of(State::Sending)),
            submitted: of(Book::Of(State::Submitted)),
            journaled: of(Book::Of(State::Journaled)),
            dead: of(Book::Of(State::Dead)),
            parked: of(Book::Of(State::Parked)),
            discarded: of(Book::Of(State::Discarded)),
            forwarded: of(Book::Of(State::Forwarded)),
            internal: of(Book::Internal),
            skipped: of(Book::Skipped),
            unreadable: of(Book::Unreadable),
        }
    }

    /// The counters of [`Op::Count`], and `repeats`.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let named = self.tally.named.iter().filter(|(_, count)| **count > 0);
        named
            .map(|(name, count)| (name.clone(), u64::try_from(*count).unwrap_or(0)))
            .collect()
    }

    /// The numbers of parked and ambiguous calls of which something was learned since this was
    /// asked last; `None` when all such calls are to be looked at.
    pub fn take_awaited(&self) -> Option<Vec<Phone>> {
        let awaited = self.awaited.take();
        (!awaited.all).then(|| awaited.phones.into_iter().collect())
    }

    /// The file was found to be a copy when this process opened it, or by an earlier process that
    /// made no request since: requests may have been made that it does not know of, and its slots
    /// are in doubt. A request makes an end of that for the processes to come: the first
    /// [`Op::Slot`] says that its sender has waited.
    pub const fn restored(&self) -> bool {
        self.restored
    }

    /// How many letters came to be since the start of the process, the same one counted anew each
    /// time it dies. From here [`letters_since`](crate::appeared::letters_since) goes on.
    pub fn letters_so_far(&self) -> u64 {
        self.appeared.count()
    }

    /// How many times calls came to be or changed their state since the start of the process.
    pub fn moves_so_far(&self) -> u64 {
        self.moved.count()
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
    pub(super) fn write_group(
        &mut self,
        requests: &[Vec<PreparedOp>],
    ) -> Vec<Result<Vec<Done>, Error>> {
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
            self.sql(self.tally.write(&self.db.connection))?;
            self.execute("COMMIT", [])?;
            Ok(answer)
        });
        if answer.is_ok() {
            let (letters, moved) = self.tally.committed();
            self.appeared.add(letters);
            self.moved.add(moved);
        } else {
            // A full disk may have ended the transaction already.
            if !self.connection.is_autocommit() {
                self.execute("ROLLBACK", []).ok();
            }
            self.tally.rolled_back();
        }
        answer
    }

    /// `Err` when the whole transaction is gone, `Ok(Err)` when only this request is.
    fn in_savepoint(&mut self, request: &[PreparedOp]) -> Result<Result<Vec<Done>, Error>, Error> {
        let mark = self.tally.mark();
        self.execute("SAVEPOINT request", [])?;
        let answer = self.apply_all(request);
        if let Err(error) = &answer {
            self.tally.back_to(mark);
            if self.connection.is_autocommit() {
                return Err(error.clone());
            }
            self.execute("ROLLBACK TO request", [])?;
        }
        self.execute("RELEASE request", [])?;
        Ok(answer)
    }

    fn apply_all(&mut self, request: &[PreparedOp]) -> Result<Vec<Done>, Error> {
        request.iter().map(|work| self.apply(work)).collect()
    }

    fn apply(&mut self, work: &PreparedOp) -> Result<Done, Error> {
        let op = match work {
            PreparedOp::Finish(row) => return tables::finish::finish(self, row),
            PreparedOp::Other(op) => op.as_ref(),
        };
        match op {
            Op::Finish(finished) => {
                return tables::finish::finish(self, &FinishRow::new(*finished.clone())?);
            }
            Op::Forget { pbx, ids } => tables::audited::forget(self, pbx, ids)?,
            Op::Open { pbx, key, snapshot } => {
                tables::open_calls::set_open(self, pbx, *key, snapshot.as_deref())?;
            }
            Op::Position { source, position } => {
                tables::positions::set_position(self, source, position)?;
            }
            Op::Unreadable {
                source,
                pbx,
                bytes,
                why,
                at,
                by,
            } => {
                let message = UnreadMessage {
                    source: source.clone(),
                    pbx: pbx.clone(),
                    why: why.clone(),
                    at: *at,
                    bytes: bytes.clone(),
                    length: bytes.len() as u64,
                    by: by.clone().unwrap_or_default(),
                };
                let login = (by.as_ref()).map(|by| by.user.as_deref().unwrap_or_default());
                return tables::unreadable::keep_unreadable(self, &message, login);
            }
            Op::Step { row, step, at } => return tables::step::step(self, *row, step, *at),
            Op::FailedCall(failed) => return tables::look_ups::call_failed(self, failed),
            Op::Slot(slot) => tables::slots::set_slot(self, slot)?,
            Op::SlotGone { slot } => tables::slots::drop_slot(self, *slot)?,
            Op::Act { row, act } => tables::acts::note(self, *row, act)?,
            Op::Give(given) => tables::given::give(self, given)?,
            Op::Take { phone } => tables::given::take(self, phone)?,
            Op::Meta { key, value } => tables::meta::set_meta(self, key, value)?,
            Op::MetaGone { key } => tables::meta::drop_meta(self, key)?,
            Op::Count { counter, by } => self.tally.count(counter, *by),
            Op::NoticeSent { notice } => tables::outbox::drop_notice(self, *notice)?,
            Op::BindAddress { address, rebind } => {
                tables::meta::bind_address(self, address, *rebind)?;
            }
            Op::BindCompany {
                company,
                application,
            } => return tables::meta::bind_company(self, company, application),
            Op::Delivery(delivery) => {
                return tables::deliveries::deliver(self, delivery).map(Done::Delivered);
            }
            Op::Lead(LeadChange::Request { told, at }) => {
                return tables::lead_requests::told(self, told, *at);
            }
            Op::Lead(LeadChange::Backfill { page, heard, at }) => {
                tables::backfill::backfilled(self, page, heard, *at)?;
            }
            Op::PeerOutcome(told) => tables::peer_outcomes::apply(self, told)?,
            Op::Purge { now } => return tables::purge::purge(self, *now).map(Done::Purged),
            Op::Learn(news) => return tables::directory::learn(self, news),
        }
        Ok(Done::Stored)
    }
}

#[cfg(test)]
impl Store {
    /// As if the disk had room for so many pages.
    pub(super) fn limit_pages(&self, pages: u32) {
        let text = format!("PRAGMA max_page_count = {pages}");
        let limit: u32 = self
            .connection
            .query_row(&text, [], |row| row.get(0))
            .expect("a limit");
        assert_eq!(limit, pages);
    }

    /// No transaction is open.
    pub(super) fn is_settled(&self) -> bool {
        self.connection.is_autocommit()
    }
}
