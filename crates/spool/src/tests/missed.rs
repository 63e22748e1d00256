//! Tests that customers wait for a callback until an employee has talked to them, and no longer.

use super::call::{T0, finished_call, time_at};
use crate::employee_work::{EmployeeWork, employee_work};
use crate::{
    Done, Finished, Handle, MissedCustomer, Op, RowId, Settings, State, Step, Store, tables,
};
use callbridge_call::{Direction, EpochSeconds, EventTime};
use callbridge_model::{LeadId, Outcome, Phone, Reason};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

/// A customer's call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomerCall {
    pub start: i64,
    pub length: u32,
    pub inbound: bool,
    pub answered: bool,
    /// Whether `unanswered=no` keeps the call out of the journal if it was missed.
    pub kept_out: bool,
}

pub const fn missed_call(start: i64) -> CustomerCall {
    CustomerCall {
        start,
        length: 5,
        inbound: true,
        answered: false,
        kept_out: false,
    }
}

pub const fn talk(start: i64) -> CustomerCall {
    CustomerCall {
        start,
        length: 60,
        inbound: false,
        answered: true,
        kept_out: false,
    }
}

fn phone() -> Phone {
    Phone::from_e164("+998901110001").expect("a number")
}

pub fn call(n: u32, one: CustomerCall) -> Finished {
    let kept_out = one.kept_out && one.inbound && !one.answered;
    let outcome = if kept_out {
        Outcome::Skipped
    } else {
        Outcome::Journal
    };
    let mut call = finished_call(n, outcome, None);
    let (record, facts) = (&mut call.judged.record, &mut call.call);
    record.direction = if one.inbound {
        Direction::Inbound
    } else {
        Direction::Outbound
    };
    facts.direction = record.direction;
    (record.answered, facts.answered) = (one.answered, one.answered);
    record.client_phone = Some(phone());
    record.started_at = EpochSeconds::new(T0 + one.start);
    record.duration_sec = one.length;
    facts.started = EventTime::from_seconds(T0 + one.start);
    facts.ended = facts.started.plus(Duration::from_secs(one.length.into()));
    call.judged.kept_out_unanswered = kept_out;
    call.judged.judged_at = time_at(100_000);
    call
}

pub fn store() -> Store {
    super::store(Settings::default())
}

pub fn finish(store: &mut Store, call: Finished) -> Done {
    let mut done = store
        .write(vec![Op::Finish(Box::new(call))])
        .expect("stored");
    done.remove(0)
}

fn waiting_customers(store: &Store) -> Vec<MissedCustomer> {
    tables::missed::missed_waiting(store, None, None, 10).expect("readable")
}

fn second_of(at: EpochSeconds) -> i64 {
    at.get() - T0
}

/// Returns the times of the first and last attempts, and the number of attempts.
pub fn waiting_times(store: &Store) -> Option<(i64, i64, u64)> {
    let all = waiting_customers(store);
    assert!(all.len() <= 1, "{all:?}");
    let only = all.first()?;
    let first = second_of(only.first_at);
    Some((first, second_of(only.last_at), only.tries))
}

/// Computes what [`waiting_times`] should return, directly from the list of calls.
fn expected_times(calls: &[CustomerCall]) -> Option<(i64, i64, u64)> {
    let talks = calls.iter().filter(|one| one.answered);
    let until = talks.map(|one| one.start + i64::from(one.length)).max();
    let tries = calls.iter().filter(|one| one.inbound && !one.answered);
    let tries: Vec<i64> = tries
        .map(|one| one.start)
        .filter(|start| until.is_none_or(|until| *start >= until))
        .collect();
    let first = tries.iter().min()?;
    Some((*first, *tries.iter().max()?, tries.len() as u64))
}

