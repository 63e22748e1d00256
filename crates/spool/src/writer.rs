//! The thread that owns the open store, and the handles that send requests to the thread.
//!
//! The requests that are queued when the thread is free form a group: they go into one transaction,
//! and are answered after its commit. Reads run between groups, in order, so a read sees every
//! write that was requested before it.

use super::check::{Check, Integrity};
use crate::dispatch::prepare;
use crate::tables::meta::{self, CLEAN, UNCHECKED};
use crate::{Done, Error, Leader, Op, StateDir, Store};
use callbridge_call::EventTime;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Maximum number of queued requests. A caller waits until its request fits in the queue.
const QUEUE_MAX: usize = 1024;
const GROUP_REQUESTS_MAX: usize = 512;
/// Maximum number of operations in one group, not counting those of its last request.
const GROUP_OPS_MAX: usize = 4096;
/// Maximum number of operations in one group with PostgreSQL, which stores this many within 100 ms.
/// A larger request gets its own group. A branch sends at most 500 calls in a request.
const ROUND_TRIP_OPS_MAX: usize = 501;

/// An empty write that succeeds proves a healthy disk only if no request was refused for this long.
/// Its one row can find room where a whole request found none. Refused callers try again sooner.
const BELIEVED_AFTER: Duration = Duration::from_secs(3);
/// The row that is written to test whether the disk accepts writes again.
const PROBE: &str = "spool.probe";

type Answer = Result<Vec<Done>, Error>;
type Answered<T> = oneshot::Receiver<Result<T, Error>>;
type Reading = Box<dyn FnOnce(Result<&Store, Error>) + Send>;

pub(super) enum WriterRequest {
    Write(Vec<Op>, oneshot::Sender<Answer>),
    Read(Reading),
    /// Wakes the thread, which then checks whether it must end.
    Wake,
}

impl WriterRequest {
    /// Answers the request with `error`.
    pub(super) fn refuse(self, error: Error) {
        match self {
            // A caller that no longer waits has dropped the answer.
            Self::Write(_, answer) => drop(answer.send(Err(error))),
            Self::Read(reading) => reading(Err(error)),
            Self::Wake => {}
        }
    }
}

/// A request, with the number of the leadership that its handle is for. The number grows each time
/// that this process takes the lock.
pub(super) struct Numbered {
    pub(super) leadership: u64,
    pub(super) request: WriterRequest,
}

/// Whether this process leads. Only the leader can write.
#[derive(Clone, Debug, PartialEq)]
pub enum Leadership {
    /// This process holds the lock. A SQLite state that is open is always led by its process.
    Leading {
        /// Time at which this process took the lock. `None` for SQLite.
        since: Option<EventTime>,
    },
    /// This process waits for the lock.
    Standby {
        /// The process that leads, or led last. `None` if that is not known.
        leader: Option<Leader>,
        /// The reason why this process cannot get the lock even if the lock is free.
        problem: Option<Error>,
    },
    /// The session was lost. Tasks that keep values from the spool in memory must start again.
    Lost(Error),
}

impl Leadership {
    pub const fn is_leading(&self) -> bool {
        matches!(self, Self::Leading { .. })
    }
}

/// Health of the spool: its disk and the check of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Error of the last write, if it is retryable, such as a full disk. `None` after a successful
    /// write. An empty [`Handle::write`] tests whether the error has passed.
    pub trouble: Option<Error>,
    pub integrity: Integrity,
}

/// A handle to the spool's thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: mpsc::Sender<Numbered>,
    changed: watch::Receiver<u64>,
    pub(super) health: watch::Sender<Health>,
    leadership: watch::Receiver<Leadership>,
    /// Number of the present leadership.
    present: Arc<AtomicU64>,
    /// Number of the leadership that this handle is for. Its requests are refused in any other.
    number: u64,
}

impl Handle {
    /// Stores all of `ops` or none of them. Requests that arrive at the same time share the commit.
    /// Resolves after the commit and its sync. Dropping the future does not cancel the request.
    ///
    /// # Errors
    /// The errors of each [`Op`]. Nothing of this request is stored then. If
    /// [`Error::is_retryable`], the same request can be made again. [`Error::Closed`] if the thread
    /// has ended.
    pub async fn write(&self, ops: Vec<Op>) -> Answer {
        let work = prepare(ops)?;
        let (answer, answered) = oneshot::channel();
        self.ask(WriterRequest::Write(work, answer), answered).await
    }

