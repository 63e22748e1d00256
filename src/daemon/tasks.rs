//! Groups of concurrent tasks, with the stop signal that all of them receive.

use tokio::{sync::watch, task::JoinSet};

/// Running tasks, along with the signal that stops them.
#[derive(Debug)]
pub(crate) struct Tasks {
    started: JoinSet<anyhow::Result<()>>,
    stopped: watch::Receiver<bool>,
}

impl Tasks {
    pub(crate) fn new(stopped: &watch::Receiver<bool>) -> Self {
        Self {
            started: JoinSet::new(),
            stopped: stopped.clone(),
        }
    }

    /// Resolves on the stop signal.
    pub(crate) fn stop(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        has_stopped(self.stopped.clone())
    }

    /// Starts a task that ends on its own after the stop signal.
    pub(crate) fn start(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.start_fallible(async move {
            work.await;
            Ok(())
        });
    }

    /// Starts a task that may fail. Its error ends the daemon.
    pub(crate) fn start_fallible(
        &mut self,
        work: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.started.spawn(work);
    }

    /// Starts a task that runs until the stop signal.
    pub(crate) fn start_until_stop(
        &mut self,
        work: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        let stop = self.stop();
        self.start_fallible(async move {
            tokio::select! {
                ended = work => ended,
                () = stop => Ok(()),
            }
        });
    }

    /// Waits for the next task to end and returns its result, or `None` if all of them have ended.
    pub(crate) async fn next_ended(&mut self) -> Option<anyhow::Result<()>> {
        let joined = self.started.join_next().await?;
        Some(joined.unwrap_or_else(|error| Err(error.into())))
    }

    /// Waits for all tasks.
    pub(crate) async fn join_all(&mut self) {
        while let Some(ended) = self.next_ended().await {
            if let Err(error) = ended {
                tracing::error!(error = format!("{error:#}"), "a part ended with an error");
            }
        }
    }

    /// Aborts the tasks that haven't ended, and waits for them.
    pub(crate) async fn shutdown(&mut self) {
        self.started.shutdown().await;
    }

    /// Aborts the tasks that haven't ended, without waiting.
    pub(crate) fn abort(&mut self) {
        self.started.abort_all();
    }
}

/// Resolves on the stop signal.
pub(crate) async fn has_stopped(mut stopped: watch::Receiver<bool>) {
    // If the sender is gone, that's a stop as well.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
