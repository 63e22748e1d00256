//! Tells `--notify-command` when a trouble begins and when it ends: one run at a time.

use super::observer::Observer;
use callbridge_model::clock;
use callbridge_notify::command;
use callbridge_notify::history::Troubles;
use callbridge_spool::{Handle, Op, tables};
use std::sync::Arc;
use std::time::Duration;

/// Under which name the spool keeps what was told and has not ended.
const KEY: &str = "notify.told";
/// Between two looks at what waits for a person.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Works until it is dropped.
///
/// # Errors
/// When the spool is gone for good.
pub(crate) async fn keep(
    command: String,
    observer: Arc<Observer>,
    spool: Handle,
) -> anyhow::Result<()> {
    let mut kept = spool.read(|store| tables::meta::meta(store, KEY)).await?;
    let mut troubles = Troubles::restored(kept.as_deref(), clock::now().boot);
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        // What cannot be read now is looked at again.
        let Ok(status) = observer.status().await else {
            continue;
        };
        let told = troubles.look(&status.todo, status.at, clock::now().boot);
        for it in &told {
            if let Err(error) = command::run(&command, it).await {
                let (kind, state) = (it.kind.word(), it.state);
                tracing::error!(kind, ?state, %error, "--notify-command");
            }
        }
        let value = troubles.stored();
        if kept.as_ref() != Some(&value) {
            let key = KEY.to_owned();
            let op = Op::Meta {
                key,
                value: value.clone(),
            };
            match spool.write(vec![op]).await {
                Ok(_) => kept = Some(value),
                // The next look stores it.
                Err(error) if error.is_retryable() => {}
                Err(error) => return Err(error.into()),
            }
        }
        for it in told {
            let (kind, state) = (it.kind.word(), it.state);
            tracing::info!(kind, ?state, "--notify-command has run");
        }
    }
}
