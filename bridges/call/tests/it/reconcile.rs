//! Tests of calls that are reported both by events and by a CDR file. For some values the events
//! are better, and for others the file is.

use callbridge_call::{
    Decision, Direction, EventTime, Extension, FinishedCall, Knowledge, Patience, RawNumber,
    Reconciler, UniqueId, Variable,
};
use proptest::prelude::*;
use std::time::Duration;

const BEGAN: EventTime = EventTime::from_seconds(1_795_151_317);

fn id(text: &str) -> UniqueId {
    UniqueId::new(text).expect("not empty")
}

/// Returns a call as reported by a CDR file, with estimated values and without variables. `talk` is
/// in seconds.
fn call_from_records(employee: Option<&str>, talk: u64) -> FinishedCall {
    FinishedCall {
        linkedid: id("1795151317.146"),
        also_known_as: vec![id("1795151317.146"), id("1795151317.147")],
        direction: Direction::Inbound,
        answered: talk > 0,
        trunk: Some("city".to_owned()),
        number: Some(RawNumber {
            text: "998901110001".to_owned(),
            from_dial_string: false,
        }),
        more_numbers: Vec::new(),
        shown_number: None,
        did: None,
        employee: employee.map(Extension::new),
        employees_in_order: employee.map(Extension::new).into_iter().collect(),
        started: BEGAN,
        ended: BEGAN.plus(Duration::from_secs(20)),
        talk: Duration::from_secs(talk),
        variables: Vec::new(),
        userfields: Vec::new(),
        incomplete: None,
        estimate: true,
        by_arrival: false,
        live: false,
        remarks: Vec::new(),
        decided_by: Vec::new(),
        timeline: None,
        unmatched: Vec::new(),
        unknown_channels: Vec::new(),
        given: None,
    }
}

/// Returns the call from [`call_from_records`] as reported by its events, which end at a gap.
fn call_from_events(employee: Option<&str>, talk: u64, variables: &[(&str, &str)]) -> FinishedCall {
    let variables = variables.iter().map(|(name, value)| Variable {
        name: (*name).to_owned(),
        values: vec![(*value).to_owned()],
    });
    FinishedCall {
        variables: variables.collect(),
        userfields: vec!["lead=4005".to_owned()],
        incomplete: Some("the line was cut".to_owned()),
        estimate: false,
        live: true,
        ended: BEGAN.plus(Duration::from_secs(talk)),
        ..call_from_records(employee, talk)
    }
}

#[test]
fn call_without_event_times_takes_those_of_a_cel_file() {
    let by_arrival = FinishedCall {
        incomplete: None,
        by_arrival: true,
        ..call_from_events(Some("101"), 30, &[("LEAD_ID", "4005")])
    };
    let recorded = FinishedCall {
        estimate: false,
        ..call_from_records(Some("101"), 12)
    };
    let mut reconciler = Reconciler::new(Patience::CEL);
    assert_eq!(reconciler.on_primary(by_arrival.clone(), BEGAN), None);
    reconciler.on_second(recorded.clone(), BEGAN);
    let decisions = reconciler.decide(BEGAN, &|_| false, &mut |_| Knowledge::Unknown, &|_| false);
    let [Decision::Finish(call)] = &decisions[..] else {
        panic!("{decisions:?}");
    };
    assert_eq!((call.ended, call.talk), (recorded.ended, recorded.talk));
    assert_eq!(call.variables, by_arrival.variables);
    // CDRs are estimates, so if the events have timestamps, no file is needed.
    let mut estimates = Reconciler::new(Patience::CDR);
    assert!(estimates.on_primary(by_arrival.clone(), BEGAN).is_some());
    let timed = FinishedCall {
        by_arrival: false,
        ..by_arrival
    };
    assert!(reconciler.on_primary(timed, BEGAN).is_some());
}

#[test]
fn untimed_call_is_finished_if_the_file_has_no_such_call() {
    let by_arrival = FinishedCall {
        incomplete: None,
        by_arrival: true,
        ..call_from_events(Some("101"), 30, &[])
    };
    let mut reconciler = Reconciler::new(Patience::CEL);
    reconciler.on_primary(by_arrival.clone(), BEGAN);
    let later = BEGAN.plus(Patience::CEL.second);
    let decisions = reconciler.decide(later, &|_| false, &mut |_| Knowledge::Unknown, &|_| false);
    assert_eq!(decisions, [Decision::Finish(Box::new(by_arrival))]);
}

