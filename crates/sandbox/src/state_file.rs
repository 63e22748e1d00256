//! The state file: the log of changes, one JSON object a line, appended.
//!
//! ```text
//! {"at":1795151317833600,"change":{"accepted":{"requestId":…}}}\n
//! ```
//! It is made with mode 0600, held with flock, and synced whenever a write was accepted or a token
//! given out. A last line without its end was never answered for and is cut off; any other bad line
//! is refused.
//! A call takes about half a kilobyte; nothing is ever thrown away.

use super::core::{Change, Logged, Sandbox};
use super::error::Error;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The open file.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    file: File,
}

impl StateFile {
    /// Opens or makes the file and plays its changes into the core.
    ///
    /// # Errors
    /// The file cannot be opened, is held by another process, or has a damaged line.
    pub fn open(path: &Path, core: &mut Sandbox) -> Result<Self, Error> {
        let failed = |source| failed(path, source);
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options.open(path).map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Error::StateHeld {
                path: path.to_owned(),
            });
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let whole = text
            .iter()
            .rposition(|&byte| byte == b'\n')
            .map_or(0, |at| at + 1);
        for (number, line) in text[..whole].split(|&byte| byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            let logged: Logged =
                serde_json::from_slice(line).map_err(|error| Error::StateDamaged {
                    path: path.to_owned(),
                    line: number + 1,
                    words: error.to_string(),
                })?;
            core.replay(logged);
        }
        file.set_len(whole as u64).map_err(failed)?;
        file.seek(io::SeekFrom::End(0)).map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            file,
        })
    }

    /// Appends the core's new changes.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn keep(&mut self, core: &mut Sandbox) -> Result<(), Error> {
        let changes = core.take_log();
        if changes.is_empty() {
            return Ok(());
        }
        let mut lines = Vec::new();
        for change in &changes {
            serde_json::to_writer(&mut lines, change).map_err(|error| self.failed(error.into()))?;
            lines.push(b'\n');
        }
        self.file
            .write_all(&lines)
            .map_err(|error| self.failed(error))?;
        let accepted = changes.iter().any(|logged| {
            matches!(
                logged.change,
                Change::Accepted(_) | Change::Lead(_) | Change::Oauth(_)
            )
        });
        if accepted {
            self.file.sync_data().map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    fn failed(&self, source: io::Error) -> Error {
        failed(&self.path, source)
    }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::File {
        what: "state file",
        flag: "state",
        path: path.to_owned(),
        source,
    }
}
