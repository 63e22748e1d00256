//! Messages that cannot be read, and the calls that they name.

use crate::processes::restarted;
use crate::story::{Channel, Story, assembler, channel, customer, moment};
use callbridge_call::{Assembler, ChannelState, FinishedCall};

const UNREAD: &str = "a message about the call could not be read";

/// Plays two calls of one customer each. After the first second, a message arrives that cannot be
/// read, and callbridge is restarted. Returns the two calls, the first one first.
fn calls_around(message: &str) -> Vec<FinishedCall> {
    let mut assembler = assembler();
    let mut ends = Story::new();
    for number in [1, 11] {
        let city = customer(number);
        let phone = channel(&format!("PJSIP/10{number}-0000000{number}"), number + 1).of(&city);
        play(&mut assembler, &answered(&city, &phone));
        ends.at(9.0).hangup(&phone).hangup(&city);
    }
    assembler.on_unreadable(message.as_bytes());
    let mut assembler = restarted(assembler);
    play(&mut assembler, &ends);
    assembler.finish_all(moment(60.0));
    let mut calls = assembler.take_finished();
    calls.sort_by_key(|call| call.linkedid.clone());
    calls
}

fn answered(city: &Channel, phone: &Channel) -> Story {
    let mut story = Story::new();
    story.at(0.0).born(city, ChannelState::Ring);
    story
        .born(phone, ChannelState::Down)
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

fn incomplete(message: &str) -> Vec<Option<String>> {
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
            assert_eq!(incomplete(&message), wanted, "{message}");
        }
    }
}

#[test]
fn unreadable_message_without_an_id_changes_no_call() {
    let id = customer(1).id().to_owned();
    let longer = format!("{id}9 1{id} {id}-2");
    let far = format!("{}{id}", " ".repeat(64 * 1024));
    for message in ["", "Event: Hangup", "...", &longer, &far] {
        assert_eq!(incomplete(message), [None, None], "{message}");
    }
}
