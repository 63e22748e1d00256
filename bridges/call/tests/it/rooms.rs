//! Tests of rooms where agents stay all day. Each customer in a room has a separate call, which is
//! emitted when the customer leaves.

use crate::story::{Channel, Story, assembler, channel, extensions, moment, seconds, settings};
use callbridge_call::ChannelState::{Down, Ring, Ringing, Up};
use callbridge_call::{Assembler, Direction, EventTime, FinishedCall};
use std::collections::BTreeMap;

const HOUR: f64 = 3600.0;

/// The room where an agent waits for customers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    /// The dialer puts one half of a Local channel into the room and dials with the other half.
    MeetMe,
    /// Like `MeetMe`, but the half in the room takes on the agent's linkedid.
    ConfBridge,
    /// The queue moves the agent from a holding bridge into a bridge with the customer.
    AgentPool,
}

const ROOMS: [Room; 3] = [Room::MeetMe, Room::ConfBridge, Room::AgentPool];

impl Room {
    fn name(self) -> &'static str {
        match self {
            Self::MeetMe => "room 8600051",
            Self::ConfBridge => "9600051-uuid",
            Self::AgentPool => "agent-hold",
        }
    }

    fn technology(self) -> &'static str {
        match self {
            Self::MeetMe | Self::ConfBridge => "softmix",
            Self::AgentPool => "holding_bridge",
        }
    }
}

fn agent() -> Channel {
    channel("PJSIP/101-00000001", 1)
}

fn log_in(story: &mut Story, room: Room, at: f64) {
    let agent = agent();
    story.at(at).create(&agent, Down).originate(&agent, "101");
    story.at(at + 3.0).state(&agent, Up);
    story.enter_kind(&agent, room.name(), room.technology());
}

/// Adds a call with ten seconds of ringing and `talk` seconds of talk time (if zero, no one
/// answers), and returns the ID of the call's first channel. `number` makes the names unique.
fn play_call(story: &mut Story, room: Room, number: u32, at: f64, talk: f64) -> String {
    let first = 10 * number;
    let (agent, bridge) = (agent(), format!("b{number}"));
    let [one, two] = [1, 2].map(|half| {
        let name = format!("Local/8600051@default-{number:08x};{half}");
        channel(&name, first + half)
    });
    let two = two.join_call(&one);
    let city = channel(&format!("PJSIP/city-{number:08x}"), first + 3);
    let phone = format!("99890{:07}", number);
    if room == Room::AgentPool {
        let city = city.caller(&phone);
        let (one, two) = (one.join_call(&city), two.join_call(&city));
        story
            .at(at)
            .create(&city, Ring)
            .create(&one, Down)
            .create(&two, Ring);
        story.dial(&city, &one, "101@agents").join(&one, &two);
        story.at(at + 10.0).enter(&two, &bridge);
        if talk > 0.0 {
            let joined = format!("c{number}");
            story
                .leave_kind(&agent, room.name(), room.technology())
                .enter(&agent, &bridge);
            story
                .mention(&two.clone().join_call(&agent))
                .enter(&one, &joined)
                .enter(&city, &joined);
            story
                .at(at + 10.0 + talk)
                .leave(&city, &joined)
                .leave(&one, &joined);
            story
                .hangups(&[&one, &city])
                .leave(&two.clone().join_call(&agent), &bridge);
            story.leave(&agent, &bridge);
            story.enter_kind(&agent, room.name(), room.technology());
            story.hangup(&two.join_call(&agent));
        } else {
            story.leave(&two, &bridge).hangups(&[&one, &two, &city]);
        }
        return city.id().to_owned();
    }
    let city = city.join_call(&one);
    story
        .at(at)
        .create(&one, Down)
        .create(&two, Ring)
        .state(&two, Up);
    story.enter_kind(&two, room.name(), room.technology());
    story
        .create(&city, Down)
        .dial(&one, &city, &format!("{phone}@city"))
        .state(&city, Ringing);
    story.at(at + 10.0);
    let (mut one, mut two, mut city) = (one, two, city);
    let root = one.id().to_owned();
    if talk > 0.0 {
        story
            .state(&city, Up)
            .enter(&city, &bridge)
            .enter(&one, &bridge);
        if room == Room::ConfBridge {
            one = one.join_call(&agent);
            two = two.join_call(&agent);
            city = city.join_call(&agent);
        }
        story
            .at(at + 10.0 + talk)
            .leave(&city, &bridge)
            .leave(&one, &bridge);
    }
    story
        .hangups(&[&city, &one])
        .leave_kind(&two, room.name(), room.technology())
        .hangup(&two);
    root
}

