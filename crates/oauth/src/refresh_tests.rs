//! Tests of when tokens are refreshed.

use super::*;
use proptest::prelude::*;

const S: Duration = Duration::from_secs(1);

/// Returns the time this many seconds after the start of a test, which is second 10,000 by the wall
/// clock.
fn now_at(seconds: u32) -> Now {
    Now {
        wall: EventTime::from_seconds(10_000 + i64::from(seconds)),
        boot: 500 * S + seconds * S,
    }
}

/// Returns [`now_at`] in the form returned by [`Refresher::next`].
fn boot_at(seconds: u32) -> Option<Duration> {
    Some(now_at(seconds).boot)
}

/// Returns the facts about the access token `name`, which was issued at second `from` and expires
/// `life` seconds later.
fn facts(name: &str, from: i64, life: i64) -> Facts {
    Facts {
        access: TokenFingerprint::of(name),
        issued_at: EpochSeconds::new(10_000 + from),
        expires_at: EpochSeconds::new(10_000 + from + life),
        began: false,
        refused_at: None,
        over: false,
    }
}

/// Returns a refresher with the access token `a`, which expires `life` seconds after the start.
fn refresher_with_token(life: i64) -> Refresher {
    let mut core = Refresher::default();
    core.adopt(now_at(0), &facts("a", 0, life));
    core
}

/// Returns the number of whole seconds from `now` to the next attempt. The random part of the wait
/// is less than a second.
fn seconds_until_next(core: &Refresher, now: u32) -> u64 {
    match core.next(now_at(now)) {
        Some(then) => then.saturating_sub(now_at(now).boot).as_secs(),
        other => panic!("{other:?}"),
    }
}

/// Reports that the CRM rejected the access token `name`.
fn refuse_token(core: &mut Refresher, name: &str) {
    core.on_token_used(&TokenFingerprint::of(name), false);
}

#[test]
fn token_refresh_is_five_minutes_early_or_at_half_life() {
    assert_eq!(refresher_with_token(3_600).next(now_at(0)), boot_at(3_300));
    assert_eq!(refresher_with_token(20).next(now_at(0)), boot_at(10));
    assert_eq!(refresher_with_token(600).next(now_at(0)), boot_at(300));
    assert!(refresher_with_token(3_600).is_due(now_at(3_300)));
    assert!(refresher_with_token(0).is_due(now_at(0)));
    assert_eq!(Refresher::default().next(now_at(0)), None);
}

#[test]
fn clock_set_back_does_not_extend_token_life() {
    let core = refresher_with_token(3_600);
    let back = Now {
        wall: EventTime::from_seconds(0),
        ..now_at(3_300)
    };
    assert!(core.is_due(back));
    assert!(core.is_usable(back));
    let end = Now {
        wall: EventTime::from_seconds(0),
        ..now_at(3_600)
    };
    assert!(!core.is_usable(end));
}

#[test]
fn refresh_is_not_due_while_another_is_under_way() {
    let mut core = refresher_with_token(20);
    assert!(!core.begin(now_at(10)), "its time had come");
    assert_eq!(core.next(now_at(30)), None);
    core.ended(now_at(31), RefreshOutcome::Rotated(facts("b", 30, 20)));
    assert_eq!(core.next(now_at(31)), boot_at(40));
}

#[test]
fn refresh_after_401_is_immediate_and_next_after_a_minute() {
    let mut core = refresher_with_token(3_600);
    refuse_token(&mut core, "a");
    assert!(core.is_due(now_at(7)));
    assert!(core.begin(now_at(7)));
    core.ended(now_at(8), RefreshOutcome::Rotated(facts("b", 7, 3_600)));
    refuse_token(&mut core, "a");
    assert_eq!(core.next(now_at(9)), boot_at(3_307), "that was the old one");
    refuse_token(&mut core, "b");
    assert_eq!(core.next(now_at(9)), boot_at(67));
    core.begin(now_at(67));
    core.ended(now_at(68), RefreshOutcome::Rotated(facts("c", 67, 3_600)));
    refuse_token(&mut core, "c");
    assert_eq!(core.next(now_at(69)), boot_at(67 + 120), "it does not help");
    core.on_token_used(&TokenFingerprint::of("c"), true);
    refuse_token(&mut core, "c");
    assert_eq!(core.next(now_at(69)), boot_at(67 + 60), "it had been good");
}

