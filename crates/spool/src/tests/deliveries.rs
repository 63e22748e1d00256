//! Tests which changes the CRM's webhooks make, and how duplicates are recognized.

use super::call::{ask, finished_call, journal, time_at};
use super::table::steps;
use crate::{
    CallEcho, DELIVERIES_KEPT, Delivered, Delivery, Done, Error, ForeignCall, IfAbsent, Op, RowId,
    Settings, State, Step, Store, WebhookEvent, WebhookPace, tables,
};
use callbridge_call::EpochSeconds;
use callbridge_crm::ShownCall;
use callbridge_model::status::{Echo, SentField};
use callbridge_model::{LeadId, Outcome, Reason, TokenFingerprint};
use std::collections::BTreeSet;
use std::time::Duration;

fn store() -> Store {
    let mut store = super::store(Settings::default());
    let bind = Op::BindCompany {
        company: "77".into(),
        application: "5".into(),
    };
    store.write(vec![bind]).expect("bound");
    store
}

/// Returns a signature that isn't valid for any other text.
pub fn signature(text: &str) -> [u8; 32] {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    digest.as_ref().try_into().expect("32 bytes")
}

/// Creates an event from our company with the ID `name`, saying that the `n`th call was completed.
fn event(name: &str, n: u32, seconds: i64) -> Delivery {
    Delivery {
        installation: "9001".into(),
        event: name.into(),
        signature: signature(&format!("{name} {seconds}")),
        company: "77".into(),
        at: time_at(seconds),
        news: WebhookEvent::Completed {
            uuid: journal(n).judged.record.uuid.expect("a uuid"),
            leads: vec![LeadId::new(4001).expect("an id")],
            shown: Box::default(),
        },
    }
}

fn deliver(store: &mut Store, delivery: Delivery) -> Delivered {
    let done = store.write(vec![Op::Delivery(Box::new(delivery))]);
    match done.expect("stored").pop() {
        Some(Done::Delivered(delivered)) => delivered,
        other => panic!("{other:?}"),
    }
}

fn step(store: &mut Store, row: RowId, step: Step, seconds: i64) -> Result<Done, Error> {
    let at = time_at(seconds);
    let done = store.write(vec![Op::Step { row, step, at }]);
    done.map(|mut done| done.pop().expect("an answer"))
}

/// Stores call 1 as ready, applies these steps to it, and returns its row.
fn store_call(store: &mut Store, way: &[Step]) -> RowId {
    let done = store.write(vec![Op::Finish(Box::new(journal(1)))]);
    let Ok([Done::New(row)]) = done.as_deref() else {
        panic!("{done:?}");
    };
    for (taken, seconds) in way.iter().zip(10..) {
        step(store, *row, taken.clone(), seconds).expect("a step that exists");
    }
    *row
}

fn accepted_step() -> Step {
    Step::Accepted {
        request_id: "r-1".into(),
        token: TokenFingerprint::of("token"),
    }
}

fn unresolved_step(if_absent: IfAbsent) -> Step {
    Step::Unresolved {
        next_check: time_at(20),
        if_absent,
        why: "killed".into(),
    }
}

fn died_step(reason: Reason) -> Step {
    Step::Died {
        reason,
        message: "words".into(),
        errors: serde_json::Value::Null,
    }
}

fn state_of(store: &Store, row: RowId) -> State {
    tables::calls::row(store, row)
        .expect("readable")
        .expect("a row")
        .state
}

/// Returns the steps of a call that's accepted and then becomes a dead letter for this reason.
fn letter_steps(reason: Reason) -> Vec<Step> {
    vec![Step::Send, accepted_step(), died_step(reason)]
}

