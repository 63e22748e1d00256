//! Tests that the cost of a call doesn't depend on how many earlier calls have the same number or
//! ID.

use super::call::time_at;
use super::place::Engine;
use super::sqlite::suite::missed::{
    CustomerCall, call, finish, missed_call, store, talk, waiting_times,
};
use crate::tables::finish::CONFLICTS_MAX;
use crate::{Done, Finished, Settings, Store};
use callbridge_call::{EventTime, GivenIds, UniqueId};
use callbridge_model::{Outcome, Phone, Reason};
use std::time::Duration;

/// How many steps a call may take on average in SQLite's virtual machine. Reading all of the
/// number's calls for each call takes more than twice as many.
const STEPS_MAX: u32 = 1_500;
/// How many steps a call may take if it's compared with a hundred earlier ones. Comparing it with
/// all of them takes nearly five times as many.
const COMPARED_STEPS_MAX: u32 = 2_000;
/// How many calls come from the same number in these tests.
const CALLS: u32 = 2_000;
/// How many calls make a flood in PostgreSQL.
const FEW_CALLS: u32 = 400;
/// How many rows a call may read from PostgreSQL, no matter how many calls came before it. When
/// compared with all earlier calls, the last of [`FEW_CALLS`] reads twice as many.
const ROWS_MAX: u64 = 150;

