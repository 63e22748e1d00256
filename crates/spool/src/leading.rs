//! The life of the spool's thread with PostgreSQL: it waits for the lock, leads, loses its session,
//! and waits again.
//!
//! Every read and write goes through the session that holds the lock, so a process without it can't
//! write. The server ends a session after ten seconds of inactivity, or five within a transaction,
//! which is why an idle leader runs a query every second. A leader that was frozen or cut off for
//! longer has lost its session.

use crate::leader::{self, Instance, Leader};
use crate::postgres::{self, Access, PostgresUrl, Session};
use crate::tables::schema::{Found, MIGRATIONS};
use crate::tables::{slots, unreadable_settings};
use crate::writer::{Channels, Guard, Handle, Leadership, Numbered, Writer, channels};
use crate::{Error, Settings, Silence, SilenceReason, Store};
use callbridge_model::clock;
use std::sync::mpsc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Time between two attempts to acquire the lock, and between two of an idle leader's queries.
const EVERY: Duration = Duration::from_secs(1);
/// Time between two attempts to connect.
const RECONNECT: Duration = Duration::from_secs(1);

/// Opens the state in a database and starts the thread. Returns once it's known whether this
/// process leads ([`Handle::leadership`]), or if the database can't be reached at the moment, in
/// which case the thread keeps trying.
///
/// # Errors
/// Returns [`Error::Unusable`] or [`Error::Foreign`], which both require a change to the settings.
pub fn open_postgres(
    url: &PostgresUrl,
    instance: Instance,
    settings: Settings,
) -> Result<(Handle, Guard), Error> {
    let (handle, mut guard, channels) = channels();
    let (first, known) = mpsc::sync_channel(1);
    let waits = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    let life = Life {
        url: url.clone(),
        instance,
        settings,
        channels,
        waits: waits.map_err(|error| Error::Unusable(url.place(), error.to_string()))?,
        has_connected: false,
        first: Some(first),
    };
    let started = guard.run(move || life.run());
    started.map_err(|error| Error::Unusable(url.place(), error.to_string()))?;
    known.recv().unwrap_or(Err(Error::Closed))?;
    Ok((handle.renewed(), guard))
}

struct Life {
    url: PostgresUrl,
    instance: Instance,
    settings: Settings,
    channels: Channels,
    /// Runtime for waits that don't use a session.
    waits: Runtime,
    /// Whether there has been a session, and thus one that isn't behind a pooler.
    has_connected: bool,
    /// Sends the first result to [`open_postgres`], which waits for it. `None` once it has been
    /// sent.
    first: Option<mpsc::SyncSender<Result<(), Error>>>,
}

impl Life {
    fn run(mut self) {
        while !self.channels.must_end() {
            match self.wait_for_lock() {
                Ok(Some(store)) => self.lead(store),
                // The thread must end.
                Ok(None) => break,
                Err(error) => {
                    if let Some(first) = self.first.take_if(|_| !error.is_temporary()) {
                        // The caller is waiting for this.
                        first.send(Err(error)).ok();
                        break;
                    }
                    self.stand_by(None, Some(error));
                    self.refuse_for(RECONNECT);
                }
            }
        }
        while let Ok(Numbered { request, .. }) = self.channels.queue.try_recv() {
            request.refuse(Error::Closed);
        }
    }

    /// Reports that this process isn't the leader, as [`Channels::stand_by`] does, and lets
    /// [`open_postgres`] return.
    fn stand_by(&mut self, leader: Option<Leader>, problem: Option<Error>) {
        self.channels.stand_by(leader, problem);
        self.report_first();
    }

    fn report_first(&mut self) {
        if let Some(first) = self.first.take() {
            // The caller is waiting for this.
            first.send(Ok(())).ok();
        }
    }

    /// Connects, waits until the lock is free, acquires it, and makes the leader's first commit.
    /// Returns `None` if the thread has to end before that.
    fn wait_for_lock(&mut self) -> Result<Option<Store>, Error> {
        let session = Session::open(&self.url, Access::Write, &self.instance.label())?;
        if !self.has_connected {
            postgres::refuse_pooler(&self.url, &session)?;
            self.has_connected = true;
        }
        let mut last = read_leader(&session)?;
        let mut is_shown = false;
        while !postgres::take_leader_lock(&session)? {
            if !is_shown {
                postgres::show_standby(&session)?;
                is_shown = true;
            }
            self.stand_by(last, None);
            self.refuse_for(EVERY);
            if self.channels.must_end() {
                session.close();
                return Ok(None);
            }
            last = read_leader(&session)?;
        }
        if is_shown {
            postgres::hide_standby(&session)?;
        }
        let mut store = Store::over_session(session, self.settings.clone())?;
        let session = store.session().ok_or(Error::Closed)?;
        let history = postgres::history(session)?;
        let row = self.instance.row(history, clock::now().wall);
        begin(&mut store, &row)?;
        Ok(Some(store))
    }

