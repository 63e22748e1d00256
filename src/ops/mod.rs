//! What an operator sees: what `status` tells, health and metrics over HTTP, and systemd.
//!
//! | module | what lives there |
//! |---|---|
//! | [`kept`] | what the spool alone knows of how everything stands |
//! | [`metrics`] | the same as Prometheus metrics |
//! | [`http`] | `/healthz`, `/readyz`, `/metrics` |
//! | [`systemd`] | READY, WATCHDOG and STATUS |

pub(crate) mod http;
pub(crate) mod kept;
pub(crate) mod metrics;
pub(crate) mod systemd;