/// A way for the calls from one number to arrive.
type Arrival = (&'static str, fn(u32) -> Finished);

const fn unanswered_callback(start: i64) -> CustomerCall {
    CustomerCall {
        inbound: false,
        ..missed_call(start)
    }
}

const fn kept_out_call(start: i64) -> CustomerCall {
    CustomerCall {
        kept_out: true,
        ..missed_call(start)
    }
}

/// Returns when the nth call starts. Calls are further apart than a conversation lasts.
fn start(n: u32) -> i64 {
    i64::from(n) * 100
}

/// Creates the nth call as an incomplete dead letter that is known to be answered or missed.
fn incomplete_call(n: u32, one: CustomerCall) -> Finished {
    let mut call = call(n, one);
    call.judged.outcome = Outcome::DeadLetter;
    call.judged.reason = Some(Reason::Incomplete);
    call.judged.record.incomplete = true;
    call
}

/// Creates a call that has the UUID of call 1 but starts at a different time.
fn reused_id(n: u32) -> Finished {
    let mut conflicting_uuid = call(1, missed_call(start(n)));
    conflicting_uuid.call.started = EventTime::from_seconds(super::call::T0 + start(n));
    conflicting_uuid
}

const ARRIVALS: &[Arrival] = &[
    ("missed only", |n| call(n, missed_call(start(n)))),
    ("newest first", |n| call(n, missed_call(-start(n)))),
    ("kept out of the journal", |n| {
        call(n, kept_out_call(start(n)))
    }),
    ("failed callbacks between", |n| {
        if n.is_multiple_of(2) {
            call(n, unanswered_callback(start(n)))
        } else {
            call(n, missed_call(start(n)))
        }
    }),
    ("talks between", |n| {
        if n.is_multiple_of(2) {
            call(n, talk(start(n)))
        } else {
            call(n, missed_call(start(n)))
        }
    }),
    ("talks between, newest first", |n| {
        if n.is_multiple_of(2) {
            call(n, talk(-start(n)))
        } else {
            call(n, missed_call(-start(n)))
        }
    }),
    ("all talks late, oldest first", |n| {
        if n > CALLS / 2 {
            call(n, talk(start(n - CALLS / 2) - 70))
        } else {
            call(n, missed_call(start(n)))
        }
    }),
    ("all talks late, newest first", |n| {
        if n > CALLS / 2 {
            call(n, talk(start(CALLS + 1 - n) - 70))
        } else {
            call(n, missed_call(start(n)))
        }
    }),
    ("incomplete, then corrected", |n| {
        if n > CALLS / 2 {
            call(n - CALLS / 2, missed_call(start(n - CALLS / 2)))
        } else {
            incomplete_call(n, missed_call(start(n)))
        }
    }),
];

/// Creates the nth call with call 1's UUID and start time.
fn same_id_and_start(n: u32) -> Finished {
    let mut call = call(1, missed_call(start(1)));
    call.judged.judged_at = time_at(100_000 + i64::from(n));
    call
}

/// Replaces the number, both as sent and as stored.
fn with_number(mut call: Finished, n: u32) -> Finished {
    let digits = 998_930_000_000 + i64::from(n);
    call.judged.record.client_phone = Phone::from_digits(digits);
    call.call.number.as_mut().expect("a number").text = digits.to_string();
    call
}

/// Ways in which a PBX might repeat an ID, a start time, or a number. Calls are numbered from 1.
const REPETITIONS: &[Arrival] = &[
    ("the same call again", same_id_and_start),
    ("one id, other starts", reused_id),
    ("one id, other starts, newest first", |n| {
        reused_id(CALLS + 1 - n)
    }),
    ("one id, other starts, each call twice", |n| {
        reused_id(n / 2 + 1)
    }),
    ("one id and start, other numbers", |n| {
        with_number(same_id_and_start(n), n)
    }),
    ("one id and start, the same 50 numbers", |n| {
        with_number(same_id_and_start(n), n % 50)
    }),
    ("one id and start, the number unknown to the trunk", |n| {
        let mut call = with_number(same_id_and_start(n), n);
        call.judged.record.client_phone = None;
        call
    }),
    ("one id and start, every other number withheld", |n| {
        let mut call = with_number(same_id_and_start(n), n);
        if n.is_multiple_of(2) {
            call.judged.record.client_phone = None;
            call.call.number = None;
        }
        call
    }),
    ("one id, starts a second apart, other numbers", |n| {
        let mut call = with_number(same_id_and_start(n), n);
        call.call.started = EventTime::from_seconds(super::call::T0 + i64::from(n));
        call
    }),
    ("one message with other values each time", |n| {
        let mut call = same_id_and_start(n);
        call.call.given = Some(GivenIds::default());
        call.call.ended = call.call.started.plus(Duration::from_secs(n.into()));
        call
    }),
    ("other ids, one number and start", |n| {
        call(n, missed_call(start(1)))
    }),
    ("other ids, one channel in all calls", |n| {
        let mut call = call(n, missed_call(start(n)));
        let channel = UniqueId::new("shared.1").expect("not empty");
        call.call.also_known_as.push(channel);
        call
    }),
    ("one incomplete call again", |n| {
        let mut call = incomplete_call(1, missed_call(start(1)));
        call.judged.judged_at = time_at(100_000 + i64::from(n));
        call
    }),
];

#[test]
fn call_of_a_busy_number_needs_bounded_database_steps() {
    assert_bounded_steps(ARRIVALS, STEPS_MAX);
}

#[test]
fn repetition_needs_bounded_database_steps() {
    assert_bounded_steps(REPETITIONS, COMPARED_STEPS_MAX);
}

fn assert_bounded_steps(arrivals: &[Arrival], most: u32) {
    for (name, arrival) in arrivals {
        let mut store = store();
        store.remember_statements();
        for n in 1..=CALLS {
            finish(&mut store, arrival(n));
        }
        let steps = store.steps_taken();
        let sum: i32 = steps.values().sum();
        let mean = sum.cast_unsigned() / CALLS;
        assert!(mean < most, "{name}: {mean} steps per call: {steps:#?}");
    }
}

#[test]
fn conflict_reads_a_bounded_number_of_postgres_rows() {
    let conflicts = REPETITIONS
        .iter()
        .filter(|(name, _)| name.starts_with("one id") || name.starts_with("one message"));
    for (name, arrival) in conflicts {
        let mut store = Engine::Postgres.store(Settings::default());
        let last = FEW_CALLS / 5;
        for n in 1..=FEW_CALLS - last {
            finish(&mut store, arrival(n));
        }
        let before = store.session().expect("PostgreSQL").rows_read();
        for n in FEW_CALLS - last + 1..=FEW_CALLS {
            finish(&mut store, arrival(n));
        }
        let rows = store.session().expect("PostgreSQL").rows_read() - before;
        let mean = rows / u64::from(last);
        assert!(mean < ROWS_MAX, "{name}: {mean} rows per call");
    }
}

#[test]
fn conflicts_beyond_a_hundred_with_one_start_are_only_counted() {
    for engine in [Engine::Sqlite, Engine::Postgres] {
        let mut store = engine.store(Settings::default());
        let most = u32::try_from(CONFLICTS_MAX).expect("small");
        // The first call isn't a conflict.
        for n in 0..=most {
            let done = finish(&mut store, with_number(same_id_and_start(n), n));
            assert!(matches!(done, Done::New(_) | Done::Conflict(_)), "{done:?}");
        }
        let next = with_number(same_id_and_start(0), most + 1);
        assert_eq!(finish(&mut store, next.clone()), Done::NotKept);
        assert_eq!(finish(&mut store, next), Done::NotKept);
        assert_eq!(store.counters()["conflicts_not_kept"], 2);
        // A known call is still recognized, and a different start time has its own limit.
        let known = with_number(same_id_and_start(0), most);
        assert!(matches!(finish(&mut store, known), Done::Repeat(Some(_))));
        let later = with_number(reused_id(5), most + 1);
        assert!(matches!(finish(&mut store, later), Done::Conflict(_)));
        assert_eq!(store.books().finished, u64::from(most) + 2);
        let recount = crate::tables::books::recount(&store);
        assert_eq!(recount.expect("a recount"), []);
    }
}

#[test]
fn late_talk_clears_only_the_missed_calls_before_it() {
    let mut store = store();
    for n in 1..=100_u32 {
        let one = if n.is_multiple_of(3) {
            kept_out_call(start(n))
        } else {
            missed_call(start(n))
        };
        finish(&mut store, call(n, one));
    }
    for n in 1..100 {
        finish(&mut store, call(1_000 + n, talk(start(n) + 10)));
        let left = u64::from(100 - n);
        assert_eq!(
            waiting_times(&store),
            Some((start(n + 1), start(100), left))
        );
    }
}

#[test]
fn corrected_talk_restores_the_missed_calls_it_had_cleared() {
    let mut store = store();
    for n in 1..=5 {
        finish(&mut store, call(n, missed_call(start(n))));
    }
    finish(&mut store, incomplete_call(6, talk(start(4) + 10)));
    assert_eq!(waiting_times(&store), Some((start(5), start(5), 1)));
    let mut whole = call(6, unanswered_callback(start(4) + 10));
    whole.judged.judged_at = time_at(100_001);
    finish(&mut store, whole);
    assert_eq!(waiting_times(&store), Some((start(1), start(5), 5)));
}

#[test]
fn talk_with_an_invalid_start_clears_no_missed_call() {
    let mut store = store();
    let mut future = call(1, talk(90_000));
    future.judged.outcome = Outcome::DeadLetter;
    future.judged.reason = Some(Reason::InvalidEpoch);
    finish(&mut store, future);
    finish(&mut store, call(2, missed_call(100)));
    assert_eq!(waiting_times(&store), Some((100, 100, 1)));
}

/// Returns this thread's CPU time, which doesn't depend on what else is running.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let nanos = text.split(' ').next().expect("a first number");
    Duration::from_nanos(nanos.parse().expect("nanoseconds"))
}

