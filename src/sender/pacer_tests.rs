//! The pacer against a fixed window of any origin, through delays, stalls and restarts.

use super::*;
use proptest::prelude::*;

const S: Duration = Duration::from_secs(1);

fn rate(text: &str) -> Rate {
    text.parse().expect("a rate")
}

fn fresh(text: &str) -> Pacer {
    Pacer::start(rate(text), Past::Fresh, Duration::ZERO)
}

/// Sends and answers at `now` until refused; how many went.
fn burst(pacer: &mut Pacer, now: Duration) -> u32 {
    let mut sent = 0;
    while let Ok(slot) = pacer.take(now, Pace::AtOnce) {
        pacer.ended(slot, now).expect("a slot under way");
        sent += 1;
    }
    sent
}

#[test]
fn a_fresh_state_sends_its_whole_limit_at_once_and_then_nothing_for_a_window() {
    let mut pacer = fresh("60/60s");
    assert_eq!(burst(&mut pacer, S), 60);
    assert_eq!(pacer.used(S), 60);
    assert_eq!(burst(&mut pacer, 61 * S), 0);
    let free = pacer.frees(61 * S).next().expect("a slot");
    assert_eq!(free, Some(61 * S + Duration::from_millis(30)));
    assert_eq!(burst(&mut pacer, 61 * S + Duration::from_millis(30)), 60);
}

#[test]
fn a_slot_is_free_a_window_after_its_answer_not_after_its_sending() {
    let mut pacer = fresh("1/60s");
    let slot = pacer.take(S, Pace::AtOnce).expect("free");
    assert_eq!(pacer.take(100 * S, Pace::AtOnce), Err(None));
    pacer.ended(slot, 100 * S);
    let free = 160 * S + Duration::from_millis(30);
    assert_eq!(pacer.take(159 * S, Pace::AtOnce), Err(Some(free)));
    assert_eq!(pacer.take(free, Pace::AtOnce), Ok(slot));
}

#[test]
fn a_request_that_was_never_sent_gives_its_slot_back() {
    let mut pacer = fresh("1/60s");
    let slot = pacer.take(S, Pace::AtOnce).expect("free");
    pacer.never_sent(slot);
    assert_eq!(pacer.take(S, Pace::AtOnce), Ok(slot));
}

#[test]
fn a_backlog_goes_evenly_and_a_live_call_does_not_wait_for_it() {
    let mut pacer = fresh("60/60s");
    let mut now = S;
    let mut sent = Vec::new();
    while sent.len() < 20 {
        match pacer.take(now, Pace::Even) {
            Ok(_) => sent.push(now),
            Err(at) => now = at.expect("a moment"),
        }
    }
    assert_eq!(sent.iter().filter(|at| **at == S).count(), 15);
    assert_eq!(sent[19], 6 * S, "then one a second");
    assert!(pacer.take(now, Pace::Even).is_err());
    assert!(pacer.take(now, Pace::AtOnce).is_ok());
}

#[test]
fn a_restart_in_the_same_boot_forgets_nothing_and_waits_for_nothing_else() {
    let mut pacer = fresh("3/60s");
    let first = pacer.take(S, Pace::AtOnce).expect("free");
    pacer.ended(first, 2 * S);
    pacer.take(3 * S, Pace::AtOnce).expect("free");
    let kept = pacer.uses(4 * S).collect();
    let mut again = Pacer::start(rate("3/60s"), Past::Known(kept), 10 * S);
    assert_eq!(again.used(10 * S), 2);
    assert!(again.take(10 * S, Pace::AtOnce).is_ok());
    let ends: Vec<_> = again.uses(10 * S).map(|(_, one)| one.ended).collect();
    assert_eq!(
        ends,
        [Some(2 * S), Some(10 * S + STRAGGLER), None],
        "killed under way: now"
    );
}

#[test]
fn a_reboot_is_followed_by_a_window_of_silence() {
    let mut pacer = Pacer::start(rate("60/60s"), Past::Doubtful(vec![0, 7]), S);
    let until = S + STRAGGLER + 60 * S + Duration::from_millis(30);
    assert_eq!(pacer.take(S, Pace::AtOnce), Err(Some(until)));
    assert_eq!(pacer.silent_until(), Some(until));
    assert_eq!(burst(&mut pacer, until), 60);
}

#[test]
fn at_the_moment_a_slot_comes_free_it_is_used_no_more() {
    let mut pacer = fresh("2/60s");
    assert_eq!(pacer.rate(), rate("2/60s"));
    assert_eq!(burst(&mut pacer, S), 2);
    let free = pacer.frees(S).next().flatten().expect("answered");
    let before = free - Duration::from_nanos(1);
    assert_eq!((pacer.used(before), pacer.used(free)), (2, 0));
    assert_eq!(pacer.uses(free).count(), 0);
}

#[test]
fn a_429_a_whole_window_after_another_halves_the_pace_again() {
    let mut pacer = fresh("60/60s");
    pacer.refused(S);
    pacer.refused(61 * S - Duration::from_nanos(1));
    assert_eq!(pacer.allowed(61 * S), 30);
    pacer.refused(61 * S);
    assert_eq!(pacer.allowed(61 * S), 15);
}