/// Plays the events, advancing the clock between them as the program would, and returns each
/// finished call along with when it was emitted.
fn play(assembler: &mut Assembler, story: &Story) -> Vec<(EventTime, FinishedCall)> {
    let mut given = Vec::new();
    for (at, event) in &story.events {
        tick_until(assembler, *at, &mut given);
        assembler.on_event(event, *at);
        given.extend(
            assembler
                .take_finished()
                .into_iter()
                .map(|call| (*at, call)),
        );
    }
    given
}

/// Advances the clock to each deadline up to `at`, and adds the finished calls to `given`.
fn tick_until(
    assembler: &mut Assembler,
    at: EventTime,
    given: &mut Vec<(EventTime, FinishedCall)>,
) {
    while let Some(due) = assembler.next_deadline().filter(|due| *due <= at) {
        assembler.tick(due);
        let finished = assembler.take_finished();
        if finished.is_empty() {
            break;
        }
        given.extend(finished.into_iter().map(|call| (due, call)));
    }
}

/// Moves the open calls to a new assembler. `stored` holds their snapshots between restarts.
fn restart(assembler: &mut Assembler, stored: &mut BTreeMap<u64, Vec<u8>>) -> Assembler {
    for change in assembler.take_changes() {
        match change.snapshot {
            Some(snapshot) => stored.insert(change.key, snapshot),
            None => stored.remove(&change.key),
        };
    }
    let mut next = crate::story::assembler();
    for (key, snapshot) in stored.iter() {
        next.restore(*key, snapshot).expect("a snapshot");
    }
    next
}

fn split_story(story: &Story, count: usize) -> Vec<Story> {
    let size = story.events.len().div_ceil(count);
    let parts = story.events.chunks(size).map(<[_]>::to_vec);
    parts.map(|events| story.with_events(events)).collect()
}

#[test]
fn calls_during_one_agent_login_finish_within_settle() {
    for room in ROOMS {
        let mut story = Story::new();
        log_in(&mut story, room, 0.0);
        let mut expected = Vec::new();
        for number in 1..=300 {
            let at = HOUR + 60.0 * f64::from(number);
            let talk = if number % 4 == 0 {
                0.0
            } else {
                5.0 + f64::from(number % 30)
            };
            let root = play_call(&mut story, room, number, at, talk);
            expected.push((root, at, talk));
        }
        story.at(10.0 * HOUR);
        story
            .leave_kind(&agent(), room.name(), room.technology())
            .hangup(&agent());
        let (mut assembler, mut stored, mut given) = (assembler(), BTreeMap::new(), Vec::new());
        for part in split_story(&story, 7) {
            given.extend(play(&mut assembler, &part));
            assembler = restart(&mut assembler, &mut stored);
            let largest = stored.values().map(Vec::len).max().unwrap_or(0);
            assert!(
                largest < 20_000,
                "{room:?}: {largest} bytes are kept of the open call"
            );
        }
        tick_until(&mut assembler, moment(11.0 * HOUR), &mut given);
        let (_, own) = given.pop().expect("the login");
        assert_eq!(
            (own.direction, own.linkedid.as_str()),
            (Direction::Internal, agent().id())
        );
        assert_eq!((given.len(), assembler.open_calls()), (300, 0), "{room:?}");
        for ((at, call), (root, began, talk)) in given.iter().zip(&expected) {
            assert_eq!(call.linkedid.as_str(), root, "{room:?}");
            let late = at.since(call.ended);
            assert!(
                late <= settings().settle,
                "{room:?} {root}: emitted after {late:?}"
            );
            assert_eq!(seconds(call), (*talk, 10.0 + talk), "{room:?} {root}");
            assert_eq!(call.started, moment(*began));
            assert_eq!(
                (call.answered, call.incomplete.as_deref()),
                (*talk > 0.0, None)
            );
            let talked = if *talk > 0.0 { vec!["101"] } else { Vec::new() };
            assert_eq!(extensions(call), talked, "{room:?} {root}");
            assert!(
                !call
                    .also_known_as
                    .iter()
                    .any(|id| id.as_str() == agent().id())
            );
        }
    }
}

