//! What an operator sees: `status`, the HTTP listener with health and metrics, and systemd.
//!
//! | module | what lives there |
//! |---|---|
//! | [`status`] | the shape of `status --json`, its verdict, and the same for people |
//! | [`zone`] | times as people read them |
//! | [`metrics`] | the same as Prometheus metrics |
//! | [`http`] | `/healthz`, `/readyz`, `/metrics` |
//! | [`pulse`] | whether the loops still turn |
//! | [`reader`] | another daemon on one of our sources |
//! | [`systemd`] | READY, WATCHDOG and STATUS |

pub mod http;
pub mod metrics;
pub mod pulse;
pub mod reader;
pub mod status;
pub mod systemd;
pub mod zone;

pub use status::Status;
pub use zone::Zone;