#[test]
fn minute_between_refreshes_after_401_survives_restart() {
    let mut core = Refresher::default();
    let before = facts("b", -10, 3_600);
    let refused_at = Some(EpochSeconds::new(9_990));
    core.adopt(
        now_at(0),
        &Facts {
            refused_at,
            ..before
        },
    );
    refuse_token(&mut core, "b");
    assert_eq!(core.next(now_at(0)), boot_at(50));
}

#[test]
fn short_lived_token_is_refreshed_on_time_despite_401() {
    let mut core = refresher_with_token(20);
    refuse_token(&mut core, "a");
    core.begin(now_at(1));
    core.ended(now_at(1), RefreshOutcome::Rotated(facts("b", 1, 20)));
    refuse_token(&mut core, "b");
    assert_eq!(core.next(now_at(2)), boot_at(11));
}

#[test]
fn refused_refresh_token_is_final_and_never_retried() {
    let mut core = refresher_with_token(20);
    core.begin(now_at(10));
    core.ended(now_at(10), RefreshOutcome::Refused);
    assert_eq!(core.next(now_at(10_000)), None);
    assert!(core.is_over());
    assert!(core.is_usable(now_at(19)), "the access token lives on");
    assert!(!core.is_usable(now_at(20)));
    let mut core = Refresher::default();
    let over = true;
    core.adopt(
        now_at(0),
        &Facts {
            over,
            ..facts("a", 0, 20)
        },
    );
    assert_eq!(core.next(now_at(15)), None);
    refuse_token(&mut core, "a");
    assert!(!core.is_usable(now_at(1)), "refused, and beyond refreshing");
    core.adopt(now_at(30), &facts("b", 30, 20));
    assert!(core.is_usable(now_at(30)), "connected again");
}

/// Makes this many attempts from `now` on, losing every response, and returns how many seconds the
/// refresher waits after each one.
fn waits_after_lost_answers(core: &mut Refresher, mut now: u32, tries: u32) -> Vec<u64> {
    let mut waits = Vec::new();
    for _ in 0..tries {
        assert!(core.is_due(now_at(now)));
        core.begin(now_at(now));
        core.ended(now_at(now), RefreshOutcome::Unsure);
        let wait = seconds_until_next(core, now);
        now += u32::try_from(wait).expect("small") + 1;
        waits.push(wait);
    }
    waits
}

#[test]
fn lost_answer_retry_halves_time_left_then_waits_5_minutes() {
    let mut core = refresher_with_token(3_600);
    let waits = waits_after_lost_answers(&mut core, 3_300, 7);
    assert_eq!(waits, [150, 74, 37, 60, 300, 300, 300]);
    assert!(!core.is_over(), "only a 400 is the end");
    core.begin(now_at(9_999));
    core.ended(
        now_at(9_999),
        RefreshOutcome::Rotated(facts("b", 9_999, 3_600)),
    );
    assert_eq!(core.next(now_at(9_999)), boot_at(9_999 + 3_300));
    assert!(core.is_usable(now_at(9_999)));
}

#[test]
fn lost_answer_is_retried_soon_if_token_is_unusable() {
    let mut core = refresher_with_token(3_600);
    refuse_token(&mut core, "a");
    assert_eq!(
        waits_after_lost_answers(&mut core, 5, 5),
        [2, 8, 20, 60, 300]
    );
    assert_eq!(
        waits_after_lost_answers(&mut refresher_with_token(20), 20, 5),
        [2, 8, 20, 60, 300]
    );
}

