//! Tests that open calls survive a restart.

use crate::story::{Story, answered_by_101, assembler, channel, customer, moment};
use callbridge_call::ChannelState::{Down, Ring, Up};
use callbridge_call::{Assembler, FinishedCall, Origin};
use std::collections::BTreeMap;

/// Returns a conference of two customers, whose calls become a single group, along with a third
/// customer's separate call.
fn conference() -> Story {
    let (mut story, city, phone) = answered_by_101();
    let second = channel("PJSIP/gsm-00000003", 3).caller("998901110002");
    let stranger = customer(9);
    story
        .at(1.5)
        .create(&stranger, Ring)
        .at(2.0)
        .create(&second, Ring);
    for channel in [&city, &phone, &second] {
        story.at(3.0).enter_kind(channel, "room", "softmix");
    }
    story
        .at(8.0)
        .cdr(&city, "lead=4001")
        .hangups(&[&second, &stranger]);
    story.at(9.0).hangups(&[&city, &phone]);
    story
}

/// Stores the latest snapshot of each open call in `kept`, as the spool would.
fn store_snapshots(assembler: &mut Assembler, kept: &mut BTreeMap<u64, Vec<u8>>) {
    for change in assembler.take_changes() {
        match change.snapshot {
            Some(snapshot) => kept.insert(change.key, snapshot),
            None => kept.remove(&change.key),
        };
    }
}

fn finish(assembler: &mut Assembler) -> Vec<FinishedCall> {
    assembler.tick(moment(60.0));
    assert_eq!(assembler.open_calls(), 0);
    // The assembler keeps a finished call's duplicate events as scraps until the stream ends.
    assembler.finish_all(moment(60.0));
    let mut calls = assembler.take_finished();
    calls.sort_by(|a, b| a.linkedid.cmp(&b.linkedid));
    calls
}

#[test]
fn restart_after_any_event_changes_no_call() {
    assert_eq!(check_restarts(&conference()), 3);
}

/// Checks that restarting after any event of the story makes no difference, and returns the number
/// of calls.
pub fn check_restarts(story: &Story) -> usize {
    let mut whole = assembler();
    for (at, event) in &story.events {
        whole.on_event(event, *at);
    }
    let expected = finish(&mut whole);
    for cut in 0..=story.events.len() {
        let (mut first, mut kept) = (assembler(), BTreeMap::new());
        for (at, event) in &story.events[..cut] {
            first.on_event(event, *at);
            store_snapshots(&mut first, &mut kept);
        }
        let mut calls = first.take_finished();
        let mut second = assembler();
        for (key, snapshot) in &kept {
            second.restore(*key, snapshot).expect("a snapshot");
        }
        assert_eq!(first.open_calls(), second.open_calls());
        // The last two events before the restart are redelivered, as a broker would.
        for (at, event) in &story.events[cut.saturating_sub(2)..] {
            second.on_event(event, *at);
            store_snapshots(&mut second, &mut kept);
        }
        calls.extend(finish(&mut second));
        calls.sort_by(|a, b| a.linkedid.cmp(&b.linkedid));
        assert_eq!(calls, expected, "cut after {cut} events");
        store_snapshots(&mut second, &mut kept);
        assert!(kept.is_empty(), "cut after {cut} events");
    }
    expected.len()
}

#[test]
fn restart_preserves_knowledge_that_cel_reports_bridges() {
    let (city, phone) = (customer(1), channel("PJSIP/101-00000002", 2));
    let phone = phone.join_call(&city);
    let mut story = Story::new();
    story.set_origin(Origin::Cel).at(0.0).create(&city, Ring);
    story.create(&phone, Down);
    for channel in [&phone, &city] {
        story.at(1.0).state(channel, Up);
    }
    // There's another call in the bridge, and it ends before the restart.
    let (stranger, other) = (customer(9), channel("PJSIP/102-00000010", 10));
    let other = other.join_call(&stranger);
    story.at(1.5).create(&stranger, Ring).create(&other, Down);
    story.at(2.0).enter(&other, "b1").enter(&stranger, "b1");
    story.at(3.0).leave(&other, "b1").leave(&stranger, "b1");
    story.hangups(&[&other, &stranger]);
    story.at(8.0).hangups(&[&phone, &city]);
    assert_eq!(check_restarts(&story), 2);
}

#[test]
fn assembler_knows_only_the_ids_of_its_open_calls() {
    let (mut story, city, phone) = answered_by_101();
    let mut assembler = assembler();
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
    assert!(assembler.knows(city.id()) && assembler.knows(phone.id()));
    assert!(!assembler.knows("1795000000.99"));
    let from = story.events.len();
    story.at(5.0).hangups(&[&phone, &city]);
    for (at, event) in &story.events[from..] {
        assembler.on_event(event, *at);
    }
    assembler.tick(moment(6.0));
    assert!(!assembler.knows(city.id()));
}

#[test]
fn call_without_new_facts_is_not_written_again() {
    let (story, city, _) = answered_by_101();
    let mut assembler = assembler();
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
    assert_eq!(assembler.take_changes().len(), 1);
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
    let mut hold = Story::new();
    hold.at(2.0).mention(&city);
    assembler.on_event(&hold.events[0].1, moment(2.0));
    assert_eq!(assembler.take_changes(), []);
}

#[test]
fn call_finished_before_its_first_snapshot_is_never_stored() {
    let city = customer(1);
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring).at(1.0).hangup(&city);
    let mut assembler = assembler();
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
    assembler.tick(moment(2.0));
    assert_eq!(
        (assembler.take_changes(), assembler.take_finished().len()),
        (vec![], 1)
    );
}

#[test]
fn invalid_snapshot_bytes_are_refused() {
    let error = assembler()
        .restore(7, b"{\"legs\":3}")
        .expect_err("no snapshot");
    assert!(
        error
            .to_string()
            .starts_with("the open call 7 cannot be restored"),
        "{error}"
    );
}

#[test]
fn call_with_more_facts_than_the_limit_is_incomplete() {
    let (mut story, city, phone) = answered_by_101();
    for i in 0..3000 {
        let at = 2.0 + f64::from(i) * 0.001;
        story
            .at(at)
            .leave(&phone, "b1")
            .at(at + 0.0005)
            .enter(&phone, "b1");
    }
    story.at(9.0).hangups(&[&phone, &city]);
    let mut assembler = assembler();
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
    let snapshot = assembler
        .take_changes()
        .remove(0)
        .snapshot
        .expect("an open call");
    assert!(snapshot.len() < 1_000_000, "{} bytes", snapshot.len());
    let calls = finish(&mut assembler);
    assert!(assembler.counts.facts_dropped > 1900);
    let incomplete = calls[0].incomplete.as_deref();
    assert_eq!(
        incomplete,
        Some("the call had more than 4096 events that matter")
    );
}