    /// Serves requests until the session is lost or the thread has to end.
    fn lead(&mut self, store: Store) {
        let since = clock::now().wall;
        let database = store.path.display();
        match store.silence().map(|silence| &silence.why) {
            Some(SilenceReason::TakenOver(previous)) => {
                tracing::info!(%database, previous, "acquired the lock");
            }
            Some(_) | None => tracing::info!(%database, "acquired the lock"),
        }
        self.channels.lead(Some(since));
        self.report_first();
        let mut writer = Writer::new(store, None);
        let lost = loop {
            self.channels.must_end();
            if writer.has_waiting() {
                writer.serve(None, &mut self.channels);
            } else {
                match self.next_request() {
                    Next::Request(first) => writer.serve(Some(first), &mut self.channels),
                    // This query keeps the session from becoming idle. Its error is read below.
                    Next::Nothing => drop(writer.store.exists("SELECT 1", ())),
                    Next::End => break None,
                }
            }
            if let Some(error) = writer.store.lost() {
                break Some(error.clone());
            }
        };
        writer.refuse_waiting(&lost);
        let Some(error) = lost else {
            if let Some(session) = writer.store.session() {
                session.close();
            }
            return;
        };
        tracing::warn!(%error, "lost the lock");
        let at = clock::now().wall;
        let health = &self.channels.health;
        health.send_modify(|health| health.lost_sessions.note(&error, at));
        self.channels
            .leadership
            .send_replace(Leadership::Lost(error));
    }

    fn next_request(&mut self) -> Next {
        let queue = &mut self.channels.queue;
        if let Ok(request) = queue.try_recv() {
            return Next::Request(request);
        }
        let next = self
            .waits
            .block_on(async { tokio::time::timeout(EVERY, queue.recv()).await });
        match next {
            Ok(Some(request)) => Next::Request(request),
            Ok(None) => Next::End,
            Err(_) => Next::Nothing,
        }
    }

    /// Responds to all requests with [`Error::NotLeader`] for this long, or until the thread has to
    /// end.
    fn refuse_for(&mut self, time: Duration) {
        let name = self.channels.known_leader().map(|leader| leader.name);
        let error = Error::NotLeader(self.url.place(), name);
        let queue = &mut self.channels.queue;
        let stop = &self.channels.stop;
        let refusing = async {
            while let Some(Numbered { request, .. }) = queue.recv().await {
                request.refuse(error.clone());
                if stop.load(std::sync::atomic::Ordering::Acquire) {
                    return;
                }
            }
        };
        // Either result means that the wait is over.
        self.waits
            .block_on(async { tokio::time::timeout(time, refusing).await })
            .ok();
    }
}

enum Next {
    Request(Numbered),
    Nothing,
    /// All handles were dropped, or the thread has to end and the queue is empty.
    End,
}

/// Runs a leader's first transaction, which writes its row. If it doesn't know the last leader's
/// slots, a silence begins.
fn begin(store: &mut Store, leader: &Leader) -> Result<(), Error> {
    let has_slots = !slots::slots(store)?.is_empty();
    let other = leader::leader(store)?.filter(|last| !leader.knows_slots_of(last, has_slots));
    store.in_transaction(|store| {
        if let Some(other) = other {
            let why = SilenceReason::TakenOver(other.name);
            slots::begin_silence(store, &Silence::to_begin(why))?;
        }
        unreadable_settings::reset(store)?;
        leader::set_leader(store, leader)
    })
}

/// Reads the leader's row, or returns `None` if the tables don't exist yet or must be migrated.
///
/// # Errors
/// Returns [`Error::NewerSchema`] if this process must not acquire the lock.
fn read_leader(session: &Session) -> Result<Option<Leader>, Error> {
    match postgres::inspect(session, MIGRATIONS.len())? {
        Found::New | Found::Migrated(_) => Ok(None),
        found @ (Found::Current | Found::Newer(_) | Found::Foreign) => {
            crate::store::refuse(session.place(), found)?;
            leader::leader_of(session)
        }
    }
}