    /// Runs `f` on the spool's thread between groups. Keep it short: no write runs meanwhile.
    ///
    /// # Errors
    /// The error of `f`. [`Error::Closed`] if the thread has ended.
    pub async fn read<R, F>(&self, f: F) -> Result<R, Error>
    where
        R: Send + 'static,
        F: FnOnce(&Store) -> Result<R, Error> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let reading: Reading = Box::new(move |store| drop(answer.send(store.and_then(f))));
        self.ask(WriterRequest::Read(reading), answered).await
    }

    /// Reads the small durable setting with the name `key`. `None` if it is not set.
    ///
    /// # Errors
    /// As [`Handle::read`].
    pub async fn meta(&self, key: impl Into<String>) -> Result<Option<String>, Error> {
        let key = key.into();
        self.read(move |store| meta::meta(store, &key)).await
    }

    /// Stores `value` as the small durable setting with the name `key`.
    ///
    /// # Errors
    /// As [`Handle::write`].
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

    /// Returns a receiver that reports whether this process leads. It never changes with SQLite.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Returns a handle for the present leadership. After the session was lost, requests of earlier
    /// handles are answered [`Error::NotLeader`], because their callers know an older state.
    pub fn renewed(&self) -> Self {
        Self {
            number: self.present.load(Ordering::Acquire),
            ..self.clone()
        }
    }

    /// Resolves when the leadership that this handle is for has ended. Never resolves with SQLite.
    pub async fn leadership_ended(&self) {
        let mut leadership = self.leadership.clone();
        let ended = leadership.wait_for(|now| {
            !now.is_leading() || self.present.load(Ordering::Acquire) != self.number
        });
        if ended.await.is_err() {
            // The thread has ended. `closed` reports this.
            std::future::pending().await
        }
    }

    /// Returns `true` if the leadership that this handle is for has ended. Asks the thread, because
    /// a caller can get the error of a lost session before [`Handle::leadership`] reports the loss.
    /// Always `false` with SQLite.
    pub async fn has_lost_leadership(&self) -> bool {
        let asked = self.read(|store| store.exists("SELECT 1", ())).await;
        matches!(asked, Err(Error::SessionLost(..) | Error::NotLeader(..)))
    }

    /// Returns a counter that changes after each commit, and so wakes the tasks that read it.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.clone()
    }

    /// Resolves when the thread has ended, after [`Guard::close`] or because a read panicked.
    pub async fn closed(&self) {
        self.requests.closed().await;
    }

    /// Returns the health that the thread reported last.
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }
}

/// Owns the thread. If the guard is closed or dropped, the thread stores the queued requests, marks
/// the end as clean, and releases the lock.
#[derive(Debug)]
pub struct Guard {
    requests: mpsc::Sender<Numbered>,
    pub(super) stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(super) check: Option<Check>,
}

impl Guard {
    /// Stores the queued requests, marks the end as clean, and ends the thread. Later requests are
    /// answered [`Error::Closed`].
    pub fn close(self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.check.take());
        self.stop.store(true, Ordering::Release);
        // If the queue is full, its requests wake the thread.
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
    health: watch::Sender<Health>,
    pub(super) leadership: watch::Sender<Leadership>,
    pub(super) present: Arc<AtomicU64>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Channels {
    /// Returns `true` if the thread must end. The queue then accepts no further requests.
    pub(super) fn must_end(&mut self) -> bool {
        let ends = self.stop.load(Ordering::Acquire);
        if ends {
            self.queue.close();
        }
        ends
    }

    /// Reports that this process does not lead, with the process that does, and the reason why this
    /// process cannot take the lock.
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

    /// Begins a leadership. Requests of handles for earlier leaderships are refused from now on.
    pub(super) fn lead(&self, since: Option<EventTime>) {
        self.present.fetch_add(1, Ordering::AcqRel);
        self.leadership.send_replace(Leadership::Leading { since });
    }
}

/// Makes a handle, the guard of a thread that does not run yet, and that thread's channels.
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

/// Starts the thread for an open store. The thread holds `state_dir` until it ends.
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
    /// Starts the spool's thread, which runs `work`.
    pub(super) fn run(&mut self, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let thread = std::thread::Builder::new()
            .name("spool".into())
            .spawn(work)?;
        self.thread = Some(thread);
        Ok(())
    }
}

/// Returns `true` if the request overtakes the requests before it. Only requests of the sender do,
/// so they do not wait for requests of sources of calls.
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

/// Runs the requests of the queue on a store.
pub(super) struct Writer {
    pub(super) store: Store,
    /// Received requests that wait for a later group. Empty with SQLite: they stay in the channel.
    waiting: VecDeque<Numbered>,
    /// Time at which a request was last refused with a retryable error.
    refused_at: Option<Instant>,
    /// The state folder. `None` with PostgreSQL. Released last, after the file is closed.
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

    /// Returns `true` if received requests wait.
    pub(super) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Answers the waiting requests with `lost`, the error that ended the session. Without it, the
    /// thread ends, and the answer is [`Error::Closed`].
    pub(super) fn refuse_waiting(&mut self, lost: &Option<Error>) {
        for Numbered { request, .. } in self.waiting.drain(..) {
            request.refuse(lost.clone().unwrap_or(Error::Closed));
        }
    }

    /// Runs one group of requests with PostgreSQL. Requests of the sender go first, in their own
    /// group. Groups are small, because each statement can need a round trip to the database, so
    /// requests of the sender wait for one group at most.
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

    /// Marks the end of a state folder as clean.
    fn mark_end(mut self, channels: &Channels) {
        // `UNCHECKED` makes the next start check the file.
        let value = match channels.health.borrow().integrity {
            Integrity::NotNeeded | Integrity::Sound => "yes",
            Integrity::Checking | Integrity::Unknown(_) => UNCHECKED,
            Integrity::Damaged(_) => return,
        };
        // If this fails, the next start checks the file.
        self.store.write(vec![Op::meta(CLEAN, value)]).ok();
    }

    /// Commits `first` and the queued writes up to the next read, and then runs that read.
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
        if !empty && let Some(hook) = &self.store.settings.on_commit {
            hook(began.elapsed());
        }
        if stored {
            channels.bump.send_modify(|commits| *commits += 1);
        }
        for (answer, result) in answers.into_iter().zip(results) {
            // A caller that no longer waits has dropped the answer, not the request.
            answer.send(result).ok();
        }
    }

    /// Answers an empty request. After a disk error it writes one row: SQLite commits an empty
    /// transaction without touching the disk, so a full disk would look healthy.
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
