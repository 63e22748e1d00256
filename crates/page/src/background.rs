//! Background work, which is either a job or a run of `check`. Jobs change many dead letters, a
//! hundred at a time, and their progress is shown on a page that can be left and reopened. A run of
//! `check` contacts the PBX and the CRM, which takes some time.

use crate::backend::{Backend, CheckFinding};
use crate::shell::now_seconds;
use callbridge_admin::{LetterChange, LetterOutcome, Refusal};
use callbridge_spool::RowId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::{sync::watch, task::JoinSet};

/// Number of dead letters that a job changes per backend call.
pub(crate) const CHUNK: usize = 100;
/// Maximum number of jobs to remember. The oldest finished ones are dropped first.
const JOBS_MAX: usize = 20;
/// Maximum number of jobs running at the same time.
const WORKING_MAX: usize = 4;
/// Maximum number of results that a job lists individually. Any further ones are only counted.
const LINES_MAX: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum JobState {
    Working,
    Done,
    /// The daemon refused to continue.
    Refused(String),
    /// The daemon stopped before the job was done.
    Stopped,
}

/// A change to many dead letters, including its progress.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub(crate) who: String,
    pub(crate) change: LetterChange,
    pub(crate) total: u64,
    pub(crate) done: u64,
    pub(crate) began: i64,
    pub(crate) state: JobState,
    /// Number of dead letters by result.
    pub(crate) results: BTreeMap<&'static str, u64>,
    /// The first `LINES_MAX` results.
    pub(crate) lines: Vec<LetterOutcome>,
}

impl Job {
    /// Returns a job that hasn't been started.
    pub(crate) fn new(change: LetterChange, who: &str, total: usize, began: i64) -> Self {
        Self {
            who: who.to_owned(),
            change,
            total: total as u64,
            done: 0,
            began,
            state: JobState::Working,
            results: BTreeMap::new(),
            lines: Vec::new(),
        }
    }

    /// Adds the results for the next `asked` dead letters.
    pub(crate) fn take(&mut self, acted: Vec<LetterOutcome>, asked: usize) {
        self.done += asked as u64;
        for one in acted {
            *self.results.entry(one.result).or_default() += 1;
            if self.lines.len() < LINES_MAX {
                self.lines.push(one);
            }
        }
    }
}

type ById = BTreeMap<u64, Job>;

/// The running and finished jobs by number. The oldest finished jobs make way for newer ones.
pub(crate) struct Jobs {
    all: Arc<Mutex<ById>>,
    tasks: Tasks,
    closing: watch::Receiver<bool>,
}

impl Jobs {
    /// Creates an empty list. Once `closing` becomes true, all jobs stop between two chunks.
    pub(crate) fn new(closing: watch::Receiver<bool>) -> Self {
        Self {
            all: Arc::default(),
            tasks: Tasks::default(),
            closing,
        }
    }

    pub(crate) fn find(&self, id: u64) -> Option<Job> {
        lock(&self.all).get(&id).cloned()
    }

    /// Returns the remembered jobs, newest first.
    pub(crate) fn newest(&self) -> Vec<(u64, Job)> {
        let all = lock(&self.all);
        Vec::from_iter(all.iter().rev().map(|(id, job)| (*id, job.clone())))
    }

    /// Returns `true` if fewer than the maximum number of jobs are running.
    pub(crate) fn has_room(&self) -> bool {
        let all = lock(&self.all);
        let working = all.values().filter(|job| job.state == JobState::Working);
        working.count() < WORKING_MAX
    }

    /// Runs a job for the dead letters in `left` in the background, and returns the job's number.
    pub(crate) fn begin(&self, mut job: Job, left: Vec<RowId>, backend: Arc<dyn Backend>) -> u64 {
        if left.is_empty() {
            job.state = JobState::Done;
        }
        let who = job.who.clone();
        let change = job.change;
        let id = {
            let mut all = lock(&self.all);
            let id = all.last_key_value().map_or(1, |(last, _)| last + 1);
            all.insert(id, job);
            // Running jobs are never dropped.
            while all.len() > JOBS_MAX {
                let mut ended = all.iter().filter(|(_, job)| job.state != JobState::Working);
                let Some(oldest) = ended.next().map(|(id, _)| *id) else {
                    break;
                };
                all.remove(&oldest);
            }
            id
        };
        let all = Arc::clone(&self.all);
        let closing = self.closing.clone();
        self.tasks.spawn(async move {
            let mut end = JobState::Done;
            for chunk in left.chunks(CHUNK) {
                if *closing.borrow() {
                    end = JobState::Stopped;
                    break;
                }
                match backend.act(change, chunk, &who).await {
                    Ok(acted) => {
                        if let Some(job) = lock(&all).get_mut(&id) {
                            job.take(acted, chunk.len());
                        }
                    }
                    Err(Refusal { message, .. }) => {
                        tracing::warn!(
                            job = id,
                            error = message,
                            "a job on dead letters ended early"
                        );
                        end = JobState::Refused(message);
                        break;
                    }
                }
                // The daemon's other work has priority.
                tokio::task::yield_now().await;
            }
            if let Some(job) = lock(&all).get_mut(&id) {
                job.state = end;
            }
        });
        id
    }

    /// Waits for the running jobs, which have been told to end.
    pub(crate) async fn end(&self) {
        let mut tasks = self.tasks.take();
        while tasks.join_next().await.is_some() {}
    }
}

/// The last or current run of `check`.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastCheck {
    pub(crate) running: bool,
    /// When the run ended, in epoch seconds, or `None` before the first run has ended.
    pub(crate) at: Option<i64>,
    pub(crate) findings: Vec<CheckFinding>,
    /// The daemon's message if the run itself failed, in which case `findings` is empty.
    pub(crate) refused: Option<String>,
}

/// Runs one check at a time.
#[derive(Default)]
pub(crate) struct CheckRun {
    last: Arc<Mutex<LastCheck>>,
    tasks: Tasks,
}

impl CheckRun {
    pub(crate) fn last(&self) -> LastCheck {
        lock(&self.last).clone()
    }

    /// Starts a run unless one is already in progress.
    pub(crate) fn begin(&self, backend: Arc<dyn Backend>) {
        if std::mem::replace(&mut lock(&self.last).running, true) {
            return;
        }
        let last = Arc::clone(&self.last);
        self.tasks.spawn(async move {
            let (findings, refused) = match backend.check().await {
                Ok(findings) => (findings, None),
                Err(refusal) => (Vec::new(), Some(refusal.message)),
            };
            *lock(&last) = LastCheck {
                running: false,
                at: Some(now_seconds()),
                findings,
                refused,
            };
        });
    }

    /// Cancels a running check, which doesn't change anything.
    pub(crate) async fn end(&self) {
        self.tasks.take().shutdown().await;
    }
}

#[derive(Default)]
struct Tasks(Mutex<JoinSet<()>>);

impl Tasks {
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = lock(&self.0);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(work);
    }

    fn take(&self) -> JoinSet<()> {
        std::mem::take(&mut *lock(&self.0))
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}
