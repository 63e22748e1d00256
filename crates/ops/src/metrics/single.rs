//! Figures that stand alone, and those that another crate makes.

use super::{Observed, signed};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

pub(super) fn single(all: &mut Registry, seen: &Observed) {
    let lost = Counter::<u64, AtomicU64>::default();
    lost.inc_by(seen.log_lines_lost);
    let help = "Lines of the log that stderr did not take";
    all.register("log_lines_lost", help, lost);
    if let Some(open) = seen.page_sessions {
        let open = u64::try_from(open).unwrap_or(u64::MAX);
        let help = "Sessions open at the page";
        all.register("page_sessions", help, gauge(open));
    }
    if let Some(lease) = &seen.status.lease {
        let help = "1 while this process holds the lease of --standby and sends";
        all.register("lease_held", help, gauge(u64::from(lease.is_held())));
    }
    if let Some(calls) = seen.audit_unexplained {
        let help = "Calls of the PBX's file that the last audit left unexplained";
        all.register("audit_unexplained", help, gauge(calls));
    }
    let fleet = seen.status.fleet.as_ref();
    if let Some(table) = fleet.and_then(|it| it.table.as_ref()) {
        callbridge_fleet::metrics::collectors(all, table);
    }
}

fn gauge(value: u64) -> Gauge {
    let gauge = Gauge::default();
    gauge.set(signed(value));
    gauge
}
