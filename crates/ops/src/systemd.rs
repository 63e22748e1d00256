//! Messages to systemd: READY when the spool is open, WATCHDOG while the process works, STATUS
//! with the books. Does nothing where no `NOTIFY_SOCKET` is set.
//!
//! Sending waits while systemd is busy, and nothing else may wait with it. So a thread of its own
//! sends what the others leave in an outbox.

use callbridge_model::Status;
use sd_notify::NotifyState;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::{sync::OnceLock, time::Duration};

/// Longest time for which the end of the process waits until systemd has its messages.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// Messages for systemd.
#[derive(Debug, Default)]
struct Outbox {
    /// Messages that wait, in their order: at most one of each kind.
    waiting: Vec<(Kind, String)>,
    is_sending: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ready,
    /// A newer status replaces one that still waits.
    Status,
    Stopping,
}

static OUTBOX: Mutex<Outbox> = Mutex::new(Outbox {
    waiting: Vec::new(),
    is_sending: false,
});
/// A message was left, or sent.
static CHANGED: Condvar = Condvar::new();

/// Reports to systemd that the spool is open and the sources start.
pub fn ready() {
    notify(Kind::Ready, "READY=1".to_owned());
}

/// Reports to systemd that the process is ending.
pub fn stopping() {
    notify(Kind::Stopping, "STOPPING=1".to_owned());
}

/// Feeds the watchdog, with the books as the status line.
pub fn alive(status: &Status) {
    let books = &status.books;
    let waiting = books.ready + books.sending + books.submitted;
    let (finished, journaled, letters) =
        (books.finished, books.journaled, status.dead_letter_count());
    let paused = status.pause.as_ref();
    let paused = paused.map(|it| format!("; paused: {}", it.reason));
    let paused = paused.unwrap_or_default();
    let message = format!(
        "WATCHDOG=1\nSTATUS={finished} finished: {journaled} journaled, {waiting} waiting, \
         {letters} dead letters{paused}"
    );
    notify(Kind::Status, message);
}

/// Reports loops that hang in the status line, and does not feed the watchdog.
pub fn stalled(names: &str) {
    notify(Kind::Status, format!("STATUS={names} does not turn"));
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

/// Waits until systemd has all messages, at most 1 s.
pub fn flush() {
    let outbox = lock();
    let unsent = |outbox: &mut Outbox| outbox.is_sending || !outbox.waiting.is_empty();
    let waited = CHANGED.wait_timeout_while(outbox, FLUSH_MAX, unsent);
    drop(waited);
}

fn lock() -> MutexGuard<'static, Outbox> {
    OUTBOX.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Leaves lines of `sd_notify(3)` for systemd.
fn notify(kind: Kind, message: String) {
    static STARTED: OnceLock<bool> = OnceLock::new();
    if !*STARTED.get_or_init(start) {
        return;
    }
    let mut outbox = lock();
    outbox.waiting.retain(|(waiting, _)| *waiting != kind);
    outbox.waiting.push((kind, message));
    CHANGED.notify_all();
}

/// Starts the thread that sends. It ends with the process. Without a socket there is none.
fn start() -> bool {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return false;
    }
    let thread = std::thread::Builder::new().name("systemd".to_owned());
    match thread.spawn(send_all) {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "systemd cannot be notified that callbridge works");
            false
        }
    }
}

fn send_all() {
    let mut outbox = lock();
    loop {
        if outbox.waiting.is_empty() {
            let woken = CHANGED.wait(outbox);
            outbox = woken.unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let (_, message) = outbox.waiting.remove(0);
        outbox.is_sending = true;
        drop(outbox);
        // Not running under systemd is no error, and callbridge cannot repair a broken socket.
        if let Err(error) = sd_notify::notify(&[NotifyState::Custom(&message)]) {
            tracing::debug!(%error, "systemd could not be notified");
        }
        outbox = lock();
        outbox.is_sending = false;
        CHANGED.notify_all();
    }
}
