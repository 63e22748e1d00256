//! The thread that owns the open store, and the handles that send requests to it.
//!
//! Requests that are queued when the thread becomes free form a group. They share a transaction,
//! and get their responses after it's committed. Reads run between groups, in order, so each read
//! sees every write that was requested before it.

use super::check::{Check, Integrity};
use crate::dispatch::prepare;
use crate::health::Health;
use crate::tables::meta::{self, CLEAN, UNCHECKED};
use crate::{Done, Error, Leader, Op, StateDir, Store};
use callbridge_call::EventTime;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Maximum number of queued requests. When the queue is full, callers wait.
const QUEUE_MAX: usize = 1024;
const GROUP_REQUESTS_MAX: usize = 512;
/// Maximum number of operations in a group, not counting those in its last request.
const GROUP_OPS_MAX: usize = 4096;
/// Maximum number of operations in a group with PostgreSQL, which can store this many within 100
/// ms. Larger requests get a group of their own. A branch sends at most 500 calls per request.
const ROUND_TRIP_OPS_MAX: usize = 501;

/// How long the disk must have refused nothing before an empty write proves that it's healthy. An
/// empty write is only one row, which may fit where a request didn't. Refused callers retry sooner.
const BELIEVED_AFTER: Duration = Duration::from_secs(3);
/// The row written to test whether the disk accepts writes again.
const PROBE: &str = "spool.probe";

type Answer = Result<Vec<Done>, Error>;
type Answered<T> = oneshot::Receiver<Result<T, Error>>;
type Reading = Box<dyn FnOnce(Result<&Store, Error>) + Send>;

pub(super) enum WriterRequest {
    Write(Vec<Op>, oneshot::Sender<Answer>),
    Read(Reading),
    /// Wakes the thread so that it checks whether it has to stop.
    Wake,
}

impl WriterRequest {
    /// Responds to the request with `error`.
    pub(super) fn refuse(self, error: Error) {
        match self {
            // If the caller is no longer waiting, nobody receives this.
            Self::Write(_, answer) => drop(answer.send(Err(error))),
            Self::Read(reading) => reading(Err(error)),
            Self::Wake => {}
        }
    }
}

/// A request, along with the number of the leadership that its handle belongs to. The number
/// increases every time this process acquires the lock.
pub(super) struct Numbered {
    pub(super) leadership: u64,
    pub(super) request: WriterRequest,
}

/// Whether this process is the leader. Only the leader can write.
#[derive(Clone, Debug, PartialEq)]
pub enum Leadership {
    /// This process holds the lock. With SQLite, the process that has the state open always leads.
    Leading {
        /// When this process acquired the lock, or `None` with SQLite.
        since: Option<EventTime>,
    },
    /// This process is waiting for the lock.
    Standby {
        /// The process that is or last was the leader, if known.
        leader: Option<Leader>,
        /// Why this process couldn't acquire the lock even if it were free.
        problem: Option<Error>,
    },
    /// The session was lost. Tasks that cache values from the spool must start over.
    Lost(Error),
}

impl Leadership {
    pub const fn is_leading(&self) -> bool {
        matches!(self, Self::Leading { .. })
    }
}

/// A handle to the spool's thread, which is cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: mpsc::Sender<Numbered>,
    changed: watch::Receiver<u64>,
    pub(super) health: watch::Sender<Health>,
    leadership: watch::Receiver<Leadership>,
    /// The number of the current leadership.
    present: Arc<AtomicU64>,
    /// The number of this handle's own leadership. Its requests are refused in any other.
    number: u64,
}

impl Handle {
    /// Stores either all of `ops` or none, resolving once they're committed and synced. Requests
    /// made at the same time share a commit. Dropping the future doesn't cancel the request.
    ///
    /// # Errors
    /// Returns the error of an [`Op`], with nothing stored, or [`Error::Closed`] if the thread has
    /// ended. The same request can be made again if [`Error::is_retryable`].
    pub async fn write(&self, ops: Vec<Op>) -> Answer {
        let work = prepare(ops)?;
        let (answer, answered) = oneshot::channel();
        self.ask(WriterRequest::Write(work, answer), answered).await
    }