#[test]
fn webhook_confirms_unsettled_call_and_keeps_a_known_outcome() {
    let returned = Step::Returned {
        not_before: time_at(60),
        why: "time-out".into(),
        failures: 1,
    };
    let ways = [
        (vec![], State::Journaled),
        (vec![Step::Send], State::Journaled),
        (vec![Step::Send, returned], State::Journaled),
        (vec![Step::Send, accepted_step()], State::Journaled),
        (
            vec![Step::Send, unresolved_step(IfAbsent::Resubmit)],
            State::Journaled,
        ),
        (
            vec![Step::Send, unresolved_step(IfAbsent::ServerError)],
            State::Journaled,
        ),
        (
            vec![Step::Send, unresolved_step(IfAbsent::Changed)],
            State::Dead,
        ),
        (letter_steps(Reason::ServerError), State::Journaled),
        (letter_steps(Reason::Unconfirmed), State::Journaled),
        (letter_steps(Reason::Failed), State::Dead),
        (letter_steps(Reason::Rejected), State::Dead),
        (letter_steps(Reason::NoLead), State::Waiting),
        (
            vec![died_step(Reason::Unconfirmed), Step::Discard],
            State::Discarded,
        ),
    ];
    for (way, end) in ways {
        let mut store = store();
        let row = store_call(&mut store, &way);
        let before = state_of(&store, row);
        let delivered = deliver(&mut store, event("a", 1, 30));
        assert_eq!(state_of(&store, row), end, "{way:?}");
        let expected = match (before == end, end) {
            (_, State::Journaled) => Delivered::Confirmed {
                row,
                other_lead: false,
            },
            (false, _) => Delivered::Overtaken(row),
            (true, _) => Delivered::Settled(row),
        };
        assert_eq!(delivered, expected, "{way:?}");
        assert!(store.books().balance());
        assert_eq!(
            tables::books::recount(&store).expect("a recount"),
            [],
            "{way:?}"
        );
    }
}

#[test]
fn answer_after_webhook_changes_nothing_and_is_accepted() {
    let mut store = store();
    let row = store_call(&mut store, &[Step::Send]);
    deliver(&mut store, event("a", 1, 30));
    let before = (super::stored::columns(&store), store.books());
    let answers: Vec<Step> = steps().into_iter().filter(Step::is_answer).collect();
    let names: BTreeSet<&str> = answers.iter().map(Step::name).collect();
    let expected = [
        "absent",
        "accepted",
        "confirmed",
        "died",
        "hooked",
        "not yet",
        "orphaned",
        "resubmit",
        "returned",
    ];
    assert_eq!(names, BTreeSet::from(expected));
    for late in answers {
        let done = step(&mut store, row, late.clone(), 40);
        assert_eq!(done, Ok(Done::Stepped(State::Journaled)), "{late:?}");
    }
    let reopened = Step::Reopened { why: String::new() };
    let done = step(&mut store, row, reopened, 40);
    assert_eq!(
        done,
        Ok(Done::Stepped(State::Journaled)),
        "it is no longer dead"
    );
    // Someone may resend the call, because the journal can lose calls.
    for other in steps() {
        if other.is_answer() || matches!(other, Step::SendAgain { .. } | Step::Reopened { .. }) {
            continue;
        }
        assert!(
            step(&mut store, row, other.clone(), 40).is_err(),
            "{other:?}"
        );
    }
    assert_eq!((super::stored::columns(&store), store.books()), before);
    assert!(
        tables::outbox::notices(&store, 10)
            .expect("readable")
            .is_empty(),
        "no letter came of it"
    );
}

#[test]
fn call_confirmed_by_poll_refuses_a_later_failure() {
    let mut store = store();
    let row = store_call(
        &mut store,
        &[
            Step::Send,
            accepted_step(),
            Step::Journaled(crate::OutcomeSource::Confirmation),
        ],
    );
    let settled = deliver(&mut store, event("a", 1, 30));
    assert_eq!(settled, Delivered::Settled(row));
    assert!(step(&mut store, row, died_step(Reason::Failed), 40).is_err());
}

fn purge(store: &mut Store, seconds: i64) {
    let now = time_at(seconds);
    store.write(vec![Op::Purge(now)]).expect("purged");
}

#[test]
fn webhook_repeat_is_known_for_a_day_per_installation() {
    let mut store = store();
    let row = store_call(&mut store, &[Step::Send]);
    let confirmed = Delivered::Confirmed {
        row,
        other_lead: false,
    };
    assert_eq!(deliver(&mut store, event("a", 1, 30)), confirmed);
    assert_eq!(deliver(&mut store, event("a", 1, 31)), Delivered::Repeat);
    let other = Delivery {
        installation: "9002".into(),
        ..event("a", 1, 32)
    };
    assert_eq!(deliver(&mut store, other), Delivered::Settled(row));
    let day = i64::try_from(DELIVERIES_KEPT.as_secs()).expect("small");
    purge(&mut store, 30 + day);
    assert_eq!(deliver(&mut store, event("a", 1, 31)), Delivered::Repeat);
    purge(&mut store, 31 + day);
    assert_eq!(
        deliver(&mut store, event("a", 1, 33)),
        Delivered::Settled(row)
    );
}

