//! The places where tests keep their states, so that the same tests can run on both engines.

use crate::postgres::{Access, PostgresUrl, Session, take_leader_lock};
use crate::{
    ConnectionStore, Error, FinishedCalls, Guard, Handle, Instance, LeadDirectory, Settings, Store,
    open, open_postgres,
};
use callbridge_testbed::postgres::Postgres;

/// An engine to run the tests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    Sqlite,
    Postgres,
}

impl Engine {
    /// Creates a store whose rows are deleted when it's dropped.
    pub fn store(self, settings: Settings) -> Store {
        match self {
            Self::Sqlite => Store::in_memory(settings).expect("memory"),
            Self::Postgres => {
                // The tables in this schema are dropped when their session ends.
                let url = url("pg_temp");
                let session = Session::open(&url, Access::Write, "test").expect("a session");
                session
                    .script("CREATE TABLE begun (); DROP TABLE begun")
                    .expect("temporary");
                Store::over_session(session, settings).expect("a store")
            }
        }
    }

    /// Returns the number of random test cases, which is ten times smaller for PostgreSQL than for
    /// SQLite.
    pub const fn cases(self, on_sqlite: u32) -> u32 {
        match self {
            Self::Sqlite => on_sqlite,
            Self::Postgres => on_sqlite / 10,
        }
    }
}

pub fn url(schema: &str) -> PostgresUrl {
    PostgresUrl::parse(&Postgres::shared().url(schema)).expect("a URL")
}

/// A state that can be opened more than once.
pub enum Place {
    Folder(tempfile::TempDir),
    Schema(String),
}

impl Place {
    pub fn new(engine: Engine) -> Self {
        match engine {
            Engine::Sqlite => Self::Folder(tempfile::tempdir().expect("a folder")),
            Engine::Postgres => Self::Schema(Postgres::new_schema()),
        }
    }

    pub fn open(&self, settings: Settings) -> (Handle, Guard) {
        let opened = self.try_open(settings).expect("opens");
        let leads = opened.0.leadership().borrow().is_leading();
        assert!(leads, "another process leads");
        opened
    }

    pub fn try_open(&self, settings: Settings) -> Result<(Handle, Guard), Error> {
        match self {
            Self::Folder(dir) => open(dir.path(), settings),
            Self::Schema(schema) => {
                let instance = Instance::new("test", "0.1.0", "");
                open_postgres(&url(schema), instance, settings)
            }
        }
    }

    /// Opens the store without a thread. It holds the lock until it's dropped.
    pub fn store(&self, settings: Settings) -> Store {
        match self {
            Self::Folder(dir) => {
                let file = dir.path().join(crate::folder::FILE);
                let db = rusqlite::Connection::open(&file).expect("opens");
                Store::from_connection(db, &file, settings).expect("a store")
            }
            Self::Schema(schema) => {
                let session = Session::open(&url(schema), Access::Write, "test");
                let session = session.expect("a session");
                while !take_leader_lock(&session).expect("a lock") {
                    // It may take the server a while to notice that this process's last session has
                    // ended.
                    std::thread::yield_now();
                }
                Store::over_session(session, settings).expect("a store")
            }
        }
    }

    pub fn leads(&self) -> LeadDirectory {
        match self {
            Self::Folder(dir) => LeadDirectory::open(dir.path()).expect("opens"),
            Self::Schema(schema) => LeadDirectory::in_database(&url(schema)),
        }
    }

    pub fn connections(&self) -> ConnectionStore {
        match self {
            Self::Folder(dir) => ConnectionStore::new(dir.path()),
            Self::Schema(schema) => ConnectionStore::in_database(&url(schema)),
        }
    }

    pub fn finished_calls(&self) -> FinishedCalls {
        match self {
            Self::Folder(dir) => FinishedCalls::open(dir.path()).expect("opens"),
            Self::Schema(schema) => FinishedCalls::in_database(&url(schema)),
        }
    }

    /// Runs a statement the way another program would, while none of our processes has the state
    /// open.
    pub fn sql(&self, text: &str) {
        match self {
            Self::Folder(dir) => {
                let file = dir.path().join(crate::folder::FILE);
                let db = rusqlite::Connection::open(file).expect("opens");
                db.execute_batch(text).expect("done");
            }
            Self::Schema(schema) => {
                Postgres::shared().sql(&format!("SET search_path = {schema}; {text}"));
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Self::Schema(schema) = self {
            Postgres::shared().sql(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE"));
        }
    }
}
