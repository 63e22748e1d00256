//! Tests that a full listener closes the right connection to make room.

use super::*;

fn origin(last: u8) -> PeerGroup {
    PeerGroup::V4(Ipv4Addr::new(192, 0, 2, last))
}

/// Closes one connection, and returns its origin and number.
fn cut(places: &Places, roll: impl FnMut(usize) -> usize) -> Option<(PeerGroup, u64)> {
    let mut taken = places.taken.lock();
    let (origin, id) = taken.choose_connection(roll)?;
    taken.leave(origin, id);
    Some((origin, id))
}

#[test]
fn connections_of_the_largest_group_are_cut_first() {
    let places = Places::default();
    let service = places.enter(origin(1));
    let flood: Vec<ConnectionPlace> = (0..200).map(|_| places.enter(origin(2))).collect();
    for _ in 0..199 {
        let (cut_origin, id) = cut(&places, random).expect("a connection waits");
        assert_eq!(cut_origin, origin(2));
        assert_ne!(id, service.id);
    }
    assert_eq!(places.held(), 201, "they end when they are dropped");
    drop(flood);
    assert_eq!(places.held(), 1);
}

#[test]
fn newest_half_of_connections_from_one_address_is_not_cut() {
    let places = Places::default();
    let mut all: BTreeMap<u64, ConnectionPlace> = BTreeMap::new();
    for _ in 0..100 {
        let place = places.enter(origin(1));
        all.insert(place.id, place);
    }
    for _ in 0..1_000 {
        let place = places.enter(origin(1));
        let newest = place.id;
        all.insert(newest, place);
        let (_, id) = cut(&places, random).expect("a connection waits");
        all.remove(&id);
        let younger = all.range(id..).count();
        assert!(
            younger >= 50,
            "{id} of {newest} was cut with {younger} after it"
        );
    }
}

/// Pairs each connection number with the origin of the address `192.0.2.last`.
fn connections(last: u8, ids: [u64; 2]) -> [(PeerGroup, u64); 2] {
    ids.map(|id| (origin(last), id))
}

#[test]
fn connection_to_cut_is_random_among_equal_origins() {
    let places = Places::default();
    let _all: Vec<ConnectionPlace> = [1, 1, 1, 1, 2, 2, 2, 2, 3]
        .map(|last| places.enter(origin(last)))
        .into();
    let taken = places.taken.lock();
    let mut seen = std::collections::BTreeSet::new();
    for first in 0..2 {
        for second in 0..2 {
            let mut rolls = [first, second].into_iter();
            let mut below = Vec::new();
            let chosen = taken.choose_connection(|most| {
                below.push(most);
                rolls.next().expect("two rolls")
            });
            assert_eq!(below, [2, 2], "two origins, the older half of four");
            seen.insert(chosen.expect("a connection"));
        }
    }
    let expected: std::collections::BTreeSet<_> = connections(1, [0, 1])
        .into_iter()
        .chain(connections(2, [4, 5]))
        .collect();
    assert_eq!(seen, expected);
}

fn group(address: &str) -> PeerGroup {
    PeerGroup::from(address.parse::<IpAddr>().expect("an address"))
}

#[test]
fn ipv6_addresses_with_the_same_first_half_are_one_origin() {
    assert_eq!(group("2001:db8:0:1::1"), group("2001:db8:0:1:ffff::2"));
    assert_ne!(group("2001:db8:0:1::1"), group("2001:db8:0:2::1"));
    assert_eq!(group("::ffff:192.0.2.1"), group("192.0.2.1"));
    assert_ne!(group("192.0.2.1"), group("192.0.2.2"));
}

#[tokio::test]
async fn answering_connection_is_kept_and_waiting_one_is_cut() {
    let places = Places::default();
    let (first, second) = (places.enter(origin(1)), places.enter(origin(2)));
    let tasks: Vec<_> = [&first, &second]
        .map(|place| {
            let task = tokio::spawn(std::future::pending::<()>());
            places.may_cut(place.id, place.origin, task.abort_handle());
            task
        })
        .into();
    let answering = first.answer();
    assert!(places.make_room(), "the second waits");
    assert!(!places.is_anybody_waiting());
    assert!(!places.make_room(), "the first is being answered");
    drop(answering);
    assert!(places.make_room());
    for task in tasks {
        assert!(task.await.expect_err("cut").is_cancelled());
    }
}

#[test]
fn closed_connection_frees_its_place() {
    let places = Places::default();
    drop(places.enter(origin(1)));
    assert!(!places.make_room());
    assert_eq!(places.held(), 0);
}
