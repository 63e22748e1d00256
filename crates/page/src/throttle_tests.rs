use super::*;
use std::net::Ipv4Addr;

const fn client_group(n: u32) -> PeerGroup {
    PeerGroup::V4(Ipv4Addr::from_bits(n))
}

const fn time_at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Enters a wrong password that is admitted and hashed at once. Returns the wait before the
/// answer.
fn enter_wrong_password(
    throttle: &mut LoginThrottle,
    now: Duration,
    client: PeerGroup,
    name: &str,
) -> Duration {
    let admitted = throttle.enter(now, client, name).expect("admitted");
    throttle.leave(admitted.rank, false);
    admitted.wait
}

#[test]
fn waits_grow_after_five_wrong_passwords_to_two_seconds() {
    let mut throttle = LoginThrottle::default();
    let mut waits = Vec::new();
    for n in 0..10 {
        waits.push(
            enter_wrong_password(&mut throttle, time_at(100 + n), client_group(1), "anna")
                .as_millis(),
        );
    }
    assert_eq!(waits, [0, 0, 0, 0, 0, 1000, 1000, 2000, 2000, 2000]);
    let other = enter_wrong_password(&mut throttle, time_at(110), client_group(2), "bek");
    assert_eq!(other, time_at(0), "another name from another address");
    let same_name = enter_wrong_password(&mut throttle, time_at(110), client_group(3), "anna");
    assert_eq!(same_name, time_at(1), "the same name from another address");
    let later = enter_wrong_password(&mut throttle, time_at(200), client_group(1), "anna");
    assert_eq!(later, time_at(0), "a minute later");
}

#[test]
fn name_and_address_pair_over_its_limit_has_one_pending_try() {
    let mut throttle = LoginThrottle::default();
    for _ in 0..WRONG_MAX {
        enter_wrong_password(&mut throttle, time_at(1), client_group(1), "anna");
    }
    let first = throttle
        .enter(time_at(2), client_group(1), "anna")
        .expect("admitted");
    for _ in 0..1_000 {
        assert_eq!(throttle.enter(time_at(2), client_group(1), "anna"), None);
    }
    let other_name = throttle.enter(time_at(2), client_group(1), "bek");
    assert!(other_name.is_some(), "someone behind the same address");
    let other_address = throttle.enter(time_at(2), client_group(2), "anna");
    assert!(other_address.is_some(), "the owner of the name");
    throttle.leave(first.rank, false);
    assert!(
        throttle
            .enter(time_at(2), client_group(1), "anna")
            .is_some()
    );
}

#[test]
fn refused_tries_do_not_extend_the_limit_of_an_address() {
    let mut throttle = LoginThrottle::default();
    for _ in 0..WRONG_MAX {
        enter_wrong_password(&mut throttle, time_at(1), client_group(1), "anna");
    }
    throttle
        .enter(time_at(2), client_group(1), "anna")
        .expect("admitted");
    for second in 2..61 {
        assert_eq!(
            throttle.enter(time_at(second), client_group(1), "anna"),
            None
        );
    }
    // Only the try at second 2 counted in the last minute. The next line removes that try.
    throttle.pending.clear();
    assert_eq!(
        enter_wrong_password(&mut throttle, time_at(63), client_group(1), "anna"),
        time_at(0)
    );
}

#[test]
fn password_of_address_under_its_limit_is_hashed_first() {
    let mut throttle = LoginThrottle::default();
    for _ in 0..WRONG_MAX {
        enter_wrong_password(&mut throttle, time_at(1), client_group(1), "anna");
        enter_wrong_password(&mut throttle, time_at(1), client_group(2), "bek");
    }
    let flood = throttle
        .enter(time_at(2), client_group(1), "anna")
        .expect("admitted");
    let second = throttle
        .enter(time_at(2), client_group(2), "bek")
        .expect("admitted");
    assert!(throttle.try_begin(flood.rank));
    assert!(!throttle.try_begin(second.rank), "one hash at a time");
    let owner = throttle
        .enter(time_at(3), client_group(3), "anna")
        .expect("admitted");
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
    let waits = throttle
        .enter(time_at(1), client_group(1), "anna")
        .expect("admitted");
    let ready = throttle
        .enter(time_at(1), client_group(2), "bek")
        .expect("admitted");
    assert!(throttle.try_begin(ready.rank));
    throttle.leave(ready.rank, true);
    assert!(throttle.try_begin(waits.rank));
}

#[test]
fn login_queue_is_bounded_with_many_addresses() {
    let mut throttle = LoginThrottle::default();
    let mut admitted = 0;
    for n in 0..1_000 {
        let name = format!("name{n}");
        admitted += usize::from(
            throttle
                .enter(time_at(10), client_group(n), &name)
                .is_some(),
        );
    }
    assert_eq!(admitted, PENDING_MAX);
    assert!(throttle.pending.len() <= PENDING_MAX + PENDING_OVER_MAX);
}

#[test]
fn address_over_its_limit_blocks_no_other_address() {
    let mut throttle = LoginThrottle::default();
    for n in 0..1_000 {
        throttle.enter(time_at(10), client_group(1), &format!("name{n}"));
    }
    assert!(throttle.pending.len() <= WRONG_MAX + PENDING_OF_ONE_MAX);
    for n in 2..10 {
        assert!(
            throttle
                .enter(time_at(10), client_group(n), "anna")
                .is_some(),
            "{n}"
        );
    }
}

#[test]
fn tries_with_new_names_and_addresses_share_one_limit() {
    let mut throttle = LoginThrottle::default();
    for n in 0..200_u32 {
        let wait = enter_wrong_password(
            &mut throttle,
            time_at(10),
            client_group(n),
            &format!("name{n}"),
        );
        let expected = if n < 60 { time_at(0) } else { time_at(1) };
        assert_eq!(wait, expected, "{n}");
    }
}

#[test]
fn right_passwords_do_not_count() {
    let mut throttle = LoginThrottle::default();
    for n in 0..100 {
        let right = throttle
            .enter(time_at(n / 10), client_group(1), "anna")
            .expect("admitted");
        assert_eq!(right.wait, time_at(0));
        throttle.leave(right.rank, true);
    }
    assert!(throttle.addresses.is_empty() && throttle.names.is_empty());
    assert!(throttle.pending.is_empty());
}

#[test]
fn login_throttle_memory_is_bounded() {
    let mut throttle = LoginThrottle::default();
    for n in 0..20_000 {
        let now = Duration::from_millis(u64::from(n) / 10);
        enter_wrong_password(&mut throttle, now, client_group(n), &n.to_string());
    }
    assert!(throttle.addresses.len() <= KEYS_MAX);
    assert!(throttle.names.len() <= KEYS_MAX);
    for n in 0..200 {
        enter_wrong_password(
            &mut throttle,
            time_at(3600),
            client_group(100_000 + n),
            "anna",
        );
    }
    assert!(throttle.addresses.len() <= 200, "old tries make room");
}