    /// Runs `f` on the spool's thread, between groups. Keep it short, since it holds up all writes.
    ///
    /// # Errors
    /// Returns the error of `f`, or [`Error::Closed`] if the thread has ended.
    pub async fn read<R, F>(&self, f: F) -> Result<R, Error>
    where
        R: Send + 'static,
        F: FnOnce(&Store) -> Result<R, Error> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let reading: Reading = Box::new(move |store| drop(answer.send(store.and_then(f))));
        self.ask(WriterRequest::Read(reading), answered).await
    }

    /// Reads the setting stored under `key`, if there is one.
    ///
    /// # Errors
    /// Fails like [`Handle::read`].
    pub async fn meta(&self, key: impl Into<String>) -> Result<Option<String>, Error> {
        let key = key.into();
        self.read(move |store| meta::meta(store, &key)).await
    }

    /// Stores `value` as a setting under `key`. Settings are small and durable.
    ///
    /// # Errors
    /// Fails like [`Handle::write`].
    pub async fn keep_meta(&self, key: impl Into<String>, value: String) -> Result<(), Error> {
        self.write(vec![Op::meta(key, value)]).await.map(drop)
    }

    async fn ask<T>(&self, request: WriterRequest, answered: Answered<T>) -> Result<T, Error> {
        let leadership = self.number;
        let numbered = Numbered {
            leadership,
            request,
        };
        let asked = self.requests.send(numbered).await;
        asked.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }

    /// Returns a receiver that tells whether this process leads. With SQLite, that never changes.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Returns a handle for the current leadership. Once a session has been lost, requests from
    /// older handles get [`Error::NotLeader`], because their callers know only an older state.
    pub fn renewed(&self) -> Self {
        Self {
            number: self.present.load(Ordering::Acquire),
            ..self.clone()
        }
    }

    /// Resolves once this handle's leadership has ended, which never happens with SQLite.
    pub async fn leadership_ended(&self) {
        let mut leadership = self.leadership.clone();
        let ended = leadership.wait_for(|now| {
            !now.is_leading() || self.present.load(Ordering::Acquire) != self.number
        });
        if ended.await.is_err() {
            // The thread has ended, which `closed` reports.
            std::future::pending().await
        }
    }

    /// Returns `true` if this handle's leadership has ended, which never happens with SQLite. This
    /// asks the thread, since callers may see a lost session before [`Handle::leadership`] does.
    pub async fn has_lost_leadership(&self) -> bool {
        let asked = self.read(|store| store.exists("SELECT 1", ())).await;
        matches!(asked, Err(Error::SessionLost(..) | Error::NotLeader(..)))
    }

    /// Returns a counter that changes with every commit, and so wakes the tasks watching it.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }

    /// Resolves once the thread has ended, either through [`Guard::close`] or because a read
    /// panicked.
    pub async fn closed(&self) {
        self.requests.closed().await;
    }

    /// Returns the health as last reported by the thread.
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }
}

/// Owns the thread. When the guard is closed or dropped, the thread stores the queued requests,
/// marks the shutdown as clean, and releases the lock.
#[derive(Debug)]
pub struct Guard {
    requests: mpsc::Sender<Numbered>,
    pub(super) stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(super) check: Option<Check>,
}

