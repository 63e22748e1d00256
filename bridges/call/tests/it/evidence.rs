//! Tests of calls that show signs of having been answered although no bridge was reported.

use crate::story::{Channel, Story, channel, customer, employee};
use callbridge_call::ChannelState::{self, Down, Ring, Unknown, Up};
use callbridge_call::{FinishedCall, Kind};
use std::borrow::Cow;

/// A customer's call that rings 101 after one second. Both 101 and the customer's channel are up
/// from second 5 on.
struct Answered {
    story: Story,
    city: Channel,
    phone: Channel,
}

impl Answered {
    fn from_ami() -> Self {
        let mut this = Self::ringing(Story::new(), [Ring, Down]);
        this.story.dial(&this.city, &this.phone, "101");
        this.answer();
        this
    }

    fn from_cel() -> Self {
        let mut this = Self::ringing(Story::from_cel(), [Unknown, Unknown]);
        this.answer();
        this
    }

    fn ringing(mut story: Story, born: [ChannelState; 2]) -> Self {
        let city = customer(1);
        let phone = channel("PJSIP/101-00000002", 2).join_call(&city).exten("s");
        story.at(0.0).create(&city, born[0]);
        story.at(1.0).create(&phone, born[1]);
        Self { story, city, phone }
    }

    fn answer(&mut self) {
        self.story.at(5.0).state(&self.phone, Up);
        self.story.state(&self.city, Up);
    }

    fn dial_end(&mut self, seconds: f64, status: &'static str) {
        let kind = Kind::DialEnd {
            by: Some(Box::new(self.city.0.clone())),
            status: Cow::Borrowed(status),
        };
        self.story.at(seconds).add_event(&self.phone, kind);
    }

    /// Returns the call if both hang up after this many seconds.
    fn hung_up_at(mut self, seconds: f64) -> FinishedCall {
        self.story.at(seconds).hangups(&[&self.phone, &self.city]);
        self.story.call()
    }
}

/// Makes `phone`, which was dialed by `by`, answer.
fn answer(story: &mut Story, phone: &Channel, by: &Channel) {
    let kind = Kind::DialEnd {
        by: Some(Box::new(by.0.clone())),
        status: Cow::Borrowed("ANSWER"),
    };
    story.state(phone, Up).add_event(phone, kind);
}

fn is_missed(call: &FinishedCall) -> bool {
    !call.answered && call.incomplete.is_none() && employee(call) == Some("101")
}

#[test]
fn pair_up_together_without_a_bridge_is_incomplete() {
    for pair in [Answered::from_ami(), Answered::from_cel()] {
        let call = pair.hung_up_at(30.0);
        let why = call.incomplete.expect("a reason");
        assert!(
            why.contains("PJSIP/101-00000002 and the customer were both up"),
            "{why}"
        );
    }
}

#[test]
fn advice_names_the_settings_of_the_source() {
    for (pair, fix) in [
        (Answered::from_ami(), "eventfilter"),
        (Answered::from_cel(), "cel.conf"),
    ] {
        let why = pair.hung_up_at(30.0).incomplete.expect("a reason");
        assert!(why.contains(fix), "{why}");
    }
}

#[test]
fn reported_answer_without_a_bridge_is_incomplete() {
    let mut pair = Answered::ringing(Story::new(), [Ring, Down]);
    pair.story.dial(&pair.city, &pair.phone, "101");
    pair.dial_end(5.0, "ANSWER");
    assert!(pair.hung_up_at(30.0).incomplete.is_some());
}

#[test]
fn answer_in_the_moment_of_the_hangup_is_missed() {
    for pair in [Answered::from_ami(), Answered::from_cel()] {
        assert!(is_missed(&pair.hung_up_at(5.4)));
    }
}

#[test]
fn phone_that_did_not_confirm_leaves_the_call_missed() {
    for status in ["CONTINUE", "NOANSWER", "BUSY", "CANCEL"] {
        let mut pair = Answered::from_ami();
        pair.dial_end(12.0, status);
        assert!(is_missed(&pair.hung_up_at(30.0)), "{status}");
    }
}

