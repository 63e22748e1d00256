//! The one thread that writes, and the handles that ask it to.
//!
//! What is queued when the thread comes round goes into one transaction: a group. The answers
//! follow its commit. Reads run between groups, in the order asked, so a read sees every write
//! asked for before it.

use super::check::{Check, Integrity};
use crate::dispatch::prepare;
use crate::tables::meta::{self, CLEAN, UNCHECKED};
use crate::{Done, Error, Op, StateDir, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};

/// Requests that can wait for the thread. Further callers wait.
const QUEUE_MAX: usize = 1024;
const GROUP_REQUESTS_MAX: usize = 512;
/// Operations in one group, not counting the last request's.
const GROUP_OPS_MAX: usize = 4096;

/// After a write of one row succeeds, the disk counts as healthy once no request was refused for
/// this long. One row can find room where a whole request found none, and refused callers wait less
/// than this before they try again.
const BELIEVED_AFTER: Duration = Duration::from_secs(3);
/// The row that is written to test whether the disk accepts writes again.
const PROBE: &str = "spool.probe";

type Answer = Result<Vec<Done>, Error>;
type Answered<T> = oneshot::Receiver<Result<T, Error>>;
type Reading = Box<dyn FnOnce(&Store) + Send>;

enum WriterRequest {
    Write(Vec<Op>, oneshot::Sender<Answer>),
    Read(Reading),
    /// No request: the thread checks whether it must end.
    Wake,
}

/// Health of the spool: its disk and the check of its file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Error of the last write, if it can pass (disk full…). `None` after a successful write. An
    /// empty write ([`Handle::write`] of nothing) tests it meanwhile.
    pub trouble: Option<Error>,
    pub integrity: Integrity,
}

/// A way to the spool's thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Handle {
    requests: mpsc::Sender<WriterRequest>,
    changed: watch::Receiver<u64>,
    pub(super) health: watch::Sender<Health>,
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
        let read = move |store: &Store| drop(answer.send(f(store)));
        self.ask(WriterRequest::Read(Box::new(read)), answered)
            .await
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
        let asked = self.requests.send(request).await;
        asked.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }

    /// Changes after each commit. Wakes the sender, the outbox and `dead watch`.
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
    requests: mpsc::Sender<WriterRequest>,
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
        self.requests.try_send(WriterRequest::Wake).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

/// Starts the thread for an open store. It holds `state_dir` until it ends.
pub(super) fn start(
    store: Store,
    state_dir: Option<StateDir>,
) -> Result<(Handle, Guard), std::io::Error> {
    let (requests, queue) = mpsc::channel(QUEUE_MAX);
    let (bump, changed) = watch::channel(0);
    let health = watch::Sender::default();
    let stop = Arc::<AtomicBool>::default();
    let writer = Writer {
        store,
        queue,
        bump,
        health: health.clone(),
        stop: Arc::clone(&stop),
        refused_at: None,
        state_dir,
    };
    let thread = std::thread::Builder::new()
        .name("spool".into())
        .spawn(move || writer.run())?;
    let guard = Guard {
        requests: requests.clone(),
        stop,
        thread: Some(thread),
        check: None,
    };
    let handle = Handle {
        requests,
        changed,
        health,
    };
    Ok((handle, guard))
}

struct Writer {
    store: Store,
    queue: mpsc::Receiver<WriterRequest>,
    bump: watch::Sender<u64>,
    health: watch::Sender<Health>,
    stop: Arc<AtomicBool>,
    /// Time at which a request was last refused for an error that can pass.
    refused_at: Option<Instant>,
    /// `None` in memory. Released last, when the file is closed.
    state_dir: Option<StateDir>,
}

impl Writer {
    fn run(mut self) {
        while let Some(first) = self.queue.blocking_recv() {
            if self.stop.load(Ordering::Acquire) {
                self.queue.close();
            }
            self.group(first);
        }
        // The next start checks the file if it was not found sound.
        let value = match self.health.borrow().integrity {
            Integrity::NotNeeded | Integrity::Sound => "yes",
            Integrity::Checking | Integrity::Unknown(_) => UNCHECKED,
            Integrity::Damaged(_) => return,
        };
        // If this fails, the next start checks the file, which is right.
        self.store.write(vec![Op::meta(CLEAN, value)]).ok();
    }

    /// Takes what is queued, commits the writes, and runs the read that ended the group.
    fn group(&mut self, first: WriterRequest) {
        let (mut works, mut answers, mut read) = (Vec::new(), Vec::new(), None);
        let (mut ops, mut next) = (0, Some(first));
        while let Some(request) = next {
            match request {
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
            next = self.queue.try_recv().ok();
        }
        if !works.is_empty() {
            self.commit(&works, answers);
        }
        if let Some(read) = read {
            read(&self.store);
        }
    }

    fn commit(&mut self, works: &[Vec<Op>], answers: Vec<oneshot::Sender<Answer>>) {
        let began = Instant::now();
        let (empty, requests) = (works.iter().all(Vec::is_empty), works.len());
        let in_place = match &self.state_dir {
            Some(state_dir) => state_dir.check_in_place(),
            None => Ok(()),
        };
        let results = match in_place {
            Err(gone) => vec![Err(gone); requests],
            Ok(()) if empty => vec![self.probe(); requests],
            Ok(()) => self.store.write_group(works),
        };
        let stored = !empty && results.iter().any(Result::is_ok);
        self.report(stored, &results);
        if !empty && let Some(hook) = &self.store.settings.on_commit {
            hook(began.elapsed());
        }
        if stored {
            self.bump.send_modify(|commits| *commits += 1);
        }
        for (answer, result) in answers.into_iter().zip(results) {
            // A caller that no longer waits has dropped the answer, not the request.
            answer.send(result).ok();
        }
    }

    /// Answers an empty request. After a disk error it writes one row: SQLite commits an empty
    /// transaction without touching the disk, so a full disk would look healthy.
    fn probe(&mut self) -> Answer {
        if self.health.borrow().trouble.is_some() {
            self.store.write(vec![Op::meta(PROBE, "yes")])?;
        }
        Ok(Vec::new())
    }

    fn report(&mut self, stored: bool, results: &[Answer]) {
        let errors = || results.iter().filter_map(|result| result.as_ref().err());
        let trouble = errors().find(|error| error.is_retryable()).cloned();
        let damage = errors().find(|error| matches!(error, Error::Damaged { .. }));
        if trouble.is_some() {
            self.refused_at = Some(Instant::now());
        }
        let passed = self
            .refused_at
            .is_none_or(|at| at.elapsed() >= BELIEVED_AFTER);
        self.health.send_modify(|health| {
            if trouble.is_some() || stored || (passed && results.iter().any(Result::is_ok)) {
                health.trouble = trouble;
            }
            if let Some(damage) = damage {
                health.integrity = Integrity::Damaged(damage.clone());
            }
        });
    }
}