impl Guard {
    /// Stores the queued requests, marks the shutdown as clean, and ends the thread. Any later
    /// requests get [`Error::Closed`].
    pub fn close(self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.check.take());
        self.stop.store(true, Ordering::Release);
        // If the queue is full, the requests in it will wake the thread.
        let wake = Numbered {
            leadership: 0,
            request: WriterRequest::Wake,
        };
        self.requests.try_send(wake).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// The thread's end of the channels.
pub(super) struct Channels {
    pub(super) queue: mpsc::Receiver<Numbered>,
    bump: watch::Sender<u64>,
    pub(super) health: watch::Sender<Health>,
    pub(super) leadership: watch::Sender<Leadership>,
    pub(super) present: Arc<AtomicU64>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Channels {
    /// Returns `true` if the thread has to stop, in which case the queue accepts no more requests.
    pub(super) fn must_end(&mut self) -> bool {
        let ends = self.stop.load(Ordering::Acquire);
        if ends {
            self.queue.close();
        }
        ends
    }

    /// Reports that this process isn't the leader, along with who is and why this process can't
    /// acquire the lock.
    pub(super) fn stand_by(&self, leader: Option<Leader>, problem: Option<Error>) {
        let standby = Leadership::Standby { leader, problem };
        self.leadership.send_if_modified(|leadership| {
            let is_new = *leadership != standby;
            *leadership = standby;
            is_new
        });
    }

    /// Returns the leader that [`Channels::stand_by`] last reported.
    pub(super) fn known_leader(&self) -> Option<Leader> {
        match &*self.leadership.borrow() {
            Leadership::Standby { leader, .. } => leader.clone(),
            Leadership::Leading { .. } | Leadership::Lost(_) => None,
        }
    }

    /// Starts a new leadership. From now on, requests from handles for earlier ones are refused.
    pub(super) fn lead(&self, since: Option<EventTime>) {
        self.present.fetch_add(1, Ordering::AcqRel);
        self.leadership.send_replace(Leadership::Leading { since });
    }
}

/// Creates a handle, the guard of a thread that isn't running yet, and that thread's channels.
pub(super) fn channels() -> (Handle, Guard, Channels) {
    let (requests, queue) = mpsc::channel(QUEUE_MAX);
    let (bump, changed) = watch::channel(0);
    let health = watch::Sender::default();
    let stop = Arc::<AtomicBool>::default();
    let standby = Leadership::Standby {
        leader: None,
        problem: None,
    };
    let (leadership, leads) = watch::channel(standby);
    let present = Arc::<AtomicU64>::default();
    let handle = Handle {
        requests: requests.clone(),
        changed,
        health: health.clone(),
        leadership: leads,
        present: Arc::clone(&present),
        number: 0,
    };
    let guard = Guard {
        requests,
        stop: Arc::clone(&stop),
        thread: None,
        check: None,
    };
    let channels = Channels {
        queue,
        bump,
        health,
        leadership,
        present,
        stop,
    };
    (handle, guard, channels)
}

/// Starts the thread for an open store. It keeps `state_dir` locked until it ends.
pub(super) fn start(
    store: Store,
    state_dir: Option<StateDir>,
) -> Result<(Handle, Guard), std::io::Error> {
    let (handle, mut guard, mut channels) = channels();
    channels.lead(None);
    guard.run(move || {
        let mut writer = Writer::new(store, state_dir);
        while let Some(first) = channels.queue.blocking_recv() {
            channels.must_end();
            writer.group(first, &mut channels);
        }
        writer.mark_end(&channels);
    })?;
    Ok((handle.renewed(), guard))
}

impl Guard {
    /// Starts the spool's thread to run `work`.
    pub(super) fn run(&mut self, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let thread = std::thread::Builder::new()
            .name("spool".into())
            .spawn(work)?;
        self.thread = Some(thread);
        Ok(())
    }
}

/// Returns `true` if the request may jump the queue. Only the sender's requests do, so that they
/// don't have to wait behind those of the call sources.
fn goes_first(work: &[Op]) -> bool {
    work.iter().any(Op::is_of_sender) && !work.iter().any(Op::is_intake_in_order)
}

/// Requests that are committed together.
#[derive(Default)]
struct Group {
    works: Vec<Vec<Op>>,
    answers: Vec<oneshot::Sender<Answer>>,
    ops: usize,
}

impl Group {
    fn add(&mut self, work: Vec<Op>, answer: oneshot::Sender<Answer>) {
        self.ops += work.len();
        self.works.push(work);
        self.answers.push(answer);
    }

