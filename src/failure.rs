//! Why a command ended: words on stderr, and an exit code.

use callbridge_model::{Code, ExitCode};
use std::{fmt, io};

/// The end of a command that failed: its words and its exit code.
#[derive(Debug)]
pub struct Failure {
    code: Code,
    error: anyhow::Error,
}

impl Failure {
    /// Words for a person: what, where, and what to do.
    pub fn new(code: Code, words: impl fmt::Display + fmt::Debug + Send + Sync + 'static) -> Self {
        let error = anyhow::Error::msg(words);
        Self { code, error }
    }

    /// A code alone: what there is to say stands on stdout.
    pub fn silent(code: Code) -> Self {
        Self::new(code, "")
    }

    /// A file that cannot be read: 66 where it is missing, else 65.
    pub(crate) fn unread(file: impl fmt::Display, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound => Code::NoInput,
            _ => Code::Input,
        };
        Self::new(code, format!("{file}: cannot be read: {error}"))
    }

    /// An error from below, with the code that fits here.
    pub fn of(code: Code, error: impl Into<anyhow::Error>) -> Self {
        let error = error.into();
        Self { code, error }
    }

    pub fn code(&self) -> Code {
        self.code
    }

    /// The number to exit with.
    pub fn exit_code(&self) -> std::process::ExitCode {
        std::process::ExitCode::from(self.code.number())
    }
}

/// What a command comes to, or why it ended.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// A result whose error ends the command.
pub(crate) trait OrFail<T> {
    /// With the words of the error.
    fn or_fail(self, code: Code) -> Result<T>;

    /// With words of what was tried before those of the error.
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
        Self::of(error.exit_code(), error)
    }
}

impl fmt::Display for Failure {
    /// The error and its causes, outermost first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}", self.error)
    }
}
