//! A folder for the time of one command.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

/// A folder of our own, gone when this is dropped.
#[derive(Debug)]
pub(crate) struct ScratchFolder(pub PathBuf);

impl ScratchFolder {
    /// Makes it.
    ///
    /// # Errors
    /// The system's, also where something stands there.
    pub(crate) fn make(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "{} cannot be removed", self.0.display());
        }
    }
}
