//! Messages to systemd: READY when the spool is open, WATCHDOG while the process works, STATUS
//! with the books. Does nothing where no `NOTIFY_SOCKET` is set.
//!
//! A message waits while systemd is busy, and nobody here may wait with it: a thread of its own
//! sends what the others leave in a short queue.

use callbridge_model::Status;
use sd_notify::NotifyState;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::{sync::OnceLock, time::Duration};

/// Maximum messages that wait. Later ones are dropped, because they would be outdated.
const WAITING_MAX: usize = 8;

/// Reports to systemd that the spool is open and the sources start.
pub fn ready() {
    notify("READY=1".to_owned());
}

/// Reports to systemd that the process is ending.
pub fn stopping() {
    notify("STOPPING=1".to_owned());
}

/// Feeds the watchdog, with the books as the status line.
pub fn alive(status: &Status) {
    let books = &status.books;
    let waiting = books.ready + books.sending + books.submitted;
    let (finished, journaled, letters) =
        (books.finished, books.journaled, status.dead_letter_count());
    let paused = status.pause.as_ref();
    let paused = paused.map(|it| format!("; paused: {}", it.reason));
    notify(format!(
        "WATCHDOG=1\nSTATUS={finished} finished: {journaled} journaled, {waiting} waiting, \
         {letters} dead letters{}",
        paused.unwrap_or_default()
    ));
}

/// Reports loops that hang in the status line, and does not feed the watchdog.
pub fn stalled(names: &str) {
    notify(format!("STATUS={names} does not turn"));
}

/// The value of `WatchdogSec=`. `None` if it is not set.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Interval between two calls of [`alive`]: half of `WatchdogSec=`, at most 10 s.
pub fn interval() -> Duration {
    let most = Duration::from_secs(10);
    watchdog().map_or(most, |watchdog| (watchdog / 2).min(most))
}

/// Queues lines of `sd_notify(3)` for systemd.
fn notify(message: String) {
    static TELLER: OnceLock<Option<SyncSender<String>>> = OnceLock::new();
    let Some(teller) = TELLER.get_or_init(start) else {
        return;
    };
    if teller.try_send(message).is_err() {
        tracing::debug!("systemd takes no notification now; it is notified later");
    }
}

/// Starts the thread that waits for systemd. It ends with the process. Without a socket there is
/// none.
fn start() -> Option<SyncSender<String>> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let (teller, messages) = sync_channel::<String>(WAITING_MAX);
    let thread = std::thread::Builder::new().name("systemd".to_owned());
    let send = move || {
        for message in messages {
            // Not running under systemd is no error, and callbridge cannot repair a broken socket.
            if let Err(error) = sd_notify::notify(&[NotifyState::Custom(&message)]) {
                tracing::debug!(%error, "systemd could not be notified");
            }
        }
    };
    match thread.spawn(send) {
        Ok(_) => Some(teller),
        Err(error) => {
            tracing::warn!(%error, "systemd cannot be notified that callbridge works");
            None
        }
    }
}
