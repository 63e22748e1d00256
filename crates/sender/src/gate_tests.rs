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
fn an_outage_pauses_nothing_but_goes_one_by_one_and_is_over_with_the_first_success() {
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
fn a_start_into_an_outage_asks_about_the_token_as_often_as_about_calls() {
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
fn a_straggler_s_401_in_an_outage_is_followed_by_a_minute_without_that_token() {
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
fn a_probe_that_fails_while_the_token_is_dead_is_followed_by_another_after_a_minute() {
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
fn a_trial_that_fails_by_no_fault_of_its_call_says_nothing_of_what_is_tried() {
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
fn a_trial_after_a_429_that_fails_opens_the_line_to_what_a_trouble_allows() {
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
