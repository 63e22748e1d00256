//! Why a sandbox does not start, or ends.

use callbridge_model::{Code, ExitCode};
use std::io;
use std::path::Path;

/// The fault and its fix in words, with the exit code.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct Error {
    code: Code,
    words: String,
}

impl Error {
    pub(super) fn new(code: Code, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { code, words }
    }

    /// A file cannot be read, made or written: what is kept in it, and the flag that names it.
    pub(super) fn file(code: Code, names: [&str; 2], path: &Path, error: &io::Error) -> Self {
        let ([what, flag], path) = (names, path.display());
        let words = format!("{what} {path}: {error}; name another with --{flag}");
        Self::new(code, words)
    }
}

impl ExitCode for Error {
    fn exit_code(&self) -> Code {
        self.code
    }
}
