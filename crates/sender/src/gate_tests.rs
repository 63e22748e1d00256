//! When the line opens, and what is tried while it is paused.

use super::*;
use crate::outage::Failure;
use crate::schedule::Jitter;
use crate::troubles::Extent;
use crate::verdict::Fault;
use callbridge_call::EventTime;

const S: Duration = Duration::from_secs(1);

/// A line that has asked about its token at the start, and found it good.
fn open() -> Line {
    let mut line = Line::new([Streak::default(); 2]);
    line.token(true);
    line.sent(S, Some(Part::Token));
    line.fine(S);
    line
}

fn permit(line: &Line, now: Duration) -> Permit {
    line.permit(now, &[])
}

/// A request of this endpoint fails at once.
fn fails(line: &mut Line, at: Duration, endpoint: Endpoint, fault: Fault) {
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
    line.sent(at, Part::of(endpoint));
    line.failed(now, endpoint, failure, 1, Jitter::new(7).shorter());
}

fn submitted(now: Duration) -> Passed {
    Passed {
        now,
        endpoint: Endpoint::Submit,
        call: Some(RowId(1)),
        first: true,
    }
}

fn cause(line: &Line) -> Option<Cause> {
    line.pause_cause().map(|it| it.0)
}

#[test]
fn an_outage_pauses_nothing_but_goes_one_by_one_and_is_over_with_the_first_success() {
    let mut line = open();
    fails(&mut line, 5 * S, Endpoint::Submit, Fault::Unreached);
    assert_eq!(permit(&line, 5 * S), Permit::Probe);
    assert_eq!(cause(&line), Some(Cause::Outage(Extent::Everything)));
    assert_eq!(line.until_probe(5 * S), Some(S));
    line.good(submitted(6 * S));
    assert_eq!(permit(&line, 6 * S), Permit::Calls);
    assert_eq!((cause(&line), line.until_probe(6 * S)), (None, None));
}

#[test]
fn a_start_into_an_outage_asks_about_the_token_as_often_as_about_calls() {
    let mut line = Line::new([Streak::default(); 2]);
    line.token(true);
    let (mut asked, mut at) = (0, S);
    while at < 3601 * S {
        match permit(&line, at) {
            Permit::Ask => {
                fails(&mut line, at, Endpoint::TokenInfo, Fault::Request);
                asked += 1;
            }
            Permit::Until(next) => at = next,
            other => panic!("{other:?}"),
        }
    }
    assert!((60..=90).contains(&asked), "{asked}");
    assert_eq!(cause(&line), Some(Cause::Outage(Extent::Everything)));
}

#[test]
fn a_straggler_s_401_in_an_outage_is_followed_by_a_minute_without_that_token() {
    let mut line = open();
    fails(&mut line, 5 * S, Endpoint::Submit, Fault::Unreached);
    line.halted(6 * S, Halt::TokenRefused, "401");
    assert_eq!(permit(&line, 7 * S), Permit::Until(66 * S));
    assert_eq!(cause(&line), Some(Cause::Halt(Halt::TokenRefused)));
}

#[test]
fn a_probe_that_fails_while_the_token_is_dead_is_followed_by_another_after_a_minute() {
    let mut line = open();
    line.halted(5 * S, Halt::TokenRefused, "401");
    assert_eq!(permit(&line, 65 * S), Permit::Ask);
    fails(&mut line, 65 * S, Endpoint::TokenInfo, Fault::Unreached);
    assert_eq!(permit(&line, 66 * S), Permit::Until(125 * S));
    assert_eq!(cause(&line), Some(Cause::Halt(Halt::TokenRefused)));
}

#[test]
fn a_trial_that_fails_by_no_fault_of_its_call_says_nothing_of_what_is_tried() {
    let mut line = open();
    line.halted(5 * S, Halt::NoGrant(Endpoint::Submit), "403");
    assert_eq!(permit(&line, 7 * S), Permit::Ask);
    line.sent(7 * S, Some(Part::Token));
    line.fine(7 * S);
    assert_eq!(permit(&line, 7 * S), Permit::Trial { polls_first: false });
    fails(&mut line, 8 * S, Endpoint::Submit, Fault::Request);
    let grant = Cause::Halt(Halt::NoGrant(Endpoint::Submit));
    assert_eq!(cause(&line), Some(grant));
    assert_eq!(permit(&line, 9 * S), Permit::Until(68 * S));
}

#[test]
fn an_outage_within_another_pause_is_what_is_shown() {
    let mut line = open();
    line.halted(5 * S, Halt::NoGrant(Endpoint::Submit), "403");
    fails(&mut line, 7 * S, Endpoint::TokenInfo, Fault::Unreached);
    assert_eq!(cause(&line), Some(Cause::Outage(Extent::Everything)));
    line.fine(70 * S);
    assert_eq!(cause(&line), None, "a trial is due");
}

#[test]
fn a_trial_after_a_429_that_fails_opens_the_line_to_what_a_trouble_allows() {
    let mut line = open();
    line.too_many(5 * S, |times| Jitter::new(7).after_429(times, 60 * S));
    assert_eq!(permit(&line, 8 * S), Permit::Trial { polls_first: false });
    line.sent(8 * S, Some(Part::Submissions));
    fails(&mut line, 8 * S, Endpoint::Submit, Fault::Request);
    fails(&mut line, 8 * S, Endpoint::Submit, Fault::Request);
    assert_eq!(permit(&line, 9 * S), Permit::Probe);
    assert_eq!(cause(&line), None);
}
