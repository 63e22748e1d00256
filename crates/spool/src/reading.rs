//! A handle that only reads a PostgreSQL state, whether or not another process leads.
//!
//! Each read sees all commits before it began, and the books as of those commits. Writes are
//! refused with [`Error::NotLeader`], which includes the leader's name.

use crate::leader::{self, Leader};
use crate::postgres::{self, Access, PostgresUrl, Session};
use crate::tables::schema::{Found, MIGRATIONS};
use crate::writer::{Channels, Guard, Handle, Numbered, WriterRequest, channels};
use crate::{Error, Settings, Store};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to wait after a failed read before querying the database again.
const PAUSE: Duration = Duration::from_secs(1);
/// The session's name on the server.
const LABEL: &str = "callbridge reader";

/// Starts a thread that reads the state in a database, connecting with the first request.
/// [`Handle::leadership`](crate::Handle::leadership) reports a standby, with the leader found by
/// the last request or the reason why the state couldn't be read.
///
/// # Errors
/// Returns [`Error::Unusable`] if the thread can't be started.
pub fn read_postgres(url: &PostgresUrl, settings: Settings) -> Result<(Handle, Guard), Error> {
    let (handle, mut guard, channels) = channels();
    let reading = Reading {
        url: url.clone(),
        settings,
        channels,
        store: None,
        has_session: false,
        failed: None,
    };
    let started = guard.run(move || reading.run());
    started.map_err(|error| Error::Unusable(url.place(), error.to_string()))?;
    Ok((handle, guard))
}

struct Reading {
    url: PostgresUrl,
    settings: Settings,
    channels: Channels,
    /// `None` before the first session.
    store: Option<Store>,
    /// Whether there's a session, which is `false` before the first one and after the last one was
    /// lost.
    has_session: bool,
    /// The last failure, and when it happened.
    failed: Option<(Instant, Error)>,
}

impl Reading {
    fn run(mut self) {
        while let Some(Numbered { request, .. }) = self.channels.queue.blocking_recv() {
            if self.channels.must_end() {
                request.refuse(Error::Closed);
            } else {
                self.answer(request);
            }
        }
    }

    fn answer(&mut self, request: WriterRequest) {
        if matches!(request, WriterRequest::Wake) {
            return;
        }
        let leader = match self.begin_or_pause() {
            Ok(leader) => leader,
            Err(error) => {
                let leader = self.channels.known_leader();
                self.channels.stand_by(leader, Some(error.clone()));
                return request.refuse(error);
            }
        };
        self.channels.stand_by(leader.clone(), None);
        let Some(store) = &self.store else {
            return request.refuse(Error::Closed);
        };
        match request {
            WriterRequest::Read(read) => read(Ok(store)),
            request => {
                let name = leader.map(|leader| leader.name);
                request.refuse(Error::NotLeader(self.url.place(), name));
            }
        }
        store.rollback();
        self.has_session = !store.is_lost();
    }

    /// Runs [`Reading::begin`], unless it failed less than [`PAUSE`] ago. It's run twice if the
    /// session was lost since the last request.
    fn begin_or_pause(&mut self) -> Result<Option<Leader>, Error> {
        if let Some((at, error)) = &self.failed
            && at.elapsed() < PAUSE
        {
            return Err(error.clone());
        }
        let had_session = self.has_session;
        let mut begun = self.begin();
        if had_session && matches!(begun, Err(Error::SessionLost(..))) {
            // The session has ended since the last request.
            begun = self.begin();
        }
        self.failed = match &begun {
            Err(error) if error.is_retryable() => Some((Instant::now(), error.clone())),
            Ok(_) | Err(_) => None,
        };
        begun
    }

    /// Begins a transaction, reads the values that the store keeps in memory, and returns the
    /// leader, rolling back if this fails.
    fn begin(&mut self) -> Result<Option<Leader>, Error> {
        let begun = self.begin_transaction();
        match &begun {
            Ok(_) => {}
            Err(Error::SessionLost(..)) => self.has_session = false,
            Err(_) => {
                if let Some(store) = &self.store {
                    store.rollback();
                    self.has_session = !store.is_lost();
                }
            }
        }
        begun
    }

    fn begin_transaction(&mut self) -> Result<Option<Leader>, Error> {
        let store = self.open()?;
        store.begin_snapshot()?;
        let session = store.session().ok_or(Error::Closed)?;
        refuse_unreadable(
            session.place(),
            postgres::inspect(session, MIGRATIONS.len())?,
        )?;
        let leader = leader::ask(store)?;
        store.read_again()?;
        leader.first(store)
    }

    fn open(&mut self) -> Result<&mut Store, Error> {
        if !self.has_session {
            let session = Session::open(&self.url, Access::Read, LABEL)?;
            match &mut self.store {
                Some(store) => store.replace_reader(session),
                None => self.store = Some(Store::over_reader(session, self.settings.clone())),
            }
            self.has_session = true;
        }
        self.store.as_mut().ok_or(Error::Closed)
    }
}

/// Returns an error if this version can't read the tables, since a reader doesn't migrate them.
fn refuse_unreadable(place: &Path, found: Found) -> Result<(), Error> {
    match crate::store::refuse(place, found)? {
        Found::New => Err(Error::Missing(place.to_path_buf())),
        Found::Migrated(version) => {
            let known = MIGRATIONS.len();
            let why = format!(
                "it has schema {version}, and this callbridge reads schema {known}: start this \
                 version's `callbridge run` with this --state, which updates it"
            );
            Err(Error::Unusable(place.to_path_buf(), why))
        }
        Found::Current | Found::Newer(_) | Found::Foreign => Ok(()),
    }
}
