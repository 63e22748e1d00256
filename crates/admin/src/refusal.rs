//! Why something that was asked for could not be done.

use callbridge_model::{Code, ExitCode as _};
use callbridge_spool::Error;

/// A question or an action that is refused, or that the daemon cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The exit code of the command (sysexits).
    pub code: u8,
    /// The error in words: the fault, its place, and the remedy.
    pub words: String,
}

impl Refusal {
    /// Of this code, in these words.
    pub fn new(code: u8, words: impl Into<String>) -> Self {
        let words = words.into();
        Self { code, words }
    }

    /// Returns a refusal with the exit code of wrong usage (64).
    pub fn usage(words: impl Into<String>) -> Self {
        Self::new(Code::Usage.number(), words)
    }

    /// Returns `true` when the fault is in the words that were typed: a number that is none, a day
    /// that is none.
    pub fn is_usage(&self) -> bool {
        self.code == Code::Usage.number()
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::new(error.exit_code().number(), error.to_string())
    }
}
