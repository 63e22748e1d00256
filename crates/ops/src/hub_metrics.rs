//! Metrics of a hub and its branches, and of a collector.

use crate::metric_families::{counters, gauge, gauges, labels, signed};
use callbridge_hub::tally::Refusals;
use callbridge_model::Status;
use callbridge_model::status::Role;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub(crate) fn hub(all: &mut Registry, status: &Status, refusals: Option<&Refusals>) {
    let Some(hub) = &status.hub else {
        return;
    };
    let mut reported = Vec::new();
    let mut backlog = Vec::new();
    let mut taken = Vec::new();
    for branch in &hub.branches {
        let name = labels([("branch", branch.branch.as_str())]);
        if let Some(at) = branch.reported_at {
            reported.push((name.clone(), at));
        }
        if let Some(report) = &branch.report {
            backlog.push((name.clone(), signed(report.backlog)));
        }
        taken.push((name, branch.taken));
    }
    let help = "Time of the last report of a branch";
    gauges(all, "branch_last_report_timestamp_seconds", help, reported);
    let help = "Calls that a branch has not forwarded yet, by its last report";
    gauges(all, "branch_backlog_calls", help, backlog);
    let help = "Calls that the hub accepted from a branch, including repeats";
    counters(all, "branch_taken_calls", help, taken);
    let help = "1 while nothing is sent to the CRM because this state lost commits";
    let is_silent = i64::from(hub.silent_until.is_some());
    gauge(all, "hub_silent", help, is_silent);
    let mut refused = Vec::new();
    for ((branch, reason), count) in refusals.into_iter().flatten() {
        let labels = labels([("branch", branch.as_str()), ("reason", reason)]);
        refused.push((labels, *count));
    }
    let help = "Requests and lines of a branch that were refused, by reason";
    counters(all, "branch_refused", help, refused);
}

pub(crate) fn leadership(all: &mut Registry, status: &Status) {
    let Some(leadership) = &status.leadership else {
        return;
    };
    let help = "1 if this process leads the state, 0 if it is a standby";
    let leads = leadership.role == Role::Leader;
    gauge(all, "leader", help, i64::from(leads));
    let help = "Standbys that wait for the leader to end";
    gauge(
        all,
        "standbys",
        help,
        signed(leadership.standbys.len() as u64),
    );
    let help = "1 if this standby could not take over";
    let is_unable = leadership.problem.is_some();
    gauge(all, "standby_problem", help, i64::from(is_unable));
    let mut problems = Vec::new();
    for problem in &leadership.database {
        problems.push((labels([("problem", problem.kind.as_str())]), 1));
    }
    let help = "1 for each problem of the database";
    gauges(all, "database_problem", help, problems);
    let help = "Sessions with the database that this process lost while it was the leader";
    let lost = Counter::<u64, AtomicU64>::default();
    lost.inc_by(leadership.lost_sessions);
    all.register("database_sessions_lost", help, lost);
    if let Some(micros) = leadership.round_trip_us {
        let help = "Time that the database takes to answer the leader";
        let round_trip = Gauge::<f64, AtomicU64>::default();
        round_trip.set(Duration::from_micros(micros).as_secs_f64());
        all.register("database_round_trip_seconds", help, round_trip);
    }
}

pub(crate) fn forward(all: &mut Registry, status: &Status) {
    let Some(forward) = &status.forward else {
        return;
    };
    if let Some(at) = forward.answered_at {
        let help = "Time of the hub's last answer";
        gauge(all, "forward_last_answer_timestamp_seconds", help, at);
    }
}
