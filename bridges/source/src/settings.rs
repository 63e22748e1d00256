//! The settings of a source: its secret, times, and sizes.

use crate::{Bounds, Error, EventTime, Fix};
use secrecy::SecretString;
use std::{fmt::Display, path::PathBuf, time::Duration};

/// Function that reads a clock that never steps (the boot clock), for times of arrival and loss.
pub type Clock = fn() -> EventTime;

/// The origin of a source's secret. Debug does not show it.
#[derive(Clone, Debug)]
pub enum Secret {
    /// No secret was given; a login that needs one fails with [`Fix::Secret`].
    None,
    /// The secret itself, from the environment or a credential.
    Value(SecretString),
    /// The first line of a file, read at each login, so that a mended file serves at once.
    File(PathBuf),
}

impl Secret {
    /// The secret now; `variable` is what to name when there is none.
    pub(crate) fn read(&self, variable: &'static str) -> Result<SecretString, Error> {
        match self {
            Self::None => Err(Error::fault(
                Fix::Secret,
                format!("no secret: give secret-file=PATH in the URL or the variable {variable}"),
            )),
            Self::Value(value) => Ok(value.clone()),
            Self::File(path) => {
                let fault = |why: &dyn Display| {
                    let words = format!("secret-file={}: {why}", path.display());
                    Error::fault(Fix::Secret, words)
                };
                let text = std::fs::read_to_string(path).map_err(|why| fault(&why))?;
                // Editors put the mark of UTF-8 before it.
                let text = text.trim_start_matches('\u{feff}');
                let line = text.lines().next().unwrap_or_default().trim();
                if line.is_empty() {
                    return Err(fault(&"its first line is empty; write the secret there"));
                }
                Ok(SecretString::from(line))
            }
        }
    }
}

/// Times and sizes; the defaults are what is promised, tests shorten them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time allowed for the connection, the TLS greeting and the login together.
    pub connect_within: Duration,
    /// Between two pings of ours on an AMI or WebSocket line.
    pub ping_every: Duration,
    /// A line without a byte for this long is closed and opened again. A line that stalls for less
    /// loses nothing: TCP still brings what was sent.
    pub silent_after: Duration,
    /// Bounds of the wait between two tries to open a line.
    pub backoff: Bounds,
    /// Between two looks at a file.
    pub poll_every: Duration,
    /// A file that has not grown for so long is told to be read to its end. Longer than `--settle`
    /// by default: what belongs to one call is written within that.
    pub idle_after: Duration,
    /// Messages under way from a broker at most.
    pub prefetch: u16,
    /// Time for which a broker's source waits at its end for the verdicts on its frames.
    pub drain_within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_within: Duration::from_secs(10),
            ping_every: Duration::from_secs(20),
            silent_after: Duration::from_secs(120),
            backoff: Bounds::default(),
            poll_every: Duration::from_millis(250),
            idle_after: Duration::from_secs(1),
            prefetch: 1_000,
            drain_within: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrecy::ExposeSecret as _;

    #[test]
    fn a_secret_is_the_first_line_without_an_editors_marks() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        let read = |text: &str| {
            std::fs::write(&file, text).expect("written");
            let secret = Secret::File(file.clone()).read("X");
            secret.map(|secret| secret.expose_secret().to_owned()).ok()
        };
        assert_eq!(
            read("\u{feff}secret\r\nmore\r\n").as_deref(),
            Some("secret")
        );
        assert_eq!(read("secret").as_deref(), Some("secret"));
        assert_eq!(read("\u{feff}\r\n"), None);
    }
}