#[test]
fn killed_refresh_is_retried_at_once_after_restart() {
    let mut core = Refresher::default();
    let began = true;
    let facts = Facts {
        began,
        ..facts("a", 0, 3_600)
    };
    core.adopt(now_at(0), &facts);
    assert!(core.is_due(now_at(0)));
    core.begin(now_at(0));
    core.ended(now_at(1), RefreshOutcome::Unsure);
    assert!(!core.is_over());
    assert!(seconds_until_next(&core, 1) <= 300);
}

#[test]
fn refresh_of_another_process_is_awaited_for_45_seconds() {
    let mut stored = facts("a", 0, 20);
    let mut core = Refresher::default();
    stored.began = false;
    core.adopt(now_at(0), &stored);
    assert!(!core.await_other(now_at(0)), "none was noted");
    stored.began = true;
    core.adopt(now_at(0), &stored);
    assert!(core.await_other(now_at(0)));
    assert_eq!(
        core.next(now_at(30)),
        boot_at(45),
        "also when the token has ended"
    );
    assert!(core.is_due(now_at(45)));
    core.adopt(now_at(30), &facts("b", 29, 3_600));
    assert_eq!(core.next(now_at(30)), boot_at(3_329), "its pair has come");
}

#[test]
fn unsuccessful_refresh_is_retried_with_growing_pauses() {
    let mut core = refresher_with_token(20);
    let mut now = 10;
    for pause in [2, 4, 8, 16, 32, 60, 60] {
        assert!(core.is_due(now_at(now)));
        core.begin(now_at(now));
        core.ended(now_at(now), RefreshOutcome::NotSent);
        assert_eq!(core.next(now_at(now)), boot_at(now + pause));
        now += pause;
    }
    for pause in [2, 8, 20, 60, 300, 300] {
        assert!(core.is_due(now_at(now)));
        core.begin(now_at(now));
        core.ended(now_at(now), RefreshOutcome::NotDone);
        assert_eq!(
            seconds_until_next(&core, now),
            pause,
            "too many, or nobody's endpoint"
        );
        now += u32::try_from(pause).expect("small") + 1;
    }
    assert!(!core.is_over());
}

#[test]
fn unknown_client_is_retried_once_an_hour() {
    let mut core = refresher_with_token(20);
    for hour in 0..3 {
        let now = 10 + 3_600 * hour;
        assert!(core.is_due(now_at(now)));
        core.begin(now_at(now));
        core.ended(now_at(now), RefreshOutcome::WrongClient);
        assert!(core.is_client_refused() && !core.is_over());
        assert_eq!(core.next(now_at(now)), boot_at(now + 3_600));
    }
    let now = 10 + 3_600 * 3;
    core.begin(now_at(now));
    core.ended(
        now_at(now),
        RefreshOutcome::Rotated(facts("b", i64::from(now), 20)),
    );
    assert!(!core.is_client_refused() && core.is_usable(now_at(now)));
}

#[test]
fn blocked_company_token_is_kept_then_refreshed_as_usual() {
    let mut core = refresher_with_token(3_600);
    refuse_token(&mut core, "a");
    core.begin(now_at(10));
    core.ended(now_at(10), RefreshOutcome::WrongClient);
    assert!(core.is_client_refused());
    assert!(core.is_usable(now_at(11)), "it is asked with");
    refuse_token(&mut core, "a");
    assert_eq!(core.next(now_at(70)), boot_at(3_610));
    assert!(core.on_token_used(&TokenFingerprint::of("a"), true));
    assert!(!core.is_client_refused() && core.is_usable(now_at(90)));
    assert_eq!(core.next(now_at(90)), boot_at(3_300), "in its own time");
    assert!(
        !core.on_token_used(&TokenFingerprint::of("a"), true),
        "reported once"
    );
}

#[test]
fn refused_client_with_good_token_is_not_retried_at_once() {
    let mut core = refresher_with_token(20);
    core.begin(now_at(10));
    core.ended(now_at(10), RefreshOutcome::WrongClient);
    assert!(!core.on_token_used(&TokenFingerprint::of("a"), true));
    assert!(core.is_client_refused());
    assert_eq!(core.next(now_at(12)), boot_at(3_610));
}

