//! Figures that stand alone, and those that another crate makes.

use super::{Observed, counter};
use callbridge_fleet::metrics::{collectors, gauge};
use prometheus_client::registry::Registry;

pub(super) fn single(all: &mut Registry, seen: &Observed) {
    let help = "Lines of the log that stderr did not take";
    counter(all, "log_lines_lost", help, seen.log_lines_lost);
    if let Some(open) = seen.page_sessions {
        gauge(
            all,
            "page_sessions",
            "Sessions open at the page",
            open as u64,
        );
    }
    if let Some(lease) = &seen.status.lease {
        let help = "1 while this process holds the lease of --standby and sends";
        gauge(all, "lease_held", help, u64::from(lease.is_held()));
    }
    if let Some(calls) = seen.audit_unexplained {
        let help = "Calls of the PBX's file that the last audit left unexplained";
        gauge(all, "audit_unexplained", help, calls);
    }
    let fleet = seen.status.fleet.as_ref();
    if let Some(table) = fleet.and_then(|it| it.table.as_ref()) {
        collectors(all, table);
    }
}
