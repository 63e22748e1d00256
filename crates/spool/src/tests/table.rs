//! Tests which steps are possible in which state.

use super::call::{journal, time_at};
use crate::{IfAbsent, Refused, State, Step, next};
use callbridge_leads::lead_request::failed::RerouteHistory;
use callbridge_model::{Reason, TokenFingerprint};

fn died_step(reason: Reason) -> Step {
    Step::Died {
        reason,
        message: "lead 4999 is unknown".into(),
        errors: serde_json::json!([{"field": "leadId"}]),
    }
}

/// Returns one of each step, in the order of the table's columns, and two of `Died`.
pub fn steps() -> [Step; 22] {
    let record = journal(1).judged.record;
    [
        Step::Send,
        Step::Accepted {
            request_id: "r-1".into(),
            token: TokenFingerprint::of("token"),
        },
        Step::Returned {
            not_before: time_at(60),
            why: "503".into(),
            failures: 1,
        },
        Step::Journaled(crate::OutcomeSource::Confirmation),
        Step::Journaled(crate::OutcomeSource::Webhook),
        Step::NotYet {
            next_check: time_at(70),
            absent: None,
        },
        Step::NotYet {
            next_check: time_at(80),
            absent: Some(1),
        },
        Step::Unresolved {
            next_check: time_at(80),
            if_absent: IfAbsent::Resubmit,
            why: "404".into(),
        },
        Step::Resubmit { why: "404".into() },
        died_step(Reason::Failed),
        died_step(Reason::NoEmployee),
        Step::Retry {
            by_itself: true,
            record: record.clone(),
        },
        Step::Retry {
            by_itself: false,
            record: record.clone(),
        },
        Step::Recheck {
            record,
            before: "lead 4001".into(),
        },
        Step::Rejudged {
            reason: Reason::AmbiguousLead,
            message: "two".into(),
        },
        Step::Rejudged {
            reason: Reason::NoLead,
            message: "none".into(),
        },
        Step::Moved {
            record: Box::new(journal(1).judged.record),
            reroute_history: RerouteHistory::default(),
            why: "lead 4001 was merged into 4002: it goes there".into(),
        },
        Step::Expire,
        Step::Discard,
        Step::SendAgain {
            why: "the journal does not have it".into(),
        },
        Step::Reopened {
            why: "refused with others in a row".into(),
        },
        Step::Forwarded,
    ]
}

#[test]
fn state_transitions_match_the_table() {
    use State::{Dead, Discarded, Forwarded, Journaled, Ready, Sending, Submitted, Waiting};
    let no = None;
    // Send, Accepted, Returned, Journaled (confirmation), Journaled (webhook), NotYet, NotYet
    // (absent), Unresolved, Resubmit, Died, Died (the reason can pass), Retry (automatic), Retry
    // (by a person), Recheck, Rejudged (ambiguous), Rejudged (no lead), Moved, Expire, Discard,
    // SendAgain, Reopened, Forwarded
    #[rustfmt::skip]
    let table = [
        (Ready, [Some(Sending), no, no, no, Some(Journaled), no, no, no, no, Some(Dead),
            Some(Waiting), no, no, no, no, no, Some(Ready), no, no, no, no, Some(Forwarded)]),
        (Sending, [no, Some(Submitted), Some(Ready), no, Some(Journaled), no, no, Some(Submitted),
            no, Some(Dead), Some(Waiting), no, no, no, no, no, no, no, no, no, no, no]),
        (Submitted, [no, no, no, Some(Journaled), Some(Journaled), Some(Submitted), Some(Submitted),
            Some(Submitted), Some(Ready), Some(Dead), Some(Waiting), no, no, no, no, no,
            Some(Ready), no, no, no, no, no]),
        (Journaled, [no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no, no,
            Some(Ready), no, no]),
        (Dead, [no, no, no, no, Some(Journaled), no, no, no, no, no, no, no, Some(Ready),
            Some(Submitted), Some(Dead), Some(Waiting), Some(Ready), no, Some(Discarded), no,
            Some(Ready), no]),
        (Waiting, [no, no, no, no, no, no, no, no, no, no, no, Some(Ready), Some(Ready), no,
            Some(Dead), Some(Waiting), no, Some(Dead), Some(Discarded), no, no, no]),
        (Discarded, [no; 22]),
        (Forwarded, [no; 22]),
    ];
    assert_eq!(table.map(|(state, _)| state), State::ALL);
    for (state, row) in table {
        for (step, to) in steps().iter().zip(row) {
            let refused = Refused {
                state,
                step: step.name(),
            };
            assert_eq!(next(state, step), to.ok_or(refused), "{state}: {step:?}");
        }
    }
}

#[test]
fn final_state_refuses_all_steps_except_send_again() {
    for step in steps() {
        for end in [State::Journaled, State::Discarded, State::Forwarded] {
            // If the journal has lost a call, only a user can have it resent.
            let again = matches!(step, Step::SendAgain { .. }) && end == State::Journaled;
            assert_eq!(next(end, &step).is_ok(), again, "{end}: {step:?}");
        }
    }
}

#[test]
fn state_words_read_back_as_the_same_state() {
    for &state in State::ALL {
        assert_eq!(State::from_word(state.word()), Some(state));
        let json = serde_json::to_value(state).expect("a word");
        assert_eq!(json, state.word());
    }
    assert_eq!(State::from_word("lost"), None);
    for &one in IfAbsent::ALL {
        let read: IfAbsent = serde_json::from_value(one.word().into()).expect("a word");
        assert_eq!(read, one);
    }
}

#[test]
fn token_fingerprint_identifies_but_does_not_contain_the_token() {
    let print = TokenFingerprint::of("secret-token");
    assert_eq!(print, TokenFingerprint::of("secret-token"));
    assert_ne!(print, TokenFingerprint::of("secret-tokem"));
    assert_eq!(print.as_str().len(), 16);
    assert!(!format!("{print:?}").contains("secret"));
}

#[test]
fn step_names_are_distinct_and_fingerprint_prints_digits() {
    let names: std::collections::BTreeSet<_> = steps().iter().map(Step::name).collect();
    let twice = "two of `Died`, two of `Rejudged`";
    assert_eq!(names.len(), steps().len() - 2, "{twice}: {names:?}");
    assert!(
        names.contains("accepted") && names.contains("not yet"),
        "{names:?}"
    );
    let print = TokenFingerprint::of("token");
    assert_eq!(print.to_string(), print.as_str());
    assert_eq!(State::Submitted.to_string(), "submitted");
}
