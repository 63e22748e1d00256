//! Tests which calls `calls` finds.

use super::call::{T0, finished_call, journal, time_at};
use crate::{
    CallFilter, Finished, INTERNAL_KEPT, Listed, Op, Place, RowId, Settings, State, Step, Store,
    tables,
};
use callbridge_model::{Outcome, Phone, Reason, TypedNumber};
use std::time::Duration;

fn store() -> Store {
    super::store(Settings::default())
}

fn finish(store: &mut Store, call: Finished) {
    let done = store.write(vec![Op::Finish(Box::new(call))]);
    done.expect("stored");
}

fn step(store: &mut Store, row: i64, step: Step) {
    let (row, at) = (RowId(row), time_at(100));
    store
        .write(vec![Op::Step { row, step, at }])
        .expect("a step");
}

/// Returns all entries, one page after another.
fn list_all(store: &Store, filter: &CallFilter) -> Vec<Listed> {
    let (mut found, mut next) = (Vec::new(), Some(filter.beginning()));
    while let Some(after) = next {
        let (calls, then) = tables::listed::list_calls(store, filter, after).expect("readable");
        found.extend(calls);
        next = then;
    }
    found
}

fn start_seconds(calls: &[Listed]) -> Vec<i64> {
    let starts = calls.iter().map(|call| call.record.started_at.get() - T0);
    starts.collect()
}

fn filter_with(change: impl FnOnce(&mut CallFilter)) -> CallFilter {
    let mut filter = CallFilter::default();
    change(&mut filter);
    filter
}

fn typed_number(text: &str) -> TypedNumber {
    TypedNumber::read(text, []).expect("a number")
}

#[test]
fn calls_are_listed_by_start_across_pages() {
    let mut store = store();
    // 1,201 calls fill three pages.
    for n in (0..1_201).rev() {
        finish(&mut store, journal(n));
    }
    let found = list_all(&store, &CallFilter::default());
    assert!(start_seconds(&found).into_iter().eq(0..1_201));
    let part = list_all(
        &store,
        &filter_with(|filter| (filter.from, filter.until) = (Some(T0 + 3), Some(T0 + 6))),
    );
    assert_eq!(
        start_seconds(&part),
        [3, 4, 5],
        "from the first, before the last"
    );
}

#[test]
fn calls_that_began_in_one_second_are_all_listed() {
    let mut store = store();
    for n in 0..1_100 {
        let mut call = journal(n);
        call.call.started = time_at(7);
        finish(&mut store, call);
    }
    assert_eq!(list_all(&store, &CallFilter::default()).len(), 1_100);
}

#[test]
fn call_list_filters_by_state_and_trunk_and_shows_reasons() {
    let mut store = store();
    finish(&mut store, journal(1));
    finish(
        &mut store,
        finished_call(2, Outcome::DeadLetter, Some(Reason::NoLead)),
    );
    let mut other = journal(3);
    other.judged.record.trunk = Some("gsm".into());
    finish(&mut store, other);
    let found = list_all(&store, &CallFilter::default());
    let states: Vec<_> = found.iter().map(|call| (call.state, call.reason)).collect();
    let waiting = (Some(State::Waiting), Some(Reason::NoLead));
    assert_eq!(
        states,
        [
            (Some(State::Ready), None),
            waiting,
            (Some(State::Ready), None)
        ]
    );
    let gsm = list_all(
        &store,
        &filter_with(|filter| filter.trunk = Some("gsm".into())),
    );
    assert_eq!(start_seconds(&gsm), [3]);
    let waiting = list_all(
        &store,
        &filter_with(|filter| filter.state = Some(State::Waiting)),
    );
    assert_eq!(start_seconds(&waiting), [2]);
    let by_both: Vec<bool> = found
        .iter()
        .map(|call| filter_with(|filter| filter.state = Some(State::Waiting)).matches(call))
        .collect();
    assert_eq!(
        by_both,
        [false, true, false],
        "what comes is chosen by the same rule"
    );
}

