//! What systemd is told: READY when the spool is open, WATCHDOG while the process works, STATUS
//! with the books. Does nothing where no `NOTIFY_SOCKET` is set.

use super::status::Books;
use sd_notify::NotifyState;
use std::time::Duration;

/// The spool is open and the sources start.
pub fn ready() {
    tell(&[NotifyState::Ready]);
}

/// The process stops.
pub fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Still alive; with the books as the status line.
pub fn alive(books: &Books, pause: Option<&str>) {
    let mut line = format!(
        "{} finished: {} journaled, {} waiting, {} dead, {} parked",
        books.finished,
        books.journaled,
        books.ready + books.sending + books.submitted,
        books.dead,
        books.parked
    );
    if let Some(reason) = pause {
        line.push_str("; paused: ");
        line.push_str(reason);
    }
    tell(&[NotifyState::Watchdog, NotifyState::Status(&line)]);
}

/// How often to say [`alive`]: half of `WatchdogSec=`, at most 10 s.
pub fn interval() -> Duration {
    let most = Duration::from_secs(10);
    sd_notify::watchdog_enabled().map_or(most, |watchdog| (watchdog / 2).min(most))
}

fn tell(states: &[NotifyState<'_>]) {
    // Not being under systemd is no fault; a broken socket is nothing the sidecar can mend.
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd could not be told");
    }
}
