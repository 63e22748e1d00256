//! The thread that writes, and the handles that send requests to it.
//!
//! The requests that are queued when the thread is free go into one transaction, a group. They are
//! answered after its commit. Reads run between groups, in order, so a read sees every write that
//! was requested before it.

use super::check::{Check, Integrity};
use crate::dispatch::prepare;
use crate::tables::meta::{self, CLEAN, UNCHECKED};
use crate::{Done, Error, Leader, Op, Predecessor, StateDir, Store};
use callbridge_call::EventTime;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Requests that can wait for the thread. Further callers wait.
const QUEUE_MAX: usize = 1024;
const GROUP_REQUESTS_MAX: usize = 512;
/// Operations in one group, not counting the last request's.
const GROUP_OPS_MAX: usize = 4096;
/// Operations in one group with a database behind a network, counting the last request's. It stores
/// these within 100 ms. A larger request is stored separately. A branch sends at most 500 calls in
/// a request.
const ROUND_TRIP_OPS_MAX: usize = 501;

/// After a write of one row succeeds, the disk counts as healthy once no request was refused for
/// this long. One row can find room where a whole request found none, and refused callers wait less
/// than this before they try again.
const BELIEVED_AFTER: Duration = Duration::from_secs(3);
/// The row that is written to test whether the disk accepts writes again.
const PROBE: &str = "spool.probe";

type Answer = Result<Vec<Done>, Error>;
type Answered<T> = oneshot::Receiver<Result<T, Error>>;
type Reading = Box<dyn FnOnce(Result<&Store, Error>) + Send>;

pub(super) enum WriterRequest {
    Write(Vec<Op>, oneshot::Sender<Answer>),
    Read(Reading),
    /// No request. The thread checks whether it must end.
    Wake,
}

impl WriterRequest {
    /// Answers a request that cannot be made.
    pub(super) fn refuse(self, error: Error) {
        match self {
            // A caller that no longer waits has dropped the answer.
            Self::Write(_, answer) => drop(answer.send(Err(error))),
            Self::Read(reading) => reading(Err(error)),
            Self::Wake => {}
        }
    }
}

/// A request, and the number of the leadership that it was made for.
pub(super) struct Numbered {
    pub(super) leadership: u64,
    pub(super) request: WriterRequest,
}

/// Whether this process leads. Only the leader can write.
#[derive(Clone, Debug, PartialEq)]
pub enum Leadership {
    /// It holds the lock. A SQLite state that is open is always led by its process.
    Leading {
        /// Time at which it took the lock. `None` for SQLite.
        since: Option<EventTime>,
        /// See [`Store::predecessor`].
        predecessor: Predecessor,
    },
    /// It waits for the lock.
    Standby {
        /// The process that leads, or led last. `None` if it is not known.
        leader: Option<Leader>,
        /// The reason why it cannot get the lock even if it is free.
        problem: Option<Error>,
    },
    /// The session was lost. Everything that holds memory of the spool must begin again.
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
    /// Error of the last write, if it can pass (disk full…). `None` after a successful write. An
    /// empty write ([`Handle::write`] of nothing) tests it meanwhile.
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
    /// Number of the leadership that the requests of this handle are for.
    number: u64,
}

impl Handle {
    /// Stores all of `ops` as one unit, together with requests that arrive at the same time.
    /// Resolves after the commit and its sync. Dropping the future does not cancel the request.
    ///
    /// # Errors
    /// As each [`Op`] says. Nothing of this request is stored then. [`Error::is_retryable`] errors
    /// can be tried again. [`Error::Closed`] if the thread has ended.
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

    /// Reads the small durable setting of this name. `None` if it is not set.
    ///
    /// # Errors
    /// As [`Handle::read`].
    pub async fn meta(&self, key: impl Into<String>) -> Result<Option<String>, Error> {
        let key = key.into();
        self.read(move |store| meta::meta(store, &key)).await
    }

    /// Keeps `value` under this name.
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

    /// Reports whether this process leads, and each change of it. With SQLite it never changes.
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// Returns a handle for the present leadership. When the session is lost, requests of all
    /// earlier handles are answered [`Error::NotLeader`] from then on: their callers know an older
    /// state.
    pub fn renewed(&self) -> Self {
        Self {
            number: self.present.load(Ordering::Acquire),
            ..self.clone()
        }
    }

