//! What may be asked of a service of which some, or all, fails.

use super::*;
use callbridge_call::EventTime;

const S: Duration = Duration::from_secs(1);

fn at(seconds: u64) -> Now {
    Now {
        wall: EventTime::from_seconds(1_795_151_000).plus(S * u32::try_from(seconds).unwrap_or(0)),
        boot: Duration::from_secs(1000 + seconds),
    }
}

/// A service of which much is known, and all of it good, until this second.
fn good(seconds: u64) -> Troubles {
    let mut troubles = Troubles::default();
    for n in 0..60 {
        for &part in Part::ALL {
            let call = Some(RowId(n));
            troubles.sent(at(seconds).boot, part);
            troubles.passed(at(seconds).boot, part, call, true);
        }
    }
    troubles
}

impl Troubles {
    /// A request of this part fails at once; for it so many calls wait.
    fn fails_at(&mut self, second: u64, part: Part, call: i64, waiting: u64, fault: Fault) {
        let now = at(second);
        let failure = Failure {
            call: Some(RowId(call)),
            sent: now.boot,
            fault,
            why: "500",
            alone: 0,
        };
        self.sent(now.boot, part);
        self.shorter = crate::schedule::SHORTER.0;
        self.failed(now, part, failure, waiting);
    }

    fn request_fails(&mut self, second: u64, part: Part, call: i64) {
        self.fails_at(second, part, call, 300, Fault::Request);
    }

    fn works_at(&mut self, second: u64, part: Part) {
        self.sent(at(second).boot, part);
        self.passed(at(second).boot, part, None, true);
    }

    fn admission_at(&self, second: u64, part: Part) -> PartAdmission {
        self.admission(at(second).boot, part, &[])
    }
}

#[test]
fn single_failure_delays_one_second_and_is_not_reported() {
    let mut troubles = good(0);
    troubles.request_fails(10, Part::Submissions, 1);
    let waits = PartAdmission::From(at(11).boot);
    assert_eq!(troubles.admission_at(10, Part::Submissions), waits);
    assert_eq!(
        troubles.admission_at(11, Part::Submissions),
        PartAdmission::AtOnce
    );
    troubles.works_at(11, Part::Submissions);
    assert_eq!(
        troubles.admission_at(11, Part::Submissions),
        PartAdmission::AtOnce
    );
    assert_eq!((troubles.outage(), troubles.beside()), (None, Vec::new()));
}

#[test]
fn from_the_first_failure_on_one_request_at_a_time_goes_out() {
    let mut troubles = good(0);
    troubles.request_fails(10, Part::Submissions, 1);
    let in_flight_parts = |part, sent: u64| -> [InFlightPart; 1] {
        let sent = at(sent).boot;
        [InFlightPart {
            part: Some(part),
            sent,
        }]
    };
    let admission = |troubles: &Troubles, in_flight_parts: [InFlightPart; 1]| {
        troubles.admission(at(14).boot, Part::Submissions, &in_flight_parts)
    };
    assert_eq!(
        admission(&troubles, in_flight_parts(Part::Submissions, 11)),
        PartAdmission::Answer
    );
    assert_eq!(
        admission(&troubles, in_flight_parts(Part::Polls, 11)),
        PartAdmission::Answer
    );
    assert_eq!(
        admission(&troubles, in_flight_parts(Part::Submissions, 9)),
        PartAdmission::AtOnce
    );
    // until it is an outage a slow answer holds nothing up
    let slow = in_flight_parts(Part::Submissions, 11);
    let later = |troubles: &Troubles| troubles.admission(at(16).boot, Part::Submissions, &slow);
    assert_eq!(later(&troubles), PartAdmission::AtOnce);
    // polls work: what they do is their own affair
    troubles.works_at(12, Part::Polls);
    assert_eq!(
        admission(&troubles, in_flight_parts(Part::Polls, 13)),
        PartAdmission::AtOnce
    );
    troubles.fails_at(12, Part::Submissions, 2, 300, Fault::Unreached);
    assert_eq!(later(&troubles), PartAdmission::Answer);
}

#[test]
fn submissions_failing_while_polls_work_are_partial_outage() {
    let mut troubles = good(0);
    for second in 1..=12 {
        troubles.request_fails(
            second,
            Part::Submissions,
            i64::try_from(second).unwrap_or(0),
        );
        troubles.works_at(second + 1, Part::Polls);
    }
    assert_eq!(troubles.outage(), Some((Extent::Submissions, "500")));
    assert!(!troubles.is_whole());
    assert_eq!(
        troubles.admission_at(13, Part::Polls),
        PartAdmission::AtOnce
    );
    assert!(matches!(
        troubles.admission_at(13, Part::Submissions),
        PartAdmission::From(_)
    ));
    troubles.works_at(20, Part::Submissions);
    assert_eq!(troubles.outage(), None);
}

#[test]
fn failing_polls_or_pages_are_degraded_parts_not_outage() {
    for part in [Part::Polls, Part::Reconciliation] {
        let mut troubles = good(0);
        for second in 1..=12 {
            troubles.request_fails(second, part, i64::try_from(second).unwrap_or(0));
            troubles.works_at(second, Part::Submissions);
        }
        // a success at the same moment says nothing yet
        troubles.works_at(13, Part::Submissions);
        assert_eq!(troubles.outage(), None);
        let told: Vec<(Part, i64)> = troubles
            .beside()
            .iter()
            .map(|(part, it)| (*part, it.began.floor_seconds().get() - 1_795_151_000))
            .collect();
        assert_eq!(told, [(part, 1)]);
        assert_eq!(
            troubles.admission_at(13, Part::Submissions),
            PartAdmission::AtOnce
        );
        troubles.works_at(30, part);
        assert_eq!(troubles.beside(), Vec::new());
    }
}

