//! A collector, which consists of the task that sends calls to the hub and the reports that go
//! along with them.

use super::observer::Observer;
use super::tasks::Tasks;
use crate::config::Config;
use callbridge_hub::forward::client::HubClient;
use callbridge_hub::forward::run::{ForwardView, Forwarder};
use callbridge_model::status::{BranchReport, ReportedSource, Status};
use callbridge_model::{Heartbeat, HeartbeatMonitor};
use callbridge_spool::tables;
use std::sync::Arc;
use tokio::sync::watch;

/// The channel on which the task that sends calls to the hub publishes its state. It's opened
/// before the task is started.
pub(crate) struct ForwardChannel {
    shown: watch::Sender<ForwardView>,
    pulse: Heartbeat,
}

impl ForwardChannel {
    pub(crate) fn view(&self) -> watch::Receiver<ForwardView> {
        self.shown.subscribe()
    }

    pub(crate) fn vital(&self) -> HeartbeatMonitor {
        self.pulse.vital()
    }
}

/// Opens the channel, or returns `None` without `--forward`.
pub(crate) fn view(config: &Config) -> Option<ForwardChannel> {
    config.forward.as_ref()?;
    Some(ForwardChannel {
        shown: watch::Sender::default(),
        pulse: Heartbeat::new("the forwarder"),
    })
}

/// Returns the URLs in `--forward`.
pub(crate) fn addresses(config: &Config) -> Vec<String> {
    let hubs = config.forward.iter().flat_map(|forward| &forward.hubs);
    hubs.map(|hub| hub.as_str().to_owned()).collect()
}

/// Starts the task that sends calls to the hub.
pub(crate) fn start(
    config: &Config,
    channel: ForwardChannel,
    observer: &Arc<Observer>,
    tasks: &mut Tasks,
) {
    let Some(settings) = &config.forward else {
        return;
    };
    let Some(token) = settings.token.clone() else {
        return;
    };
    let mut hubs = Vec::new();
    for address in &settings.hubs {
        let mut client = HubClient::new(address.clone(), settings.ca_file.clone());
        if settings.hubs.len() > 1 {
            client = client.with_alternative();
        }
        hubs.push(client);
    }
    let reporter = Arc::clone(observer);
    let forwarder = Forwarder {
        spool: observer.spool.clone(),
        hubs,
        token,
        report: Box::new(move || {
            let observer = Arc::clone(&reporter);
            Box::pin(async move { report(&observer).await })
        }),
        seed: uuid::Uuid::new_v4().as_u64_pair().0 | 1,
        pulse: channel.pulse,
    };
    tracing::info!(hub = addresses(config).join(", "), "sending calls to a hub");
    let stop = tasks.stop();
    let shown = channel.shown;
    tasks.start_fallible(async move { Ok(forwarder.run(shown, stop).await?) });
}

/// Returns the report that this collector sends to the hub, or `None` if the state currently can't
/// be read.
async fn report(observer: &Observer) -> Option<BranchReport> {
    let status = match observer.status().await {
        Ok(status) => status,
        Err(error) => {
            tracing::debug!(%error, "no report: the state cannot be read");
            return None;
        }
    };
    let read = observer
        .spool
        .read(|store| tables::forward::oldest_ready(store));
    let oldest = read.await.ok().flatten();
    Some(BranchReport {
        oldest_call_at: oldest.map(|at| at.get()),
        ..report_of(&status)
    })
}

fn report_of(status: &Status) -> BranchReport {
    let mut sources = Vec::new();
    for source in &status.sources {
        sources.push(ReportedSource {
            name: source.name().to_owned(),
            pbx: source.pbx.clone(),
            state: source.state,
            reason: source.reason.clone(),
        });
    }
    let open_gaps = status.gaps.iter().filter(|gap| !gap.filled);
    let problems = status.problems.iter();
    BranchReport {
        version: status.version.clone(),
        at: status.at,
        stopping: false,
        verdict: status.verdict,
        sources,
        gaps: open_gaps.count() as u64,
        backlog: status.books.ready,
        oldest_call_at: None,
        waiting: status.books.waiting,
        dead: status.dead_letter_count(),
        forwarded: status.books.forwarded,
        problems: problems.map(|problem| problem.message.clone()).collect(),
    }
}
