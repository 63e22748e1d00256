//! Tests of lines dialed in turn by one or more phones, i.e., who each line was dialed for, which
//! lines form a single attempt, and what each call starts with. AMI and CEL tell the same stories.

use crate::story::{
    Channel, Story, assembler, channel, customer, employee, moment, number, seconds,
};
use callbridge_call::ChannelState::{Down, Ring, Unknown, Up};
use callbridge_call::Direction::{Inbound, Outbound};
use callbridge_call::{FinishedCall, Origin};

/// Each story is told once by AMI's events, and once by CEL alone.
const VOICES: [Origin; 2] = [Origin::Channel, Origin::Cel];

fn begin_story(voice: Origin) -> Story {
    let mut story = Story::new();
    story.set_origin(voice);
    story
}

/// Returns a channel on the trunk `city` that's dialed in the call of `by`.
fn line(place: u32, by: &Channel) -> Channel {
    channel(&format!("PJSIP/city-{place:08x}"), place).join_call(by)
}

fn phone(place: u32, extension: &str) -> Channel {
    channel(&format!("PJSIP/{extension}-{place:08x}"), place).caller(extension)
}

/// Makes the channel `by` dial a number over the trunk `city`.
fn dial(story: &mut Story, voice: Origin, by: &Channel, (to, number): (&Channel, &str)) {
    if voice == Origin::Cel {
        story.app(by, "Dial", &format!("PJSIP/{number}@city,30,tT"));
        story.create(to, Unknown);
    } else {
        story
            .create(to, Down)
            .dial(by, to, &format!("{number}@city"));
    }
}

fn begin(story: &mut Story, voice: Origin, channel: &Channel) {
    let state = if voice == Origin::Cel { Unknown } else { Ring };
    story.create(channel, state);
}

/// Lets both channels talk in a bridge during this time.
fn talk(story: &mut Story, (a, b): (&Channel, &Channel), bridge: &str, (from, to): (f64, f64)) {
    story
        .at(from)
        .state(b, Up)
        .enter(a, bridge)
        .enter(b, bridge);
    story.at(to).leave(a, bridge).leave(b, bridge);
}

/// Formats a call compactly as direction, employee, last digit of the number, talk time in seconds,
/// and duration.
fn shown(call: &FinishedCall) -> String {
    let way = match call.direction {
        Inbound => "in",
        Outbound => "out",
        _ => "?",
    };
    let (talk, long) = seconds(call);
    let number = number(call).map_or("-", |(text, _)| &text[text.len() - 1..]);
    let whole = call.incomplete.as_deref().unwrap_or("whole");
    let by = employee(call).unwrap_or("-");
    format!("{way} {by} {number} talk {talk} of {long}, {whole}")
}

fn calls(story: &Story) -> Vec<String> {
    let mut calls = story.calls();
    calls.sort_by_key(|call| call.started);
    calls.iter().map(shown).collect()
}

/// Returns a story in which 101 answers a caller after 5 s.
fn answered(voice: Origin) -> (Story, Channel, Channel) {
    let caller = customer(1);
    let agent = phone(2, "101").join_call(&caller);
    let mut story = begin_story(voice);
    begin(&mut story, voice, &caller);
    story.at(1.0);
    if voice == Origin::Cel {
        story.app(&caller, "Dial", "PJSIP/101,30");
        story.create(&agent, Unknown);
    } else {
        story.create(&agent, Down).dial(&caller, &agent, "101");
    }
    (story, caller, agent)
}

#[test]
fn line_dialed_after_the_caller_left_is_a_call_of_its_own() {
    for voice in VOICES {
        let (mut story, caller, agent) = answered(voice);
        talk(&mut story, (&caller, &agent), "b1", (5.0, 25.0));
        story.hangup(&caller).at(60.0);
        let next = line(3, &agent);
        dial(&mut story, voice, &agent, (&next, "998901110002"));
        talk(&mut story, (&agent, &next), "b2", (65.0, 75.0));
        story.hangups(&[&next, &agent]);
        let wanted = [
            "in 101 1 talk 20 of 25, whole",
            "out 101 2 talk 10 of 15, whole",
        ];
        assert_eq!(calls(&story), wanted, "{voice:?}");
    }
}