fn customer(number: u32) -> Channel {
    let name = format!("PJSIP/city-{number:08x}");
    channel(&name, number).caller(&format!("99890{number:07}"))
}

/// Returns the customers' calls by linkedid, along with the number of internal calls.
fn calls_by_linkedid(story: &Story) -> (BTreeMap<String, FinishedCall>, usize) {
    let (internal, others): (Vec<_>, Vec<_>) = story
        .calls()
        .into_iter()
        .partition(|call| call.direction == Direction::Internal);
    let others = others.into_iter();
    let by_id: BTreeMap<_, _> = others
        .map(|call| (call.linkedid.to_string(), call))
        .collect();
    (by_id, internal.len())
}

fn enter(story: &mut Story, channel: &Channel) {
    story.enter_kind(channel, "room 600", "softmix");
}

fn leave(story: &mut Story, channel: &Channel) {
    story
        .leave_kind(channel, "room 600", "softmix")
        .hangup(channel);
}

#[test]
fn two_customers_in_a_room_at_once_are_two_calls() {
    let (agent, inbound) = (agent(), customer(2));
    let local = channel("Local/600@default-00000003;1", 3);
    let inside = channel("Local/600@default-00000003;2", 4).join_call(&local);
    let dialed = channel("PJSIP/city-00000005", 5).join_call(&local);
    let mut story = Story::new();
    story.at(0.0).create(&agent, Ring);
    enter(&mut story, &agent);
    story.at(100.0).create(&inbound, Ring);
    story.at(110.0);
    enter(&mut story, &inbound);
    story.at(120.0).create(&local, Down).create(&inside, Ring);
    enter(&mut story, &inside);
    story
        .create(&dialed, Down)
        .dial(&local, &dialed, "998935550000@city");
    story
        .at(125.0)
        .state(&dialed, Up)
        .enter(&dialed, "b1")
        .enter(&local, "b1");
    story.at(140.0);
    leave(&mut story, &inbound);
    story
        .at(150.0)
        .leave(&dialed, "b1")
        .hangups(&[&dialed, &local]);
    leave(&mut story, &inside);
    story.at(500.0);
    leave(&mut story, &agent);
    let (calls, internal) = calls_by_linkedid(&story);
    assert_eq!((calls.len(), internal), (2, 1));
    let (inbound, dialed) = (&calls[inbound.id()], &calls[local.id()]);
    assert_eq!(
        (inbound.direction, seconds(inbound)),
        (Direction::Inbound, (30.0, 40.0))
    );
    assert_eq!(
        (dialed.direction, seconds(dialed)),
        (Direction::Outbound, (25.0, 30.0))
    );
    let number = dialed.number.as_ref().map(|number| number.text.as_str());
    assert_eq!(number, Some("998935550000"));
    assert_eq!(
        (extensions(inbound), extensions(dialed)),
        (vec!["101"], vec!["101"])
    );
}

#[test]
fn agent_logging_out_first_is_among_the_employees() {
    let (agent, city) = (agent(), customer(2));
    let supervisor = channel("PJSIP/109-00000003", 3);
    let mut story = Story::new();
    story.at(0.0).create(&agent, Ring);
    enter(&mut story, &agent);
    story.at(100.0).create(&city, Ring);
    enter(&mut story, &city);
    story.at(110.0).create(&supervisor, Ring);
    enter(&mut story, &supervisor);
    story.at(120.0);
    leave(&mut story, &supervisor);
    story.at(130.0);
    leave(&mut story, &agent);
    story.at(200.0);
    leave(&mut story, &city);
    let (calls, internal) = calls_by_linkedid(&story);
    assert_eq!((calls.len(), internal), (1, 2));
    let call = &calls[city.id()];
    assert_eq!(seconds(call), (30.0, 100.0));
    assert_eq!(extensions(call), ["101", "109"]);
}

