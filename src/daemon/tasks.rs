//! Parts of the daemon that work side by side, and the order to stop that all of them are given.

use tokio::{sync::watch, task::JoinSet};

/// Parts that have been started, with the order that ends them.
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

    /// Ends when the stop was given.
    pub(crate) fn stop(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        has_stopped(self.stopped.clone())
    }

    /// Starts what ends by itself when it was told to stop.
    pub(crate) fn start(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.start_fallible(async move {
            work.await;
            Ok(())
        });
    }

    /// Starts what may end with an error, which then ends the daemon.
    pub(crate) fn start_fallible(
        &mut self,
        work: impl Future<Output = anyhow::Result<()>> + Send + 'static,
    ) {
        self.started.spawn(work);
    }

    /// Starts what goes on until the stop is given.
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

    /// Waits for the next task to end, and returns its result; `None` when all have.
    pub(crate) async fn next_ended(&mut self) -> Option<anyhow::Result<()>> {
        let joined = self.started.join_next().await?;
        Some(joined.unwrap_or_else(|error| Err(error.into())))
    }

    /// Waits for all of them.
    pub(crate) async fn join_all(&mut self) {
        while let Some(ended) = self.next_ended().await {
            if let Err(error) = ended {
                tracing::error!(error = format!("{error:#}"), "a part ended with an error");
            }
        }
    }

    /// Ends what has not ended, and waits until it has.
    pub(crate) async fn shutdown(&mut self) {
        self.started.shutdown().await;
    }

    /// Leaves behind what has not ended.
    pub(crate) fn abort(&mut self) {
        self.started.abort_all();
    }
}

/// Ends when the stop was given.
pub(crate) async fn has_stopped(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone stops as well.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
