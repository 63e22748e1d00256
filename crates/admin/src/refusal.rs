//! The error of a request that could not be fulfilled.

use callbridge_model::{Code, ExitCode as _};
use callbridge_spool::Error;

/// A request or an action that is refused, or that the daemon cannot perform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The exit code of the command (sysexits).
    pub code: u8,
    /// A message with the problem, the affected flag or file, and the fix.
    pub message: String,
}

impl Refusal {
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    /// Returns a refusal with the exit code of wrong usage (64).
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage.number(), message)
    }

    /// Returns `true` if a person typed something wrong, such as an invalid number or date.
    pub fn is_usage(&self) -> bool {
        self.code == Code::Usage.number()
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::new(error.exit_code().number(), error.to_string())
    }
}
