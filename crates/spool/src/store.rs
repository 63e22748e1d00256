//! The store: the open database with the books of its last commit. It is synchronous, and uses no
//! clock and no thread.

use crate::hub::HubRow;
use crate::marks::Marks;
use crate::postgres::{self, Session};
use crate::tables::hub_row;
use crate::tables::schema::{self, Found, MIGRATIONS};
use crate::tally::Tally;
use crate::{Db, Error, RowId, Settings};
use callbridge_model::Phone;
use callbridge_model::status::Books;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::path::Path;

/// The setting that keeps the highest id that was used. The row with that id can be deleted.
pub(crate) const HIGHEST_ID: &str = "spool.highest_id";

/// Number of new dead letters that are remembered. A reader that asks twice a second misses none.
const LETTERS_REMEMBERED: usize = 65_536;

/// Number of moves of calls that are remembered. A call makes about four of them.
const MOVES_REMEMBERED: usize = 16_384;

/// Numbers that calls wait for and about which something was learned.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    pub(crate) phones: BTreeSet<Phone>,
    pub(crate) all: bool,
}

/// The process that held this state before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Predecessor {
    /// It was on this machine, or there was none. Its requests ended with it, and its slots are of
    /// our boot clock.
    #[default]
    Local,
    /// It has this name, and can be on another machine. Its last requests can still arrive.
    Other(String),
}

/// The database, and the books of its last commit. It dereferences to [`Db`].
pub struct Store {
    pub(crate) db: Db,
    pub(crate) settings: Settings,
    pub(crate) tally: Tally,
    pub(crate) next_id: i64,
    pub(crate) restored: bool,
    /// The holder of a lock file was on this machine.
    pub(crate) predecessor: Predecessor,
    pub(crate) appeared: Appeared,
    pub(crate) moved: Appeared,
    pub(crate) awaited: RefCell<Awaited>,
    /// A page of leads was answered since the start.
    pub(crate) backfill_begun: Cell<bool>,
    /// PBX and id of the last seen call that the purge read.
    pub(crate) seen_calls_cursor: (String, String),
    /// Position of the last commit. `None` if the state was never a hub's.
    pub(crate) hub: Option<HubRow>,
}

impl Deref for Store {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

/// Settings of SQLite. With `temp_store = MEMORY`, savepoints copy pages into memory, not into
/// files.
const PRAGMAS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 16777216; \
     PRAGMA wal_autocheckpoint = 2000;";

/// Refuses tables of another program or a newer version.
pub(crate) fn refuse(place: &Path, found: Found) -> Result<Found, Error> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    match found {
        Found::Foreign => Err(Error::Foreign(place.into())),
        Found::Newer(version) => Err(Error::NewerSchema(place.into(), version, known)),
        Found::New | Found::Current | Found::Migrated(_) => Ok(found),
    }
}