#[test]
fn line_consulted_while_the_caller_waits_is_part_of_their_call() {
    for voice in VOICES {
        let (mut story, caller, agent) = answered(voice);
        story.at(5.0).state(&agent, Up);
        story.enter(&caller, "b1").enter(&agent, "b1");
        story.at(20.0).leave(&agent, "b1");
        let expert = line(3, &agent);
        dial(&mut story, voice, &agent, (&expert, "998901110002"));
        talk(&mut story, (&agent, &expert), "b2", (25.0, 30.0));
        story.hangup(&agent).enter(&expert, "b1");
        story.at(40.0).hangups(&[&expert, &caller]);
        assert_eq!(
            calls(&story),
            ["in 101 1 talk 25 of 40, whole"],
            "{voice:?}"
        );
    }
}

#[test]
fn agent_on_a_mobile_rung_after_the_caller_left_is_no_customer() {
    let caller = customer(1);
    let mobile = line(2, &caller);
    let mut story = Story::new();
    story.create(&caller, Ring).at(5.0).hangup(&caller).at(5.2);
    dial(
        &mut story,
        Origin::Channel,
        &caller,
        (&mobile, "998931110009"),
    );
    story.at(9.0).hangup(&mobile);
    assert_eq!(calls(&story), ["in - 1 talk 0 of 5, whole"]);
}

#[test]
fn caller_forwarded_to_two_mobiles_is_one_call() {
    for voice in VOICES {
        let caller = customer(1);
        let [one, two] = [2, 3].map(|place| line(place, &caller));
        let mut story = begin_story(voice);
        begin(&mut story, voice, &caller);
        story.at(2.0);
        dial(&mut story, voice, &caller, (&one, "998931110008"));
        dial(&mut story, voice, &caller, (&two, "998931110009"));
        story.at(8.0).hangup(&one);
        talk(&mut story, (&caller, &two), "b1", (8.0, 18.0));
        story.hangups(&[&two, &caller]);
        assert_eq!(calls(&story), ["in - 1 talk 10 of 18, whole"], "{voice:?}");
    }
}

#[test]
fn mobile_dialed_for_originated_customer_is_part_of_their_call() {
    for voice in VOICES {
        let customer = channel("PJSIP/city-00000001", 1);
        let mobile = line(2, &customer);
        let mut story = begin_story(voice);
        if voice == Origin::Cel {
            let originated = customer.clone().running("AppDial2", "(Outgoing Line)");
            story.create(&customer, Unknown).state(&originated, Up);
        } else {
            story
                .create(&customer, Down)
                .originate(&customer, "998901110001@city");
            story.at(4.0).state(&customer, Up);
        }
        story.at(6.0);
        dial(&mut story, voice, &customer, (&mobile, "998931110009"));
        talk(&mut story, (&customer, &mobile), "b1", (10.0, 30.0));
        story.hangups(&[&mobile, &customer]);
        let all = story.calls();
        assert_eq!(all.len(), 1, "{voice:?}");
        assert_eq!(seconds(&all[0]), (20.0, 30.0), "{voice:?}");
        assert_eq!(all[0].direction, Outbound, "{voice:?}");
    }
}

/// A dialer calls three numbers from a list on the agent's leg. Nobody answers the first one, and
/// the third is busy.
#[test]
fn numbers_dialed_in_turn_on_one_leg_are_calls_each() {
    for voice in VOICES {
        let agent = phone(1, "101").exten("77");
        let [one, two, three] = [2, 3, 4].map(|place| line(place, &agent));
        let mut story = begin_story(voice);
        begin(&mut story, voice, &agent);
        story.at(20.0);
        dial(&mut story, voice, &agent, (&one, "998901110001"));
        story.at(40.0).hangup(&one).at(60.0);
        dial(&mut story, voice, &agent, (&two, "998901110002"));
        talk(&mut story, (&agent, &two), "b1", (65.0, 85.0));
        story.hangup(&two).at(85.4);
        dial(&mut story, voice, &agent, (&three, "998901110003"));
        story.at(89.4).hangup(&three).at(160.0).hangup(&agent);
        let wanted = [
            "out 101 1 talk 0 of 40, whole",
            "out 101 2 talk 20 of 25, whole",
            "out 101 3 talk 0 of 4, whole",
        ];
        assert_eq!(calls(&story), wanted, "{voice:?}");
    }
}