#[test]
fn agent_on_a_mobile_phone_delays_no_customer_call() {
    let mobile = channel("PJSIP/gsm-00000001", 1);
    let city = customer(2);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&mobile, Down)
        .originate(&mobile, "998971112233@gsm");
    story.at(5.0).state(&mobile, Up);
    enter(&mut story, &mobile);
    story.at(100.0).create(&city, Ring).at(110.0);
    enter(&mut story, &city);
    story.at(140.0);
    leave(&mut story, &city);
    let before = story.clone();
    story.at(9000.0);
    leave(&mut story, &mobile);
    let mut assembler = assembler();
    let mut given = play(&mut assembler, &before);
    tick_until(&mut assembler, moment(150.0), &mut given);
    let ids: Vec<&str> = given
        .iter()
        .map(|(_, call)| call.linkedid.as_str())
        .collect();
    assert_eq!(ids, [city.id()]);
    assert_eq!(
        (given[0].1.answered, seconds(&given[0].1)),
        (true, (30.0, 40.0))
    );
    let (calls, internal) = calls_by_linkedid(&story);
    assert_eq!((calls.len(), internal), (2, 0));
    assert_eq!(seconds(&calls[mobile.id()]), (30.0, 9000.0));
}

#[test]
fn one_number_dialed_twice_at_once_is_one_call() {
    for (number, count) in [("998901110009", 1), ("998935550000", 2)] {
        let agent = agent();
        let mut story = Story::new();
        story.at(0.0).create(&agent, Ring);
        enter(&mut story, &agent);
        let mut lines = Vec::new();
        for (at, id, number) in [(100.0, 10, "998901110009"), (110.0, 20, number)] {
            let local = channel(&format!("Local/600@default-{id:08x};1"), id);
            let inside =
                channel(&format!("Local/600@default-{id:08x};2"), id + 1).join_call(&local);
            let city = channel(&format!("PJSIP/city-{id:08x}"), id + 2).join_call(&local);
            story.at(at).create(&local, Down).create(&inside, Ring);
            enter(&mut story, &inside);
            story
                .create(&city, Down)
                .dial(&local, &city, &format!("{number}@city"));
            lines.push((local, inside, city));
        }
        story.at(130.0);
        for (local, inside, city) in &lines {
            story.hangups(&[city, local]);
            leave(&mut story, inside);
        }
        story.at(200.0);
        leave(&mut story, &agent);
        let (calls, internal) = calls_by_linkedid(&story);
        assert_eq!((calls.len(), internal), (count, 1), "{number}");
    }
}

#[test]
fn employee_staying_in_the_room_does_not_delay_the_call() {
    let (city, phone) = (customer(1), channel("PJSIP/101-00000002", 2));
    let phone = phone.join_call(&city);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&city, Ring)
        .create(&phone, Down)
        .dial(&city, &phone, "101");
    story
        .at(5.0)
        .state(&phone, Up)
        .enter(&phone, "b1")
        .enter(&city, "b1");
    story.at(10.0).leave(&phone, "b1").leave(&city, "b1");
    enter(&mut story, &phone);
    enter(&mut story, &city);
    story.at(20.0);
    leave(&mut story, &city);
    let mut assembler = assembler();
    let mut given = play(&mut assembler, &story);
    tick_until(&mut assembler, moment(30.0), &mut given);
    assert_eq!(given.len(), 1);
    let (at, call) = &given[0];
    assert_eq!(
        (call.linkedid.as_str(), seconds(call)),
        (city.id(), (15.0, 20.0))
    );
    assert_eq!(*at, moment(20.0).plus(settings().settle));
    // The agent stays, and leaving later doesn't start a new call.
    let mut rest = Story::new();
    rest.at(500.0);
    leave(&mut rest, &phone);
    let mut given = play(&mut assembler, &rest);
    tick_until(&mut assembler, moment(600.0), &mut given);
    assert_eq!((given.len(), assembler.open_calls()), (0, 0));
}