#[test]
fn replayed_signature_under_other_installation_is_repeat() {
    let mut store = store();
    let row = store_call(&mut store, &[Step::Send]);
    let first = event("a", 1, 30);
    let replayed = Delivery {
        installation: "9002".into(),
        at: time_at(40),
        ..first.clone()
    };
    let delivered = deliver(&mut store, first);
    assert!(matches!(delivered, Delivered::Confirmed { .. }));
    assert_eq!(deliver(&mut store, replayed), Delivered::Repeat);
    let signed_anew = Delivery {
        installation: "9002".into(),
        ..event("a", 1, 41)
    };
    assert_eq!(deliver(&mut store, signed_anew), Delivered::Settled(row));
}

#[test]
fn delivery_of_unknown_or_other_company_changes_nothing() {
    let mut unbound = super::store(Settings::default());
    let row = store_call(&mut unbound, &[Step::Send]);
    let delivered = deliver(&mut unbound, event("a", 1, 30));
    assert_eq!(delivered, Delivered::CompanyUnknown);
    assert_eq!(state_of(&unbound, row), State::Sending);
    let bind = Op::BindCompany {
        company: "77".into(),
        application: "5".into(),
    };
    unbound.write(vec![bind]).expect("bound");
    let theirs = Delivery {
        company: "78".into(),
        ..event("a", 1, 30)
    };
    assert_eq!(deliver(&mut unbound, theirs), Delivered::OtherCompany);
    assert_eq!(state_of(&unbound, row), State::Sending);
    assert_eq!(deliver(&mut unbound, event("b", 2, 30)), Delivered::NotOurs);
    let again = deliver(&mut unbound, event("a", 1, 30));
    assert!(matches!(again, Delivered::Confirmed { .. }), "{again:?}");
}

#[test]
fn webhook_with_another_lead_confirms_and_reports_other_lead() {
    let mut store = store();
    let row = store_call(&mut store, &[Step::Send]);
    let mut elsewhere = event("a", 1, 30);
    elsewhere.news = WebhookEvent::Completed {
        uuid: journal(1).judged.record.uuid.expect("a uuid"),
        leads: LeadId::new(4002).into_iter().collect(),
        shown: Box::default(),
    };
    let confirmed = Delivered::Confirmed {
        row,
        other_lead: true,
    };
    assert_eq!(deliver(&mut store, elsewhere), confirmed);
}

fn webhook_pace(store: &Store) -> Option<WebhookPace> {
    tables::work_queue::head(store, &ask(time_at(100)))
        .expect("a head")
        .webhook_pace
}

#[test]
fn webhook_pace_shows_last_confirmation_and_usual_delay() {
    let mut store = store();
    let seconds = Duration::from_secs;
    assert_eq!(webhook_pace(&store), None);
    for n in 1..=3 {
        let finish = Op::Finish(Box::new(finished_call(n, Outcome::Journal, None)));
        store.write(vec![finish]).expect("stored");
        let row = RowId(n.into());
        step(&mut store, row, Step::Send, 10).expect("sent");
        if n < 3 {
            step(&mut store, row, accepted_step(), 10).expect("accepted");
        }
        deliver(&mut store, event(&n.to_string(), n, 10 + 8 / i64::from(n)));
    }
    let seen = WebhookPace {
        turn: "pbx1".to_owned(),
        at: time_at(12),
        after: Duration::ZERO,
        usual: seconds(7) - seconds(7) / 8,
    };
    assert_eq!(webhook_pace(&store), Some(seen));
}

#[test]
fn delivery_in_failed_write_is_rolled_back_and_repeatable() {
    let mut store = store();
    let row = store_call(&mut store, &[Step::Send]);
    let refused = Op::Step {
        row,
        step: Step::Expire,
        at: time_at(30),
    };
    let delivery = Op::Delivery(Box::new(event("a", 1, 30)));
    let done = store.write(vec![delivery, refused]);
    assert!(done.is_err());
    assert_eq!(
        state_of(&store, row),
        State::Sending,
        "all of a request or nothing"
    );
    assert_eq!(tables::deliveries::webhook_pace(&store), Ok(None));
    let again = deliver(&mut store, event("a", 1, 31));
    assert!(matches!(again, Delivered::Confirmed { .. }), "{again:?}");
}

/// Creates an event like [`event`] that contains 4 seconds of talk time and no other value of the
/// call.
fn echo_event(name: &str, n: u32, seconds: i64) -> Delivery {
    let mut echo = event(name, n, seconds);
    if let WebhookEvent::Completed { shown, .. } = &mut echo.news {
        let talk_time_sec = Some(4);
        **shown = CallEcho {
            talk_time_sec,
            ..CallEcho::default()
        };
    }
    echo
}

