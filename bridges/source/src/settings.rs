//! A source's settings, which are its secret, times, and sizes.

use crate::{Bounds, Error, EventTime, Fix};
use secrecy::SecretString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A function that reads the boot clock, which never jumps. It's used for the times of arrivals and
/// losses.
pub type Clock = fn() -> EventTime;

/// Where a source's secret comes from. The `Debug` output doesn't show it.
#[derive(Clone, Debug)]
pub enum Secret {
    /// No secret was given, so a login that needs one fails with [`Fix::Secret`].
    None,
    /// The secret itself, from the environment or a credential.
    Value(SecretString),
    /// The first line of a file, which is read at each login, so a corrected file takes effect
    /// immediately.
    File(PathBuf),
}

impl Secret {
    /// Reads the current secret. If there is none, the error mentions `variable`.
    pub(crate) fn read(&self, variable: &'static str) -> Result<SecretString, Error> {
        match self {
            Self::None => Err(Error::fault(
                Fix::Secret,
                format!("no secret: give secret-file=PATH in the URL or the variable {variable}"),
            )),
            Self::Value(value) => Ok(value.clone()),
            Self::File(path) => {
                let content =
                    std::fs::read_to_string(path).map_err(|why| secret_file_fault(path, why))?;
                // Some editors write a byte-order mark at the start of a file.
                let text = content.trim_start_matches('\u{feff}');
                let line = text.lines().next().unwrap_or_default().trim();
                if line.is_empty() {
                    let why = "its first line is empty; write the secret there";
                    return Err(secret_file_fault(path, why));
                }
                Ok(SecretString::from(line))
            }
        }
    }
}

fn secret_file_fault(path: &Path, why: impl Display) -> Error {
    let message = format!("secret-file={}: {why}", path.display());
    Error::fault(Fix::Secret, message)
}

/// Times and sizes. The defaults are the documented ones, which tests shorten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Timeout for the connection, the TLS handshake, and the login together.
    pub connect_within: Duration,
    /// Interval between pings on a live connection without open calls.
    pub ping_every: Duration,
    /// Interval between pings while a call is open. Without timestamps, this is how late an event
    /// can be before it's noticed.
    pub ping_every_in_call: Duration,
    /// If nothing is received on a connection for this long, it's closed and reopened. A shorter
    /// stall doesn't lose anything, because TCP still delivers the bytes.
    pub silent_after: Duration,
    /// Bounds for the wait between two attempts to open a connection.
    pub backoff: Bounds,
    /// Interval between polls of a file.
    pub poll_every: Duration,
    /// A file that hasn't grown for this long is reported as read to its end. The default is longer
    /// than the default of `--settle` (500 ms), within which all of a call's records are written.
    pub idle_after: Duration,
    /// Maximum number of unacknowledged messages from a broker.
    pub prefetch: u16,
    /// How long a broker's source waits for the verdicts on its frames before it ends.
    pub drain_within: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_within: Duration::from_secs(10),
            ping_every: Duration::from_secs(20),
            ping_every_in_call: Duration::from_secs(2),
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
    fn secret_is_the_first_line_without_bom_or_line_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("secret");
        for (text, secret) in [
            ("\u{feff}secret\r\nmore\r\n", Some("secret")),
            ("secret", Some("secret")),
            ("\u{feff}\r\n", None),
        ] {
            std::fs::write(&file, text).expect("written");
            let read = Secret::File(file.clone()).read("X").ok();
            let found = read.as_ref().map(|read| read.expose_secret());
            assert_eq!(found, secret, "{text:?}");
        }
    }
}
