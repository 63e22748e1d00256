//! The store: the open database with the books of its last commit. It is synchronous and knows no
//! clock and no thread.

use crate::tables::schema::{self, Found, MIGRATIONS};
use crate::tally::{Book, Tally};
use crate::{Db, Error, RowId, Settings};
use callbridge_model::Phone;
use callbridge_model::status::Books;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use std::path::Path;

/// The setting that keeps the highest id ever given, where its row may be gone.
pub(crate) const HIGHEST_ID: &str = "spool.highest_id";

/// Letters that are remembered: who looks twice a second misses none.
const LETTERS_REMEMBERED: usize = 65_536;

/// Moves of calls that are remembered: a call makes some four of them.
const MOVES_REMEMBERED: usize = 16_384;

/// Numbers that calls wait for, of which something was learned.
#[derive(Debug, Default)]
pub(crate) struct Awaited {
    pub(crate) phones: BTreeSet<Phone>,
    pub(crate) all: bool,
}

/// The database, and the books of its last commit. It reads as its [`Db`].
pub struct Store {
    pub(crate) db: Db,
    pub(crate) settings: Settings,
    pub(crate) tally: Tally,
    pub(crate) next_id: i64,
    pub(crate) restored: bool,
    pub(crate) appeared: Appeared,
    pub(crate) moved: Appeared,
    pub(crate) awaited: RefCell<Awaited>,
    /// A page of leads was answered since the start.
    pub(crate) backfill_begun: Cell<bool>,
    /// PBX and id of the seen call after which the purge goes on.
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

impl Store {
    /// A store that lives in memory and ends with this value.
    ///
    /// # Errors
    /// No memory.
    #[cfg(any(test, feature = "testing"))]
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
            Found::Foreign => return Err(Error::Foreign(path)),
            Found::Newer(found) => return Err(Error::NewerSchema(path, found, known)),
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
            appeared: Appeared::new(LETTERS_REMEMBERED),
            moved: Appeared::new(MOVES_REMEMBERED),
            awaited: RefCell::default(),
            backfill_begun: Cell::new(false),
            seen_calls_cursor: (String::new(), String::new()),
        };
        // The highest id ever given; purged rows count through the setting.
        let text = "SELECT 1 + coalesce(max(id), 0) FROM (
                 SELECT max(id) AS id FROM calls UNION ALL SELECT max(id) FROM unreadable
                 UNION ALL SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?1)";
        store.next_id = store.query_one(text, [HIGHEST_ID])?;
        Ok(store)
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

    /// The books. `finished` is always the sum of the eight states.
    pub fn books(&self) -> Books {
        let of = |book| self.tally.get(book);
        Books {
            finished: of(Book::Finished),
            ready: of(Book::Ready),
            sending: of(Book::Sending),
            submitted: of(Book::Submitted),
            journaled: of(Book::Journaled),
            dead: of(Book::Dead),
            waiting: of(Book::Waiting),
            discarded: of(Book::Discarded),
            internal: of(Book::Internal),
            skipped: of(Book::Skipped),
            unreadable: of(Book::Unreadable),
        }
    }

    /// The counters of [`Op::Count`](crate::Op::Count), and `repeats`.
    pub fn counters(&self) -> BTreeMap<String, u64> {
        let named = self.tally.named.iter();
        let named = named.map(|(name, count)| (name.clone(), u64::try_from(*count).unwrap_or(0)));
        named.filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the numbers of waiting and ambiguous calls of which something was learned since it
    /// was called last; `None` when all such calls are to be checked.
    pub fn take_awaited(&self) -> Option<Vec<Phone>> {
        let awaited = self.awaited.take();
        (!awaited.all).then(|| awaited.phones.into_iter().collect())
    }

    /// The file was found to be a copy when this process opened it, or by an earlier process that
    /// made no request since: requests may have been made that it does not know of, and its slots
    /// are in doubt. A request makes an end of that for the processes to come: the first
    /// [`Op::Slot`](crate::Op::Slot) says that its sender has waited.
    pub const fn restored(&self) -> bool {
        self.restored
    }

    /// Letters that came to be since the start of the process, the same one counted anew each time
    /// it dies. From here [`letters_since`](crate::tables::letters::letters_since) goes on.
    pub fn letters_so_far(&self) -> u64 {
        self.appeared.count()
    }

    /// Times calls came to be or changed their state since the start of the process.
    pub fn moves_so_far(&self) -> u64 {
        self.moved.count()
    }
}

/// Ids of rows in the order of their commits.
#[derive(Debug)]
pub(crate) struct Appeared {
    /// Rows before the first that is remembered.
    before: u64,
    last: VecDeque<RowId>,
    most: usize,
}

impl Appeared {
    /// None yet; so many are remembered.
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

    /// Reads at most `limit` after the first `seen`, each once, and says how many are seen then;
    /// `None` when they are forgotten.
    pub(crate) fn read_since<T>(
        &self,
        seen: u64,
        limit: usize,
        read: impl Fn(RowId) -> Result<Option<T>, Error>,
    ) -> Result<Option<(Vec<T>, u64)>, Error> {
        let Some(skip) = seen.checked_sub(self.before) else {
            return Ok(None);
        };
        let (mut through, mut known, mut found) = (seen, BTreeSet::new(), Vec::new());
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
    /// Limits the file, as if the disk had room for so many pages.
    pub(super) fn limit_pages(&self, pages: u32) {
        let text = format!("PRAGMA max_page_count = {pages}");
        let limit: u32 = self
            .connection
            .query_row(&text, [], |row| row.get(0))
            .expect("a limit");
        assert_eq!(limit, pages);
    }

    /// Returns `true` when no transaction is open.
    pub(super) fn is_settled(&self) -> bool {
        self.connection.is_autocommit()
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
