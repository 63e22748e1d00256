//! Tests what happens to an `incomplete` dead letter when its call is reported again in more
//! detail.

use super::call::{finished_call, journal, time_at};
use crate::{Done, Finished, Op, RowId, Settings, State, Step, Store, tables};
use callbridge_model::{CallUuid, Outcome, Reason};

fn finish(store: &mut Store, call: &Finished) -> Done {
    let done = store.write(vec![Op::Finish(Box::new(call.clone()))]);
    assert_eq!(tables::books::recount(store).expect("a recount"), []);
    assert!(store.books().balance());
    done.expect("stored").remove(0)
}

fn incomplete_call(n: u32) -> Finished {
    let mut half = finished_call(n, Outcome::DeadLetter, Some(Reason::Incomplete));
    half.call.incomplete = Some("its end was not received".into());
    half.call.ended = half.call.started;
    half
}

#[test]
fn unretried_incomplete_dead_letter_is_corrected_once() {
    let mut store = super::store(Settings::default());
    let Done::New(row) = finish(&mut store, &incomplete_call(1)) else {
        panic!("a letter")
    };
    // Reporting the same incomplete call again changes nothing.
    assert_eq!(
        finish(&mut store, &incomplete_call(1)),
        Done::Repeat(Some(row))
    );
    let whole = journal(1);
    assert_eq!(finish(&mut store, &whole), Done::Corrected(row));
    let stored = tables::calls::row(&store, row)
        .expect("readable")
        .expect("a row");
    assert_eq!((stored.state, stored.reason), (State::Ready, None));
    assert_eq!(stored.record, whole.judged.record);
    assert_eq!(finish(&mut store, &whole), Done::Repeat(Some(row)));
    assert_eq!((store.books().finished, store.books().dead), (1, 0));
}

#[test]
fn manually_retried_dead_letter_is_not_corrected() {
    let mut store = super::store(Settings::default());
    finish(&mut store, &incomplete_call(1));
    let record = incomplete_call(1).judged.record;
    let step = Step::Retry {
        by_itself: false,
        record: record.clone(),
    };
    let retry = Op::Step {
        row: RowId(1),
        step,
        at: time_at(9),
    };
    store.write(vec![retry]).expect("retried");
    assert_eq!(
        finish(&mut store, &journal(1)),
        Done::Repeat(Some(RowId(1)))
    );
    let stored = tables::calls::row(&store, RowId(1))
        .expect("readable")
        .expect("a row");
    assert_eq!(stored.record, record);
}

#[test]
fn dead_letter_of_part_of_another_call_is_discarded() {
    let mut store = super::store(Settings::default());
    let part = incomplete_call(1);
    finish(&mut store, &part);
    let mut whole = journal(7);
    whole.judged.record.uuid = Some(CallUuid(uuid::Uuid::from_u128(77)));
    whole.call.also_known_as.push(part.call.linkedid.clone());
    let seen = store.moves_so_far();
    let done = finish(&mut store, &whole);
    assert!(matches!(done, Done::New(_)), "{done:?}");
    let books = store.books();
    assert_eq!((books.ready, books.dead, books.discarded), (1, 0, 1));
    let (moved, _) = tables::listed::moved_since(&store, seen, 10)
        .expect("readable")
        .expect("remembered");
    let states: Vec<_> = moved.iter().filter_map(|call| call.state).collect();
    assert_eq!(
        states,
        [State::Discarded, State::Ready],
        "who follows sees both"
    );
}