#[test]
fn a_lower_limit_after_a_restart_counts_what_the_higher_one_sent() {
    let mut pacer = fresh("60/60s");
    assert_eq!(burst(&mut pacer, S), 60);
    let kept = pacer.uses(S).collect();
    let mut lower = Pacer::start(rate("10/60s"), Past::Known(kept), 2 * S);
    assert_eq!(burst(&mut lower, 60 * S), 0);
    assert_eq!(burst(&mut lower, 62 * S), 10);
}

#[test]
fn a_429_halves_the_pace_once_a_window_and_ten_windows_give_one_back() {
    let mut pacer = fresh("60/60s");
    pacer.refused(S);
    pacer.refused(2 * S);
    assert_eq!(pacer.allowed(3 * S), 30);
    assert!(pacer.is_shared(3 * S));
    assert_eq!(pacer.allowed(S + 600 * S), 31);
    pacer.refused(100 * S);
    assert_eq!(pacer.allowed(100 * S), 15);
    assert_eq!(pacer.allowed(100_000 * S), 60);
    assert!(!pacer.is_shared(100_000 * S));
}

/// What happens to the world between two requests, in milliseconds.
#[derive(Clone, Debug)]
enum Event {
    /// A request: the commit stalls, the way there, the way back. Beyond 30 s: a time-out.
    Request { stall: u64, there: u64, back: u64 },
    /// Time passes.
    Idle(u64),
    /// Killed and started again within the boot.
    Restart { down: u64 },
    /// The machine started anew.
    Reboot { down: u64 },
}

fn event() -> impl Strategy<Value = Event> {
    let quick = || prop_oneof![4 => 0..300_u64, 2 => 0..5_000_u64, 1 => 0..70_000_u64];
    prop_oneof![
        24 => (prop_oneof![8 => Just(0), 1 => 0..4_000_u64], quick(), quick())
            .prop_map(|(stall, there, back)| Event::Request { stall, there, back }),
        4 => quick().prop_map(Event::Idle),
        1 => (0..3_000_u64).prop_map(|down| Event::Restart { down }),
        1 => (20_000..60_000_u64).prop_map(|down| Event::Reboot { down }),
    ]
}

/// Plays the events; the moments of arrival, in milliseconds, however late they came.
fn arrivals(limit: u32, events: &[Event]) -> Vec<u64> {
    const TIME_OUT: u64 = 30_000;
    let rate = rate(&format!("{limit}/60s"));
    let ms = Duration::from_millis;
    let (mut now, mut arrived) = (0, Vec::new());
    let mut pacer = Pacer::start(rate, Past::Fresh, ms(now));
    let mut under_way: Vec<(u32, u64, u64)> = Vec::new(); // slot, seen, counted as ended
    let settle = |pacer: &mut Pacer, under_way: &mut Vec<(u32, u64, u64)>, now| {
        under_way.retain(|&(slot, seen, ended)| {
            let open = seen > now;
            if !open {
                pacer.ended(slot, ms(ended)).expect("under way");
            }
            open
        });
    };
    for event in events {
        match *event {
            Event::Request { stall, there, back } => {
                settle(&mut pacer, &mut under_way, now);
                let Ok(slot) = pacer.take(ms(now), Pace::AtOnce) else {
                    now += 250;
                    continue;
                };
                let left = now + stall;
                // what has not arrived 5 s after the connection was closed never does
                if there < TIME_OUT + 5_000 {
                    arrived.push(left + there);
                }
                let answer = left + there + back;
                let out = left + TIME_OUT;
                let end = if answer < out {
                    (answer, answer)
                } else {
                    (out, out + 5_000)
                };
                under_way.push((slot, end.0, end.1));
                now = left;
            }
            Event::Idle(for_ms) => now += for_ms,
            Event::Restart { down } => {
                settle(&mut pacer, &mut under_way, now);
                let kept = pacer.uses(ms(now)).collect();
                // the kill closed the connections: what is not there 5 s later is lost
                let closed = now;
                arrived.retain(|at| *at < closed + 5_000);
                now += down;
                under_way.clear();
                pacer = Pacer::start(rate, Past::Known(kept), ms(now));
            }
            Event::Reboot { down } => {
                let kept = pacer.uses(ms(now)).map(|(slot, _)| slot).collect();
                let closed = now;
                arrived.retain(|at| *at < closed + 5_000);
                now += down;
                under_way.clear();
                pacer = Pacer::start(rate, Past::Doubtful(kept), ms(now));
            }
        }
    }
    arrived.sort_unstable();
    arrived
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn no_window_of_any_origin_holds_more_than_the_limit(
        limit in 1..6_u32, events in prop::collection::vec(event(), 1..120),
    ) {
        let arrived = arrivals(limit, &events);
        for (first, opened) in arrived.iter().enumerate() {
            let held = arrived[first..].iter().take_while(|at| **at < opened + 60_000).count();
            prop_assert!(
                held <= limit as usize,
                "{held} arrivals in the window from {opened} ms: {arrived:?}"
            );
        }
    }
}
