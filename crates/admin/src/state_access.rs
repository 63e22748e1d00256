//! Access of a command to the state: through this machine's daemon, or directly.

use super::protocol::{ControlReply, ControlRequest};
use super::socket;
use callbridge_model::Status;
use callbridge_spool::{
    Error, Guard, Handle, Instance, Leadership, Settings, StatePlace, open, open_postgres,
    read_postgres,
};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum time to wait for the lock of a state.
const WITHIN: Duration = Duration::from_secs(4);
const TRY_EVERY: Duration = Duration::from_millis(40);

/// Access to a state: through the daemon, or directly.
#[derive(Debug)]
pub enum Access<T> {
    /// The daemon's answer.
    Daemon(T),
    /// The spool, opened by this command because no other process held it.
    Spool(Handle, Guard),
}

/// Asks the daemon with `ask`, or opens the spool with `open` if no daemon runs. If the spool is
/// locked but no daemon answers, this waits up to 4 s, because the process that holds the lock is
/// starting, stopping, or another command.
///
/// # Errors
/// The errors of `ask` and of the spool.
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

/// Opens a state for a command while no daemon runs. If the state is a database and the command
/// does not only read (`reads`), this process is its leader until the spool is closed.
///
/// [`Error::NotLeader`] if another process leads the database. Otherwise the errors of the spool.
pub fn open_here(
    place: &StatePlace,
    settings: Settings,
    reads: bool,
) -> Result<(Handle, Guard), Error> {
    let url = match place {
        StatePlace::Folder(folder) => return open(folder, settings),
        StatePlace::Database(database) => &database.url,
    };
    if reads {
        return read_postgres(url, settings);
    }
    let version = env!("CARGO_PKG_VERSION");
    let instance = Instance::new(&host_name(), version, "");
    let (spool, guard) = open_postgres(url, instance, settings)?;
    let leadership = spool.leadership().borrow().clone();
    let error = match leadership {
        Leadership::Leading { .. } => return Ok((spool, guard)),
        Leadership::Standby {
            problem: Some(error),
            ..
        }
        | Leadership::Lost(error) => error,
        Leadership::Standby {
            leader,
            problem: None,
        } => Error::NotLeader(url.place(), leader.map(|leader| leader.name)),
    };
    guard.close();
    Err(error)
}

/// Returns the name of this machine.
pub fn host_name() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

pub async fn close(spool: Handle, guard: Guard) {
    drop(spool);
    // This blocks until the spool's thread has ended, which is soon.
    let _ = tokio::task::spawn_blocking(move || guard.close()).await;
}

/// Returns the status of the daemon with the state folder `dir`. Returns `None` if no daemon runs.
///
/// # Errors
/// If a daemon runs, but communication fails.
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
            ControlReply::Error { message, .. } => return Err(io::Error::other(message)),
        }
    }
    Err(io::Error::other("it closed the connection"))
}

/// A wait for the lock of a state folder, with its deadline. A command without a daemon holds the
/// lock for a short time. A daemon that starts or stops holds the lock but does not answer. Both
/// end soon, so a command does not give up at once.
#[derive(Clone, Copy, Debug)]
pub struct LockWait {
    until: Instant,
}

impl LockWait {
    /// Starts a wait of at most 4 s.
    pub fn begin() -> Self {
        Self {
            until: Instant::now() + WITHIN,
        }
    }

    /// Waits 40 ms and returns `true`. Returns `false` at once if the deadline has passed.
    pub async fn has_more(self) -> bool {
        if Instant::now() >= self.until {
            return false;
        }
        tokio::time::sleep(TRY_EVERY).await;
        true
    }
}
