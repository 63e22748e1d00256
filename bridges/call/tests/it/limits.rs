//! Tests that memory use stays within limits under excessive input, and that calls exceeding those
//! limits are reported as incomplete.

use crate::story::{
    Channel, Story, assembler, channel, customer, employee, moment, seconds, settings,
};
use callbridge_call::ChannelState::{Down, Ring};
use callbridge_call::{Assembler, Direction, FinishedCall, Settings};
use std::collections::BTreeSet;
use std::time::Duration;

fn send_events(assembler: &mut Assembler, story: &Story) {
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
}

/// Takes the changes, and returns the size in bytes of the largest open call's snapshot.
fn largest_snapshot_size(assembler: &mut Assembler) -> usize {
    let changes = assembler.take_changes();
    let snapshots = changes.into_iter().filter_map(|change| change.snapshot);
    snapshots.map(|snapshot| snapshot.len()).max().unwrap_or(0)
}

#[test]
fn open_calls_never_exceed_max_open_calls() {
    let mut assembler = Assembler::new(Settings {
        max_open_calls: 500,
        ..settings()
    });
    let mut incomplete = 0;
    for number in 0..100_000 {
        let mut story = Story::new();
        story
            .at(f64::from(number) / 1000.0)
            .create(&customer(number), Ring);
        send_events(&mut assembler, &story);
        assert!(assembler.open_calls() <= 500);
        let finished = assembler.take_finished();
        incomplete += finished
            .iter()
            .filter(|call| call.incomplete.is_some())
            .count();
    }
    assert_eq!((incomplete, assembler.counts.forced), (99_500, 99_500));
}

#[test]
fn longest_silent_open_call_is_evicted_first() {
    let mut assembler = Assembler::new(Settings {
        max_open_calls: 2,
        ..settings()
    });
    let [first, second, third] = [1, 2, 3].map(customer);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&first, Ring)
        .at(1.0)
        .create(&second, Ring);
    story.at(2.0).mention(&first).at(3.0).create(&third, Ring);
    send_events(&mut assembler, &story);
    let finished = assembler.take_finished();
    assert_eq!(finished[0].linkedid.as_str(), second.id());
    assert!(assembler.knows(first.id()));
}

#[test]
fn call_of_ten_thousand_channels_is_bounded_and_incomplete() {
    let city = customer(1);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring);
    let phones: Vec<Channel> = (2..10_002)
        .map(|number| channel(&format!("PJSIP/101-{number:08x}"), number).join_call(&city))
        .collect();
    for phone in &phones {
        story.at(1.0).create(phone, Down);
    }
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assert!(largest_snapshot_size(&mut assembler) < 4 << 20);
    let mut end = Story::new();
    end.at(5.0).hangup(&city);
    for phone in &phones {
        end.at(5.0).hangup(phone);
    }
    send_events(&mut assembler, &end);
    assembler.tick(moment(6.0));
    let calls = assembler.take_finished();
    let call = calls
        .iter()
        .find(|call| call.direction == Direction::Inbound);
    let why = call.and_then(|call| call.incomplete.as_deref());
    assert_eq!(why, Some("the call had more than 4096 events that matter"));
    assert!(assembler.counts.facts_dropped > 5_000);
}

#[test]
fn linkedid_shared_by_100000_channels_stays_bounded() {
    let city = customer(1);
    let mut assembler = assembler();
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring);
    send_events(&mut assembler, &story);
    for number in 2..100_002 {
        let phone = channel(&format!("PJSIP/101-{number:08x}"), number).join_call(&city);
        let mut story = Story::new();
        let at = f64::from(number) / 100.0;
        story.at(at).create(&phone, Down).hangup(&phone);
        send_events(&mut assembler, &story);
    }
    assert_eq!(assembler.open_calls(), 1);
    assert!(largest_snapshot_size(&mut assembler) < 4 << 20);
}