fn starts_of_number(store: &Store, text: &str) -> Vec<i64> {
    let phone = Some(typed_number(text));
    start_seconds(&list_all(
        store,
        &filter_with(|filter| filter.phone = phone),
    ))
}

#[test]
fn number_is_found_by_last_digits_among_similar_numbers() {
    let mut store = store();
    for (n, number) in [
        (1, "+998901110001"),
        (2, "+998901120001"),
        (3, "+998901110002"),
    ] {
        for again in [0, 10] {
            let mut call = journal(n + again);
            call.judged.record.client_phone = Phone::from_e164(number);
            finish(&mut store, call);
        }
    }
    let mut hidden = journal(30);
    hidden.judged.record.client_phone = None;
    finish(&mut store, hidden);
    assert_eq!(starts_of_number(&store, "0001"), [1, 2, 11, 12]);
    assert_eq!(starts_of_number(&store, "1110001"), [1, 11]);
    assert_eq!(starts_of_number(&store, "+998901120001"), [2, 12]);
    assert_eq!(starts_of_number(&store, "9999"), [0_i64; 0]);
    let filter = filter_with(|filter| filter.phone = Some(typed_number("1110001")));
    let (back, next) =
        tables::listed::list_calls_back(&store, &filter, Place::END, 500).expect("readable");
    assert_eq!((start_seconds(&back), next), (vec![11, 1], None));
}

/// Returns when each entry started, newest first, one page after another.
fn starts_from_newest(store: &Store, filter: &CallFilter) -> Vec<i64> {
    let (mut found, mut next) = (Vec::new(), Some(Place::END));
    while let Some(before) = next {
        // Links contain the place in its text form.
        let before = Place::read(&before.to_string()).expect("a place");
        let (calls, then) =
            tables::listed::list_calls_back(store, filter, before, 70).expect("readable");
        found.extend(calls);
        next = then;
    }
    start_seconds(&found)
}

#[test]
fn calls_are_listed_newest_first_across_pages() {
    let mut store = store();
    for n in 0..1_201 {
        finish(&mut store, journal(n));
    }
    assert!(
        starts_from_newest(&store, &CallFilter::default())
            .into_iter()
            .eq((0..1_201).rev())
    );
    let part = filter_with(|filter| (filter.from, filter.until) = (Some(T0 + 3), Some(T0 + 6)));
    assert_eq!(
        starts_from_newest(&store, &part),
        [5, 4, 3],
        "from the first, before the last"
    );
    let of_nobody = filter_with(|filter| filter.extension = Some("no such".into()));
    assert_eq!(starts_from_newest(&store, &of_nobody), [0_i64; 0]);
    assert_eq!(Place::read("1"), None);
    assert_eq!(Place::read("1.x"), None);
}

fn delays(store: &Store, from: i64) -> Vec<Duration> {
    tables::figures::confirmation_delays(store, from, T0 + 9).expect("readable")
}

#[test]
fn period_figures_count_calls_by_state_and_list_delays() {
    let mut store = store();
    for n in 0..6 {
        finish(&mut store, journal(n));
    }
    let reason = Some(Reason::NoLead);
    finish(&mut store, finished_call(6, Outcome::DeadLetter, reason));
    step(&mut store, 2, Step::Send);
    let figures = tables::figures::outcomes(&store, T0 + 1, T0 + 7).expect("readable");
    let figures: Vec<_> = figures.into_iter().collect();
    let counted = [(State::Ready, 4), (State::Sending, 1), (State::Waiting, 1)];
    assert_eq!(figures, counted);
    assert!(delays(&store, T0).is_empty());
    let sql = "UPDATE calls SET state = 'journaled', since = 1000000 * (started + 17)
               WHERE id IN (3, 5)";
    store.execute(sql, ()).expect("two are confirmed");
    let last = Duration::from_secs(17 - 5);
    assert_eq!(delays(&store, T0), [last, last]);
    assert_eq!(delays(&store, T0 + 3).len(), 1);
}

