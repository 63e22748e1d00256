//! What an operator sees: what `status` tells, health and metrics over HTTP, and systemd.
//!
//! | module | what lives there |
//! |---|---|
//! | [`kept`] | what the spool alone knows of how everything stands |
//! | [`metrics`] | the same as Prometheus metrics |
//! | [`http`] | `/healthz`, `/readyz`, `/metrics` |
//! | [`systemd`] | READY, WATCHDOG and STATUS |

pub mod http;
pub mod kept;
pub mod metrics;
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