#[test]
fn variables_of_a_call_are_bounded_in_its_snapshot() {
    let mut assembler = assembler();
    for number in 0..2_000_u32 {
        let text = "x".repeat(2_000);
        let city = customer(1).variable(&format!("V{number}"), &text);
        let mut story = Story::new();
        story
            .at(0.0)
            .create(&city, Ring)
            .mention(&city.caller(&format!("{number}{text}")));
        send_events(&mut assembler, &story);
    }
    let size = largest_snapshot_size(&mut assembler);
    assert!(size < 256 << 10, "{size}");
}

/// Returns a call of `customer(number)` with `texts` bridges, each of which has a name of more than
/// 2,000 bytes.
fn call_with_long_texts(number: u32, texts: u32) -> Story {
    let text = "x".repeat(2_000);
    let city = customer(number);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring);
    for bridge in 0..texts {
        story
            .at(1.0)
            .enter(&city, &format!("{number}-{bridge}{text}"));
    }
    story
}

/// Sends the story in batches of 64 events, taking the changes after each batch.
fn send_in_batches(assembler: &mut Assembler, story: &Story) {
    for part in story.events.chunks(64) {
        part.iter().for_each(|(at, event)| {
            assembler.on_event(event, *at);
        });
        assembler.take_changes();
    }
}

#[test]
fn flooded_call_is_closed_and_other_calls_continue() {
    let mut assembler = assembler();
    let other = customer(1);
    let mut story = Story::new();
    story.at(0.0).create(&other, Ring);
    send_in_batches(&mut assembler, &story);
    send_in_batches(&mut assembler, &call_with_long_texts(2, 4_000));
    let ended = assembler.take_finished();
    let why: Vec<_> = ended
        .iter()
        .map(|call| call.incomplete.as_deref())
        .collect();
    let message = "it was closed before its end: it had more events than memory allows";
    assert_eq!(why, [Some(message)]);
    let counts = &assembler.counts;
    assert_eq!((counts.oversized, counts.forced), (1, 1));
    assert!(assembler.knows(other.id()) && !assembler.knows(customer(2).id()));
}

#[test]
fn flooded_calls_evict_largest_and_keep_silent_call() {
    let most = 8 << 20;
    let mut assembler = Assembler::new(Settings {
        max_open_bytes: Some(most),
        ..settings()
    });
    let silent = customer(1);
    let mut story = Story::new();
    story.at(0.0).create(&silent, Ring);
    send_in_batches(&mut assembler, &story);
    for number in 2..40 {
        send_in_batches(&mut assembler, &call_with_long_texts(number, 500));
    }
    let counts = assembler.counts.clone();
    assert!(counts.oversized > 30, "{counts:?}");
    assert!(assembler.knows(silent.id()));
    // The open calls are within the budget, except for the last batch.
    let mut open = 0;
    for number in 1..40 {
        open += usize::from(assembler.knows(customer(number).id()));
    }
    assert!((2..16).contains(&open), "{open}");
}