#[test]
fn newest_start_is_latest_start_not_in_future() {
    let mut store = store();
    assert_eq!(tables::listed::newest_start(&store, T0), Ok(None));
    for n in [5, 3, 900] {
        finish(&mut store, journal(n));
    }
    assert_eq!(
        tables::listed::newest_start(&store, T0 + 100),
        Ok(Some(T0 + 5))
    );
}

fn internal_starts(store: &Store) -> Vec<i64> {
    let (mut found, filter) = (Vec::new(), CallFilter::default());
    let mut next = Some(filter.beginning());
    while let Some(after) = next {
        let (calls, then) = tables::listed::list_internal(store, &filter, after).expect("readable");
        found.extend(calls);
        next = then;
    }
    start_seconds(&found)
}

#[test]
fn newest_1000_internal_calls_are_kept_for_7_days() {
    let mut store = store();
    let kept = u32::try_from(INTERNAL_KEPT).expect("small");
    for n in 0..kept + 5 {
        finish(&mut store, finished_call(n, Outcome::Internal, None));
    }
    finish(&mut store, finished_call(7, Outcome::Internal, None));
    assert!(
        internal_starts(&store)
            .into_iter()
            .eq(5..i64::from(kept) + 5),
        "each once, the newest"
    );
    assert_eq!(
        store.books().internal,
        u64::from(kept) + 5,
        "counted are all"
    );
    let (calls, last) =
        tables::listed::internal_since(&store, INTERNAL_KEPT + 3).expect("readable");
    assert_eq!((calls.len(), calls[0].state), (2, None));
    assert_eq!(tables::listed::newest_internal(&store), Ok(last));
    let week = 7 * 24 * 3600;
    let now = time_at(week + i64::from(kept));
    store.write(vec![Op::Purge(now)]).expect("purged");
    assert_eq!(
        internal_starts(&store).len(),
        5,
        "those of the last seven days"
    );
    // After a week without internal calls, SQLite's IDs start over. A reader that has been
    // following the calls still sees the next one.
    let now = now.plus(Duration::from_secs(week.unsigned_abs()));
    store.write(vec![Op::Purge(now)]).expect("purged");
    finish(&mut store, finished_call(kept + 9, Outcome::Internal, None));
    let (calls, after) = tables::listed::internal_since(&store, last).expect("readable");
    assert_eq!(calls.len(), 1);
    assert_eq!(tables::listed::newest_internal(&store), Ok(after));
}

#[test]
fn moved_since_returns_each_new_or_changed_call_once() {
    let mut store = store();
    finish(&mut store, journal(1));
    let seen = store.moves_so_far();
    finish(&mut store, journal(2));
    step(&mut store, 1, Step::Send);
    let returned = Step::Returned {
        not_before: time_at(0),
        why: "503".to_owned(),
        failures: 0,
    };
    step(&mut store, 1, returned);
    let (moved, after) = crate::tables::listed::moved_since(&store, seen, 10)
        .expect("readable")
        .expect("remembered");
    let states: Vec<_> = moved.iter().map(|call| (call.id, call.state)).collect();
    let ready = Some(State::Ready);
    assert_eq!(
        states,
        [(RowId(2), ready), (RowId(1), ready)],
        "each once, in its present state"
    );
    assert_eq!(
        crate::tables::listed::moved_since(&store, after, 10),
        Ok(Some((vec![], after)))
    );
    // A step that isn't stored doesn't count as a move.
    let refused = Op::Step {
        row: RowId(1),
        step: Step::Journaled(crate::OutcomeSource::Confirmation),
        at: time_at(1),
    };
    let new = Op::Finish(Box::new(journal(3)));
    assert!(store.write(vec![new, refused]).is_err());
    assert_eq!(store.moves_so_far(), after);
}