/// The customer hears an announcement and is therefore up before the phone.
#[test]
fn phone_that_heard_a_prompt_leaves_the_call_missed() {
    let mut pair = Answered::ringing(Story::from_cel(), [Unknown, Unknown]);
    pair.story.at(2.0).state(&pair.city, Up);
    pair.story.at(5.0).state(&pair.phone, Up);
    pair.story.at(6.0).app(&pair.phone, "Read", "KEY,press-1,1");
    assert!(is_missed(&pair.hung_up_at(30.0)));
}

#[test]
fn confirmed_call_without_a_bridge_is_incomplete() {
    let mut pair = Answered::ringing(Story::from_cel(), [Unknown, Unknown]);
    pair.story.at(5.0).state(&pair.phone, Up);
    pair.story.at(6.0).app(&pair.phone, "Read", "KEY,press-1,1");
    pair.story.at(8.0).state(&pair.city, Up);
    assert!(pair.hung_up_at(30.0).incomplete.is_some());
}

#[test]
fn caller_who_gave_up_in_the_queue_is_missed() {
    let mut pair = Answered::from_ami();
    pair.dial_end(5.0, "ANSWER");
    pair.story.at(9.0).add_event(&pair.city, Kind::GaveUp);
    assert!(is_missed(&pair.hung_up_at(9.0)));
}

#[test]
fn phone_bridged_with_somebody_else_is_no_evidence() {
    let mut pair = Answered::from_ami();
    pair.story.at(5.2).enter(&pair.phone, "other");
    pair.story.at(29.8).leave(&pair.phone, "other");
    assert!(is_missed(&pair.hung_up_at(30.0)));
}

#[test]
fn colleague_who_was_up_anyway_is_no_evidence() {
    let mut pair = Answered::ringing(Story::new(), [Ring, Down]);
    let colleague = channel("PJSIP/104-00000009", 9);
    pair.story
        .at(0.5)
        .create(&colleague, Ring)
        .state(&colleague, Up);
    pair.story.at(1.0).dial(&pair.city, &pair.phone, "101");
    pair.story.at(2.0).state(&pair.city, Up);
    pair.story.at(20.0).hangups(&[&pair.phone, &pair.city]);
    pair.story.at(40.0).hangup(&colleague);
    let calls = pair.story.calls();
    assert!(is_missed(&calls[0]), "{calls:#?}");
}

/// 101 calls the customer and blind-transfers them to 102. While 102 is ringing, the customer isn't
/// in any bridge. Later, 103's call to 104 is transferred to them while it's ringing.
#[test]
fn phone_that_began_after_the_customer_was_alone_is_no_evidence() {
    let caller = channel("PJSIP/101-00000001", 1);
    let city = channel("PJSIP/city-00000002", 2).join_call(&caller);
    let second = channel("PJSIP/102-00000003", 3).join_call(&caller);
    let consulting = channel("PJSIP/103-00000004", 4).exten("104");
    let third = channel("PJSIP/104-00000005", 5).join_call(&consulting);
    let mut story = Story::new();
    story.at(0.0).create(&caller, Ring).create(&city, Down);
    story.dial(&caller, &city, "+4930111");
    answer(story.at(5.0), &city, &caller);
    story.enter(&city, "b1").enter(&caller, "b1");
    story.at(10.0).leave(&caller, "b1").leave(&city, "b1");
    story.hangup(&caller).create(&second, Down);
    story.dial(&city, &second, "102");
    answer(story.at(15.0), &second, &city);
    story.enter(&second, "b2").enter(&city, "b2");
    story
        .at(20.0)
        .create(&consulting, Ring)
        .create(&third, Down);
    story.dial(&consulting, &third, "104");
    story.at(25.0).join(&consulting, &city).hangup(&consulting);
    story.leave(&second, "b2").hangup(&second);
    answer(story.at(30.0), &third, &consulting);
    story.enter(&third, "b2");
    story.at(40.0).leave(&third, "b2").leave(&city, "b2");
    let call = story.hangups(&[&third, &city]).call();
    assert_eq!(call.incomplete, None);
}

#[test]
fn exit_without_an_entry_makes_the_call_incomplete() {
    for pair in [Answered::from_ami(), Answered::from_cel()] {
        let Answered {
            mut story,
            city,
            phone,
        } = pair;
        story.at(5.1).enter(&phone, "b1");
        story.at(30.0).leave(&phone, "b1").leave(&city, "b1");
        let call = story.hangups(&[&phone, &city]).call();
        let why = call.incomplete.expect("a reason");
        assert!(why.contains("PJSIP/city-00000001"), "{why}");
    }
}