#[test]
fn unanswered_number_is_one_attempt_until_five_seconds_passed() {
    for voice in VOICES {
        for (gap, wanted) in [(4.9, 1), (5.0, 1), (5.1, 2)] {
            let agent = phone(1, "101");
            let [one, two] = [2, 3].map(|place| line(place, &agent));
            let mut story = begin_story(voice);
            begin(&mut story, voice, &agent);
            story.at(1.0);
            dial(&mut story, voice, &agent, (&one, "998901110001"));
            story.at(3.0).hangup(&one).at(3.0 + gap);
            dial(&mut story, voice, &agent, (&two, "998901110001"));
            talk(&mut story, (&agent, &two), "b1", (20.0, 30.0));
            story.hangups(&[&two, &agent]);
            assert_eq!(story.calls().len(), wanted, "{voice:?} {gap}");
        }
    }
}

/// `RetryDial` waits for as long as its second argument says, or for ten seconds.
#[test]
fn number_dialed_again_by_one_command_is_one_attempt() {
    let retries = "PJSIP/998901110001@city,20";
    for voice in VOICES {
        for (app, data, gap, wanted) in [
            ("Dial", retries.to_owned(), 12.0, 3),
            ("RetryDial", format!("busy,10,3,{retries}"), 12.0, 1),
            ("RetryDial", format!("|60|2|{retries}"), 61.0, 1),
            ("RetryDial", format!(",,3,{retries}"), 12.0, 1),
            ("RetryDial", format!("busy,10,3,{retries}"), 30.0, 3),
            (
                "RetryDial",
                "busy,60,3,PJSIP/998901110001@gsm".to_owned(),
                12.0,
                3,
            ),
        ] {
            for goes_on in [false, true] {
                let agent = phone(1, "101");
                let lines = [2, 3, 4].map(|place| line(place, &agent));
                let mut story = begin_story(voice);
                begin(&mut story, voice, &agent);
                story.at(1.0).app(&agent, app, &data);
                for (n, line) in (0..).zip(&lines) {
                    story.at(2.0 + f64::from(n) * (3.0 + gap));
                    dial(&mut story, voice, &agent, (line, "998901110001"));
                    story.at(5.0 + f64::from(n) * (3.0 + gap)).hangup(line);
                }
                let case = format!("{voice:?} {app}({data}) {gap} {goes_on}");
                if goes_on {
                    story.at(400.0).hangup(&agent);
                } else {
                    story.hangup(&agent);
                }
                assert_eq!(story.calls().len(), wanted, "{case}");
            }
        }
    }
}

/// The agent waits in a holding bridge or conference all day, or is logged in using AgentLogin.
#[test]
fn call_dialed_by_a_waiting_agent_begins_with_its_dialing() {
    for voice in VOICES {
        for room in ["holding_bridge", "softmix", "AgentLogin"] {
            let agent = phone(1, "101");
            let next = line(2, &agent);
            let mut story = begin_story(voice);
            begin(&mut story, voice, &agent);
            story.at(2.0).state(&agent, Up);
            if room == "AgentLogin" {
                story.app(&agent, "AgentLogin", "1001");
            } else {
                story.enter_kind(&agent, "lobby", room).at(3000.0);
                story.leave_kind(&agent, "lobby", room);
            }
            story.at(3600.0);
            dial(&mut story, voice, &agent, (&next, "998901110002"));
            talk(&mut story, (&agent, &next), "b1", (3605.0, 3620.0));
            story.hangups(&[&next, &agent]);
            let wanted = ["out 101 2 talk 15 of 20, whole"];
            assert_eq!(calls(&story), wanted, "{voice:?} {room}");
        }
    }
}