/// Returns which fields of call 1 were compared after these steps and two deliveries.
fn compared_fields(steps: &[Step]) -> Vec<(SentField, u64, Echo)> {
    let mut store = store();
    store_call(&mut store, steps);
    deliver(&mut store, echo_event("a", 1, 30));
    deliver(&mut store, echo_event("a", 1, 31));
    let fields = tables::echoes::fields(&store).expect("readable");
    fields
        .into_iter()
        .map(|field| (field.field, field.compared, field.last))
        .collect()
}

#[test]
fn webhook_values_are_compared_only_for_calls_sent_here() {
    let sent = compared_fields(&[Step::Send]);
    assert!(
        sent.contains(&(SentField::Talk, 1, Echo::Right)),
        "{sent:?}"
    );
    assert!(
        sent.contains(&(SentField::Start, 1, Echo::Missing)),
        "{sent:?}"
    );
    assert!(
        sent.iter().all(|field| field.0 != SentField::Phone),
        "{sent:?}"
    );
    assert_eq!(
        compared_fields(&[]),
        [],
        "another sender may have sent the call"
    );
}

/// Returns the report that one of this company's providers has journaled call 1, with a start time
/// `seconds` later than ours.
pub fn report_foreign_call(company: &str, provider: &str, seconds: i64) -> Op {
    let record = journal(1).judged.record;
    Op::Foreign {
        company: company.to_owned(),
        call: ForeignCall {
            provider: provider.to_owned(),
            phone: record.client_phone.expect("a number"),
            started: EpochSeconds::new(record.started_at.get() + seconds),
        },
        at: time_at(20),
    }
}

fn foreign_counts(store: &Store) -> Vec<(String, u64)> {
    let all =
        tables::echoes::foreign_calls(store, time_at(60).floor_seconds().get()).expect("readable");
    all.into_iter()
        .map(|provider| (provider.provider, provider.calls))
        .collect()
}

#[test]
fn call_journaled_by_other_provider_matches_in_any_order() {
    for foreign_first in [true, false] {
        let mut store = store();
        if !foreign_first {
            store_call(&mut store, &[Step::Send]);
        }
        let all = [
            report_foreign_call("77", "ONLINE_PBX", -60),
            report_foreign_call("77", "ASTERISK", 61),
            report_foreign_call("78", "THEIRS", 0),
        ];
        store.write(all.into()).expect("stored");
        if foreign_first {
            assert_eq!(foreign_counts(&store), []);
            store_call(&mut store, &[Step::Send]);
        }
        deliver(&mut store, event("a", 1, 30));
        assert_eq!(foreign_counts(&store), [("ONLINE_PBX".to_owned(), 1)]);
    }
}

/// Returns a call's state after these steps, followed by a journal page that shows the call with
/// this lead.
fn state_after_page(steps: &[Step], lead: i64) -> State {
    let mut store = store();
    let row = store_call(&mut store, steps);
    let uuid = |n| journal(n).judged.record.uuid.expect("a uuid");
    // The second call on the page isn't known here.
    let calls = [1, 2].map(|n| ShownCall {
        uuid: uuid(n),
        leads: vec![lead],
        duration_sec: None,
        answered: None,
        direction: None,
    });
    let op = Op::Shown {
        calls: calls.to_vec(),
        at: time_at(50),
    };
    store.write(vec![op]).expect("stored");
    assert!(store.books().balance());
    state_of(&store, row)
}

#[test]
fn page_confirms_calls_that_were_sent_from_here() {
    assert_eq!(state_after_page(&[Step::Send], 4001), State::Journaled);
    let accepted = [Step::Send, accepted_step()];
    assert_eq!(state_after_page(&accepted, 4001), State::Journaled);
    assert_eq!(state_after_page(&accepted, 4002), State::Journaled);
    let unconfirmed = letter_steps(Reason::Unconfirmed);
    assert_eq!(state_after_page(&unconfirmed, 4001), State::Journaled);
    let failed = letter_steps(Reason::Failed);
    assert_eq!(state_after_page(&failed, 4001), State::Dead);
    // Some other sender may have sent the call.
    assert_eq!(state_after_page(&[], 4001), State::Ready);
}

#[test]
fn page_confirms_call_sent_with_new_lead_only_with_that_lead() {
    let mut record = journal(1).judged.record;
    record.lead_id = LeadId::new(4005);
    let retry = Step::Retry {
        record,
        by_itself: false,
    };
    let mut steps = letter_steps(Reason::Failed);
    steps.extend([retry, Step::Send]);
    assert_eq!(state_after_page(&steps, 4001), State::Sending);
    assert_eq!(state_after_page(&steps, 4005), State::Journaled);
}
