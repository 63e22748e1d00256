//! Tests webhooks, pages, polls, and calls with a lost requestId.

use super::step::*;
use super::*;
use crate::testing::{T0, fingerprint, now_at, submitted_call, uuid};
use callbridge_model::{Now, TokenFingerprint};
use callbridge_spool::{HELD_MAX, IfAbsent, OutcomeSource, Step};

const S: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
pub(super) const HOUR: u64 = 3600;
const NONE: [i64; 0] = [];

pub(super) fn confirm() -> Confirm {
    Confirm::new(None, PageSize::LARGEST)
}

pub(super) fn wall_time(seconds: u64) -> EventTime {
    now_at(seconds).wall
}

pub(super) fn lost_call(id: i64, accepted: Now) -> Unconfirmed {
    Unconfirmed {
        request_id: None,
        token: TokenFingerprint::none(),
        message: "404".to_owned(),
        ..submitted_call(id, accepted)
    }
}

fn valid_tokens() -> [TokenFingerprint; 1] {
    [fingerprint()]
}

fn journal_page(ids: &[i64], total: Option<u32>) -> Page {
    Page {
        rows: u32::try_from(ids.len()).expect("few"),
        uuids: ids.iter().map(|id| uuid(*id)).collect(),
        total,
        ..Page::default()
    }
}

fn ids(calls: &[Unconfirmed]) -> Vec<i64> {
    calls.iter().map(|call| call.row.0).collect()
}

/// Starts a reading at this second for calls accepted at second 0, and returns its first page.
fn first_page(confirm: &mut Confirm, seconds: u64, calls: &[i64]) -> FilterPage {
    let calls = calls
        .iter()
        .map(|id| submitted_call(*id, now_at(0)))
        .collect();
    confirm
        .page(wall_time(seconds), calls, &valid_tokens())
        .expect("a page")
}

fn webhook_pace(at: EventTime) -> Option<WebhookPace> {
    Some(WebhookPace {
        turn: String::new(),
        at,
        after: S,
        usual: S,
    })
}

pub(super) fn next_check(step: Step) -> EventTime {
    match step {
        Step::NotYet { next_check, .. } | Step::Unresolved { next_check, .. } => next_check,
        other => panic!("{other:?}"),
    }
}

/// A call accepted at [`T0`] whose token outlives its requestId.
fn polled_call() -> (Unconfirmed, RequestIdEnd) {
    let call = submitted_call(1, now_at(0));
    let end = RequestIdEnd::new(&call, None);
    (call, end)
}

#[test]
fn polls_come_after_2_5_15_60_s_and_then_double_to_an_hour() {
    let (call, end) = polled_call();
    let mut now = call.next_poll;
    let mut waits = vec![now.since(T0).as_secs()];
    for polls in 1..13 {
        let next = next_poll(&call, polls, now, end);
        waits.push(next.since(now).as_secs());
        now = next;
    }
    let minutes = [120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600];
    assert_eq!(waits[..4], [2, 3, 10, 45]);
    assert_eq!(waits[4..], minutes);
}

#[test]
fn late_poll_is_not_followed_by_another_at_once() {
    let (call, end) = polled_call();
    let next = next_poll(&call, 1, wall_time(100), end);
    assert_eq!(next, wall_time(101));
}

#[test]
fn request_id_is_polled_twice_before_it_ends() {
    let (call, end) = polled_call();
    let before_end = |seconds| {
        T0.plus(24 * 60 * MINUTE)
            .minus(Duration::from_secs(seconds))
    };
    for (now, wanted, is_soon) in [
        (before_end(7200), before_end(3600), false),
        (before_end(4000), before_end(900), false),
        (before_end(900), before_end(60), true),
        (before_end(60), before_end(0).plus(59 * MINUTE), true),
    ] {
        assert_eq!(next_poll(&call, 12, now, end), wanted);
        assert_eq!(end.is_soon(now), is_soon, "{now}");
    }
    // A token that expires after eight minutes.
    let end = RequestIdEnd::new(&call, Some(wall_time(480)));
    assert_eq!(next_poll(&call, 5, wall_time(300), end), wall_time(360));
    assert_eq!(next_poll(&call, 5, wall_time(360), end), wall_time(420));
    assert!(!end.is_soon(wall_time(359)) && end.is_soon(wall_time(360)));
}