    /// Resolves when the leadership that this handle is for has ended. It never does with SQLite.
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

    /// Returns `true` if the leadership that this handle is for has ended. Asks the thread, because
    /// the caller can have the error of a lost session before the loss is reported. Always `false`
    /// with SQLite.
    pub async fn has_lost_leadership(&self) -> bool {
        let asked = self.read(|store| store.exists("SELECT 1", ())).await;
        matches!(asked, Err(Error::SessionLost(..) | Error::NotLeader(..)))
    }

    /// Returns a counter that changes after each commit. It wakes the sender, the outbox, and `dead
    /// watch`.
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

/// Owns the thread. Closing or dropping it stores what is queued, marks the end as clean, and
/// releases the folder.
#[derive(Debug)]
pub struct Guard {
    requests: mpsc::Sender<Numbered>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub(super) check: Option<Check>,
}

impl Guard {
    /// Stores what is queued, marks the end as clean, and ends the thread. Later requests are
    /// answered [`Error::Closed`].
    pub fn close(self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.check.take());
        self.stop.store(true, Ordering::Release);
        // A full queue also wakes the thread.
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
    /// Returns `true` if the thread must end. Further requests are refused then.
    pub(super) fn must_end(&mut self) -> bool {
        let ends = self.stop.load(Ordering::Acquire);
        if ends {
            self.queue.close();
        }
        ends
    }

    /// Reports that this process does not lead.
    pub(super) fn stand_by(&self, leader: Option<Leader>, problem: Option<Error>) {
        let standby = Leadership::Standby { leader, problem };
        self.leadership.send_if_modified(|leadership| {
            let is_new = *leadership != standby;
            *leadership = standby;
            is_new
        });
    }

    /// Returns the leader that was last reported.
    pub(super) fn known_leader(&self) -> Option<Leader> {
        match &*self.leadership.borrow() {
            Leadership::Standby { leader, .. } => leader.clone(),
            Leadership::Leading { .. } | Leadership::Lost(_) => None,
        }
    }

    /// Begins a leadership. Handles of earlier ones are refused from now on.
    pub(super) fn lead(&self, since: Option<EventTime>, predecessor: Predecessor) {
        self.present.fetch_add(1, Ordering::AcqRel);
        self.leadership
            .send_replace(Leadership::Leading { since, predecessor });
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

/// Starts the thread for an open store. It holds `state_dir` until it ends.
pub(super) fn start(
    store: Store,
    state_dir: Option<StateDir>,
) -> Result<(Handle, Guard), std::io::Error> {
    let (handle, mut guard, mut channels) = channels();
    channels.lead(None, Predecessor::Local);
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
    /// Starts the thread.
    pub(super) fn run(&mut self, work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
        let thread = std::thread::Builder::new()
            .name("spool".into())
            .spawn(work)?;
        self.thread = Some(thread);
        Ok(())
    }
}

/// Returns `true` if the request goes first. Requests of the sender do not wait for those of
/// sources of calls. All others keep their order.
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

/// A store that is written to.
pub(super) struct Writer {
    pub(super) store: Store,
    /// Requests that wait for a later group. With SQLite, only the channel holds them.
    waiting: VecDeque<Numbered>,
    /// Time at which a request was last refused for an error that can pass.
    refused_at: Option<Instant>,
    /// `None` without a folder. Released last, when the file is closed.
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

    /// Answers the requests that wait, because the session was lost.
    pub(super) fn refuse_waiting(&mut self, lost: &Option<Error>) {
        for Numbered { request, .. } in self.waiting.drain(..) {
            request.refuse(lost.clone().unwrap_or(Error::Closed));
        }
    }

    /// Serves requests in groups that end soon, so the sender's requests wait for one group at
    /// most. They go first, in their own group. Every statement of a group takes at most one round
    /// trip to the database.
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
        // The next start checks the file if it was not found sound.
        let value = match channels.health.borrow().integrity {
            Integrity::NotNeeded | Integrity::Sound => "yes",
            Integrity::Checking | Integrity::Unknown(_) => UNCHECKED,
            Integrity::Damaged(_) => return,
        };
        // If this fails, the next start checks the file, which is right.
        self.store.write(vec![Op::meta(CLEAN, value)]).ok();
    }

    /// Takes what is queued, commits the writes, and runs the read that ended the group.
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
