//! Messages to systemd: READY when the spool is open, WATCHDOG while the process works, STATUS
//! with the books. Does nothing where no `NOTIFY_SOCKET` is set.
//!
//! A message waits while systemd is busy, and nobody here may wait with it: a thread of its own
//! sends what the others leave in a short queue.

use callbridge_model::Status;
use sd_notify::NotifyState;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{sync::OnceLock, time::Duration};

/// Messages that wait at most; later ones are dropped, for they would be old when received.
const WAITING_MAX: usize = 8;

/// A message for systemd, on its way to the thread that sends it.
#[derive(Debug)]
enum Message {
    Ready,
    Stopping,
    Alive(String),
    Stalled(String),
}

/// The spool is open and the sources start.
pub fn ready() {
    notify(Message::Ready);
}

/// Reports to systemd that the process is ending.
pub fn stopping() {
    notify(Message::Stopping);
}

/// Still alive; with the books as the status line.
pub fn alive(status: &Status) {
    let books = &status.books;
    let mut line = format!(
        "{} finished: {} journaled, {} waiting, {} dead letters",
        books.finished,
        books.journaled,
        books.ready + books.sending + books.submitted,
        status.letter_count()
    );
    if let Some(pause) = &status.pause {
        line.push_str("; paused: ");
        line.push_str(&pause.reason);
    }
    notify(Message::Alive(line));
}

/// Reports loops that hang in the status line, and does not feed the watchdog.
pub fn stalled(names: &str) {
    notify(Message::Stalled(format!("{names} does not turn")));
}

/// The value of `WatchdogSec=`; `None` where it is not set.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Interval between two calls of [`alive`]: half of `WatchdogSec=`, at most 10 s.
pub fn interval() -> Duration {
    let most = Duration::from_secs(10);
    watchdog().map_or(most, |watchdog| (watchdog / 2).min(most))
}

fn notify(message: Message) {
    static TELLER: OnceLock<Option<SyncSender<Message>>> = OnceLock::new();
    let Some(teller) = TELLER.get_or_init(start) else {
        return;
    };
    if teller.try_send(message).is_err() {
        tracing::debug!("systemd takes no notification now; it is notified later");
    }
}

/// The thread that waits for systemd; it ends with the process. Without a socket there is none.
fn start() -> Option<SyncSender<Message>> {
    std::env::var_os("NOTIFY_SOCKET")?;
    let (teller, messages) = sync_channel(WAITING_MAX);
    let thread = std::thread::Builder::new().name("systemd".to_owned());
    match thread.spawn(move || send(&messages)) {
        Ok(_) => Some(teller),
        Err(error) => {
            tracing::warn!(%error, "systemd cannot be notified that callbridge works");
            None
        }
    }
}

fn send(messages: &Receiver<Message>) {
    for message in messages {
        let sent = match &message {
            Message::Ready => sd_notify::notify(&[NotifyState::Ready]),
            Message::Stopping => sd_notify::notify(&[NotifyState::Stopping]),
            Message::Alive(line) => {
                sd_notify::notify(&[NotifyState::Watchdog, NotifyState::Status(line)])
            }
            Message::Stalled(line) => sd_notify::notify(&[NotifyState::Status(line)]),
        };
        // Not being under systemd is no fault; a broken socket is nothing the sidecar can mend.
        if let Err(error) = sent {
            tracing::debug!(%error, "systemd could not be notified");
        }
    }
}
