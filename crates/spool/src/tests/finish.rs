//! Tests how a new call is stored.

use super::call::{ask, finished_call, journal, time_at};
use crate::{Done, Finished, LetterFilter, Op, RowId, Settings, State, Step, Store, tables};
use callbridge_call::{EpochSeconds, GivenIds};
use callbridge_model::{Outcome, Reason, SuppliedFacts};
use std::time::Duration;

fn store() -> Store {
    let settings = Settings {
        notices: true,
        waiting_notices: true,
        ..Settings::default()
    };
    super::store(settings)
}

fn finish(store: &mut Store, call: &Finished) -> Done {
    let done = store.write(vec![Op::Finish(Box::new(call.clone()))]);
    assert_eq!(tables::books::recount(store).expect("a recount"), []);
    assert!(store.books().balance());
    done.expect("stored").remove(0)
}

#[test]
fn journal_call_is_stored_as_ready_with_all_its_values() {
    let mut store = store();
    let call = journal(1);
    let done = finish(&mut store, &call);
    let Done::New(id) = done else {
        panic!("{done:?}");
    };
    let row = tables::calls::row(&store, id)
        .expect("readable")
        .expect("a row");
    assert_eq!(row.state, State::Ready);
    assert_eq!(row.record, call.judged.record);
    assert_eq!(row.call, call.call);
    assert_eq!(row.since, call.judged.judged_at);
    assert!(row.live);
    let head = tables::work_queue::head(&store, &ask(time_at(100))).expect("a head");
    assert_eq!(head.live.map(|due| due.row), Some(id));
    assert_eq!(store.books().ready, 1);
}

/// Promise: A call that arrives twice changes nothing.
#[test]
fn repeated_call_changes_only_the_repeats_counter() {
    let mut store = store();
    let first = finish(&mut store, &journal(1));
    let before = store.books();
    assert_eq!(first, Done::New(RowId(1)));
    assert_eq!(
        finish(&mut store, &journal(1)),
        Done::Repeat(Some(RowId(1)))
    );
    assert_eq!(store.books(), before);
    assert_eq!(store.counters().get("repeats"), Some(&1));
}

#[test]
fn same_uuid_with_other_number_or_start_is_dead_letter() {
    let mut store = store();
    finish(&mut store, &journal(1));
    let mut other = journal(1);
    other.judged.record.client_phone = callbridge_model::Phone::from_e164("+998907654321");
    other.call.number.as_mut().expect("a number").text = "998907654321".into();
    let done = finish(&mut store, &other);
    let Done::Conflict(letter) = done else {
        panic!("{done:?}");
    };
    assert_eq!(finish(&mut store, &other), Done::Repeat(Some(letter)));
    let mut later = journal(1);
    later.call.started = time_at(3600);
    let Done::Conflict(second) = finish(&mut store, &later) else {
        panic!("a third call under one uuid was lost");
    };
    let letters = tables::letters::letters(&store, &LetterFilter::default()).expect("letters");
    let ids: Vec<_> = letters
        .iter()
        .map(|letter| (letter.id, letter.reason))
        .collect();
    assert_eq!(
        ids,
        [
            (letter, Reason::UuidConflict),
            (second, Reason::UuidConflict)
        ]
    );
    assert_eq!(letters[0].uuid, journal(1).judged.record.uuid);
    assert!(letters[0].message.starts_with("the PBX pbx1 reuses IDs:"));
    assert_eq!(
        tables::outbox::notices(&store, 10).expect("notices").len(),
        2
    );
}

/// Creates the `n`th call as if a phone system had sent it in a message.
fn message(n: u32) -> Finished {
    let mut message = journal(n);
    message.call.given = Some(GivenIds::default());
    message
}

/// Changes what the call's source has reported.
fn report(mut call: Finished, answered: bool, talk_ms: u64, length_ms: u64) -> Finished {
    call.call.answered = answered;
    call.call.talk = Duration::from_millis(talk_ms);
    call.call.ended = call.call.started.plus(Duration::from_millis(length_ms));
    call
}