impl Store {
    /// Opens a store in memory that ends with this value.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn in_memory(settings: Settings) -> Result<Self, Error> {
        let path = Path::new(":memory:");
        let db = Connection::open_in_memory().map_err(|error| Error::sqlite(path, &error))?;
        Self::from_connection(db, path, settings)
    }

    /// Opens a store in memory that all stores of this name in this process share, as processes
    /// share a state. It has no lock: [`Settings::on_statement`] decides who can use it.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn in_shared_memory(name: &str, settings: Settings) -> Result<Self, Error> {
        let path = format!("file:{name}?mode=memory&cache=shared");
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_URI
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let path = Path::new(&path);
        let db = Connection::open_with_flags(path, flags);
        Self::from_connection(
            db.map_err(|error| Error::sqlite(path, &error))?,
            path,
            settings,
        )
    }

    /// Makes a store over an open connection, and migrates it.
    pub(super) fn from_connection(
        connection: Connection,
        path: &Path,
        settings: Settings,
    ) -> Result<Self, Error> {
        Self::load(Self::prepared(connection, path)?, settings)
    }

    /// Migrates an open connection.
    pub(super) fn prepared(connection: Connection, path: &Path) -> Result<Db, Error> {
        let found = schema::inspect(&connection, MIGRATIONS);
        let found = refuse(path, found.map_err(|error| Error::sqlite(path, &error))?)?;
        let prepared = prepare(&connection, found);
        prepared.map_err(|error| Error::sqlite(path, &error))?;
        Ok(Db::sqlite(connection, path))
    }

    /// Makes a store over a session that holds the lock of its schema, and migrates it.
    pub(super) fn over_session(session: Session, settings: Settings) -> Result<Self, Error> {
        Self::load(Self::prepared_session(session)?, settings)
    }

    /// Migrates the schema of a session that holds its lock.
    pub(super) fn prepared_session(session: Session) -> Result<Db, Error> {
        let place = session.place().to_path_buf();
        refuse(&place, postgres::inspect(&session, MIGRATIONS.len())?)?;
        postgres::migrate(&session, MIGRATIONS)?;
        Ok(Db::postgres(session))
    }

    /// Makes a store over a session that only reads. The tables must have this version's schema.
    /// Its memory is empty until [`Store::read_again`].
    pub(crate) fn over_reader(session: Session, settings: Settings) -> Self {
        Self::empty(Db::postgres(session), settings)
    }

    /// Reads with another session, because the one before was lost.
    pub(crate) fn replace_reader(&mut self, session: Session) {
        self.db = Db::postgres(session);
    }

    /// Makes a store, and reads what is held in memory.
    fn load(db: Db, settings: Settings) -> Result<Self, Error> {
        let mut store = Self::empty(with_hook(db, &settings), settings);
        store.read_memory()?;
        Ok(store)
    }

    fn empty(db: Db, settings: Settings) -> Self {
        Self {
            db,
            settings,
            tally: Tally::default(),
            next_id: 1,
            restored: false,
            predecessor: Predecessor::Local,
            appeared: Appeared::new(LETTERS_REMEMBERED),
            moved: Appeared::new(MOVES_REMEMBERED),
            awaited: RefCell::default(),
            backfill_begun: Cell::new(false),
            seen_calls_cursor: (String::new(), String::new()),
            hub: None,
        }
    }

    fn read_memory(&mut self) -> Result<(), Error> {
        let marks = Marks::ask(&self.db)?;
        let tally = Tally::ask(&self.db)?;
        let hub = hub_row::ask(&self.db)?;
        // The highest id used. Purged rows count through the setting.
        let text = "SELECT 1 + coalesce(max(id), 0) FROM (
                 SELECT max(id) AS id FROM calls UNION ALL SELECT max(id) FROM unreadable
                 UNION ALL SELECT CAST(value AS BIGINT) FROM meta WHERE key = ?1) AS used";
        let next_id = self.db.ask(text, [HIGHEST_ID])?;
        marks.refuse(&self.db)?;
        self.tally = tally.read(&self.db)?;
        self.hub = hub_row::read(&self.db, hub)?;
        self.next_id = next_id.first(&self.db)?.unwrap_or(1);
        Ok(())
    }

    /// Reads everything again that is held in memory. The process lost its session and holds the
    /// lock again. Its last write is perhaps stored, and another process can have written since.
    ///
    /// # Errors
    /// If the disk fails or the session is lost again.
    pub fn reload(&mut self) -> Result<(), Error> {
        self.db.regain();
        self.read_again()
    }

    /// Reads everything again that is held in memory, because another process writes.
    pub(crate) fn read_again(&mut self) -> Result<(), Error> {
        self.appeared.forget();
        self.moved.forget();
        let all = true;
        self.awaited = RefCell::new(Awaited {
            all,
            ..Awaited::default()
        });
        self.backfill_begun.set(false);
        self.seen_calls_cursor = (String::new(), String::new());
        self.read_memory()
    }

    /// Returns `true` if the session is lost. Every statement fails until [`Store::reload`].
    pub fn is_lost(&self) -> bool {
        self.db.lost().is_some()
    }

    pub(crate) fn new_id(&mut self) -> RowId {
        let id = RowId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Writes the log into the file, syncs it, and restarts the log. After a kill, the log can end
    /// in a commit whose sync failed: it is readable from the page cache, but not on the disk. A
    /// power failure would then lose everything that followed it in the log.
    pub(super) fn fold(&self) -> Result<(), Error> {
        let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
        match self.sqlite_connection() {
            Some(connection) => self.sql(connection.query_row(fold, [], |_| Ok(()))),
            None => Ok(()),
        }
    }

    /// Returns the books. `finished` is always the sum of the states.
    pub fn books(&self) -> Books {
        self.tally.books()
    }

    /// Returns the counters of [`Op::Count`](crate::Op::Count), and `repeats`.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let mut counters = BTreeMap::new();
        for (name, count) in &self.tally.named {
            let count = u64::try_from(*count).unwrap_or(0);
            if count > 0 {
                counters.insert(name.clone(), count);
            }
        }
        counters
    }

    /// Returns the numbers of waiting and ambiguous calls about which something was learned since
    /// the last call. `None` if all such calls must be checked.
    pub fn take_awaited(&self) -> Option<Vec<Phone>> {
        let awaited = self.awaited.take();
        (!awaited.all).then(|| awaited.phones.into_iter().collect())
    }

    /// Returns `true` if the file was found to be a copy when it was opened, by this process or by
    /// an earlier one that has made no request since. It may not know of all requests, and its
    /// slots are in doubt. A request ends the doubt for later processes: the first
    /// [`Op::Slot`](crate::Op::Slot) means that its sender has waited.
    pub const fn restored(&self) -> bool {
        self.restored
    }

    /// Returns the process that held this state before this one. Another one counts until this
    /// process makes a request, also after a restart. [`Store::restored`] is true until then as
    /// well.
    pub const fn predecessor(&self) -> &Predecessor {
        &self.predecessor
    }

    /// Returns the hub's position as of the last commit. `None` if no hub has used this state.
    pub const fn hub(&self) -> Option<&HubRow> {
        self.hub.as_ref()
    }

    /// Returns the number of dead letters and waiting calls since the start of the process. Each
    /// time that a call dies counts. [`letters_since`](crate::tables::letters::letters_since)
    /// continues from here.
    pub fn letters_so_far(&self) -> u64 {
        self.appeared.count()
    }

    /// Returns the number of new calls and state changes since the start of the process.
    pub fn moves_so_far(&self) -> u64 {
        self.moved.count()
    }
}

