//! The error that ends a command: a message for stderr, and an exit code.

use callbridge_model::{Code, ExitCode};
use std::{fmt, io};

/// The error of a command that failed: its message and its exit code.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    error: anyhow::Error,
}

impl Failure {
    /// Creates a failure with a message for a person: what failed, where, and what to do.
    pub fn new(
        code: Code,
        message: impl fmt::Display + fmt::Debug + Send + Sync + 'static,
    ) -> Self {
        let error = anyhow::Error::msg(message);
        Self { code, error }
    }

    /// Creates a failure without a message, because stdout already shows the problem.
    pub fn silent(code: Code) -> Self {
        Self::new(code, "")
    }

    /// Creates the failure of a file that cannot be read: 66 if it is missing, otherwise 65.
    pub(crate) fn unreadable_file(file: impl fmt::Display, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => Code::NoInput,
            _ => Code::Input,
        };
        Self::new(code, format!("{file}: cannot be read: {error}"))
    }

    /// Creates a failure from an error. `code` is the exit code of the command.
    pub fn wrap(code: Code, error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        Self { code, error }
    }

    pub fn code(&self) -> Code {
        self.code
    }

    /// Returns the exit code in the form that `main` returns.
    pub fn exit_code(&self) -> std::process::ExitCode {
        std::process::ExitCode::from(self.code.number())
    }
}

/// The result of a command, or the failure that ended it.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// Turns the error of a result into a failure that ends the command.
pub(crate) trait OrFail<T> {
    /// Fails with `code` and the error's message.
    fn or_fail(self, code: Code) -> Result<T>;

    /// Fails with `code`, and puts `what` before the error's message.
    fn or_fail_at(self, code: Code, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> OrFail<T> for Result<T, E> {
    fn or_fail(self, code: Code) -> Result<T> {
        self.map_err(|error| Failure::new(code, error.to_string()))
    }

    fn or_fail_at(self, code: Code, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Failure::new(code, format!("{what}: {error}")))
    }
}

impl<E: ExitCode> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::wrap(error.exit_code(), error)
    }
}

impl fmt::Display for Failure {
    /// Writes the error and its causes, outermost first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}