#[test]
fn absent_call_is_polled_before_its_request_id_ends() {
    let (call, _) = polled_call();
    let confirm = confirm();
    let end = RequestIdEnd::new(&call, Some(wall_time(7_200)));
    for (now, wanted) in [(4_000, 6_300), (6_300, 7_140)] {
        let step = confirm.absent_step(&call, wall_time(now), end);
        assert_eq!(next_check(step), wall_time(wanted));
    }
}

#[test]
fn webhook_wait_is_two_minutes_after_first_webhook() {
    let mut confirm = confirm();
    assert_eq!(confirm.webhook_wait(), Duration::ZERO);
    assert_eq!(confirm.written_before(wall_time(100)), wall_time(90));
    assert!(!confirm.note_webhook(None), "no pace is no change");
    assert!(confirm.note_webhook(webhook_pace(wall_time(1))));
    assert_eq!(confirm.webhook_wait(), 2 * MINUTE);
    assert_eq!(confirm.written_before(wall_time(200)), wall_time(80));
}

#[test]
fn webhook_wait_ends_after_three_calls_without_webhook() {
    let mut confirm = confirm();
    confirm.note_webhook(webhook_pace(wall_time(1)));
    for _ in 0..9 {
        confirm.note_journaled(wall_time(119), &submitted_call(1, now_at(0)));
    }
    for _ in 0..2 {
        confirm.note_journaled(wall_time(120), &submitted_call(1, now_at(0)));
    }
    assert!(confirm.awaits_webhooks());
    confirm.note_journaled(wall_time(120), &submitted_call(1, now_at(0)));
    assert!(!confirm.awaits_webhooks());
    assert!(
        !confirm.note_webhook(webhook_pace(wall_time(1))),
        "the same one"
    );
    assert!(!confirm.awaits_webhooks());
    confirm.note_webhook(webhook_pace(wall_time(130)));
    assert!(confirm.awaits_webhooks());
}

#[test]
fn call_accepted_before_a_journaled_one_is_passed_by() {
    let mut confirm = confirm();
    assert!(!confirm.is_passed_by(&submitted_call(1, now_at(0))));
    confirm.note_journaled(wall_time(60), &submitted_call(1, now_at(50)));
    assert!(confirm.is_passed_by(&submitted_call(2, now_at(49))));
    assert!(!confirm.is_passed_by(&submitted_call(2, now_at(50))));
    confirm.note_journaled(wall_time(60), &submitted_call(1, now_at(9_000)));
    assert!(
        !confirm.is_passed_by(&submitted_call(2, now_at(60))),
        "the clock was set back"
    );
}

#[test]
fn query_begins_shortly_before_the_oldest_call() {
    let mut confirm = confirm();
    let calls = vec![
        submitted_call(1, now_at(90)),
        submitted_call(2, now_at(50)),
        submitted_call(3, now_at(70)),
    ];
    let first = confirm
        .page(wall_time(200), calls, &valid_tokens())
        .expect("a page");
    assert_eq!((first.page, first.size.get()), (1, 100));
    assert_eq!(
        first.since.map(EpochSeconds::get),
        Some(wall_time(30).floor_seconds().get())
    );
    assert!(confirm.is_reading());
}

#[test]
fn query_begins_no_earlier_than_the_year_2000() {
    let mut confirm = confirm();
    let old = Unconfirmed {
        first_sent: EventTime::from_seconds(946_684_800 + 19),
        ..submitted_call(1, now_at(0))
    };
    let first = confirm
        .page(wall_time(30), vec![old], &valid_tokens())
        .expect("a page");
    assert_eq!(first.since.map(EpochSeconds::get), Some(946_684_800));
}