#[test]
fn calls_after_a_gap_in_the_login_are_complete() {
    let mut story = Story::new();
    log_in(&mut story, Room::MeetMe, 0.0);
    let mut assembler = assembler();
    let mut given = play(&mut assembler, &story);
    assembler.begin_gap(moment(100.0));
    assembler.end_gap(moment(200.0));
    let mut later = Story::new();
    let root = play_call(&mut later, Room::MeetMe, 1, 300.0, 20.0);
    given.extend(play(&mut assembler, &later));
    tick_until(&mut assembler, moment(340.0), &mut given);
    let customers = given
        .iter()
        .filter(|(_, call)| call.direction != Direction::Internal);
    let customers: Vec<_> = customers.collect();
    assert_eq!(customers.len(), 1, "{given:?}");
    let (_, call) = customers[0];
    assert_eq!(call.linkedid.as_str(), root);
    assert_eq!(
        (call.incomplete.as_deref(), seconds(call)),
        (None, (20.0, 30.0))
    );
}

#[test]
fn cdr_of_a_finished_customer_reaches_no_other_call() {
    let (agent, first, second) = (agent(), customer(2), customer(3));
    let mut story = Story::new();
    story.at(0.0).create(&agent, Ring);
    enter(&mut story, &agent);
    story.at(100.0).create(&first, Ring);
    enter(&mut story, &first);
    story.at(110.0);
    leave(&mut story, &first);
    // This event shows that the first customer's call is over, so the CDR arrives too late.
    story.at(115.0).create(&second, Ring);
    // The CDR has the linkedid that the channel took on in the room.
    let moved = first.clone().join_call(&agent);
    story.at(120.0).cdr(&moved, "lead=4001");
    enter(&mut story, &second);
    story.at(130.0);
    leave(&mut story, &second);
    story.at(200.0);
    leave(&mut story, &agent);
    let calls = story.calls();
    let ids: Vec<&str> = calls.iter().map(|call| call.linkedid.as_str()).collect();
    assert_eq!(ids, [agent.id(), first.id(), second.id()]);
    assert!(calls.iter().all(|call| call.userfields.is_empty()));
}

#[test]
fn local_channel_half_left_in_a_room_keeps_no_call_open() {
    let (agent, next) = (agent(), customer(20));
    let local = channel("Local/600@default-0000000a;1", 10);
    let inside = channel("Local/600@default-0000000a;2", 11).join_call(&local);
    let city = channel("PJSIP/city-0000000c", 12).join_call(&local);
    let mut story = Story::new();
    story.at(0.0).create(&agent, Ring);
    enter(&mut story, &agent);
    story.at(100.0).create(&local, Down).create(&inside, Ring);
    enter(&mut story, &inside);
    story
        .create(&city, Down)
        .dial(&local, &city, "998901110009@city");
    story.at(110.0).hangups(&[&city, &local]);
    // The next customer meets the half that's still in the room.
    story.at(111.0).create(&next, Ring);
    enter(&mut story, &next);
    story.at(112.0);
    leave(&mut story, &inside);
    story.at(130.0);
    leave(&mut story, &next);
    leave(&mut story, &agent);
    let mut assembler = assembler();
    let mut given = play(&mut assembler, &story);
    tick_until(&mut assembler, moment(140.0), &mut given);
    assert_eq!((given.len(), assembler.open_calls()), (3, 0), "{given:?}");
    assert_eq!(assembler.counts.ghosts, 0);
    assert_eq!(assembler.next_deadline(), None);
}

#[test]
fn room_call_does_not_get_the_id_of_a_later_channel() {
    let customer = channel("PJSIP/gsm-00000009", 9).caller("998901110001");
    let later = channel("PJSIP/city-00000008", 8).caller("998901110002");
    let mut story = Story::new();
    story.at(0.0).create(&customer, Ring);
    story.enter_kind(&customer, "lot", "holding_bridge");
    let moved = customer.join_call(&later);
    story
        .at(5.0)
        .leave_kind(&moved, "lot", "holding_bridge")
        .hangup(&moved);
    story.enter_kind(&moved, "lot", "holding_bridge");
    story.at(60.0).create(&later, Ring);
    story.at(70.0).hangup(&later);
    story.at(200.0);
    let mut assembler = assembler();
    let mut calls = play(&mut assembler, &story);
    tick_until(&mut assembler, moment(300.0), &mut calls);
    let ids: Vec<&str> = calls
        .iter()
        .map(|(_, call)| call.linkedid.as_str())
        .collect();
    assert_eq!(ids, ["1795000000.9", "1795000000.8"]);
}
