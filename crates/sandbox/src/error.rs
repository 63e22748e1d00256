//! Errors that prevent a sandbox from starting, or end it.

use callbridge_model::{Code, ExitCode};
use std::io;
use std::path::Path;

/// A message with the problem and its fix, and the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    code: Code,
    message: String,
}

impl Error {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    /// Creates the error of a file that cannot be read, created, or written. `names` are the kind
    /// of file, such as `state file`, and the name of its flag.
    pub(super) fn file(code: Code, names: [&str; 2], path: &Path, error: &io::Error) -> Self {
        let ([what, flag], path) = (names, path.display());
        let message = format!("{what} {path}: {error}; name another with --{flag}");
        Self::new(code, message)
    }
}

impl ExitCode for Error {
    fn exit_code(&self) -> Code {
        self.code
    }
}