/// Plays a phone `room` that stays in a room while `count` customers come and go, and returns the
/// finished calls. A customer enters every minute and stays for `overlap` minutes.
fn play_visits(
    assembler: &mut Assembler,
    room: &Channel,
    count: u32,
    overlap: f64,
) -> Vec<FinishedCall> {
    let mut story = Story::new();
    story
        .at(0.0)
        .create(room, Ring)
        .enter_kind(room, "room", "softmix");
    let mut events = Vec::new();
    for number in 0..count {
        let city = customer(10 + number);
        let at = 10.0 + 60.0 * f64::from(number);
        events.push((at, 0, city.clone()));
        events.push((at + 1.0, 1, city.clone()));
        events.push((at + 60.0 * overlap, 2, city));
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (at, what, city) in events {
        match what {
            0 => story.at(at).create(&city, Ring),
            1 => story.at(at).enter_kind(&city, "room", "softmix"),
            _ => story.at(at).hangup(&city),
        };
    }
    let mut finished = Vec::new();
    for (at, event) in &story.events {
        assembler.tick(*at);
        assembler.on_event(event, *at);
        finished.append(&mut assembler.take_finished());
    }
    finished
}

#[test]
fn customer_calls_of_a_never_empty_room_finish_complete() {
    let room = channel("PJSIP/101-00000001", 1);
    let mut assembler = assembler();
    // The customers call one after the other for four days.
    let mut calls = play_visits(&mut assembler, &room, 6_000, 0.5);
    assert!(calls.len() > 5_000, "{} while it goes on", calls.len());
    assert!(largest_snapshot_size(&mut assembler) < 2 << 20);
    let end = moment(10.0 + 6_001.0 * 60.0);
    let mut story = Story::new();
    story.at(10.0 + 6_000.0 * 60.0).hangup(&room);
    send_events(&mut assembler, &story);
    assembler.tick(end.plus(Duration::from_secs(60)));
    calls.append(&mut assembler.take_finished());
    let own = calls.pop().expect("the telephone's own call");
    assert_eq!(own.direction, Direction::Internal);
    assert_eq!((calls.len(), assembler.open_calls()), (6_000, 0));
    let ids: BTreeSet<_> = calls.iter().map(|call| call.linkedid.clone()).collect();
    assert_eq!(ids.len(), 6_000, "each call has a separate id");
    for call in &calls {
        assert_eq!(call.incomplete, None);
        assert_eq!((seconds(call), employee(call)), ((29.0, 30.0), Some("101")));
        assert_eq!(call.direction, Direction::Inbound);
    }
}

#[test]
fn overlapping_customers_of_a_room_finish_when_each_leaves() {
    let room = channel("PJSIP/101-00000001", 1);
    let mut assembler = assembler();
    // Each customer can hear the next one, but no call waits for the next one's end.
    let mut calls = play_visits(&mut assembler, &room, 600, 1.5);
    assert_eq!(calls.len(), 599, "all but the call that has just ended");
    assembler.tick(moment(10.0 + 602.0 * 60.0));
    calls.append(&mut assembler.take_finished());
    let ids: BTreeSet<_> = calls.iter().map(|call| call.linkedid.clone()).collect();
    assert_eq!(
        (calls.len(), ids.len(), assembler.open_calls()),
        (600, 600, 1)
    );
    for call in &calls {
        assert_eq!(call.incomplete, None);
        assert_eq!((seconds(call), employee(call)), ((89.0, 90.0), Some("101")));
        assert_eq!(call.direction, Direction::Inbound);
    }
}

#[test]
fn room_call_is_not_finished_under_id_of_later_call() {
    let room = channel("PJSIP/101-00000001", 1);
    let later = customer(20);
    let (early, visitor) = (customer(30).join_call(&later), customer(10));
    const HOUR: f64 = 3600.0;
    let mut story = Story::new();
    // `early` leaves before another channel enters the bridge, and has the linkedid of a channel
    // that doesn't exist yet.
    story
        .at(0.0)
        .create(&early, Ring)
        .enter_kind(&early, "room", "softmix");
    story
        .at(1.0)
        .leave_kind(&early, "room", "softmix")
        .hangup(&early);
    story
        .create(&room, Ring)
        .at(1.2)
        .enter_kind(&room, "room", "softmix");
    story
        .at(8.0 * HOUR)
        .create(&visitor, Ring)
        .enter_kind(&visitor, "room", "softmix");
    story
        .at(13.0 * HOUR)
        .create(&later, Ring)
        .enter_kind(&later, "room", "softmix");
    story.at(13.5 * HOUR).hangups(&[&visitor, &later, &room]);
    let mut assembler = assembler();
    let mut calls = Vec::new();
    for (at, event) in &story.events {
        assembler.tick(*at);
        assembler.on_event(event, *at);
        calls.append(&mut assembler.take_finished());
    }
    assembler.tick(moment(14.0 * HOUR));
    calls.append(&mut assembler.take_finished());
    calls.retain(|call| call.direction != Direction::Internal);
    assert!(calls.iter().all(|call| call.incomplete.is_none()));
    assert!(
        !calls[0]
            .also_known_as
            .iter()
            .any(|id| id.as_str() == later.id())
    );
    let ids: BTreeSet<_> = calls.iter().map(|call| call.linkedid.as_str()).collect();
    assert_eq!((calls.len(), ids.len()), (3, 3), "{ids:?}");
    assert!(
        ids.contains(later.id()) && ids.contains(early.id()),
        "{ids:?}"
    );
}
