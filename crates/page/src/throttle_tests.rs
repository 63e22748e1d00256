use super::*;
use std::net::Ipv4Addr;

const fn client_group(n: u32) -> PeerGroup {
    PeerGroup::V4(Ipv4Addr::from_bits(n))
}

const fn time_at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Enters a wrong password that's admitted and hashed immediately, and returns the wait before the
/// response.
fn enter_wrong_password(
    throttle: &mut LoginThrottle,
    now: Duration,
    client: PeerGroup,
    name: &str,
) -> Duration {
    let admitted = enter(throttle, now, client, name);
    throttle.leave(admitted.rank, false);
    admitted.wait
}

/// Enters an attempt. If it displaces another one, that's the one that has been waiting the
/// longest.
fn enter(throttle: &mut LoginThrottle, now: Duration, client: PeerGroup, name: &str) -> Admitted {
    throttle.enter(now, client, name, |_| 0)
}

fn begins(throttle: &mut LoginThrottle, admitted: Admitted) -> bool {
    throttle.try_begin(admitted.rank) == LoginTurn::Hash
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
fn password_of_address_under_its_limit_is_hashed_first() {
    let mut throttle = LoginThrottle::default();
    for _ in 0..WRONG_MAX {
        enter_wrong_password(&mut throttle, time_at(1), client_group(1), "anna");
        enter_wrong_password(&mut throttle, time_at(1), client_group(2), "bek");
    }
    let flood = enter(&mut throttle, time_at(2), client_group(1), "anna");
    let second = enter(&mut throttle, time_at(2), client_group(2), "bek");
    assert!(begins(&mut throttle, flood));
    assert!(!begins(&mut throttle, second), "one hash at a time");
    let owner = enter(&mut throttle, time_at(3), client_group(3), "anna");
    assert_eq!(owner.wait, WAIT_OF_OTHERS);
    assert!(!begins(&mut throttle, owner));
    throttle.leave(flood.rank, false);
    assert!(!begins(&mut throttle, second), "the owner is first");
    assert!(begins(&mut throttle, owner));
    throttle.leave(owner.rank, true);
    assert!(begins(&mut throttle, second));
}

#[test]
fn waiting_login_try_delays_no_other_try() {
    let mut throttle = LoginThrottle::default();
    let waits = enter(&mut throttle, time_at(1), client_group(1), "anna");
    let ready = enter(&mut throttle, time_at(1), client_group(2), "bek");
    assert!(begins(&mut throttle, ready));
    throttle.leave(ready.rank, true);
    assert!(begins(&mut throttle, waits));
}

/// Fills all places from a single address over its limit, and returns the attempts.
fn fill_places(throttle: &mut LoginThrottle) -> Vec<Admitted> {
    let mut tries = Vec::new();
    for _ in 0..WRONG_MAX + PLACES {
        tries.push(enter(throttle, time_at(10), client_group(1), "anna"));
    }
    tries.split_off(WRONG_MAX)
}

#[test]
fn new_try_displaces_a_random_waiting_one_once_places_are_full() {
    let mut throttle = LoginThrottle::default();
    let tries = fill_places(&mut throttle);
    for (rank, pending) in &throttle.pending {
        assert!(rank.address_is_over || pending.from == client_group(1));
    }
    let of_address = throttle.addresses[&client_group(1)].0.len();
    let owner = throttle.enter(time_at(11), client_group(1), "anna", |below| {
        assert_eq!(below, PLACES);
        7
    });
    assert_eq!(throttle.try_begin(tries[7].rank), LoginTurn::Displaced);
    assert_eq!(throttle.try_begin(owner.rank), LoginTurn::Hash);
    let counted = throttle.addresses[&client_group(1)].0.len();
    assert_eq!(
        counted, of_address,
        "a displaced try isn't a wrong password"
    );
    throttle.leave(owner.rank, true);
    assert_eq!(throttle.try_begin(tries[0].rank), LoginTurn::Hash);
    enter(&mut throttle, time_at(11), client_group(1), "anna");
    throttle.enter(time_at(11), client_group(1), "anna", |below| {
        assert_eq!(below, PLACES - 1, "all but the one that is hashed");
        0
    });
    assert!(throttle.pending.contains_key(&tries[0].rank));
}

#[test]
fn flood_of_one_address_displaces_only_its_own_tries() {
    let mut throttle = LoginThrottle::default();
    for _ in 0..WRONG_MAX {
        enter_wrong_password(&mut throttle, time_at(9), client_group(2), "bek");
    }
    let other = enter(&mut throttle, time_at(9), client_group(2), "bek");
    for n in 0..1_000 {
        enter(
            &mut throttle,
            time_at(10),
            client_group(1),
            &format!("name{n}"),
        );
    }
    assert!(begins(&mut throttle, other), "it is the oldest");
    assert!(throttle.pending.len() <= WRONG_MAX + PLACES);
}

#[test]
fn login_queue_is_bounded_with_many_addresses() {
    let mut throttle = LoginThrottle::default();
    for n in 0..1_000 {
        enter(
            &mut throttle,
            time_at(10),
            client_group(n),
            &format!("name{n}"),
        );
    }
    assert_eq!(throttle.pending.len(), PLACES);
    for n in 0..1_000 {
        enter(&mut throttle, time_at(10), client_group(n % 8), "anna");
    }
    assert!(throttle.pending.len() <= 2 * PLACES);
}

/// How long it takes to hash a password.
const HASH: Duration = Duration::from_millis(100);
/// How long a client waits before sending its next password, which is also the simulation's step.
const RETRY: Duration = Duration::from_millis(20);

/// A client that sends one password after another.
struct Client {
    name: &'static str,
    /// Starts with the time of its next attempt.
    tries: ClientTry,
}

enum ClientTry {
    From(Duration),
    Pending { began: Duration, admitted: Admitted },
}

/// SplitMix64 by Steele and Vigna.
struct SplitMix64(u64);

impl SplitMix64 {
    /// Returns a number below `limit`.
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % limit as u64).expect("below the limit")
    }
}