#[test]
fn return_to_a_bridge_without_an_exit_makes_the_call_incomplete() {
    let Answered {
        mut story,
        city,
        phone,
    } = Answered::from_ami();
    story.at(5.1).enter(&phone, "b1").enter(&city, "b1");
    story.at(20.0).enter(&phone, "b1");
    story.at(30.0).leave(&phone, "b1").leave(&city, "b1");
    let call = story.hangups(&[&phone, &city]).call();
    assert!(call.incomplete.is_some());
}

/// A queue answers the customer, and dials an agent who logged in earlier through a Local channel,
/// which is answered. With `bridged`, the agent hears a prompt behind the Local channel.
fn reason_of_queue(mut story: Story, is_ami: bool, bridged: bool) -> Option<String> {
    let [ring, down] = if is_ami { [Ring, Down] } else { [Unknown; 2] };
    let city = customer(1);
    let first = channel("Local/201@agents-00000001;1", 2).join_call(&city);
    let first = first.running("AppQueue", "(Outgoing Line)");
    let second = channel("Local/201@agents-00000001;2", 3).join_call(&city);
    story.at(0.0).create(&city, ring).state(&city, Up);
    story.at(3.0).create(&first, down).create(&second, ring);
    if is_ami {
        story.dial(&city, &first, "Local/201@agents/n");
    }
    story.at(4.0).state(&second, Up).state(&first, Up);
    if bridged {
        story.enter(&second, "b1");
        story.at(7.0).leave(&second, "b1");
    }
    story.at(8.0).hangups(&[&city, &first, &second]);
    story.call().incomplete
}

#[test]
fn answered_local_channel_without_any_bridge_is_incomplete() {
    for (story, is_ami) in [(Story::new(), true), (Story::from_cel(), false)] {
        assert!(reason_of_queue(story.clone(), is_ami, false).is_some());
        assert_eq!(reason_of_queue(story, is_ami, true), None);
    }
}

/// 101 talks to a customer and then dials another one.
#[test]
fn second_customer_up_with_the_dialer_is_incomplete() {
    let phone = channel("PJSIP/101-00000001", 1).exten("998901110003");
    let first = channel("PJSIP/city-00000002", 2).join_call(&phone);
    let second = channel("PJSIP/city-00000003", 3).join_call(&phone);
    let mut story = Story::new();
    story.at(0.0).create(&phone, Ring);
    story
        .create(&first, Down)
        .dial(&phone, &first, "998901110003@city");
    answer(story.at(1.0), &first, &phone);
    story.state(&phone, Up);
    story.enter(&first, "b1").enter(&phone, "b1");
    story.at(4.0).leave(&first, "b1").leave(&phone, "b1");
    story.hangup(&first).at(4.5).create(&second, Down);
    story.dial(&phone, &second, "998901110002@city");
    answer(story.at(5.0), &second, &phone);
    story.at(9.0).hangups(&[&second, &phone]);
    let calls = story.calls();
    let incomplete: Vec<bool> = calls.iter().map(|call| call.incomplete.is_some()).collect();
    assert_eq!(incomplete, [false, true], "{calls:#?}");
}

/// `Dial` answers the caller when a phone answers. CEL reports which application did so.
#[test]
fn caller_answered_by_dial_without_a_bridge_is_incomplete() {
    let mut pair = Answered::ringing(Story::from_cel(), [Unknown, Unknown]);
    let city = pair.city.clone().running("Dial", "PJSIP/101,30");
    pair.story.at(0.5).app(&city, "Dial", "PJSIP/101,30");
    pair.story.at(5.0).state(&city, Up);
    assert!(pair.hung_up_at(30.0).incomplete.is_some());
}

#[test]
fn caller_answered_by_a_menu_stays_missed() {
    let mut pair = Answered::ringing(Story::from_cel(), [Unknown, Unknown]);
    let city = pair.city.clone().running("Answer", "");
    pair.story.at(5.0).state(&city, Up);
    assert!(is_missed(&pair.hung_up_at(30.0)));
}