fn incomplete(mut call: Finished) -> Finished {
    call.judged.outcome = Outcome::DeadLetter;
    call.judged.reason = Some(Reason::Incomplete);
    call.call.incomplete = Some("the sender doesn't know everything".into());
    call
}

#[test]
fn message_with_other_values_than_before_is_dead_letter() {
    let mut store = store();
    let first = report(message(1), true, 4_000, 5_000);
    finish(&mut store, &first);
    let others = [
        report(first.clone(), false, 0, 5_000),
        report(first.clone(), true, 3_000, 5_000),
        report(first.clone(), true, 4_000, 60_000),
    ];
    for other in &others {
        let done = finish(&mut store, other);
        let Done::Conflict(letter) = done else {
            panic!("{done:?}");
        };
        assert_eq!(finish(&mut store, other), Done::Repeat(Some(letter)));
        assert_eq!(finish(&mut store, &first), Done::Repeat(Some(RowId(1))));
    }
    let letters = tables::letters::letters(&store, &LetterFilter::default()).expect("letters");
    assert_eq!(letters.len(), 3);
    assert_eq!(
        letters[0].message,
        "the PBX reported this call twice with different values: now not answered in 5 s, but \
         earlier answered, 4 s of talk in 5 s"
    );
}

#[test]
fn message_that_rounds_to_the_same_seconds_is_a_repeat() {
    let mut store = store();
    finish(&mut store, &report(message(1), true, 4_150, 5_200));
    let rounded = report(message(1), true, 4_000, 5_000);
    assert_eq!(finish(&mut store, &rounded), Done::Repeat(Some(RowId(1))));
}

#[test]
fn message_is_compared_with_values_as_they_were_received() {
    let mut store = store();
    let first = incomplete(report(message(1), false, 0, 5_000));
    finish(&mut store, &first);
    let record = first
        .judged
        .record
        .correct_by_hand(
            SuppliedFacts {
                talk_sec: Some(3),
                ..SuppliedFacts::default()
            },
            EpochSeconds::new(9),
        )
        .expect("possible");
    let retry = Step::Retry {
        by_itself: false,
        record,
    };
    let retry = Op::step(RowId(1), retry, time_at(9));
    store.write(vec![retry]).expect("corrected");
    assert_eq!(finish(&mut store, &first), Done::Repeat(Some(RowId(1))));
    let whole = report(message(1), true, 3_000, 5_000);
    assert!(matches!(finish(&mut store, &whole), Done::Conflict(_)));
}

#[test]
fn better_message_corrects_incomplete_one_that_was_not_sent() {
    let mut store = store();
    finish(&mut store, &incomplete(report(message(1), false, 0, 5_000)));
    let whole = report(message(1), true, 48_000, 60_000);
    assert_eq!(finish(&mut store, &whole), Done::Corrected(RowId(1)));
    assert_eq!(finish(&mut store, &whole), Done::Repeat(Some(RowId(1))));
}

#[test]
fn incomplete_message_conflicts_only_if_it_has_more() {
    let mut store = store();
    finish(&mut store, &report(message(1), true, 4_000, 5_000));
    let less = incomplete(report(message(1), false, 0, 5_000));
    assert_eq!(finish(&mut store, &less), Done::Repeat(Some(RowId(1))));
    let more = incomplete(report(message(1), true, 5_000, 5_000));
    assert!(matches!(finish(&mut store, &more), Done::Conflict(_)));
}

#[test]
fn computed_call_with_other_values_is_a_repeat() {
    for (known, mut again) in [
        (journal(1), journal(1)),
        (message(1), journal(1)),
        (journal(1), message(1)),
        (message(1), message(1)),
    ] {
        let mut store = store();
        again.from_collector = known.is_message() && again.is_message();
        finish(&mut store, &report(known, true, 4_000, 5_000));
        let again = report(again, false, 0, 60_000);
        assert_eq!(finish(&mut store, &again), Done::Repeat(Some(RowId(1))));
    }
}

