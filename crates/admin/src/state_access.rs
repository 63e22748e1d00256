//! A state folder as a command comes to it: through the daemon that has it, else opened here.

use super::protocol::{ControlReply, ControlRequest};
use super::socket;
use callbridge_model::Status;
use callbridge_spool::{Error, Guard, Handle};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// So long a lock is waited for.
const WITHIN: Duration = Duration::from_secs(4);
const TRY_EVERY: Duration = Duration::from_millis(40);

/// The holder of the state folder, with the way to it.
#[derive(Debug)]
pub enum Access<T> {
    /// The daemon, which answered so.
    Daemon(T),
    /// The spool, opened by this command because nobody else had it.
    Spool(Handle, Guard),
}

/// Asks the daemon, and where there is none opens the spool. A lock without an answer is waited
/// for: who holds it starts, stops, or is another command.
///
/// # Errors
/// Those of `ask`, and those of the spool.
pub async fn ask_or_open<T, E: From<Error>>(
    ask: impl AsyncFn() -> Result<Option<T>, E>,
    open: impl Fn() -> Result<(Handle, Guard), Error>,
) -> Result<Access<T>, E> {
    let wait = LockWait::begin();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(Access::Daemon(answer));
        }
        match open() {
            Ok((spool, guard)) => return Ok(Access::Spool(spool, guard)),
            Err(Error::Locked { .. }) if wait.has_more().await => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Lets an opened state folder go.
pub async fn close(spool: Handle, guard: Guard) {
    drop(spool);
    // Blocks until the spool's thread has ended, which is soon.
    let _ = tokio::task::spawn_blocking(move || guard.close()).await;
}

/// The `status` of the running daemon; `None` without one.
///
/// # Errors
/// When there is one and it cannot be spoken to.
pub async fn status(dir: &Path) -> io::Result<Option<Status>> {
    let Some(mut replies) = socket::ask(dir, &ControlRequest::Status).await? else {
        return Ok(None);
    };
    while let Some(reply) = replies.next().await? {
        match reply {
            ControlReply::Item(item) => {
                return serde_json::from_value(item)
                    .map(Some)
                    .map_err(io::Error::other);
            }
            ControlReply::Zone(_) | ControlReply::Ready | ControlReply::End { .. } => {}
            ControlReply::Error { words, .. } => return Err(io::Error::other(words)),
        }
    }
    Err(io::Error::other("it closed the connection"))
}

/// One wait for the lock of a state folder, with the moment at which it is given up. A command
/// without a daemon holds it for a moment, a daemon that starts or stops holds it and does not
/// answer yet or any more: neither is a reason for the other to give up at once.
#[derive(Clone, Copy, Debug)]
pub struct LockWait {
    until: Instant,
}

impl LockWait {
    /// Returns a wait that begins now and lasts at most 4 s.
    pub fn begin() -> Self {
        Self {
            until: Instant::now() + WITHIN,
        }
    }

    /// Waits a little; false, and at once, when it has waited long enough.
    pub async fn has_more(self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(TRY_EVERY).await;
        true
    }
}