/// Simulates clients that send wrong passwords from one address, and an administrator there who
/// types the right one 15 times. Returns how many of the administrator's attempts are accepted
/// within 10 seconds.
fn accepted_beside_flood(seed: u64, parallel: u64) -> usize {
    let mut random = SplitMix64(seed);
    let mut throttle = LoginThrottle::default();
    let mut clients = Vec::new();
    for n in 0..parallel {
        let name = if n % 2 == 0 { "anna" } else { "bek" };
        let tries = ClientTry::From(Duration::from_millis(n));
        clients.push(Client { name, tries });
    }
    // The administrator arrives when the flood is at its peak.
    clients.push(Client {
        name: "anna",
        tries: ClientTry::From(time_at(20)),
    });
    let administrator = clients.len() - 1;
    let (mut tried, mut accepted) = (0, 0);
    let mut hashing: Option<(usize, Duration)> = None;
    let mut now = Duration::ZERO;
    while tried < 15 {
        now += RETRY;
        if let Some((index, _)) = hashing.filter(|(_, until)| *until <= now) {
            hashing = None;
            let client = &mut clients[index];
            let ClientTry::Pending { began, admitted } = client.tries else {
                panic!("a try is hashed");
            };
            throttle.leave(admitted.rank, index == administrator);
            if index == administrator {
                tried += 1;
                accepted += usize::from(now - began <= time_at(10));
            }
            client.tries = ClientTry::From(now + RETRY);
        }
        for (index, client) in clients.iter_mut().enumerate() {
            match client.tries {
                ClientTry::From(at) if at <= now => {
                    let group = client_group(1);
                    let admitted =
                        throttle.enter(now, group, client.name, &mut |limit| random.below(limit));
                    let began = now;
                    client.tries = ClientTry::Pending { began, admitted };
                }
                ClientTry::Pending { began, admitted } if began + admitted.wait <= now => {
                    if hashing.is_some_and(|(hashed, _)| hashed == index) {
                        continue;
                    }
                    match throttle.try_begin(admitted.rank) {
                        LoginTurn::Hash => hashing = Some((index, now + HASH)),
                        LoginTurn::Wait => {}
                        LoginTurn::Displaced => {
                            tried += usize::from(index == administrator);
                            client.tries = ClientTry::From(now.max(began + WAIT_MAX) + RETRY);
                        }
                    }
                }
                ClientTry::From(_) | ClientTry::Pending { .. } => {}
            }
        }
    }
    accepted
}

#[test]
fn right_passwords_get_in_beside_40_attempts_of_their_address() {
    for seed in 0..5 {
        let accepted = accepted_beside_flood(seed, 40);
        assert!(accepted >= 13, "seed {seed}: {accepted} of 15");
    }
}

#[test]
fn some_right_passwords_get_in_beside_more_attempts_than_places() {
    let accepted: usize = (0..5).map(|seed| accepted_beside_flood(seed, 100)).sum();
    assert!(accepted >= 5, "{accepted} of 75");
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
        let right = enter(&mut throttle, time_at(n / 10), client_group(1), "anna");
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