#[test]
fn missed_call_cpu_time_does_not_grow_with_call_count() {
    let mut store = store();
    let mut quarters = Vec::new();
    for quarter in 0..4 {
        let began = cpu_time();
        for n in quarter * 5_000 + 1..=(quarter + 1) * 5_000 {
            finish(&mut store, call(n, missed_call(i64::from(n))));
            if n.is_multiple_of(200) {
                finish(&mut store, call_of_other_number(n));
            }
        }
        quarters.push(cpu_time() - began);
    }
    // If the cost grew with the number of calls, it would be seven times as high.
    assert!(quarters[3] < quarters[0] * 4, "{quarters:?}");
    assert_eq!(waiting_tries(&store), (101, 20_100));
}

fn call_of_other_number(n: u32) -> Finished {
    let mut other = call(50_000 + n, missed_call(i64::from(n)));
    let digits = 998_930_000_000 + i64::from(n);
    other.judged.record.client_phone = Phone::from_digits(digits);
    other
}

/// Returns the number of waiting customers, and how often they've tried in total.
fn waiting_tries(store: &Store) -> (usize, u64) {
    let all = crate::tables::missed::missed_waiting(store, None, None, 1_000).expect("readable");
    (all.len(), all.iter().map(|one| one.tries).sum())
}
