//! Messages to systemd: READY when the spool is open, WATCHDOG while the process works, and STATUS
//! with the books. Without `NOTIFY_SOCKET`, nothing is sent.
//!
//! A send blocks while systemd is busy. Only the thread `systemd` sends, so nothing else waits. The
//! other threads add their messages to an outbox.

use callbridge_model::Status;
use sd_notify::NotifyState;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::{sync::OnceLock, time::Duration};

/// Maximum time at the end of the process to wait until the last messages are sent.
const FLUSH_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ready,
    Status,
    Stopping,
}

/// Messages that are not sent yet, in the order in which they were added. There is at most one
/// message of each kind, because a newer status replaces an older one.
struct Outbox {
    unsent: Mutex<Unsent>,
    changed: Condvar,
}

struct Unsent {
    messages: Vec<(Kind, String)>,
    is_sending: bool,
}

impl Unsent {
    fn is_unfinished(&self) -> bool {
        self.is_sending || !self.messages.is_empty()
    }
}

static OUTBOX: Outbox = Outbox::new();

impl Outbox {
    const fn new() -> Self {
        Self {
            unsent: Mutex::new(Unsent {
                messages: Vec::new(),
                is_sending: false,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Unsent> {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, kind: Kind, message: String) {
        let mut unsent = self.lock();
        unsent.messages.retain(|(other, _)| *other != kind);
        unsent.messages.push((kind, message));
        self.changed.notify_all();
    }

    /// Waits for a message and sends it.
    fn send_next(&self, send: impl FnOnce(&str)) {
        let mut unsent = self.lock();
        while unsent.messages.is_empty() {
            let woken = self.changed.wait(unsent);
            unsent = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let (_, message) = unsent.messages.remove(0);
        unsent.is_sending = true;
        drop(unsent);
        send(&message);
        self.lock().is_sending = false;
        self.changed.notify_all();
    }

    /// Waits until all messages are sent, but at most this long.
    fn flush(&self, at_most: Duration) {
        let unsent = self.lock();
        drop(
            self.changed
                .wait_timeout_while(unsent, at_most, |unsent| unsent.is_unfinished()),
        );
    }
}

/// Reports to systemd that the spool is open and the sources start.
pub fn ready() {
    notify(Kind::Ready, "READY=1".to_owned());
}

/// Reports to systemd that the process is ending.
pub fn report_stopping() {
    notify(Kind::Stopping, "STOPPING=1".to_owned());
}

/// Feeds the watchdog, with the books as the status line.
pub fn alive(status: &Status) {
    let books = &status.books;
    let waiting = books.ready + books.sending + books.submitted;
    let (finished, journaled, letters) =
        (books.finished, books.journaled, status.dead_letter_count());
    let mut paused = String::new();
    if let Some(pause) = &status.pause {
        paused = format!("; paused: {}", pause.reason);
    }
    let message = format!(
        "WATCHDOG=1\nSTATUS={finished} finished: {journaled} journaled, {waiting} waiting, \
         {letters} dead letters{paused}"
    );
    notify(Kind::Status, message);
}

/// Feeds the watchdog until `work`, which `message` describes, has ended.
pub async fn alive_until<T>(work: impl Future<Output = T>, message: &str) -> T {
    let mut work = std::pin::pin!(work);
    let mut tick = tokio::time::interval(interval());
    loop {
        tokio::select! {
            biased;
            result = &mut work => return result,
            _ = tick.tick() => notify(Kind::Status, format!("WATCHDOG=1\nSTATUS={message}")),
        }
    }
}

/// Feeds the watchdog of a process that waits until it leads.
pub fn alive_as_standby(message: &str) {
    notify(
        Kind::Status,
        format!("WATCHDOG=1\nSTATUS=standby: {message}"),
    );
}

/// Reports loops that hang in the status line, and does not feed the watchdog.
pub fn report_stalled(names: &str) {
    notify(Kind::Status, format!("STATUS=no longer working: {names}"));
}

/// Returns the value of `WatchdogSec=`. `None` if it is not set.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled()
}

/// Returns the interval between two calls of [`alive`]: half of `WatchdogSec=`, at most 10 s.
pub fn interval() -> Duration {
    let most = Duration::from_secs(10);
    watchdog().map_or(most, |watchdog| (watchdog / 2).min(most))
}

/// Waits until systemd has all messages, but at most 1 s.
pub fn flush() {
    OUTBOX.flush(FLUSH_MAX);
}

/// Adds a message to the outbox, in the format of `sd_notify(3)`.
fn notify(kind: Kind, message: String) {
    static HAS_THREAD: OnceLock<bool> = OnceLock::new();
    if *HAS_THREAD.get_or_init(start_thread) {
        OUTBOX.add(kind, message);
    }
}

/// Starts the thread that sends, if systemd has set a socket. The thread ends with the process.
fn start_thread() -> bool {
    if std::env::var_os("NOTIFY_SOCKET").is_none() {
        return false;
    }
    let thread = std::thread::Builder::new().name("systemd".to_owned());
    match thread.spawn(send_all) {
        Ok(_) => true,
        Err(error) => {
            tracing::warn!(%error, "cannot start the thread that notifies systemd");
            false
        }
    }
}

fn send_all() {
    loop {
        OUTBOX.send_next(|message| {
            // A broken socket is systemd's problem. callbridge cannot repair it, and goes on.
            if let Err(error) = sd_notify::notify(&[NotifyState::Custom(message)]) {
                tracing::debug!(%error, "cannot notify systemd");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::thread;

    fn next_message(outbox: &Outbox) -> String {
        let mut sent = String::new();
        outbox.send_next(|message| message.clone_into(&mut sent));
        sent
    }

    #[test]
    fn newer_status_replaces_older_one_and_keeps_other_messages() {
        let outbox = Outbox::new();
        outbox.add(Kind::Ready, "ready".to_owned());
        for number in 0..100 {
            outbox.add(Kind::Status, format!("status {number}"));
        }
        outbox.add(Kind::Stopping, "stopping".to_owned());
        let all = [(); 3].map(|()| next_message(&outbox));
        assert_eq!(all, ["ready", "status 99", "stopping"]);
    }

    #[test]
    fn flush_waits_until_last_message_is_sent() {
        let outbox = Outbox::new();
        outbox.add(Kind::Stopping, "stopping".to_owned());
        let (flushed, is_flushed) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                outbox.flush(Duration::from_secs(60));
                flushed.send(()).expect("the test waits");
            });
            // A flush that does not wait ends within this time.
            outbox.send_next(|_| {
                let early = is_flushed.recv_timeout(Duration::from_millis(300));
                assert!(early.is_err(), "it ended before the message was sent");
            });
            is_flushed.recv().expect("the flush ends");
        });
    }

    #[test]
    fn flush_ends_in_time_if_nothing_is_sent() {
        let outbox = Outbox::new();
        outbox.add(Kind::Stopping, "stopping".to_owned());
        outbox.flush(Duration::from_millis(10));
        assert_eq!(next_message(&outbox), "stopping");
    }
}