/// An agent in a room is talking to a caller when a dialer adds a second customer to the room.
#[test]
fn customer_dialed_into_a_room_with_a_caller_has_their_own_call() {
    for voice in VOICES {
        let [agent, caller] = [phone(1, "101"), customer(2)];
        let next = channel("PJSIP/city-00000003", 3);
        let mut story = begin_story(voice);
        begin(&mut story, voice, &agent);
        story
            .at(1.0)
            .state(&agent, Up)
            .enter_kind(&agent, "600", "softmix");
        story.at(20.0);
        begin(&mut story, voice, &caller);
        story
            .at(21.0)
            .state(&caller, Up)
            .enter_kind(&caller, "600", "softmix");
        story.at(40.0);
        if voice == Origin::Cel {
            story.create(&next, Unknown);
            let next = next.clone().running("AppDial2", "(Outgoing Line)");
            story.at(45.0).state(&next, Up);
        } else {
            story
                .create(&next, Down)
                .originate(&next, "998901110002@city");
            story.at(45.0).state(&next, Up);
        }
        story.enter_kind(&next, "600", "softmix");
        story
            .at(60.0)
            .hangup(&caller)
            .at(80.0)
            .hangup(&next)
            .at(100.0)
            .hangup(&agent);
        let all = story.calls();
        let long: Vec<(f64, f64)> = all
            .iter()
            .filter(|call| call.trunk.is_some())
            .map(seconds)
            .collect();
        assert_eq!(long, [(39.0, 40.0), (35.0, 40.0)], "{voice:?}");
    }
}

/// The agent's leg never ends. A conversation with customers is final once they've left, and so is
/// a number that nobody answered once no other carrier can be part of the attempt.
#[test]
fn call_ends_with_its_last_line_though_the_agent_stays() {
    for voice in VOICES {
        let (mut story, caller, agent) = answered(voice);
        talk(&mut story, (&caller, &agent), "b1", (5.0, 25.0));
        story.hangup(&caller).at(60.0);
        let [two, three] = [3, 4].map(|place| line(place, &agent));
        dial(&mut story, voice, &agent, (&two, "998901110002"));
        story.at(70.0).hangup(&two).at(90.0);
        dial(&mut story, voice, &agent, (&three, "998901110003"));
        talk(&mut story, (&agent, &three), "b2", (95.0, 105.0));
        story.hangup(&three);
        let mut assembler = assembler();
        let mut given = Vec::new();
        let mut events = story.events.iter().peekable();
        for tenth in 0..2000 {
            let now = moment(f64::from(tenth) / 10.0);
            while let Some((at, event)) = events.next_if(|(at, _)| *at <= now) {
                assembler.on_event(event, *at);
            }
            assembler.tick(now);
            for call in assembler.take_finished() {
                given.push(format!("{}: {}", f64::from(tenth) / 10.0, shown(&call)));
            }
        }
        let wanted = [
            "25.5: in 101 1 talk 20 of 25, whole",
            "75.5: out 101 2 talk 0 of 10, whole",
            "105.5: out 101 3 talk 10 of 15, whole",
        ];
        assert_eq!(given, wanted, "{voice:?}");
        assembler.finish_all(moment(200.0));
        assert_eq!(assembler.take_finished(), [], "{voice:?}");
    }
}

