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
