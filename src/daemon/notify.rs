//! Runs `--notify-command` when a problem starts and ends, and when customers have waited too long
//! for a callback. Only one run is in progress at a time, which reports everything that's due.

use super::observer::Observer;
use callbridge_model::clock;
use callbridge_model::status::FindingKind;
use callbridge_ops::notify::history::Problems;
use callbridge_ops::notify::pending::PendingNotifications;
use callbridge_ops::notify::waiting::WaitingCustomers;
use callbridge_ops::notify::{self, Settings, WITHIN};
use callbridge_spool::{Error, Handle, MissedCustomer, tables::missed::missed_waiting};
use std::{sync::Arc, time::Duration};

/// The keys under which the spool keeps reported problems and waiting customers until they're
/// resolved.
const PROBLEMS_KEY: &str = "notify.told";
const WAITING_KEY: &str = "notify.missed";
/// Interval between checks for problems.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Interval between checks for customers waiting for a callback.
const WAITING_EVERY: Duration = Duration::from_secs(10);
/// Maximum number of customers to read, longest wait first. No write can run during the read.
const WAITING_MAX: usize = 10_000;

/// Reports problems and waiting customers, until the future is dropped.
///
/// # Errors
/// Returns an error if the spool has ended.
pub(crate) async fn keep(
    settings: Settings,
    observer: Arc<Observer>,
    spool: Handle,
) -> anyhow::Result<()> {
    let notifications = spool.meta(PROBLEMS_KEY).await?;
    let waited = spool.meta(WAITING_KEY).await?;
    let mut problems = Problems::restore(notifications.as_deref(), clock::now().boot);
    let mut waiting = WaitingCustomers::restore(waited.as_deref());
    let mut kept = [(PROBLEMS_KEY, notifications), (WAITING_KEY, waited)];
    let mut pending = PendingNotifications::default();
    let mut looked: Option<Duration> = None;
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // If the status currently can't be read, the next tick will try again.
        let Ok(mut status) = observer.status().await else {
            continue;
        };
        // The command can't report its own failure.
        status
            .problems
            .retain(|problem| problem.kind != FindingKind::Notify);
        let boot = clock::now().boot;
        let mut notifications = problems.update(&status.problems, status.at, boot);
        if let Some(limit) = settings.missed
            && looked.is_none_or(|looked| boot.saturating_sub(looked) >= WAITING_EVERY)
            && let Ok(all) = waiting_customers(&spool).await
        {
            looked = Some(boot);
            let command = status.command("missed");
            notifications.extend(waiting.update(&all, limit, (status.at, boot), &command));
        }
        let dropped = pending.add(notifications);
        if dropped > 0 {
            tracing::error!(
                messages = dropped,
                "dropped the oldest messages of --notify-command"
            );
        }
        deliver(&settings.command, &mut pending, &observer).await;
        // The reports aren't stored until the command has succeeded. If there's a restart before
        // that, they're sent again.
        if !pending.is_empty() {
            continue;
        }
        for ((key, kept), value) in kept.iter_mut().zip([problems.to_json(), waiting.to_json()]) {
            if kept.as_ref() != Some(&value) {
                match spool.keep_meta(*key, value.clone()).await {
                    Ok(()) => *kept = Some(value),
                    // The next tick will store it.
                    Err(error) if error.is_retryable() => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

async fn waiting_customers(spool: &Handle) -> Result<Vec<MissedCustomer>, Error> {
    let read = spool.read(|store| missed_waiting(store, None, None, WAITING_MAX));
    read.await
}

/// Runs the command for the messages that are due, keeping them if it fails.
async fn deliver(command: &str, pending: &mut PendingNotifications, observer: &Observer) {
    let due = pending.due(clock::now().boot);
    if due.is_empty() {
        return;
    }
    let ran = notify::run(command, due, WITHIN).await;
    if let Err(error) = ran {
        let messages = due.len();
        let wait = pending.wait_after_failure(clock::now().boot);
        let again_sec = wait.as_secs();
        tracing::error!(%error, messages, again_sec, "--notify-command failed and is tried again");
        observer.notify_problem.send_replace(Some(error));
        return;
    }
    observer.notify_problem.send_replace(None);
    for message in pending.take_delivered() {
        tracing::info!(kind = message.kind, state = ?message.state, "--notify-command has run");
    }
}