#[test]
fn unblocked_company_is_tried_at_once_after_unsure_refreshes() {
    let mut core = refresher_with_token(3_600);
    refuse_token(&mut core, "a");
    let mut now = 0;
    for _ in 0..5 {
        core.begin(now_at(now));
        core.ended(now_at(now), RefreshOutcome::Unsure);
        now += u32::try_from(seconds_until_next(&core, now)).expect("small") + 1;
    }
    assert!(now > 300, "the last wait is five minutes");
    core.begin(now_at(now));
    core.ended(now_at(now), RefreshOutcome::WrongClient);
    assert_eq!(core.next(now_at(now)), boot_at(now + 3_600));
    assert!(core.on_token_used(&TokenFingerprint::of("a"), true));
    assert!(core.is_due(now_at(now)));
}

#[derive(Clone, Debug)]
enum Event {
    Pass(u32),
    Refused,
    Good,
    End(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0u32..200).prop_map(Event::Pass),
        2 => Just(Event::Refused),
        1 => Just(Event::Good),
        3 => (0u8..6).prop_map(Event::End),
    ]
}

proptest! {
    #[test]
    fn refreshes_are_single_and_a_minute_apart_after_401(
        life in 1i64..4_000, events in prop::collection::vec(event(), 1..80),
    ) {
        let mut core = Refresher::default();
        core.adopt(now_at(0), &facts("0", 0, life));
        let (mut now, mut under_way, mut last, mut name) = (0u32, false, None::<u32>, 0u32);
        let (mut unsure, mut tried, mut tried_before) = (0, None::<u32>, None);
        let (mut token_refused, mut client_refused) = (false, false);
        for event in events {
            match event {
                Event::Pass(seconds) => now += seconds,
                Event::Refused => {
                    refuse_token(&mut core, &format!("{name}"));
                    token_refused = true;
                }
                Event::Good => {
                    // The company was blocked (§3.1) and no longer is, so this is tried
                    // immediately.
                    let unblocked = token_refused && client_refused;
                    let fingerprint = TokenFingerprint::of(&format!("{name}"));
                    prop_assert_eq!(core.on_token_used(&fingerprint, true), unblocked);
                    token_refused = false;
                    if unblocked {
                        (tried, client_refused) = (None, false);
                    }
                }
                Event::End(how) if under_way => {
                    under_way = false;
                    let ended = match how {
                        0 => {
                            (name, unsure, tried) = (name + 1, 0, None);
                            token_refused = false;
                            RefreshOutcome::Rotated(facts(&format!("{name}"), i64::from(now), life))
                        }
                        1 => RefreshOutcome::Refused,
                        2 => {
                            client_refused = true;
                            RefreshOutcome::WrongClient
                        }
                        3 => {
                            unsure += 1;
                            RefreshOutcome::Unsure
                        }
                        4 => {
                            tried = tried_before;
                            RefreshOutcome::NotSent
                        }
                        _ => RefreshOutcome::NotDone,
                    };
                    let sent = !matches!(ended, RefreshOutcome::NotSent | RefreshOutcome::NotDone);
                    if !sent {
                        last = None;
                    }
                    core.ended(now_at(now), ended);
                }
                Event::End(_) => {}
            }
            if core.is_due(now_at(now)) {
                prop_assert!(!under_way);
                let since = tried.map(|tried| now - tried);
                let rarely = unsure < 5 || since.is_none_or(|since| since >= 300);
                prop_assert!(rarely, "the {unsure}. time after {since:?} s");
                tried_before = tried.replace(now);
                (under_way, client_refused) = (true, false);
                if core.begin(now_at(now)) && unsure == 0 {
                    prop_assert!(last.is_none_or(|last| now - last >= 60));
                    last = Some(now);
                }
            }
        }
    }
}
