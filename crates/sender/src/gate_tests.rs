//! When the gate opens, and what is tried while it is paused.

use super::*;
use crate::outage::{Failure, Fault};
use crate::schedule::Jitter;
use crate::troubles::Extent;
use callbridge_call::EventTime;

const S: Duration = Duration::from_secs(1);

/// A gate that has asked about its token at the start, and found it good.
fn open() -> Gate {
    let mut gate = Gate::new([Streak::default(); 2]);
    gate.token(true, None);
    gate.sent(S, Some(Part::Token));
    gate.fine(S);
    gate
}

fn admission(gate: &Gate, now: Duration) -> Admission {
    gate.admission(now, &[])
}

/// A request of this endpoint fails at once.
fn fails(gate: &mut Gate, at: Duration, endpoint: Endpoint, fault: Fault) {
    let call = (endpoint != Endpoint::TokenInfo).then_some(RowId(1));
    let failure = Failure {
        call,
        sent: at,
        fault,
        why: "500",
        alone: 0,
    };
    let now = Now {
        wall: EventTime::from_seconds(1_795_151_000).plus(at),
        boot: at,
    };
    gate.sent(at, Part::of(endpoint));
    gate.troubles.shorter = Jitter::new(7).shorter();
    gate.failed(now, endpoint, failure, 1);
}

fn submitted(now: Duration) -> Passed {
    Passed {
        now,
        endpoint: Endpoint::Submit,
        call: Some(RowId(1)),
        first: true,
    }
}

fn cause(gate: &Gate) -> Option<PauseCause> {
    gate.pause_cause().map(|it| it.0)
}

#[test]
fn outage_allows_single_probes_until_first_success() {
    let mut gate = open();
    fails(&mut gate, 5 * S, Endpoint::Submit, Fault::Unreached);
    assert_eq!(admission(&gate, 5 * S), Admission::Probe);
    assert_eq!(cause(&gate), Some(PauseCause::Outage(Extent::Everything)));
    assert_eq!(gate.until_probe(5 * S), Some(S));
    gate.passed(submitted(6 * S), true);
    assert_eq!(admission(&gate, 6 * S), Admission::Calls);
    assert_eq!((cause(&gate), gate.until_probe(6 * S)), (None, None));
}

#[test]
fn startup_in_outage_probes_token_at_outage_pace() {
    let mut gate = Gate::new([Streak::default(); 2]);
    gate.token(true, None);
    let (mut asked, mut at) = (0, S);
    while at < 3601 * S {
        match admission(&gate, at) {
            Admission::Ask => {
                fails(&mut gate, at, Endpoint::TokenInfo, Fault::Request);
                asked += 1;
            }
            Admission::Until(next) => at = next,
            other => panic!("{other:?}"),
        }
    }
    assert!((60..=90).contains(&asked), "{asked}");
    assert_eq!(cause(&gate), Some(PauseCause::Outage(Extent::Everything)));
}

#[test]
fn late_401_in_outage_pauses_token_for_a_minute() {
    let mut gate = open();
    fails(&mut gate, 5 * S, Endpoint::Submit, Fault::Unreached);
    gate.stopped(6 * S, StopReason::TokenRefused, "401");
    assert_eq!(admission(&gate, 7 * S), Admission::Until(66 * S));
    assert_eq!(
        cause(&gate),
        Some(PauseCause::StopReason(StopReason::TokenRefused))
    );
}

#[test]
fn failed_probe_of_refused_token_is_repeated_after_a_minute() {
    let mut gate = open();
    gate.stopped(5 * S, StopReason::TokenRefused, "401");
    assert_eq!(admission(&gate, 65 * S), Admission::Ask);
    fails(&mut gate, 65 * S, Endpoint::TokenInfo, Fault::Unreached);
    assert_eq!(admission(&gate, 66 * S), Admission::Until(125 * S));
    assert_eq!(
        cause(&gate),
        Some(PauseCause::StopReason(StopReason::TokenRefused))
    );
}

#[test]
fn trial_server_error_keeps_no_grant_pause() {
    let mut gate = open();
    gate.stopped(5 * S, StopReason::NoGrant(Endpoint::Submit), "403");
    assert_eq!(admission(&gate, 7 * S), Admission::Ask);
    gate.sent(7 * S, Some(Part::Token));
    gate.fine(7 * S);
    assert_eq!(
        admission(&gate, 7 * S),
        Admission::Trial { polls_first: false }
    );
    fails(&mut gate, 8 * S, Endpoint::Submit, Fault::Request);
    let grant = PauseCause::StopReason(StopReason::NoGrant(Endpoint::Submit));
    assert_eq!(cause(&gate), Some(grant));
    assert_eq!(admission(&gate, 9 * S), Admission::Until(68 * S));
}

#[test]
fn an_outage_within_another_pause_is_what_is_shown() {
    let mut gate = open();
    gate.stopped(5 * S, StopReason::NoGrant(Endpoint::Submit), "403");
    fails(&mut gate, 7 * S, Endpoint::TokenInfo, Fault::Unreached);
    assert_eq!(cause(&gate), Some(PauseCause::Outage(Extent::Everything)));
    gate.fine(70 * S);
    assert_eq!(cause(&gate), None, "a trial is due");
}

#[test]
fn failed_trial_after_429_ends_pause_and_allows_probe() {
    let mut gate = open();
    gate.too_many(5 * S, |times| Jitter::new(7).after_429(times, 60 * S));
    assert_eq!(
        admission(&gate, 8 * S),
        Admission::Trial { polls_first: false }
    );
    gate.sent(8 * S, Some(Part::Submissions));
    fails(&mut gate, 8 * S, Endpoint::Submit, Fault::Request);
    fails(&mut gate, 8 * S, Endpoint::Submit, Fault::Request);
    assert_eq!(admission(&gate, 9 * S), Admission::Probe);
    assert_eq!(cause(&gate), None);
}
