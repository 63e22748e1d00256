//! Tests when calls with a lost requestId are resent, and when they're given up.

use super::step::*;
use super::tests::{HOUR, confirm, lost_call, next_check, wall_time};
use super::*;
use crate::testing::{now_at, submitted_call};
use callbridge_model::Reason;
use callbridge_spool::{HELD_MAX, IfAbsent, Step};

/// Creates a call with a lost requestId after this many resubmissions.
fn resent_call(resubmits: u32) -> Unconfirmed {
    Unconfirmed {
        resubmits,
        ..lost_call(1, now_at(0))
    }
}

#[test]
fn lost_call_is_resent_after_a_minute_an_hour_and_a_day() {
    let confirm = confirm();
    for (resubmits, age) in [(0, 60), (1, HOUR), (2, 24 * HOUR)] {
        let call = resent_call(resubmits);
        let before = confirm.settle(&call, wall_time(age - 1), true);
        assert_eq!(next_check(before), wall_time(age), "{resubmits}");
        let due = confirm.settle(&call, wall_time(age), true);
        assert!(matches!(due, Step::Resubmit { .. }), "{due:?}");
    }
    let dead = confirm.settle(&resent_call(3), wall_time(61), true);
    let Step::Died {
        reason, message, ..
    } = dead
    else {
        panic!("{dead:?}");
    };
    assert_eq!(reason, Reason::Unconfirmed);
    let start = "sent 4 times, and each time its outcome could not be requested in time";
    assert!(message.starts_with(start), "{message}");
    assert!(
        message.contains("404; no page of the journal shows the call"),
        "{message}"
    );
}

#[test]
fn lost_call_is_checked_every_hour_while_it_waits() {
    let step = confirm().settle(&resent_call(2), wall_time(2 * HOUR), true);
    let Step::NotYet { next_check, absent } = step else {
        panic!("{step:?}");
    };
    assert_eq!((next_check, absent), (wall_time(3 * HOUR), Some(0)));
}

#[test]
fn lost_call_from_a_clock_ahead_is_resent_at_once() {
    let call = Unconfirmed {
        resubmits: 2,
        ..lost_call(1, now_at(HELD_MAX.as_secs() + 10))
    };
    let step = confirm().settle(&call, wall_time(1), true);
    assert!(matches!(step, Step::Resubmit { .. }), "{step:?}");
}

#[test]
fn call_with_lost_request_id_is_unresolved_until_resend() {
    let confirm = confirm();
    let poll = submitted_call(1, now_at(0));
    let step = confirm.lost_step(&poll, wall_time(2), "404");
    let Step::Unresolved {
        next_check,
        if_absent,
        why,
    } = step
    else {
        panic!("{step:?}");
    };
    assert_eq!((next_check, if_absent), (wall_time(60), IfAbsent::Resubmit));
    assert_eq!(why, "404");
    assert_eq!(next_check_of_lost(&confirm, 90, 0), wall_time(90));
    assert_eq!(
        next_check_of_lost(&confirm, 90, 3),
        wall_time(90),
        "given up at once"
    );
}

fn next_check_of_lost(confirm: &Confirm, now: u64, resubmits: u32) -> EventTime {
    let call = Unconfirmed {
        resubmits,
        ..submitted_call(1, now_at(0))
    };
    next_check(confirm.lost_step(&call, wall_time(now), "404"))
}

#[test]
fn interrupted_call_is_resent_without_waiting() {
    let call = Unconfirmed {
        if_absent: IfAbsent::Interrupted,
        resubmits: 9,
        ..lost_call(1, now_at(0))
    };
    for pages_read in [true, false] {
        let step = confirm().settle(&call, wall_time(1), pages_read);
        assert!(matches!(step, Step::Resubmit { .. }), "{step:?}");
    }
}

#[test]
fn changed_call_is_sent_only_if_pages_were_read() {
    let call = Unconfirmed {
        if_absent: IfAbsent::Changed,
        ..lost_call(1, now_at(0))
    };
    let step = confirm().settle(&call, wall_time(1), true);
    assert!(matches!(step, Step::Resubmit { .. }), "{step:?}");
    let step = confirm().settle(&call, wall_time(1), false);
    let reason = Reason::Unconfirmed;
    assert!(
        matches!(&step, Step::Died { reason: it, .. } if *it == reason),
        "{step:?}"
    );
}

#[test]
fn absent_given_up_call_is_dead_with_server_error() {
    let call = Unconfirmed {
        if_absent: IfAbsent::ServerError,
        message: "500".to_owned(),
        ..lost_call(1, now_at(0))
    };
    for pages_read in [true, false] {
        let step = confirm().settle(&call, wall_time(1), pages_read);
        assert_eq!(step, dead_step(Reason::ServerError, "500".to_owned()));
    }
}

#[test]
fn lost_call_without_any_confirmation_is_never_resent() {
    let mut confirm = confirm();
    confirm.refuse_polls(now_at(0), "403");
    confirm.refuse_pages(now_at(0), "403");
    let call = lost_call(1, now_at(0));
    for (now, next) in [(70, HOUR + 70), (24 * HOUR - 1, 24 * HOUR)] {
        assert_eq!(
            confirm.waits_until(&call, wall_time(now)),
            Some(wall_time(next))
        );
        assert_eq!(
            next_check(confirm.settle(&call, wall_time(now), false)),
            wall_time(next)
        );
    }
    let step = confirm.settle(&call, wall_time(24 * HOUR), false);
    let reason = Reason::Unconfirmed;
    assert!(
        matches!(&step, Step::Died { reason: it, .. } if *it == reason),
        "{step:?}"
    );
}

#[test]
fn expired_request_id_is_lost_or_call_is_unconfirmed() {
    let mut confirm = confirm();
    let call = submitted_call(1, now_at(0));
    let now = wall_time(24 * HOUR);
    assert_eq!(next_check(confirm.expired_step(&call, now)), now);
    confirm.refuse_polls(now_at(0), "403: xato");
    confirm.refuse_pages(now_at(0), "403");
    let Step::Died {
        reason, message, ..
    } = confirm.expired_step(&call, now)
    else {
        panic!("it counts as written");
    };
    assert_eq!(reason, Reason::Unconfirmed);
    let expected_part = "whether it is journaled (403: xato): check in the CRM";
    assert!(message.contains(expected_part), "{message}");
}