#[test]
fn late_cdr_with_more_talk_is_dead_letter_with_right_values() {
    let mut store = store();
    let mut first = report(journal(1), true, 3_000, 5_000);
    first.call.estimate = true;
    finish(&mut store, &first);
    let mut late = report(first.clone(), true, 48_000, 60_000);
    late.is_revision = true;
    let Done::Conflict(letter) = finish(&mut store, &late) else {
        panic!("the longer call was lost");
    };
    assert_eq!(finish(&mut store, &late), Done::Repeat(Some(letter)));
    let letters = tables::letters::letters(&store, &LetterFilter::default()).expect("letters");
    assert_eq!(
        letters[0].message,
        "a CDR that arrived late changes this call: now answered, 48 s of talk in 60 s, but \
         earlier answered, 3 s of talk in 5 s"
    );
}

#[test]
fn late_cdr_of_call_known_from_events_changes_nothing() {
    let mut store = store();
    finish(&mut store, &report(journal(1), true, 3_000, 5_000));
    let mut late = report(journal(1), true, 48_000, 60_000);
    late.is_revision = true;
    assert_eq!(finish(&mut store, &late), Done::Repeat(Some(RowId(1))));
}

#[test]
fn repeat_without_a_number_matches_the_call_with_one() {
    let mut store = store();
    finish(&mut store, &journal(1));
    let mut hidden = journal(1);
    hidden.judged.record.client_phone = None;
    hidden.call.number = None;
    assert_eq!(finish(&mut store, &hidden), Done::Repeat(Some(RowId(1))));
}

#[test]
fn internal_and_skipped_calls_are_counted_once_and_remembered() {
    let mut store = store();
    let internal = finished_call(1, Outcome::Internal, None);
    assert_eq!(finish(&mut store, &internal), Done::Counted);
    assert_eq!(finish(&mut store, &internal), Done::Repeat(None));
    let skipped = finished_call(2, Outcome::Skipped, None);
    assert_eq!(finish(&mut store, &skipped), Done::Counted);
    let books = store.books();
    assert_eq!((books.internal, books.skipped, books.finished), (1, 1, 0));
    let alias = skipped.call.also_known_as[1].as_str();
    assert!(
        tables::seen_calls::seen_call(&store, "pbx1", alias)
            .expect("readable")
            .is_some()
    );
    assert!(
        tables::seen_calls::seen_call(&store, "pbx2", alias)
            .expect("readable")
            .is_none()
    );
}

#[test]
fn call_without_lead_is_waiting_and_ambiguous_lead_is_dead() {
    let mut store = store();
    finish(
        &mut store,
        &finished_call(1, Outcome::DeadLetter, Some(Reason::NoLead)),
    );
    finish(
        &mut store,
        &finished_call(2, Outcome::DeadLetter, Some(Reason::AmbiguousLead)),
    );
    let books = store.books();
    assert_eq!((books.waiting, books.dead, books.finished), (1, 1, 2));
    let phones = tables::waiting::waiting_phones(&store, None, 10).expect("phones");
    assert_eq!(phones.len(), 1);
    assert_eq!(phones[0].calls, 1);
    assert_eq!(
        tables::waiting::waiting_by_phone(&store, &phones[0].phone).expect("rows"),
        [RowId(1)]
    );
}

#[test]
fn second_customer_of_a_conference_is_a_separate_call() {
    let mut store = store();
    let mut first = journal(1);
    let second = journal(2);
    first.call.also_known_as.push(second.call.linkedid.clone());
    finish(&mut store, &first);
    assert!(matches!(finish(&mut store, &second), Done::New(_)));
    let own = second.call.linkedid.as_str();
    let seen = tables::seen_calls::seen_call(&store, "pbx1", own)
        .expect("readable")
        .expect("known");
    assert_eq!(seen.uuid, second.judged.record.uuid);
}

#[test]
fn inconsistent_call_is_refused_and_writes_nothing() {
    let mut store = store();
    let mut nameless = journal(1);
    nameless.judged.record.uuid = None;
    let pointless = finished_call(2, Outcome::DeadLetter, None);
    for call in [nameless, pointless] {
        let error = store
            .write(vec![Op::Finish(Box::new(call))])
            .expect_err("refused");
        assert!(!error.is_retryable(), "{error}");
    }
    assert_eq!(store.books(), callbridge_model::status::Books::default());
}