#[test]
fn query_of_calls_from_a_clock_ahead_has_no_start() {
    let mut confirm = confirm();
    let ahead = HELD_MAX.as_secs() + 1;
    let calls = vec![submitted_call(1, now_at(ahead))];
    let first = confirm
        .page(wall_time(0), calls, &valid_tokens())
        .expect("a page");
    assert_eq!(first.since, None);
    let calls = vec![
        submitted_call(1, now_at(ahead)),
        submitted_call(2, now_at(0)),
    ];
    let first = Confirm::new(None, PageSize::LARGEST).page(wall_time(0), calls, &valid_tokens());
    assert!(first.expect("a page").since.is_some());
}

#[test]
fn page_is_not_requested_without_due_calls() {
    let mut confirm = confirm();
    assert_eq!(
        confirm.page(wall_time(9), Vec::new(), &valid_tokens()),
        None
    );
    assert!(!confirm.is_reading());
    let waits = vec![lost_call(1, now_at(100))];
    assert_eq!(
        confirm.page(wall_time(9), waits, &valid_tokens()),
        None,
        "not due"
    );
}

#[test]
fn page_confirms_all_calls_that_it_shows() {
    let mut confirm = confirm();
    first_page(&mut confirm, 20, &[1, 2, 3]);
    let findings = confirm.on_page(wall_time(20), &journal_page(&[9, 3, 1, 2], Some(4)));
    assert_eq!(ids(&findings.found), [3, 1, 2]);
    assert_eq!(ids(&findings.absent), NONE);
    assert!(!confirm.is_reading(), "nothing is left to look for");
    assert!(confirm.is_passed_by(&submitted_call(
        9,
        Now {
            wall: T0.minus(S),
            ..now_at(0)
        }
    )));
}

#[test]
fn pages_are_read_until_all_expected_calls_are_found() {
    let mut confirm = confirm();
    first_page(&mut confirm, 20, &[1, 2]);
    let first = confirm.on_page(wall_time(20), &journal_page(&[1], Some(3)));
    assert_eq!((ids(&first.found), ids(&first.absent)), (vec![1], vec![]));
    let second = confirm
        .page(wall_time(21), Vec::new(), &valid_tokens())
        .expect("another page");
    assert_eq!(second.page, 2);
    let findings = confirm.on_page(wall_time(21), &journal_page(&[2], Some(3)));
    assert_eq!(ids(&findings.found), [2]);
    assert!(!confirm.is_reading());
}

#[test]
fn last_page_ends_the_reading_and_lists_absent_calls() {
    let mut confirm = confirm();
    first_page(&mut confirm, 20, &[1, 2]);
    let findings = confirm.on_page(wall_time(20), &journal_page(&[1], Some(1)));
    assert_eq!(
        (ids(&findings.found), ids(&findings.absent)),
        (vec![1], vec![2])
    );
    assert!(findings.is_complete && !confirm.is_reading());
    assert!(confirm.reads_pages(wall_time(20)), "one of ours was shown");
}

#[test]
fn reading_ends_after_ten_pages() {
    let mut confirm = confirm();
    first_page(&mut confirm, 20, &[1, 2]);
    confirm.on_page(wall_time(20), &journal_page(&[1], Some(99)));
    for number in 2..10 {
        assert!(confirm.is_reading(), "{number}");
        let findings = confirm.on_page(wall_time(20), &journal_page(&[9], Some(99)));
        assert_eq!(ids(&findings.absent), NONE);
    }
    let findings = confirm.on_page(wall_time(20), &journal_page(&[9], Some(99)));
    assert_eq!(ids(&findings.absent), [2]);
    assert!(!findings.is_complete && !confirm.is_reading());
}

#[test]
fn pages_that_show_none_of_our_calls_rest_for_an_hour() {
    let mut confirm = confirm();
    first_page(&mut confirm, 20, &[1]);
    confirm.on_page(wall_time(20), &journal_page(&[8, 9], Some(1)));
    assert!(!confirm.reads_pages(wall_time(20 + HOUR - 1)));
    assert!(confirm.reads_pages(wall_time(20 + HOUR)));
}

