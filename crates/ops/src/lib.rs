//! The views of an operator: log lines, `status`, health and metrics over HTTP, systemd, and a
//! command that receives messages about problems.
//!
//! | module | what it contains |
//! |---|---|
//! | [`kept`] | the part of the status that only the spool has |
//! | [`metrics`] | the status as Prometheus metrics |
//! | [`http`] | `/healthz`, `/readyz`, `/metrics` |
//! | [`systemd`] | READY, WATCHDOG, and STATUS |
//! | [`mod@log`] | log lines on stderr, with limits |
//! | [`notify`] | `--notify-command` |

pub mod http;
mod hub_metrics;
pub mod kept;
pub mod log;
#[cfg(test)]
mod loss_metrics_tests;
mod metric_families;
pub mod metrics;
pub mod notify;
mod source_metrics;
pub mod systemd;

/// The version and commit of this build.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release {
    /// The package's version in `Cargo.toml`.
    pub version: &'static str,
    pub commit: &'static str,
}

impl std::fmt::Display for Release {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.version, self.commit)
    }
}
