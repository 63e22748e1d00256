use super::*;
use std::net::Ipv4Addr;

const fn from(n: u32) -> PeerGroup {
    PeerGroup::V4(Ipv4Addr::from_bits(n))
}

const fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Enters a try that is admitted, hashed at once, and wrong. Returns its wait.
fn wrong(throttle: &mut LoginThrottle, now: Duration, from: PeerGroup, name: &str) -> Duration {
    let admitted = throttle.enter(now, from, name).expect("admitted");
    throttle.leave(admitted.rank, false);
    admitted.wait
}

#[test]
fn waits_grow_after_five_wrong_passwords_to_two_seconds() {
    let mut throttle = LoginThrottle::default();
    let mut waits = Vec::new();
    for n in 0..10 {
        waits.push(wrong(&mut throttle, at(100 + n), from(1), "anna").as_millis());
    }
    assert_eq!(waits, [0, 0, 0, 0, 0, 1000, 1000, 2000, 2000, 2000]);
    let other = wrong(&mut throttle, at(110), from(2), "bek");
    assert_eq!(other, at(0), "another name from another address");
    let same_name = wrong(&mut throttle, at(110), from(3), "anna");
    assert_eq!(same_name, at(1), "the same name from another address");
    let later = wrong(&mut throttle, at(200), from(1), "anna");
    assert_eq!(later, at(0), "a minute later");
}

#[test]
fn pair_over_its_limit_has_one_try_under_way() {
    let mut throttle = LoginThrottle::default();
    for _ in 0..WRONG_MAX {
        wrong(&mut throttle, at(1), from(1), "anna");
    }
    let first = throttle.enter(at(2), from(1), "anna").expect("admitted");
    for _ in 0..1_000 {
        assert_eq!(throttle.enter(at(2), from(1), "anna"), None);
    }
    let other_name = throttle.enter(at(2), from(1), "bek");
    assert!(other_name.is_some(), "someone behind the same address");
    let other_address = throttle.enter(at(2), from(2), "anna");
    assert!(other_address.is_some(), "the owner of the name");
    throttle.leave(first.rank, false);
    assert!(throttle.enter(at(2), from(1), "anna").is_some());
}

#[test]
fn refused_tries_keep_no_address_over_its_limit() {
    let mut throttle = LoginThrottle::default();
    for _ in 0..WRONG_MAX {
        wrong(&mut throttle, at(1), from(1), "anna");
    }
    throttle.enter(at(2), from(1), "anna").expect("admitted");
    for second in 2..61 {
        assert_eq!(throttle.enter(at(second), from(1), "anna"), None);
    }
    // Only the try of second 2 counted in the last minute, and it has left now.
    throttle.pending.clear();
    assert_eq!(wrong(&mut throttle, at(63), from(1), "anna"), at(0));
}

#[test]
fn address_under_its_limit_is_hashed_before_a_flood() {
    let mut throttle = LoginThrottle::default();
    for _ in 0..WRONG_MAX {
        wrong(&mut throttle, at(1), from(1), "anna");
        wrong(&mut throttle, at(1), from(2), "bek");
    }
    let flood = throttle.enter(at(2), from(1), "anna").expect("admitted");
    let second = throttle.enter(at(2), from(2), "bek").expect("admitted");
    assert!(throttle.try_begin(flood.rank));
    assert!(!throttle.try_begin(second.rank), "one hash at a time");
    let owner = throttle.enter(at(3), from(3), "anna").expect("admitted");
    assert_eq!(owner.wait, WAIT_OF_OTHERS);
    assert!(!throttle.try_begin(owner.rank));
    throttle.leave(flood.rank, false);
    assert!(!throttle.try_begin(second.rank), "the owner is first");
    assert!(throttle.try_begin(owner.rank));
    throttle.leave(owner.rank, true);
    assert!(throttle.try_begin(second.rank));
}

#[test]
fn waiting_login_try_delays_no_other_try() {
    let mut throttle = LoginThrottle::default();
    let waits = throttle.enter(at(1), from(1), "anna").expect("admitted");
    let ready = throttle.enter(at(1), from(2), "bek").expect("admitted");
    assert!(throttle.try_begin(ready.rank));
    throttle.leave(ready.rank, true);
    assert!(throttle.try_begin(waits.rank));
}

#[test]
fn crowd_of_addresses_fills_a_bounded_queue() {
    let mut throttle = LoginThrottle::default();
    let mut admitted = 0;
    for n in 0..1_000 {
        let name = format!("name{n}");
        admitted += usize::from(throttle.enter(at(10), from(n), &name).is_some());
    }
    assert_eq!(admitted, PENDING_MAX);
    assert!(throttle.pending.len() <= PENDING_MAX + PENDING_OVER_MAX);
}

#[test]
fn address_over_its_limit_takes_no_place_of_those_under_it() {
    let mut throttle = LoginThrottle::default();
    for n in 0..1_000 {
        throttle.enter(at(10), from(1), &format!("name{n}"));
    }
    assert!(throttle.pending.len() <= WRONG_MAX + PENDING_OF_ONE_MAX);
    for n in 2..10 {
        assert!(throttle.enter(at(10), from(n), "anna").is_some(), "{n}");
    }
}

#[test]
fn names_and_addresses_that_change_wait_by_their_sum() {
    let mut throttle = LoginThrottle::default();
    for n in 0..200_u32 {
        let wait = wrong(&mut throttle, at(10), from(n), &format!("name{n}"));
        let expected = if n < 60 { at(0) } else { at(1) };
        assert_eq!(wait, expected, "{n}");
    }
}

#[test]
fn right_passwords_do_not_count() {
    let mut throttle = LoginThrottle::default();
    for n in 0..100 {
        let right = throttle
            .enter(at(n / 10), from(1), "anna")
            .expect("admitted");
        assert_eq!(right.wait, at(0));
        throttle.leave(right.rank, true);
    }
    assert!(throttle.addresses.is_empty() && throttle.names.is_empty());
    assert!(throttle.pending.is_empty());
}

#[test]
fn crowd_of_addresses_and_names_takes_bounded_memory() {
    let mut throttle = LoginThrottle::default();
    for n in 0..20_000 {
        let now = Duration::from_millis(u64::from(n) / 10);
        wrong(&mut throttle, now, from(n), &n.to_string());
    }
    assert!(throttle.addresses.len() <= KEYS_MAX);
    assert!(throttle.names.len() <= KEYS_MAX);
    for n in 0..200 {
        wrong(&mut throttle, at(3600), from(100_000 + n), "anna");
    }
    assert!(throttle.addresses.len() <= 200, "old tries make room");
}