#[test]
fn call_younger_than_ten_seconds_is_not_absent() {
    let mut confirm = confirm();
    first_page(&mut confirm, 9, &[1, 2]);
    let findings = confirm.on_page(wall_time(9), &journal_page(&[1], Some(1)));
    assert_eq!(
        (ids(&findings.found), ids(&findings.absent)),
        (vec![1], vec![])
    );
    first_page(&mut confirm, 10, &[1, 2]);
    let findings = confirm.on_page(wall_time(10), &journal_page(&[1], Some(1)));
    assert_eq!(ids(&findings.absent), [2]);
}

#[test]
fn call_that_is_not_due_is_not_absent() {
    let far = wall_time(30).plus(HELD_MAX);
    for (next_poll, is_due) in [
        (wall_time(31), false),
        (wall_time(30), true),
        (far, false),
        // The clock was set back.
        (far.plus(S), true),
    ] {
        let other = Unconfirmed {
            next_poll,
            ..submitted_call(2, now_at(0))
        };
        let mut confirm = confirm();
        let calls = vec![submitted_call(1, now_at(0)), other];
        confirm
            .page(wall_time(30), calls, &valid_tokens())
            .expect("a page");
        let findings = confirm.on_page(wall_time(30), &journal_page(&[1], Some(1)));
        assert_eq!(ids(&findings.absent) == [2], is_due, "{next_poll}");
    }
}

#[test]
fn call_from_a_clock_ahead_can_be_absent() {
    let mut confirm = confirm();
    let ahead = Unconfirmed {
        next_poll: wall_time(0),
        ..submitted_call(2, now_at(HELD_MAX.as_secs() + 100))
    };
    let calls = vec![submitted_call(1, now_at(0)), ahead];
    confirm
        .page(wall_time(30), calls, &valid_tokens())
        .expect("a page");
    let findings = confirm.on_page(wall_time(30), &journal_page(&[1], Some(1)));
    assert_eq!(ids(&findings.absent), [2]);
}

#[test]
fn lost_calls_have_a_separate_reading_that_keeps_pages_on() {
    let mut confirm = confirm();
    let calls = vec![
        submitted_call(1, now_at(90)),
        lost_call(2, now_at(0)),
        submitted_call(3, now_at(80)),
    ];
    let first = confirm
        .page(wall_time(100), calls, &valid_tokens())
        .expect("a page");
    let start = T0.floor_seconds().get() - 20;
    assert_eq!(first.since.map(EpochSeconds::get), Some(start));
    let findings = confirm.on_page(wall_time(100), &journal_page(&[1, 3], Some(1)));
    assert_eq!(
        (ids(&findings.found), ids(&findings.absent)),
        (vec![], vec![2])
    );
    assert!(confirm.reads_pages(wall_time(100)));
}

#[test]
fn polled_call_is_removed_from_the_reading() {
    let mut confirm = confirm();
    first_page(&mut confirm, 20, &[1, 2]);
    confirm.is_polled(&submitted_call(1, now_at(0)));
    let findings = confirm.on_page(wall_time(20), &journal_page(&[1, 2], Some(1)));
    assert_eq!(ids(&findings.found), [2]);
}

#[test]
fn page_without_a_reading_changes_nothing() {
    let mut confirm = confirm();
    first_page(&mut confirm, 20, &[1]);
    confirm.drop_reading();
    let findings = confirm.on_page(wall_time(20), &journal_page(&[1], Some(1)));
    assert_eq!(findings, PageFindings::default());
    confirm.shrink_pages(wall_time(20));
    assert_eq!(confirm.page_size, PageSize::LARGEST);
}

#[test]
fn page_size_shrinks_to_30_then_pages_rest_for_an_hour() {
    let mut confirm = confirm();
    for size in [50, 30] {
        first_page(&mut confirm, 20, &[1]);
        confirm.shrink_pages(wall_time(20));
        assert_eq!(confirm.page_size.get(), size);
        let next = confirm
            .page(wall_time(20), Vec::new(), &valid_tokens())
            .expect("the same reading");
        assert_eq!((next.page, next.size.get()), (1, size));
        confirm.drop_reading();
        assert_eq!(first_page(&mut confirm, 20, &[1]).size.get(), size);
    }
    confirm.shrink_pages(wall_time(20));
    assert_eq!(confirm.page_size, PageSize::LARGEST);
    assert!(!confirm.reads_pages(wall_time(20)) && !confirm.is_reading());
}

