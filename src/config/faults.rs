//! All errors in the flags, collected so they can be reported at once.

use callbridge_model::{Code, ExitCode, safe};
use std::fmt;

/// Errors in the flags. Never empty when it is returned as an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults(Vec<String>);

impl Faults {
    /// Adds an error. `what` is the flag as typed, and `message` is the problem and its fix.
    pub(crate) fn add(&mut self, what: &str, message: impl fmt::Display) {
        self.add_text(format!("{what}: {message}"));
    }

    /// Adds an error if `is_wrong`.
    pub(crate) fn add_if(&mut self, is_wrong: bool, what: &str, message: impl fmt::Display) {
        if is_wrong {
            self.add(what, message);
        }
    }

    /// Adds an error whose text already names the flag, unless it has been added before.
    pub(crate) fn add_text(&mut self, message: impl Into<String>) {
        let message = message.into();
        if !self.0.contains(&message) {
            self.0.push(message);
        }
    }

    /// Returns the value, or adds its error.
    pub(crate) fn take<T>(&mut self, what: &str, value: Result<T, impl fmt::Display>) -> Option<T> {
        value.map_err(|message| self.add(what, message)).ok()
    }

    /// Returns the value, or adds each of its errors.
    pub(crate) fn take_all<T>(
        &mut self,
        what: &str,
        value: Result<T, Vec<impl fmt::Display>>,
    ) -> Option<T> {
        match value {
            Ok(value) => Some(value),
            Err(messages) => {
                for message in messages {
                    self.add(what, message);
                }
                None
            }
        }
    }

    /// Parses the value of a flag, or adds its error.
    pub(crate) fn read<T, E: fmt::Display>(
        &mut self,
        flag: &str,
        text: &Option<String>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.take(flag, parse(text.as_deref()?))
    }

    /// Returns `value`, unless there are errors.
    pub(crate) fn into_result<T>(self, value: T) -> Result<T, Self> {
        if self.is_empty() {
            Ok(value)
        } else {
            Err(self)
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.0.len();
        let errors = if count == 1 { "error" } else { "errors" };
        write!(f, "{count} {errors} in the flags. Nothing was started:")?;
        for message in &self.0 {
            // A value can contain anything, even line breaks and escape sequences for the terminal.
            write!(f, "\n  {}", safe(message))?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

impl ExitCode for Faults {
    fn exit_code(&self) -> Code {
        Code::Usage
    }
}
