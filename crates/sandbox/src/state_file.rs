//! The state file: what the core holds, as one JSON object.
//!
//! It is held with flock and replaced as a whole, with mode 0600 and synced, after every request
//! that can have changed something. It holds tokens by their fingerprints alone.

use super::config::Settings;
use super::core::Sandbox;
use super::error::Error;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The open file.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Whoever starts on the same file finds this lock.
    held: File,
}

impl StateFile {
    /// Opens or makes the file, and gives the core that was kept in it.
    ///
    /// # Errors
    /// The file cannot be opened, is held by another process, or is damaged: it is left as it is.
    pub fn open(path: &Path, settings: Settings) -> Result<(Self, Sandbox), Error> {
        let failed = |source| failed(path, source);
        let mut held = options().truncate(false).open(path).map_err(failed)?;
        if flock(&held, FlockOperation::NonBlockingLockExclusive).is_err() {
            let path = path.to_owned();
            return Err(Error::StateHeld { path });
        }
        let mut text = Vec::new();
        held.read_to_end(&mut text).map_err(failed)?;
        let core = match text.as_slice() {
            [] => Ok(Sandbox::new(settings)),
            text => Sandbox::restore(text, settings),
        };
        let path = path.to_owned();
        match core {
            Ok(core) => Ok((Self { path, held }, core)),
            Err(error) => Err(Error::StateDamaged {
                path,
                line: error.line(),
                words: error.to_string(),
            }),
        }
    }

    /// Puts what the core holds in the place of what was kept.
    ///
    /// # Errors
    /// The disk refuses; what was kept before is kept on.
    pub fn keep(&mut self, core: &Sandbox) -> Result<(), Error> {
        let replaced = || -> io::Result<File> {
            let mut next = self.path.clone().into_os_string();
            next.push(".new");
            let mut file = options().truncate(true).open(&next)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            file.write_all(&serde_json::to_vec(core)?)?;
            file.sync_data()?;
            std::fs::rename(&next, &self.path)?;
            Ok(file)
        };
        self.held = replaced().map_err(|source| failed(&self.path, source))?;
        Ok(())
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    options
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::File {
        what: "state file",
        flag: "state",
        path: path.to_owned(),
        source,
    }
}