#[test]
fn missed_calls_add_up_until_either_side_answers() {
    for inbound in [true, false] {
        let mut store = store();
        for (n, start) in (1..).zip([100, 200, 300]) {
            finish(&mut store, call(n, missed_call(start)));
        }
        assert_eq!(waiting_times(&store), Some((100, 300, 3)));
        let only = waiting_customers(&store).remove(0);
        assert_eq!(
            (only.trunk.as_str(), only.lead_id),
            ("city", LeadId::new(4001))
        );
        let in_vain = CustomerCall {
            inbound: false,
            ..missed_call(350)
        };
        finish(&mut store, call(8, in_vain));
        assert_eq!(waiting_times(&store), Some((100, 300, 3)), "nobody talked");
        finish(
            &mut store,
            call(
                9,
                CustomerCall {
                    inbound,
                    ..talk(400)
                },
            ),
        );
        assert_eq!(waiting_times(&store), None);
        finish(&mut store, call(10, missed_call(500)));
        assert_eq!(waiting_times(&store), Some((500, 500, 1)), "anew");
    }
}

#[test]
fn answered_internal_call_clears_no_missed_call() {
    let mut store = store();
    let mut internal = call(1, talk(100));
    internal.judged.record.direction = Direction::Internal;
    finish(&mut store, internal);
    // The missed call starts before the internal call ends.
    finish(&mut store, call(2, missed_call(110)));
    assert_eq!(waiting_times(&store), Some((110, 110, 1)));
}

#[test]
fn left_out_call_counts_as_missed_but_not_as_finished() {
    let mut store = store();
    let kept_out = CustomerCall {
        kept_out: true,
        ..missed_call(100)
    };
    assert_eq!(finish(&mut store, call(1, kept_out)), Done::Counted);
    assert_eq!(waiting_times(&store), Some((100, 100, 1)));
    let books = store.books();
    assert_eq!((books.skipped, books.finished), (1, 0));
    let calls = tables::figures::customer_calls(&store, T0, T0 + 1_000).expect("readable");
    assert_eq!(calls.len(), 1);
    assert!(calls[0].inbound && !calls[0].answered);
    finish(&mut store, call(2, talk(200)));
    assert_eq!(waiting_times(&store), None);
}

#[test]
fn complete_call_replaces_the_incomplete_one_and_is_not_missed() {
    let mut store = store();
    finish(&mut store, call(9, missed_call(50)));
    let mut cut = call(1, missed_call(100));
    (cut.judged.outcome, cut.judged.reason) = (Outcome::DeadLetter, Some(Reason::Incomplete));
    cut.judged.record.incomplete = true;
    finish(&mut store, cut);
    assert_eq!(
        waiting_times(&store),
        Some((50, 50, 1)),
        "it is unknown whether the incomplete call was answered"
    );
    let whole = CustomerCall {
        answered: true,
        length: 90,
        ..missed_call(100)
    };
    let done = finish(&mut store, call(1, whole));
    assert_eq!(done, Done::Corrected(RowId(2)));
    assert_eq!(waiting_times(&store), None, "it was answered");
}

#[test]
fn incomplete_call_marked_answered_by_hand_is_not_missed() {
    let mut store = store();
    let mut cut = call(1, missed_call(100));
    (cut.judged.outcome, cut.judged.reason) = (Outcome::DeadLetter, Some(Reason::Incomplete));
    let mut record = cut.judged.record.clone();
    finish(&mut store, cut);
    assert_eq!(
        waiting_times(&store),
        None,
        "nobody knows whether it was answered"
    );
    record.answered = true;
    let (row, at) = (RowId(1), time_at(100_001));
    let step = Step::Retry {
        by_itself: false,
        record,
    };
    let done = store.write(vec![Op::Step { row, step, at }]);
    assert_eq!(done.expect("stored"), [Done::Stepped(State::Ready)]);
    assert_eq!(
        waiting_times(&store),
        None,
        "a person said that it was answered"
    );
    finish(&mut store, call(2, missed_call(50)));
    assert_eq!(
        waiting_times(&store),
        None,
        "an employee talked with the customer since"
    );
}

/// Returns the time this many days plus one second after second 100.
fn day(days: i64) -> EventTime {
    time_at(100 + days * 86_400 + 1)
}

