//! Tests faults of a leader as a collector sees them: the leader is killed, frozen, or loses its
//! session, also while the CRM has stalled. The measure is the time from the fault to the next call
//! that the collector gets confirmed.
//!
//! `tests/run hub` repeats every fault at the CRM's own rate.

use super::busy::BusyCollector;
use super::pair::{BRANCH, FULL_RATE, Findings, Hub, PATIENCE, Pair, source_address};
use super::runs::{is_long_run, report, seconds};
use crate::support::judge::fault::Fault as CrmFault;
use crate::support::program::Place;
use callbridge_model::status::Role;
use callbridge_sandbox::window::Rate;
use callbridge_testbed::postgres::{Durability, Postgres};
use callbridge_testbed::wait::until_within;
use futures_util::future::join_all;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// A collector gets its next call confirmed within this time. It leaves a frozen hub after 12 s,
/// but a busy machine adds seconds.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(20);
/// How long a stalled CRM keeps a request before it counts and answers it. callbridge would wait
/// 30 s for the answer.
const STALL: Duration = Duration::from_secs(25);
/// Requests that a stalled CRM has received when the fault strikes.
const STALLED: usize = 3;

/// What happens to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// `kill -9`. The standby takes over.
    Killed,
    /// SIGSTOP until the standby has taken over.
    Frozen,
    /// `pg_terminate_backend` of the session with the lock. There's no standby, so the same process
    /// leads again, and knows the slots of its requests.
    SessionEnded,
}

impl Fault {
    const ALL: [Self; 3] = [Self::Killed, Self::Frozen, Self::SessionEnded];

    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "leader killed",
            Self::Frozen => "leader frozen",
            Self::SessionEnded => "leader's session terminated",
        }
    }

    async fn strike(self, leader: &Hub, server: &Postgres) {
        match self {
            Self::Killed => leader.kill().await,
            Self::Frozen => {
                leader.signal(Signal::STOP);
                leader.wait_until_stopped().await;
            }
            Self::SessionEnded => {
                let terminate = "SELECT pg_terminate_backend(pid) FROM pg_locks
                                 WHERE locktype = 'advisory' AND granted";
                assert_eq!(server.sql(terminate), "t");
            }
        }
    }
}

/// The size of a run.
#[derive(Clone, Copy)]
struct Size {
    rate: Rate,
    /// Number of calls that end right after the fault: more than a window holds.
    calls: u32,
    tries: usize,
}

fn chosen_size() -> Size {
    if is_long_run() {
        Size {
            rate: FULL_RATE,
            calls: 90,
            tries: 5,
        }
    } else {
        let window = Duration::from_secs(10);
        Size {
            rate: Rate {
                requests: 20,
                window,
            },
            calls: 40,
            tries: 1,
        }
    }
}

/// What a collector and the CRM saw.
struct Outcome {
    /// Time from the fault to the next confirmed call.
    next: Duration,
    longest_pause: Duration,
    findings: Findings,
}

/// Runs two hubs and a collector until the calls after the fault are journaled.
async fn try_fault(fault: Fault, is_crm_stalled: bool, size: Size) -> Outcome {
    let place = Place::new();
    let library = source_address(&place);
    let server = Postgres::start(Durability::None, "");
    let url = server.url(&Postgres::new_schema());
    let pair = Pair::new([&url, &url], size.rate).await;
    let [first, second] = &pair.hubs;
    if fault == Fault::SessionEnded {
        pair.start_first(&library).await;
    } else {
        pair.start(&library).await;
    }
    let hubs = [first.collect, second.collect];
    let mut collector = BusyCollector::start(&hubs, BRANCH, &pair.token, 0);
    collector.wait_for_next_confirmed().await;
    let sending = until_within(PATIENCE, "a request", async || pair.judge.count() > 0);
    collector.end_calls_during(sending).await;
    if is_crm_stalled {
        let received = pair.judge.count() + STALLED;
        pair.judge.set_faults(100, &[CrmFault::Stalled(STALL)]);
        let stall = pair.judge.wait_for_requests(received);
        collector.end_calls_during(stall).await;
    }
    fault.strike(first, &server).await;
    let begin = Instant::now();
    collector.wait_for_next_confirmed().await;
    let next = begin.elapsed();
    pair.judge.set_faults(0, &[]);
    if fault == Fault::Frozen {
        first.signal(Signal::CONT);
        first.wait_for_role(Role::Standby).await;
    }
    collector.write_calls(size.calls);
    collector.wait_until_all_confirmed().await;
    pair.wait_until_journaled(collector.written as usize).await;
    let outcome = Outcome {
        next,
        longest_pause: collector.longest_pause,
        findings: pair.findings(collector.written),
    };
    assert_eq!(
        outcome.findings.broken_rules(),
        [""; 0],
        "{fault:?}\n{}",
        pair.logs()
    );
    assert!(
        next < CONFIRMED_WITHIN,
        "{fault:?}: {next:?}\n{}",
        pair.logs()
    );
    collector.terminate().await;
    pair.terminate().await;
    outcome
}

/// Tries every fault, and prints a row for each.
async fn try_all(is_crm_stalled: bool) {
    let size = chosen_size();
    let faults = Fault::ALL.map(async |fault| {
        let tries = (0..size.tries).map(|_| try_fault(fault, is_crm_stalled, size));
        let outcomes = join_all(tries).await;
        let mut name = fault.name().to_owned();
        if is_crm_stalled {
            name.push_str(", CRM stalled");
        }
        let mut times: Vec<Duration> = outcomes.iter().map(|outcome| outcome.next).collect();
        times.sort();
        for outcome in &outcomes {
            outcome.findings.report(&name, outcome.longest_pause);
        }
        report(&format!(
            "{name:45} next call confirmed after {} (median of {}), at most {}\n",
            seconds(times.get(times.len() / 2)),
            size.tries,
            seconds(times.last()),
        ));
    });
    join_all(faults).await;
}

/// A collector leaves a frozen leader after 12 s without a first byte.
#[tokio::test(flavor = "multi_thread")]
async fn collectors_next_call_is_stored_soon_after_fault() {
    try_all(false).await;
}

/// The CRM counts requests long after the leader has lost track of them.
#[tokio::test(flavor = "multi_thread")]
async fn fault_of_leader_while_crm_stalls_loses_no_call() {
    try_all(true).await;
}