    fn is_empty(&self) -> bool {
        self.works.is_empty()
    }

    fn has_room_for(&self, work: &[Op]) -> bool {
        self.is_empty() || self.ops + work.len() <= ROUND_TRIP_OPS_MAX
    }
}

/// Runs queued requests against a store.
pub(super) struct Writer {
    pub(super) store: Store,
    /// Requests that were received but have to wait for a later group. Always empty with SQLite,
    /// where they stay in the channel.
    waiting: VecDeque<Numbered>,
    /// When a request was last refused with a retryable error.
    refused_at: Option<Instant>,
    /// The state directory, or `None` with PostgreSQL. It's released last, after the file is
    /// closed.
    state_dir: Option<StateDir>,
}

impl Writer {
    pub(super) const fn new(store: Store, state_dir: Option<StateDir>) -> Self {
        Self {
            store,
            waiting: VecDeque::new(),
            refused_at: None,
            state_dir,
        }
    }

    /// Returns `true` if any received requests are still waiting.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Responds to the waiting requests with `lost`, the error that ended the session, or with
    /// [`Error::Closed`] if the thread is simply ending.
    pub(super) fn refuse_waiting(&mut self, lost: &Option<Error>) {
        for Numbered { request, .. } in self.waiting.drain(..) {
            request.refuse(lost.clone().unwrap_or(Error::Closed));
        }
    }

    /// Runs one group of requests with PostgreSQL, starting with the sender's, which get a group of
    /// their own. Since each statement can take a round trip to the database, groups are kept small
    /// so that the sender never waits for more than one of them.
    pub(super) fn serve(&mut self, first: Option<Numbered>, channels: &mut Channels) {
        self.waiting.extend(first);
        while self.waiting.len() < QUEUE_MAX
            && let Ok(next) = channels.queue.try_recv()
        {
            self.waiting.push_back(next);
        }
        let present = channels.present.load(Ordering::Acquire);
        let mut of_sender = Group::default();
        let mut others = VecDeque::with_capacity(self.waiting.len());
        for Numbered {
            leadership,
            request,
        } in self.waiting.drain(..)
        {
            match request {
                WriterRequest::Wake => {}
                request if leadership != present => {
                    request.refuse(Error::NotLeader(self.store.path.clone(), None));
                }
                WriterRequest::Write(work, answer) if goes_first(&work) => {
                    of_sender.add(work, answer);
                }
                request => others.push_back(Numbered {
                    leadership,
                    request,
                }),
            }
        }
        self.waiting = others;
        if !of_sender.is_empty() {
            self.commit(&of_sender.works, of_sender.answers, channels);
            return;
        }
        let mut group = Group::default();
        while let Some(next) = self.waiting.pop_front() {
            match next.request {
                WriterRequest::Write(work, answer) if group.has_room_for(&work) => {
                    group.add(work, answer);
                }
                WriterRequest::Wake => {}
                WriterRequest::Read(read) if group.is_empty() => {
                    read(Ok(&self.store));
                    return;
                }
                request => {
                    let leadership = next.leadership;
                    self.waiting.push_front(Numbered {
                        leadership,
                        request,
                    });
                    break;
                }
            }
        }
        if !group.is_empty() {
            self.commit(&group.works, group.answers, channels);
        }
    }

    /// Records in the state directory that the spool was shut down cleanly.
    fn mark_end(mut self, channels: &Channels) {
        // `UNCHECKED` makes the next startup check the file.
        let value = match channels.health.borrow().integrity {
            Integrity::NotNeeded | Integrity::Sound => "yes",
            Integrity::Checking | Integrity::Unknown(_) => UNCHECKED,
            Integrity::Damaged(_) => return,
        };
        // If this fails, the file is checked at the next startup.
        self.store.write(vec![Op::meta(CLEAN, value)]).ok();
    }

