//! The sandbox core behind a mutex, with the clock and the state file. The file contains the core
//! as one JSON object, with fingerprints instead of tokens. A flock keeps other processes from
//! using it. After every request that can have changed the state, a new file (mode 0600) is
//! written, synced, and renamed over the old one.

use crate::{Error, Refusal, Request, Response, Sandbox, Settings};
use callbridge_call::EventTime;
use callbridge_model::Code;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing::error;

/// A function that returns the machine's time, which must not go back.
pub type SandboxClock = Arc<dyn Fn() -> EventTime + Send + Sync>;

/// Returns a clock that starts at the wall clock's time and then follows the time since boot, so a
/// step of the wall clock neither opens nor closes a window.
pub fn steady_clock() -> SandboxClock {
    let start = callbridge_model::clock::now();
    Arc::new(move || {
        let now = callbridge_model::clock::now();
        start.wall.plus(now.boot.saturating_sub(start.boot))
    })
}

/// A handle to a sandbox that is shared within the process.
#[derive(Clone)]
pub struct SharedSandbox {
    /// The core, and its state file if it has one.
    pub(super) held: Arc<Mutex<(Sandbox, Option<StateFile>)>>,
    /// The machine's clock, without the time that the core's clock was moved ahead.
    pub(super) clock: SandboxClock,
}

impl SharedSandbox {
    /// Runs `act` on the core with the current time, and saves the state if `changes` is `true`.
    /// Also returns `false` if the state could not be saved.
    pub(super) fn act<R>(
        &self,
        changes: bool,
        act: impl FnOnce(&mut Sandbox, EventTime) -> R,
    ) -> (R, bool) {
        // A poisoned lock is accepted: a panic leaves the core as it was after its last change.
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let (core, state) = &mut *held;
        // The clock is read under the lock, so times reach the core in order.
        let now = core.moment((self.clock)());
        core.tick(now);
        let result = act(core, now);
        let kept = match state {
            Some(state) if changes => state.keep(core),
            Some(_) | None => Ok(()),
        };
        if let Err(error) = &kept {
            error!(%error, "the sandbox cannot keep its state");
        }
        (result, kept.is_ok())
    }

    /// Carries out the writes that are due, runs `act` on the core with the current time, and saves
    /// the state.
    pub fn admin<R>(&self, act: impl FnOnce(&mut Sandbox, EventTime) -> R) -> R {
        self.act(true, act).0
    }

    /// Answers a request, and saves the state unless the method is GET. The request count of a GET
    /// is saved with the next change, or when the server stops. If saving fails, the answer is 500.
    pub(super) fn handle(&self, request: &Request) -> Response {
        let changes = request.method != "GET";
        let (response, kept) = self.act(changes, |core, now| core.handle(now, request));
        if kept {
            response
        } else {
            Refusal::Status(500).respond()
        }
    }
}

/// The open state file, which this process has locked.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// The locked file. The lock prevents a second sandbox from using the same state.
    held: File,
}

impl StateFile {
    /// Opens or creates the state file, locks it, and restores the core from it. An empty file
    /// gives a new core.
    ///
    /// # Errors
    /// The file cannot be opened, is held by another process, or is damaged. It is left as it is.
    pub fn open(path: &Path, settings: Settings) -> Result<(Option<Self>, Sandbox), Error> {
        let mut held = options()
            .truncate(false)
            .open(path)
            .map_err(|error| failed(path, &error))?;
        if flock(&held, FlockOperation::NonBlockingLockExclusive).is_err() {
            let fix = "end it, or name another with --state";
            let message = format!(
                "state file {} is held by another sandbox; {fix}",
                path.display()
            );
            return Err(Error::new(Code::Locked, message));
        }
        let mut text = Vec::new();
        held.read_to_end(&mut text)
            .map_err(|error| failed(path, &error))?;
        let restored = match text.as_slice() {
            [] => Ok(Sandbox::new(settings)),
            text => Sandbox::restore(text, settings),
        };
        let core = restored.map_err(|error| {
            let name = path.display();
            let line = error.line();
            let fix = "correct the file, or name another one with --state";
            let message = format!("state file {name}, line {line}: {error}; {fix}");
            Error::new(Code::Configuration, message)
        })?;
        let path = path.to_owned();
        Ok((Some(Self { path, held }), core))
    }

    /// Replaces the file with the core's state.
    ///
    /// # Errors
    /// The file cannot be written. Its previous content is kept.
    pub fn keep(&mut self, core: &Sandbox) -> Result<(), Error> {
        self.held = replace(&self.path, core).map_err(|error| failed(&self.path, &error))?;
        Ok(())
    }
}

/// Writes the state to a new locked file, and renames it over the old one. Returns the new file,
/// which now holds the lock.
fn replace(path: &Path, core: &Sandbox) -> io::Result<File> {
    let mut next = path.to_owned().into_os_string();
    next.push(".new");
    let mut file = options().truncate(true).open(&next)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    file.write_all(&serde_json::to_vec(core)?)?;
    file.sync_data()?;
    std::fs::rename(&next, path)?;
    Ok(file)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::file(Code::CannotWrite, ["state file", "state"], path, error)
}