#[test]
fn what_others_do_meanwhile_is_tried_ever_more_seldom() {
    let mut troubles = good(0);
    let mut tried = Vec::new();
    let mut second = 1;
    while second < 3600 {
        troubles.works_at(second, Part::Polls);
        if troubles.admission_at(second, Part::Reconciliation) == PartAdmission::AtOnce {
            troubles.request_fails(second, Part::Reconciliation, 0);
            tried.push(second);
        }
        second += 1;
    }
    assert!((10..25).contains(&tried.len()), "{tried:?}");
}

#[test]
fn total_outage_probes_parts_without_failure_first() {
    let mut troubles = good(0);
    for second in 1..=12 {
        troubles.request_fails(
            second,
            Part::Submissions,
            i64::try_from(second).unwrap_or(0),
        );
    }
    assert!(troubles.is_whole());
    assert_eq!(troubles.outage(), Some((Extent::Submissions, "500")));
    assert_eq!(
        troubles.admission_at(13, Part::Polls),
        PartAdmission::AtOnce
    );
    assert!(matches!(
        troubles.admission_at(13, Part::Submissions),
        PartAdmission::From(_)
    ));
    troubles.request_fails(13, Part::Polls, 1);
    assert_eq!(troubles.outage(), Some((Extent::Everything, "500")));
    let next = |part| troubles.next(part).map(|at| at.as_secs());
    assert_eq!(next(Part::Polls), next(Part::Submissions));
}

#[test]
fn when_something_passes_all_that_failed_is_asked_at_once() {
    let mut troubles = good(0);
    for second in 1..=600 {
        if troubles.admission_at(second, Part::Submissions) == PartAdmission::AtOnce {
            troubles.fails_at(second, Part::Submissions, 1, 1, Fault::Unreached);
            troubles.sent(at(second).boot, Part::Polls);
        }
    }
    assert!(matches!(
        troubles.admission_at(601, Part::Submissions),
        PartAdmission::From(_)
    ));
    troubles.works_at(600, Part::Polls);
    assert_eq!(
        troubles.admission_at(602, Part::Submissions),
        PartAdmission::AtOnce
    );
}

#[test]
fn total_outage_costs_at_most_ninety_requests_per_hour() {
    let mut troubles = good(0);
    let mut sent = 0;
    for second in 1..=3600 {
        let mut parts = Part::ALL.to_vec();
        parts.sort_by_key(|part| troubles.asked(*part));
        let open = parts
            .into_iter()
            .find(|part| troubles.admission_at(second, *part) == PartAdmission::AtOnce);
        if let Some(part) = open {
            troubles.request_fails(second, part, i64::try_from(second % 7).unwrap_or(0));
            sent += 1;
        }
    }
    assert!((60..=90).contains(&sent), "{sent}");
}

#[test]
fn call_failing_while_others_pass_is_no_outage_evidence() {
    let mut troubles = good(0);
    let alone = |fault| Failure {
        call: Some(RowId(7)),
        sent: at(1).boot,
        fault,
        why: "500",
        alone: 2,
    };
    for second in 1..100 {
        troubles.sent(at(second).boot, Part::Submissions);
        troubles.shorter = 20;
        troubles.failed(at(second), Part::Submissions, alone(Fault::Request), 1);
    }
    assert_eq!(
        troubles.admission_at(99, Part::Submissions),
        PartAdmission::AtOnce
    );
    troubles.shorter = 20;
    troubles.failed(at(100), Part::Submissions, alone(Fault::Unreached), 1);
    let everything = Some((Extent::Everything, "500"));
    assert_eq!(
        troubles.outage(),
        everything,
        "but for what no call can cause"
    );
}

#[test]
fn a_time_out_that_began_before_others_passed_is_chance_alone() {
    let mut troubles = good(29);
    let failure = Failure {
        call: Some(RowId(1)),
        sent: at(0).boot,
        fault: Fault::Request,
        why: "no answer in time",
        alone: 0,
    };
    troubles.shorter = 20;
    troubles.failed(at(30), Part::Submissions, failure, 1);
    assert!(troubles.failures(Part::Submissions).is_none());
    let later = Failure {
        sent: at(29).boot,
        ..failure
    };
    troubles.shorter = 20;
    troubles.failed(at(59), Part::Submissions, later, 1);
    let since = troubles.failures(Part::Submissions).map(|it| it.since);
    assert_eq!(since, Some(at(29).boot));
}

#[test]
fn failures_of_an_outage_are_no_chance_and_those_of_others_are() {
    let share = |unreached| {
        let mut troubles = good(0);
        for second in 1..=40 {
            let call = i64::try_from(second).unwrap_or(0);
            let fault = match unreached {
                true => Fault::Unreached,
                false => Fault::Request,
            };
            troubles.fails_at(second * 20, Part::Submissions, call, 300, fault);
            troubles.works_at(second * 20 + 1, Part::Submissions);
        }
        troubles.feared(RowId(-1))
    };
    assert!(share(true) < 0.1 && share(false) > 0.3);
}