/// The agent's leg is up all day, which is long enough for its earlier calls to be removed from the
/// open call.
#[test]
fn hundredth_number_on_one_leg_is_right_like_the_first() {
    for voice in VOICES {
        let agent = phone(1, "101").exten("77");
        let mut story = begin_story(voice);
        begin(&mut story, voice, &agent);
        let mut wanted = Vec::new();
        for n in 0..100 {
            let at = 60.0 * f64::from(n + 1);
            let customer = line(n + 2, &agent);
            story.at(at);
            let last = n % 10;
            dial(
                &mut story,
                voice,
                &agent,
                (&customer, &format!("99890111000{last}")),
            );
            if n % 3 == 0 {
                story.at(at + 20.0);
                wanted.push(format!("out 101 {last} talk 0 of 20, whole"));
            } else {
                let times = (at + 5.0, at + 15.0);
                talk(&mut story, (&agent, &customer), &format!("b{n}"), times);
                wanted.push(format!("out 101 {last} talk 10 of 15, whole"));
            }
            story.hangup(&customer);
        }
        story.at(7000.0).hangup(&agent);
        let shown = calls(&story);
        for (n, (shown, wanted)) in shown.iter().zip(&wanted).enumerate().skip(1) {
            assert_eq!(shown, wanted, "{voice:?} {n}");
        }
        assert_eq!(shown.len(), 100, "{voice:?}");
    }
}

/// A call is only known to be over after an event has mentioned the channel of its linkedid.
#[test]
fn call_over_before_its_first_channel_is_seen_is_emitted() {
    let agent = channel("PJSIP/101-00000001", 1);
    let customer = channel("PJSIP/gsm-00000002", 2).join_call(&agent);
    let colleague = channel("PJSIP/102-00000003", 3).join_call(&agent);
    let mut story = Story::new();
    story.at(1.0).originate(&customer, "998901110001@gsm");
    story.at(2.0).create(&customer, Down).hangup(&customer);
    story.at(3.0).create(&colleague, Down);
    story
        .dial(&agent, &colleague, "102")
        .state(&colleague, Ring);
    let mut assembler = assembler();
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
    assembler.tick(moment(60.0));
    let emitted = assembler.take_finished();
    assert_eq!(emitted.len(), 1);
    assert_eq!(emitted[0].direction, Outbound);
    assert_eq!(assembler.open_calls(), 1);
}

/// The connection stalls, so the second line of an attempt arrives after the attempt has been
/// emitted.
#[test]
fn line_that_arrives_after_its_attempt_was_emitted_is_a_call() {
    for voice in VOICES {
        let agent = phone(1, "101");
        let lines = [line(2, &agent), line(3, &agent)];
        let mut story = begin_story(voice);
        begin(&mut story, voice, &agent);
        story.at(1.0);
        dial(&mut story, voice, &agent, (&lines[0], "998901110001"));
        story.at(4.0).hangup(&lines[0]).at(8.0);
        dial(&mut story, voice, &agent, (&lines[1], "998901110001"));
        talk(&mut story, (&agent, &lines[1]), "b1", (12.0, 30.0));
        story.hangups(&[&lines[1], &agent]);
        let mut assembler = assembler();
        for (at, event) in &story.events {
            let stalled = *at > moment(4.0) && *at < moment(12.0);
            let arrived = if stalled { moment(12.0) } else { *at };
            assembler.tick(arrived);
            assembler.on_event(event, arrived);
        }
        assembler.tick(moment(60.0));
        let calls: Vec<String> = assembler.take_finished().iter().map(shown).collect();
        let wanted = [
            "out 101 1 talk 0 of 4, whole",
            "out 101 1 talk 18 of 22, whole",
        ];
        assert_eq!(calls, wanted, "{voice:?}");
    }
}

#[test]
fn command_that_dials_again_is_recognized_after_a_plain_dial() {
    let retries = "PJSIP/998901110001@city,20";
    for voice in VOICES {
        let agent = phone(1, "101");
        let mut story = begin_story(voice);
        begin(&mut story, voice, &agent);
        story.at(1.0).app(&agent, "Dial", retries).at(1.5);
        story.app(&agent, "RetryDial", &format!("busy,10,3,{retries}"));
        for (n, at) in [(2, 2.0), (3, 17.0)] {
            let far = line(n, &agent);
            story.at(at);
            dial(&mut story, voice, &agent, (&far, "998901110001"));
            story.at(at + 3.0).hangup(&far);
        }
        story.hangup(&agent);
        assert_eq!(story.calls().len(), 1, "{voice:?}");
    }
}
