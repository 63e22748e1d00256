//! Tests of unreadable messages, and of the calls that they mention.

use crate::processes::restart_assembler;
use crate::story::{Channel, Story, assembler, channel, customer, moment};
use callbridge_call::{Assembler, ChannelState, FinishedCall};

const UNREAD: &str = "a message about the call could not be read";

/// Plays two calls and returns them, oldest first. After the first second, an unreadable `message`
/// arrives and callbridge is restarted.
fn calls_around(message: &str) -> Vec<FinishedCall> {
    let mut assembler = assembler();
    let mut ends = Story::new();
    for number in [1, 11] {
        let city = customer(number);
        let phone =
            channel(&format!("PJSIP/10{number}-0000000{number}"), number + 1).join_call(&city);
        play(&mut assembler, &answered_call(&city, &phone));
        ends.at(9.0).hangup(&phone).hangup(&city);
    }
    assembler.on_unreadable(message.as_bytes());
    let mut assembler = restart_assembler(assembler);
    play(&mut assembler, &ends);
    assembler.finish_all(moment(60.0));
    let mut calls = assembler.take_finished();
    calls.sort_by_key(|call| call.linkedid.clone());
    calls
}

fn answered_call(city: &Channel, phone: &Channel) -> Story {
    let mut story = Story::new();
    story.at(0.0).create(city, ChannelState::Ring);
    story
        .create(phone, ChannelState::Down)
        .dial(city, phone, "101");
    let bridge = format!("bridge of {}", city.id());
    story.at(1.0).state(phone, ChannelState::Up);
    story.enter(phone, &bridge).enter(city, &bridge);
    story
}

fn play(assembler: &mut Assembler, story: &Story) {
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
}

/// Returns why each of the two calls is incomplete, if it is.
fn incomplete_reasons(message: &str) -> Vec<Option<String>> {
    let calls = calls_around(message);
    assert_eq!(calls.len(), 2, "{calls:?}");
    calls.into_iter().map(|call| call.incomplete).collect()
}

#[test]
fn unreadable_message_makes_the_call_it_names_incomplete() {
    let (city, phone) = (customer(1), customer(2));
    for id in [city.id(), phone.id()] {
        for message in [
            format!("Event: Bri\u{fffd}\r\nUniqueid: {id}\r\nCha"),
            format!("{{\"uniqueid\":\"{id}\",\"linke"),
            format!("\"HANGUP\",\"{id}\""),
            id.to_owned(),
        ] {
            let wanted = [Some(UNREAD.to_owned()), None];
            assert_eq!(incomplete_reasons(&message), wanted, "{message}");
        }
    }
}

#[test]
fn unreadable_message_without_an_id_changes_no_call() {
    let id = customer(1).id().to_owned();
    let longer = format!("{id}9 1{id} {id}-2");
    let far = format!("{}{id}", " ".repeat(64 * 1024));
    for message in ["", "Event: Hangup", "...", &longer, &far] {
        assert_eq!(incomplete_reasons(message), [None, None], "{message}");
    }
}
