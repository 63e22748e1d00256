//! `check`, run from the page: in the background, for it asks PBX and CRM and takes its time.

use crate::backend::{Backend, CheckFinding};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinSet;

/// The last run of `check`, or the one under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastCheck {
    pub(crate) running: bool,
    /// Epoch seconds at which the run ended; `None` before the first has.
    pub(crate) at: Option<i64>,
    pub(crate) findings: Vec<CheckFinding>,
    /// The daemon's words where the run itself failed; `findings` is empty then.
    pub(crate) refused: Option<String>,
}

/// Runs one check at a time.
#[derive(Default)]
pub(crate) struct CheckRun {
    last: Arc<Mutex<LastCheck>>,
    tasks: Mutex<JoinSet<()>>,
}

fn lock(last: &Mutex<LastCheck>) -> MutexGuard<'_, LastCheck> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CheckRun {
    pub(crate) fn last(&self) -> LastCheck {
        lock(&self.last).clone()
    }

    /// Begins one, where none runs.
    pub(crate) fn begin(&self, backend: Arc<dyn Backend>) {
        if std::mem::replace(&mut lock(&self.last).running, true) {
            return;
        }
        let last = Arc::clone(&self.last);
        let run = async move {
            let found = backend.check().await;
            let mut last = lock(&last);
            *last = LastCheck {
                running: false,
                at: Some(crate::shell::now_seconds()),
                ..LastCheck::default()
            };
            match found {
                Ok(findings) => last.findings = findings,
                Err(refusal) => last.refused = Some(refusal.words),
            }
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(run);
    }

    /// Ends one that runs: it changes nothing.
    pub(crate) async fn end(&self) {
        let mut tasks = {
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *tasks)
        };
        tasks.shutdown().await;
    }
}