#[test]
fn pages_refused_by_403_wait_for_token_info_a_minute_later() {
    let mut confirm = confirm();
    first_page(&mut confirm, 5, &[1]);
    confirm.refuse_pages(now_at(10), "403");
    assert!(!confirm.reads_pages(wall_time(9_000)) && !confirm.is_reading());
    confirm.token_read(now_at(69).boot);
    assert!(!confirm.reads_pages(wall_time(69)), "too soon");
    confirm.token_read(now_at(70).boot);
    assert!(confirm.reads_pages(wall_time(70)));
}

#[test]
fn polls_refused_by_403_keep_the_first_reason() {
    let mut confirm = confirm();
    confirm.refuse_polls(now_at(10), "403: one");
    confirm.refuse_polls(now_at(20), "403: two");
    let refused = confirm.polls_refused.clone().expect("refused");
    assert_eq!(
        (refused.reason.as_str(), refused.since),
        ("403: one", wall_time(10))
    );
    confirm.token_read(now_at(70).boot);
    assert_eq!(confirm.polls_refused, None);
}

#[test]
fn page_rest_is_ignored_after_clock_was_set_back() {
    let mut confirm = confirm();
    confirm.rest_pages(wall_time(100));
    assert!(!confirm.reads_pages(wall_time(100)));
    assert!(
        confirm.reads_pages(wall_time(99)),
        "it ends more than an hour ahead"
    );
}

#[test]
fn another_token_clears_403_of_polls_and_pages() {
    let mut confirm = confirm();
    first_page(&mut confirm, 20, &[1]);
    confirm.refuse_polls(now_at(20), "403");
    confirm.refuse_pages(now_at(20), "403");
    first_page(&mut confirm, 20, &[1]);
    confirm.forget_refusals();
    assert!(confirm.reads_pages(wall_time(20)) && !confirm.is_reading());
    assert_eq!(confirm.polls_refused, None);
    confirm.rest_pages(wall_time(20));
    confirm.forget_refusals();
    assert!(
        !confirm.reads_pages(wall_time(20)),
        "that is not about the token"
    );
}

#[test]
fn confirmation_is_impossible_without_polls_pages_and_webhooks() {
    let mut confirm = confirm();
    assert!(!confirm.is_impossible());
    confirm.refuse_polls(now_at(1), "403");
    assert!(!confirm.is_impossible());
    confirm.refuse_pages(now_at(1), "403");
    assert!(confirm.is_impossible());
    confirm.note_webhook(webhook_pace(wall_time(2)));
    assert!(!confirm.is_impossible());
}

#[test]
fn call_on_a_page_is_journaled_unless_its_values_changed() {
    let journaled = Step::Journaled(OutcomeSource::Confirmation);
    for if_absent in [
        IfAbsent::Resubmit,
        IfAbsent::Interrupted,
        IfAbsent::ServerError,
    ] {
        let call = Unconfirmed {
            if_absent,
            ..lost_call(1, now_at(0))
        };
        assert_eq!(found_step(&call), journaled);
    }
    let changed = Unconfirmed {
        if_absent: IfAbsent::Changed,
        ..lost_call(1, now_at(0))
    };
    assert_eq!(found_step(&changed), Step::too_late("404"));
}

#[test]
fn absent_call_is_checked_again_after_its_age() {
    let mut confirm = confirm();
    let call = Unconfirmed {
        absent: 1,
        ..submitted_call(1, now_at(0))
    };
    let end = RequestIdEnd::new(&call, None);
    for (now, wait) in [(10, 15), (100, 100), (9_000, 3600)] {
        let step = confirm.absent_step(&call, wall_time(now), end);
        let Step::NotYet { next_check, absent } = step else {
            panic!("{step:?}");
        };
        assert_eq!((next_check, absent), (wall_time(now + wait), Some(2)));
    }
    confirm.refuse_polls(now_at(100), "403");
    let step = confirm.absent_step(&call, wall_time(100), end);
    assert!(
        matches!(
            step,
            Step::NotYet {
                absent: Some(1),
                ..
            }
        ),
        "never left to polls"
    );
}