fn with_hook(mut db: Db, settings: &Settings) -> Db {
    let hook = settings.on_statement.clone();
    #[cfg(debug_assertions)]
    let hook = hook.or_else(crate::fault::hook);
    db.set_hook(hook);
    db
}

/// Sets how SQLite stores and plans, and migrates the file.
fn prepare(connection: &Connection, found: Found) -> rusqlite::Result<()> {
    if found == Found::New {
        // The pragma only takes effect before the first table.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
    }
    connection.execute_batch(PRAGMAS)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Otherwise SQLite plans a statement again for each bound value that a partial index can serve.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    schema::migrate(connection, MIGRATIONS)?;
    Ok(())
}

/// Ids of rows in the order of their commits.
#[derive(Debug)]
pub(crate) struct Appeared {
    /// Number of rows before the first one that is remembered.
    before: u64,
    last: VecDeque<RowId>,
    most: usize,
}

impl Appeared {
    /// Starts empty. `most` are remembered.
    const fn new(most: usize) -> Self {
        Self {
            before: 0,
            last: VecDeque::new(),
            most,
        }
    }

    pub(crate) fn add(&mut self, rows: impl Iterator<Item = RowId>) {
        self.last.extend(rows);
        let too_many = self.last.len().saturating_sub(self.most);
        self.before += self.last.drain(..too_many).len() as u64;
    }

    fn count(&self) -> u64 {
        self.before + self.last.len() as u64
    }

    /// Forgets the rows so far. Readers of them read everything again.
    fn forget(&mut self) {
        self.before = self.count() + 1;
        self.last.clear();
    }

    /// Reads at most `limit` ids after the first `seen`, each once, and returns how many are seen
    /// then. `None` if they are no longer remembered.
    pub(crate) fn read_since<T>(
        &self,
        seen: u64,
        limit: usize,
        read: impl Fn(RowId) -> Result<Option<T>, Error>,
    ) -> Result<Option<(Vec<T>, u64)>, Error> {
        let Some(skip) = seen.checked_sub(self.before) else {
            return Ok(None);
        };
        let mut through = seen;
        let mut known = BTreeSet::new();
        let mut found = Vec::new();
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        for id in self.last.iter().skip(skip).take(limit) {
            through += 1;
            if known.insert(*id) {
                found.extend(read(*id)?);
            }
        }
        Ok(Some((found, through)))
    }
}

#[cfg(test)]
impl Store {
    /// Limits the file to this many pages, like a full disk.
    pub(super) fn limit_pages(&self, pages: u32) {
        let text = format!("PRAGMA max_page_count = {pages}");
        let connection = self.sqlite_connection().expect("SQLite");
        let limit: u32 = connection
            .query_row(&text, [], |row| row.get(0))
            .expect("a limit");
        assert_eq!(limit, pages);
    }

    pub(super) fn is_settled(&self) -> bool {
        !self.is_in_transaction()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_letters_are_remembered_and_all_are_counted() {
        let mut appeared = Appeared::new(LETTERS_REMEMBERED);
        let n = i64::try_from(LETTERS_REMEMBERED).expect("small");
        appeared.add((1..=n + 3).map(RowId));
        assert_eq!(
            (appeared.before, appeared.last.len()),
            (3, LETTERS_REMEMBERED)
        );
        assert_eq!(appeared.count(), LETTERS_REMEMBERED as u64 + 3);
        assert_eq!(appeared.last[0], RowId(4));
    }
}
