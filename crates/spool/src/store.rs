//! The store: the open database, with the books as of its last commit. It's synchronous, and uses
//! neither a clock nor threads.

use crate::hub::HubRow;
use crate::marks::Marks;
use crate::postgres::{self, Session};
use crate::tables::schema::{self, Found, MIGRATIONS};
use crate::tables::{hub_row, silence};
use crate::tally::Tally;
use crate::{Db, Error, RowId, Settings, Silence, StatementHook};
use callbridge_model::Phone;
use callbridge_model::status::Books;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::path::Path;

/// The setting that keeps the highest row ID ever used, so that the ID isn't reused even if its row
/// is deleted.
pub(crate) const HIGHEST_ID: &str = "spool.highest_id";

/// Number of new dead letters that are remembered, so that a reader that asks twice a second won't
/// miss any.
const LETTERS_REMEMBERED: usize = 65_536;

/// Number of new calls and state changes that are remembered. Each call adds about four.
const MOVES_REMEMBERED: usize = 16_384;

/// Phone numbers of waiting and ambiguous calls about whose leads something was learned, so that
/// the calls must be checked. If `all` is set, that goes for all such calls.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    pub(crate) phones: BTreeSet<Phone>,
    pub(crate) all: bool,
}

/// The database, with the books as of its last commit. It dereferences to [`Db`].
pub struct Store {
    pub(crate) db: Db,
    pub(crate) settings: Settings,
    pub(crate) tally: Tally,
    pub(crate) next_id: i64,
    /// See [`Store::silence`].
    pub(crate) silence: Option<Silence>,
    pub(crate) appeared: Appeared,
    pub(crate) moved: Appeared,
    pub(crate) awaited: RefCell<Awaited>,
    /// Whether a page of leads has been received since startup.
    pub(crate) backfill_begun: Cell<bool>,
    /// The PBX and ID of the seen call after which the next purge continues.
    pub(crate) seen_calls_cursor: (String, String),
    /// The hub's position as of the last commit, or `None` if no hub has ever used the state.
    pub(crate) hub: Option<HubRow>,
}

impl Deref for Store {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

/// SQLite's settings. With `temp_store = MEMORY`, savepoints copy pages to memory rather than to
/// files.
const PRAGMAS: &str = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; \
     PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 16777216; \
     PRAGMA wal_autocheckpoint = 2000;";

/// Returns an error if the tables were written by another program or by a newer callbridge.
pub(crate) fn refuse(place: &Path, found: Found) -> Result<Found, Error> {
    let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
    match found {
        Found::Foreign => Err(Error::Foreign(place.into())),
        Found::Newer(version) => Err(Error::NewerSchema(place.into(), version, known)),
        Found::New | Found::Current | Found::Migrated(_) => Ok(found),
    }
}

impl Store {
    /// Opens a store in memory, whose content is lost when the store is dropped.
    ///
    /// # Errors
    /// Returns an error if there's no memory.
    pub fn in_memory(settings: Settings) -> Result<Self, Error> {
        let path = Path::new(":memory:");
        let db = Connection::open_in_memory().map_err(|error| Error::sqlite(path, &error))?;
        Self::from_connection(db, path, settings)
    }

    /// Opens a store in memory. All stores with this name in this process share its content, the
    /// way processes share a state. It has no lock, so [`Settings::on_statement`] decides which
    /// store may use it.
    ///
    /// # Errors
    /// Returns an error if there's no memory.
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

    /// Creates a store over an open connection, and migrates its schema.
    pub(super) fn from_connection(
        connection: Connection,
        path: &Path,
        settings: Settings,
    ) -> Result<Self, Error> {
        Self::load(Self::prepared(connection, path)?, settings)
    }

    /// Migrates the schema of an open connection.
    pub(super) fn prepared(connection: Connection, path: &Path) -> Result<Db, Error> {
        let found = schema::inspect(&connection, MIGRATIONS);
        let found = refuse(path, found.map_err(|error| Error::sqlite(path, &error))?)?;
        let prepared = prepare(&connection, found);
        prepared.map_err(|error| Error::sqlite(path, &error))?;
        Ok(Db::sqlite(connection, path))
    }

    /// Creates a store over a session that holds its schema's lock, and migrates the schema.
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

    /// Creates a store over a session that only reads. The tables must have this version's schema.
    /// The values that a store keeps in memory are empty until [`Store::read_again`].
    pub(crate) fn over_reader(session: Session, settings: Settings) -> Self {
        Self::empty(Db::postgres(session), settings)
    }

    /// Replaces a reading store's session after it was lost.
    pub(crate) fn replace_reader(&mut self, session: Session) {
        self.db = Db::postgres(session);
    }

    /// Creates a store, reading the values that it keeps in memory, such as the books.
    fn load(db: Db, settings: Settings) -> Result<Self, Error> {
        let db = with_hook(db, settings.on_statement.clone());
        let mut store = Self::empty(db, settings);
        store.read_memory()?;
        Ok(store)
    }