/// Reconciles two records of the same call (`recorded` from the file and `received` from the
/// events) and returns the finished calls. `received` is either a dead letter in the spool if
/// `letter` is `true`, or held by the reconciler.
fn reconciled_calls(
    recorded: FinishedCall,
    received: FinishedCall,
    letter: bool,
) -> Vec<FinishedCall> {
    let mut reconciler = Reconciler::new(Patience::CDR);
    if !letter {
        assert!(
            reconciler.on_primary(received.clone(), BEGAN).is_none(),
            "held"
        );
    }
    reconciler.on_second(recorded, BEGAN.plus(Duration::from_secs(60)));
    let known = if letter {
        Knowledge::Finished {
            incomplete: true,
            call: Some(Box::new(received)),
        }
    } else {
        Knowledge::Unknown
    };
    let now = BEGAN.plus(Duration::from_secs(90));
    let decided = reconciler.decide(now, &|_| false, &mut |_| known.clone(), &|_| false);
    let calls = decided.into_iter().map(|decision| match decision {
        Decision::Finish(call) => *call,
        Decision::End(id) => panic!("{id:?} is not open"),
    });
    calls.collect()
}

#[test]
fn dead_letter_completed_by_a_file_keeps_event_values() {
    for letter in [true, false] {
        let received = call_from_events(Some("101"), 5, &[("LEAD_ID", "4005")]);
        let calls = reconciled_calls(call_from_records(None, 0), received.clone(), letter);
        let [call] = &calls[..] else {
            panic!("{calls:?}");
        };
        assert_eq!(call.variables, received.variables, "letter: {letter}");
        assert_eq!(call.userfields, received.userfields);
        assert_eq!(call.employee, received.employee);
        assert!(call.answered && call.live && call.incomplete.is_none());
        assert_eq!(call.talk, Duration::from_secs(5));
        assert_eq!(call.ended, BEGAN.plus(Duration::from_secs(20)));
        assert!(call.remarks[0].contains("the line was cut"), "{call:?}");
    }
}

#[test]
fn did_comes_from_records_or_else_from_events() {
    for (recorded, received, known) in [
        (None, Some("7001"), Some("7001")),
        (Some("7002"), Some("7001"), Some("7002")),
        (Some("7002"), None, Some("7002")),
    ] {
        let received = FinishedCall {
            did: received.map(str::to_owned),
            ..call_from_events(Some("101"), 5, &[])
        };
        let recorded = FinishedCall {
            did: recorded.map(str::to_owned),
            ..call_from_records(None, 0)
        };
        let calls = reconciled_calls(recorded, received, true);
        assert_eq!(calls[0].did.as_deref(), known);
    }
}

#[test]
fn received_talk_is_not_overruled_by_records_without_talk() {
    let recorded = FinishedCall {
        estimate: false,
        ..call_from_records(None, 0)
    };
    for letter in [true, false] {
        let received = call_from_events(Some("101"), 7, &[]);
        assert_eq!(
            reconciled_calls(recorded.clone(), received, letter),
            [],
            "letter: {letter}"
        );
        // If the events don't show any talk time, the file's call is used.
        let rang = call_from_events(Some("101"), 0, &[]);
        assert!(!reconciled_calls(recorded.clone(), rang, letter)[0].answered);
    }
}

proptest! {
    #[test]
    fn second_account_removes_nothing_and_talk_fits_in_call(
        names in prop::collection::btree_map("[A-Z]{1,3}", "[0-9]{1,4}", 0..4),
        received_by in prop::option::of(0..3_u8), recorded_by in prop::option::of(0..3_u8),
        received_talk in 0..60_u64, recorded_talk in 0..20_u64, letter: bool,
    ) {
        let [received_by, recorded_by] =
            [received_by, recorded_by].map(|by| by.map(|n| format!("10{n}")));
        let variables: Vec<_> = names.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let received = call_from_events(received_by.as_deref(), received_talk, &variables);
        let recorded = call_from_records(recorded_by.as_deref(), recorded_talk);
        let calls = reconciled_calls(recorded.clone(), received.clone(), letter);
        prop_assert_eq!(calls.len(), 1);
        let call = &calls[0];
        prop_assert_eq!(&call.variables, &received.variables);
        prop_assert_eq!(call.answered, received.answered || recorded.answered);
        prop_assert!(call.talk <= call.ended.since(call.started));
        // If the CDRs show an answer, their talk time counts.
        if recorded.answered {
            prop_assert_eq!(call.talk, recorded.talk);
        }
        if recorded.answered && recorded.employee.is_some() {
            prop_assert_eq!(&call.employee, &recorded.employee);
            prop_assert_eq!(&call.employees_in_order, &recorded.employees_in_order);
        } else if received.answered {
            prop_assert_eq!(&call.employee, &recorded.employee.or(received.employee));
            prop_assert_eq!(&call.employees_in_order, &received.employees_in_order);
        }
        prop_assert_eq!((call.started, call.ended), (recorded.started, recorded.ended));
    }
}
