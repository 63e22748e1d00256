//! A whole state locked by a single command, so that no other process can use it. The command reads
//! and writes the state without the spool's thread.

use crate::folder::make_private;
use crate::leader::leader;
use crate::postgres::{self, Access, PostgresUrl, Session};
use crate::state_dir::{FILE, check_siblings, connect, make_folder, not_writable};
use crate::store::{Store, refuse, with_hook};
use crate::tables::meta;
use crate::tables::schema::{Found, MIGRATIONS};
use crate::{Db, Error, Lock, StatePlace, refuse_shared};
use callbridge_model::plain_file;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time to wait for the lock, since the process that holds it may be about to end.
const LOCK_WITHIN: Duration = Duration::from_secs(4);
const LOCK_EVERY: Duration = Duration::from_millis(20);

/// What a command does with a held state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The command reads the state, so it's an error if it's missing.
    From,
    /// The command fills the state, so it's created if it's missing.
    To,
}

/// The open state. The database is closed before its file and lock are released.
#[derive(Debug)]
pub(crate) struct HeldState {
    db: Db,
    /// A folder's open file and lock, or `None` for a database, whose lock belongs to the session.
    _folder: Option<HeldFolder>,
    /// The `--state` value for this state.
    pub(crate) place: String,
    /// Name of the process that led last, or `None` for a folder or if no process has ever led.
    pub(crate) last_leader: Option<String>,
}

struct HeldFolder {
    _file: File,
    _lock: Lock,
}

impl std::fmt::Debug for HeldFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeldFolder")
    }
}

impl std::ops::Deref for HeldState {
    type Target = Db;

    fn deref(&self) -> &Db {
        &self.db
    }
}

impl HeldState {
    /// Takes the lock and migrates the tables. `name` is what a PostgreSQL server shows as the
    /// session's name.
    ///
    /// # Errors
    /// Returns [`Error::Locked`] or [`Error::InUse`] if another process holds the state,
    /// [`Error::Missing`] if it doesn't exist, or an error from opening it.
    pub(crate) fn open(place: &StatePlace, usage: Use, name: &str) -> Result<Self, Error> {
        match place {
            StatePlace::Folder(dir) => Self::open_folder(dir, usage),
            StatePlace::Database(database) => {
                let flag = place.flag();
                Self::open_database(&database.url, usage, name, flag)
            }
        }
    }

    fn open_folder(dir: &Path, usage: Use) -> Result<Self, Error> {
        let file = dir.join(FILE);
        if usage == Use::From && !matches!(plain_file::check(&file), Ok(Some(_))) {
            return Err(Error::Missing(dir.to_path_buf()));
        }
        refuse_shared(dir)?;
        make_folder(dir)?;
        let lock = Lock::take(dir)?;
        let (held, _) = make_private(&file)?;
        check_siblings(&file)?;
        let db = Store::prepared(connect(&file)?, &file)?;
        if meta::meta(&db, meta::CLEAN)?.is_none() {
            fold(&db)?;
        }
        let dir = std::path::absolute(dir).map_err(|error| not_writable(dir, &error))?;
        Ok(Self::new(
            db,
            Some(HeldFolder {
                _file: held,
                _lock: lock,
            }),
            dir.display().to_string(),
        ))
    }

    fn open_database(
        url: &PostgresUrl,
        usage: Use,
        name: &str,
        flag: String,
    ) -> Result<Self, Error> {
        let session = Session::open(url, Access::Copy, name)?;
        let found = refuse(
            session.place(),
            postgres::inspect(&session, MIGRATIONS.len())?,
        )?;
        if usage == Use::From && found == Found::New {
            return Err(Error::Missing(url.place()));
        }
        let begun = Instant::now();
        while !postgres::take_leader_lock(&session)? {
            if begun.elapsed() > LOCK_WITHIN {
                let holder = postgres::lock_holder(&session)?;
                return Err(Error::InUse(url.place(), holder));
            }
            session.idle(LOCK_EVERY, std::future::pending::<()>());
        }
        let db = Store::prepared_session(session)?;
        let last_leader = leader(&db)?.map(|leader| leader.name);
        let mut held = Self::new(db, None, flag);
        held.last_leader = last_leader;
        Ok(held)
    }

    fn new(db: Db, folder: Option<HeldFolder>, place: String) -> Self {
        Self {
            db: with_hook(db, None),
            _folder: folder,
            place,
            last_leader: None,
        }
    }

    #[cfg(test)]
    pub(crate) fn set_hook(&mut self, hook: crate::StatementHook) {
        self.db.set_hook(Some(hook));
    }

    /// Ends the database session, so that the server releases the lock immediately.
    pub(crate) fn close(self) {
        if let Some(session) = self.db.session() {
            session.close();
        }
    }
}

/// Writes the log to the file after an unclean shutdown.
fn fold(db: &Db) -> Result<(), Error> {
    let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
    match db.sqlite_connection() {
        Some(connection) => db.sql(connection.query_row(fold, [], |_| Ok(()))),
        None => Ok(()),
    }
}
