//! Runs `--notify-command` when a trouble begins and when it ends, and when customers have waited
//! too long for a call back: one run at a time, for all that is to be told at one moment.

use super::observer::Observer;
use callbridge_model::clock;
use callbridge_ops::notify::history::Troubles;
use callbridge_ops::notify::waiting::WaitingCustomers;
use callbridge_ops::notify::{self, Settings, WITHIN};
use callbridge_spool::{Handle, Store, tables::missed::missed_waiting};
use std::{sync::Arc, time::Duration};

/// Under which names the spool keeps what was told and has not ended.
const TROUBLES_KEY: &str = "notify.told";
const WAITING_KEY: &str = "notify.missed";
/// Between two looks at what waits for a person.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Between two looks at who waits for a call back.
const WAITING_EVERY: Duration = Duration::from_secs(10);
/// Customers read, those that wait longest; no write goes on while they are read.
const WAITING_MAX: usize = 10_000;

/// Works until it is dropped.
///
/// # Errors
/// When the spool is gone for good.
pub(crate) async fn keep(
    settings: Settings,
    observer: Arc<Observer>,
    spool: Handle,
) -> anyhow::Result<()> {
    let notifications = spool.meta(TROUBLES_KEY).await?;
    let waited = spool.meta(WAITING_KEY).await?;
    let mut troubles = Troubles::restored(notifications.as_deref(), clock::now().boot);
    let mut waiting = WaitingCustomers::restored(waited.as_deref());
    let mut kept = [(TROUBLES_KEY, notifications), (WAITING_KEY, waited)];
    let mut looked: Option<Duration> = None;
    let waiting_now = |store: &Store| missed_waiting(store, None, None, WAITING_MAX);
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // What cannot be read now is looked at again.
        let Ok(status) = observer.status().await else {
            continue;
        };
        let boot = clock::now().boot;
        let mut notifications = troubles.update(&status.todo, status.at, boot);
        if let Some(limit) = settings.missed
            && looked.is_none_or(|looked| boot.saturating_sub(looked) >= WAITING_EVERY)
            && let Ok(all) = spool.read(waiting_now).await
        {
            looked = Some(boot);
            let command = status.command("missed");
            notifications.extend(waiting.update(&all, limit, (status.at, boot), &command));
        }
        if !notifications.is_empty()
            && let Err(error) = notify::run(&settings.command, &notifications, WITHIN).await
        {
            for it in &notifications {
                tracing::error!(kind = it.kind, state = ?it.state, %error, "--notify-command");
            }
        }
        for ((key, kept), value) in kept.iter_mut().zip([troubles.stored(), waiting.stored()]) {
            if kept.as_ref() != Some(&value) {
                match spool.keep_meta(*key, value.clone()).await {
                    Ok(()) => *kept = Some(value),
                    // The next look stores it.
                    Err(error) if error.is_retryable() => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        for it in notifications {
            tracing::info!(kind = it.kind, state = ?it.state, "--notify-command has run");
        }
    }
}