#[test]
fn missed_customers_are_dropped_after_thirty_days() {
    let mut store = store();
    finish(&mut store, call(1, missed_call(100)));
    store.write(vec![Op::Purge(day(29))]).expect("purged");
    assert_eq!(waiting_times(&store), Some((100, 100, 1)));
    store.write(vec![Op::Purge(day(30))]).expect("purged");
    assert_eq!(waiting_times(&store), None);
    let mut old = call(2, missed_call(200));
    old.judged.judged_at = day(31);
    finish(&mut store, old);
    assert_eq!(waiting_times(&store), None, "read out of an old file");
}

fn last_digits(all: &[MissedCustomer]) -> Vec<char> {
    let last = all
        .iter()
        .filter_map(|customer| customer.phone.as_str().chars().last());
    last.collect()
}

#[test]
fn missed_customers_are_paged_longest_first_and_by_trunk() {
    let mut store = store();
    for (n, digits) in (1..).zip([3, 1, 2]) {
        let mut call = call(n, missed_call(i64::from(n) * 10));
        let number = 998_901_110_000 + digits;
        call.judged.record.client_phone = Phone::from_digits(number);
        finish(&mut store, call);
    }
    let page = tables::missed::missed_waiting(&store, None, None, 2).expect("readable");
    assert_eq!(last_digits(&page), ['3', '1']);
    let rest = tables::missed::missed_waiting(&store, None, page.last(), 2).expect("readable");
    assert_eq!(last_digits(&rest), ['2']);
    let late = tables::missed::missed_waiting(&store, Some(T0 + 20), None, 9).expect("readable");
    assert_eq!(last_digits(&late), ['1', '2']);
    let trunks = tables::missed::missed_by_trunk(&store).expect("readable");
    assert_eq!(trunks, [("city".to_owned(), 3)]);
}

fn any_call() -> impl Strategy<Value = CustomerCall> {
    (
        0..600_i64,
        1..120_u32,
        any::<bool>(),
        0..4_u8,
        any::<bool>(),
    )
        .prop_map(
            |(start, length, inbound, answered, kept_out)| CustomerCall {
                start,
                length,
                inbound,
                answered: answered == 0,
                kept_out,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(super::cases(256)))]

    #[test]
    fn missed_wait_is_independent_of_call_order_and_repeats(
        calls in prop::collection::vec(any_call(), 1..12),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let mut store = store();
        let mut come = Vec::new();
        let all = order.iter().map(|index| index.index(calls.len())).chain(0..calls.len());
        for at in all {
            let n = u32::try_from(at).expect("small") + 1;
            finish(&mut store, call(n, calls[at]));
            if !come.contains(&at) {
                come.push(at);
            }
            let so_far: Vec<CustomerCall> = come.iter().map(|at| calls[*at]).collect();
            prop_assert_eq!(waiting_times(&store), expected_times(&so_far), "{:?}", so_far);
        }
    }
}

/// Returns the employees' work from second `from` to second `until`, by extension.
async fn work_between(
    handle: &Handle,
    from: i64,
    until: i64,
) -> BTreeMap<Option<String>, EmployeeWork> {
    let sums = employee_work(handle, T0 + from, T0 + until);
    sums.await.expect("readable").work
}

#[tokio::test]
async fn employee_callback_time_includes_missed_calls_before_period() {
    let place = super::place();
    let (handle, _guard) = place.open(Settings::default());
    let kept_out = CustomerCall {
        kept_out: true,
        ..missed_call(100)
    };
    let calls = [kept_out, talk(9_000), talk(20_000)];
    for (n, one) in (1..).zip(calls) {
        let finish = Op::Finish(Box::new(call(n, one)));
        handle.write(vec![finish]).await.expect("stored");
    }
    let earlier = work_between(&handle, 0, 10_000).await;
    assert_eq!(earlier[&None].missed, 1, "no telephone was heard to ring");
    let first = &earlier[&Some("101".to_owned())];
    assert_eq!((first.outbound, first.talk_sec), (1, 4));
    assert_eq!((first.called_back, first.call_back_sec), (1, 8_900));
    let later = work_between(&handle, 8_000, 20_000).await;
    assert_eq!(later.len(), 1, "what was missed before is not counted");
    assert_eq!(later[&Some("101".to_owned())].call_back_sec, 8_900);
}
