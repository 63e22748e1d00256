//! Tests that the cost of a call does not depend on the number of earlier calls of its number.

use super::call::time_at;
use super::sqlite::suite::missed::{
    CustomerCall, call, finish, missed_call, store, talk, waiting_times,
};
use crate::{Finished, Store};
use callbridge_call::EventTime;
use callbridge_model::{Outcome, Phone, Reason};
use std::time::Duration;

/// Steps of SQLite's virtual machine that a call can take on average. Reading all calls of the
/// number once per call takes more than twice as many.
const STEPS_MAX: u32 = 1_500;
/// Number of calls from one number in these tests.
const CALLS: u32 = 2_000;

/// A way in which the calls of one number can arrive.
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

/// Returns the start of the n-th call. Calls are further apart than a talk lasts.
fn start(n: u32) -> i64 {
    i64::from(n) * 100
}

/// Makes the n-th call as an incomplete dead letter, for which it is known whether it was answered.
fn incomplete_call(n: u32, one: CustomerCall) -> Finished {
    let mut call = call(n, one);
    call.judged.outcome = Outcome::DeadLetter;
    call.judged.reason = Some(Reason::Incomplete);
    call.judged.record.incomplete = true;
    call
}

/// Makes a call under the uuid of call 1 with another start.
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
    ("one id for all calls", reused_id),
];

#[test]
fn call_of_a_busy_number_needs_bounded_database_steps() {
    for (name, arrival) in ARRIVALS {
        let mut store = store();
        store.remember_statements();
        for n in 1..=CALLS {
            finish(&mut store, arrival(n));
        }
        let steps = store.steps_taken();
        let sum: i32 = steps.values().sum();
        let mean = sum.cast_unsigned() / CALLS;
        assert!(
            mean < STEPS_MAX,
            "{name}: {mean} steps per call: {steps:#?}"
        );
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

/// Returns the CPU time of this thread, which does not depend on what else runs.
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
    // A cost that grows with the number of calls would be seven times as high.
    assert!(quarters[3] < quarters[0] * 4, "{quarters:?}");
    assert_eq!(waiting_tries(&store), (101, 20_100));
}

fn call_of_other_number(n: u32) -> Finished {
    let mut other = call(50_000 + n, missed_call(i64::from(n)));
    let digits = 998_930_000_000 + i64::from(n);
    other.judged.record.client_phone = Phone::from_digits(digits);
    other
}

/// Returns the number of customers who wait, and the sum of their tries.
fn waiting_tries(store: &Store) -> (usize, u64) {
    let all = crate::tables::missed::missed_waiting(store, None, None, 1_000).expect("readable");
    (all.len(), all.iter().map(|one| one.tries).sum())
}