    fn empty(db: Db, settings: Settings) -> Self {
        Self {
            db,
            settings,
            tally: Tally::default(),
            next_id: 1,
            silence: None,
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
        let silence = silence::ask(&self.db)?;
        // The ID after the highest one ever used. The setting accounts for purged rows.
        let text = "SELECT 1 + coalesce(max(id), 0) FROM (
                 SELECT max(id) AS id FROM calls UNION ALL SELECT max(id) FROM unreadable
                 UNION ALL SELECT CAST(value AS BIGINT) FROM meta WHERE key = ?1) AS used";
        let next_id = self.db.ask(text, [HIGHEST_ID])?;
        marks.refuse(&self.db)?;
        self.tally = tally.read(&self.db)?;
        self.hub = hub_row::read(&self.db, hub)?;
        self.silence = silence::read(&self.db, silence)?;
        self.next_id = next_id.first(&self.db)?.unwrap_or(1);
        Ok(())
    }

    /// Rereads all values in memory, after the process lost its session and acquired the lock
    /// again. Its last write may have been stored, and another process may have written since.
    ///
    /// # Errors
    /// Returns an error if the disk fails or the session is lost again.
    pub fn reload(&mut self) -> Result<(), Error> {
        self.db.regain();
        self.read_again()
    }

    /// Rereads all values in memory, because another process is writing.
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

    /// Returns `true` if the session is lost, so that every statement fails until
    /// [`Store::reload`].
    pub fn is_lost(&self) -> bool {
        self.db.lost().is_some()
    }

    pub(crate) fn new_id(&mut self) -> RowId {
        let id = RowId(self.next_id);
        self.next_id += 1;
        id
    }

    /// Writes the log to the file, syncs the file, and restarts the log. After a kill, the log may
    /// end in a commit whose sync failed, which is readable from the page cache but not on disk. A
    /// power failure would then lose that commit and every later one in the log.
    pub(super) fn fold(&self) -> Result<(), Error> {
        let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
        match self.sqlite_connection() {
            Some(connection) => self.sql(connection.query_row(fold, [], |_| Ok(()))),
            None => Ok(()),
        }
    }

    /// Returns the books. `finished` always equals the sum of the states.
    pub fn books(&self) -> Books {
        self.tally.books()
    }

    /// Returns the counters for [`Op::Count`](crate::Op::Count) as well as `repeats`, by name,
    /// omitting those that are 0.
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

    /// Returns the phone numbers of waiting and ambiguous calls about whose leads something was
    /// learned since the last time this function ran, or `None` if all such calls must be checked.
    pub fn take_awaited(&self) -> Option<Vec<Phone>> {
        let awaited = self.awaited.take();
        (!awaited.all).then(|| awaited.phones.into_iter().collect())
    }

    /// Returns the period during which nothing is sent, because requests that the slots don't
    /// account for may count. It stays stored until a request is sent after it has ended.
    pub const fn silence(&self) -> Option<&Silence> {
        self.silence.as_ref()
    }

    /// Returns the hub's position as of the last commit, or `None` if no hub has used this state.
    pub const fn hub(&self) -> Option<&HubRow> {
        self.hub.as_ref()
    }

    /// Returns how often a call has become a dead letter or a waiting call since the process
    /// started. [`letters_since`](crate::tables::letters::letters_since) continues from this
    /// number.
    pub fn letters_so_far(&self) -> u64 {
        self.appeared.count()
    }

    /// Returns the number of new calls and state changes since the process started.
    pub fn moves_so_far(&self) -> u64 {
        self.moved.count()
    }
}

/// Sets the hook that runs before each statement. In test builds, it can also be set by an
/// environment variable.
pub(crate) fn with_hook(mut db: Db, hook: Option<StatementHook>) -> Db {
    #[cfg(debug_assertions)]
    let hook = hook.or_else(crate::fault::hook);
    db.set_hook(hook);
    db
}

/// Sets SQLite's options for storage and query plans, and migrates the file.
fn prepare(connection: &Connection, found: Found) -> rusqlite::Result<()> {
    if found == Found::New {
        // The pragma takes effect only before the first table is created.
        connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL")?;
    }
    connection.execute_batch(PRAGMAS)?;
    connection.set_prepared_statement_cache_capacity(64);
    // Otherwise, SQLite would replan a statement for each bound value that a partial index can
    // serve.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    schema::migrate(connection, MIGRATIONS)?;
    Ok(())
}

/// The IDs of the rows added last, in commit order, and how many have been added.
#[derive(Debug)]
pub(crate) struct Appeared {
    /// Number of IDs added before the oldest one that's remembered.
    before: u64,
    last: VecDeque<RowId>,
    most: usize,
}

impl Appeared {
    /// Starts empty, remembering up to `most` IDs.
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

    /// Forgets all IDs and counts one more. [`Appeared::read_since`] then returns `None` to every
    /// reader, so that they read everything again.
    fn forget(&mut self) {
        self.before = self.count() + 1;
        self.last.clear();
    }

    /// Calls `read` once for each of the next `limit` IDs after the first `seen`. Returns the
    /// results and the new value for `seen`, or `None` if some of these IDs are no longer
    /// remembered.
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
    /// Limits the file to this many pages, simulating a full disk.
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
    fn last_dead_letters_are_kept_and_all_are_counted() {
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
