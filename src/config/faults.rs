//! All that is wrong with the flags, told at once.

use callbridge_model::{Code, ExitCode, safe};
use std::fmt;

/// Faults of the flags; never empty where it is an error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults(Vec<String>);

impl Faults {
    /// Adds one: `what` is the flag as typed, `words` say what is wrong and what to do.
    pub(crate) fn add(&mut self, what: &str, words: impl fmt::Display) {
        self.say(format!("{what}: {words}"));
    }

    /// Adds this one where it is one.
    pub(crate) fn add_if(&mut self, is_wrong: bool, what: &str, words: impl fmt::Display) {
        if is_wrong {
            self.add(what, words);
        }
    }

    /// Adds one whose words name the flag themselves.
    pub(crate) fn say(&mut self, words: impl Into<String>) {
        let words = words.into();
        if !self.0.contains(&words) {
            self.0.push(words);
        }
    }

    /// The value, or its fault added.
    pub(crate) fn take<T>(&mut self, what: &str, value: Result<T, impl fmt::Display>) -> Option<T> {
        value.map_err(|words| self.add(what, words)).ok()
    }

    /// The value, or each of its faults added.
    pub(crate) fn take_all<T>(
        &mut self,
        what: &str,
        value: Result<T, Vec<impl fmt::Display>>,
    ) -> Option<T> {
        let mut add_all = |all: Vec<_>| all.iter().for_each(|words| self.add(what, words));
        value.map_err(&mut add_all).ok()
    }

    /// Parses the value typed behind a flag; adds the fault where it cannot be read.
    pub(crate) fn read<T, E: fmt::Display>(
        &mut self,
        flag: &str,
        text: &Option<String>,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        self.take(flag, parse(text.as_deref()?))
    }

    /// `value`, unless there are faults.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Self> {
        match self.is_empty() {
            true => Ok(value),
            false => Err(self),
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
        for words in &self.0 {
            // A value may hold anything, line breaks and escapes for the terminal among it.
            write!(f, "\n  {}", safe(words))?;
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