    /// Commits `first` and the queued writes up to the next read, which then runs.
    pub(super) fn group(&mut self, first: Numbered, channels: &mut Channels) {
        let mut works = Vec::new();
        let mut answers = Vec::new();
        let mut read = None;
        let mut ops = 0;
        let mut next = Some(first);
        let present = channels.present.load(Ordering::Acquire);
        while let Some(numbered) = next {
            let is_current = numbered.leadership == present;
            match numbered.request {
                request @ (WriterRequest::Write(..) | WriterRequest::Read(_)) if !is_current => {
                    request.refuse(Error::NotLeader(self.store.path.clone(), None));
                }
                WriterRequest::Write(work, answer) => {
                    ops += work.len();
                    works.push(work);
                    answers.push(answer);
                }
                WriterRequest::Read(reading) => {
                    read = Some(reading);
                    break;
                }
                WriterRequest::Wake => {}
            }
            if works.len() >= GROUP_REQUESTS_MAX || ops >= GROUP_OPS_MAX {
                break;
            }
            next = channels.queue.try_recv().ok();
        }
        if !works.is_empty() {
            self.commit(&works, answers, channels);
        }
        if let Some(read) = read {
            read(Ok(&self.store));
        }
    }

    fn commit(
        &mut self,
        works: &[Vec<Op>],
        answers: Vec<oneshot::Sender<Answer>>,
        channels: &Channels,
    ) {
        let began = Instant::now();
        let empty = works.iter().all(Vec::is_empty);
        let in_place = match &self.state_dir {
            Some(state_dir) => state_dir.check_in_place(),
            None => Ok(()),
        };
        let results = match in_place {
            Err(gone) => vec![Err(gone); works.len()],
            Ok(()) if empty => vec![self.probe(channels); works.len()],
            Ok(()) => self.store.write_group(works),
        };
        let stored = !empty && results.iter().any(Result::is_ok);
        self.report(stored, &results, channels);
        if stored {
            let (now, took) = (Instant::now(), began.elapsed());
            let health = &channels.health;
            health.send_modify(|health| health.commits.note(now, took));
        }
        if !empty && let Some(hook) = &self.store.settings.on_commit {
            hook(began.elapsed());
        }
        if stored {
            channels.bump.send_modify(|commits| *commits += 1);
        }
        for (answer, result) in answers.into_iter().zip(results) {
            // The request counts even if its caller has stopped waiting for the result.
            answer.send(result).ok();
        }
    }

    /// Responds to an empty request. After a disk error, this writes one row, because SQLite
    /// commits an empty transaction without touching the disk, which would make a full disk look
    /// healthy.
    fn probe(&mut self, channels: &Channels) -> Answer {
        if channels.health.borrow().trouble.is_some() {
            self.store.write(vec![Op::meta(PROBE, "yes")])?;
        }
        Ok(Vec::new())
    }

    fn report(&mut self, stored: bool, results: &[Answer], channels: &Channels) {
        let mut errors = results.iter().filter_map(|result| result.as_ref().err());
        let trouble = errors.clone().find(|error| error.is_retryable());
        let damage = errors.find(|error| matches!(error, Error::Damaged { .. }));
        if trouble.is_some() {
            self.refused_at = Some(Instant::now());
        }
        let passed = self
            .refused_at
            .is_none_or(|at| at.elapsed() >= BELIEVED_AFTER);
        channels.health.send_modify(|health| {
            if trouble.is_some() || stored || (passed && results.iter().any(Result::is_ok)) {
                health.trouble = trouble.cloned();
            }
            if let Some(damage) = damage {
                health.integrity = Integrity::Damaged(damage.clone());
            }
        });
    }
}
