//! What an operator sees: log lines, what `status` tells, health and metrics over HTTP, systemd,
//! and a command that is told of troubles.
//!
//! | module | what lives there |
//! |---|---|
//! | [`kept`] | what the spool alone knows of how everything stands |
//! | [`metrics`] | the same as Prometheus metrics |
//! | [`http`] | `/healthz`, `/readyz`, `/metrics` |
//! | [`systemd`] | READY, WATCHDOG and STATUS |
//! | [`mod@log`] | log lines on stderr, limited |
//! | [`notify`] | `--notify-command` |

pub mod http;
pub mod kept;
pub mod log;
pub mod metrics;
pub mod notify;
pub mod systemd;

/// Which build this is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release {
    /// As `Cargo.toml` has it.
    pub version: &'static str,
    /// The commit it was built from.
    pub commit: &'static str,
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.version, self.commit)
    }
}
