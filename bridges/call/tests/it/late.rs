//! Tests of events that arrive after their call has been emitted.

use crate::story::{Story, answered_by_101, assembler, channel, customer, moment, seconds};
use callbridge_call::ChannelState::{Down, Up};

#[test]
fn channel_after_settling_time_is_late_without_tick() {
    let (mut story, city, phone) = answered_by_101();
    let later = channel("PJSIP/102-00000003", 3).join_call(&city);
    story.at(5.0).hangups(&[&phone, &city]);
    story.at(5.6).create(&later, Down).at(9.0).hangup(&later);
    assert_eq!(seconds(&story.call()), (4.0, 5.0));
}

/// The colleague stays in the room, so the customer's call is merely a part of an open call. That
/// part is over by the time its last events arrive, after a pause.
#[test]
fn late_events_of_part_of_a_call_begin_no_call() {
    let city = customer(1);
    let phone = channel("PJSIP/101-00000002", 2).join_call(&city);
    let colleague = channel("PJSIP/102-00000003", 3);
    let mut story = Story::from_cel();
    story.at(0.0).create(&city, Up).create(&phone, Up);
    for who in [&city, &phone] {
        story.at(1.0).enter_kind(who, "room", "softmix");
    }
    story.at(5.0).create(&colleague, Up);
    story.enter_kind(&colleague, "room", "softmix");
    story.at(10.0).leave_kind(&city, "room", "softmix");
    story.hangups(&[&city, &phone]);
    let mut assembler = assembler();
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
    let mut late = Story::from_cel();
    late.at(9.9).leave_kind(&phone, "room", "softmix");
    late.at(10.0).hangups(&[&phone, &city]);
    for (_, event) in &late.events {
        assert!(!assembler.on_event(event, moment(12.0)));
    }
    let mut end = Story::from_cel();
    end.at(20.0).leave_kind(&colleague, "room", "softmix");
    end.hangup(&colleague);
    for (at, event) in &end.events {
        assembler.on_event(event, *at);
    }
    assembler.tick(moment(21.0));
    let calls = assembler.take_finished();
    let ids: Vec<&str> = calls.iter().map(|call| call.linkedid.as_str()).collect();
    assert_eq!(ids, [city.id(), colleague.id()]);
}

#[test]
fn late_event_of_a_forgotten_channel_opens_no_call() {
    let city = customer(1);
    let phone = channel("PJSIP/103-00000002", 2).join_call(&city);
    let joins = channel("PJSIP/101-00000003", 3);
    let stays = channel("PJSIP/102-00000004", 4);
    let mut story = Story::from_cel();
    story.at(0.0).create(&city, Up).create(&phone, Up);
    for (at, who) in [(1.0, &city), (1.0, &phone)] {
        story.at(at).enter_kind(who, "room", "softmix");
    }
    for (at, who) in [(5.0, &joins), (6.0, &stays)] {
        story.at(at).create(who, Up);
        story.enter_kind(who, "room", "softmix");
    }
    for (at, who) in [(10.0, &city), (10.1, &joins)] {
        story.at(at).leave_kind(who, "room", "softmix").hangup(who);
    }
    // The phone's hangup shows that both calls are over, so the assembler forgets the phone. After
    // that, an event from before the hangup arrives, and then the hangup arrives again.
    story.at(11.0).hangup(&phone);
    story.at(10.9).leave_kind(&phone, "room", "softmix");
    story.at(11.0).hangup(&phone);
    story.at(12.0).leave_kind(&stays, "room", "softmix");
    story.hangup(&stays);
    let mut assembler = assembler();
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
        assembler.tick(*at);
    }
    assembler.tick(moment(14.0));
    let given = assembler.take_finished();
    assert_eq!((given.len(), assembler.open_calls()), (3, 0), "{given:?}");
}
