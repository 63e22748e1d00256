//! Tests of the customer's number, and of how many customers an outbound call had.

use crate::story::{Channel, Story, channel, customer, number, seconds};
use callbridge_call::ChannelState::{Down, Ring, Unknown};

/// Returns an outbound call from 101, along with 101's channel. The call dials one trunk channel
/// after another. Each item of `legs` is a channel name, a dial string, and a talk time in seconds.
fn outbound_call(legs: &[(&str, &str, f64)]) -> (Story, Channel) {
    let phone = channel("PJSIP/101-00000001", 1)
        .exten("9998901110001")
        .caller("101");
    let mut story = Story::new();
    story.at(0.0).create(&phone, Ring);
    let mut now = 1.0;
    for (number, (name, string, talk)) in (2..).zip(legs) {
        let trunk = channel(name, number)
            .join_call(&phone)
            .caller("9998901110001");
        story
            .at(now)
            .create(&trunk, Down)
            .dial(&phone, &trunk, string);
        now += 1.0;
        if *talk > 0.0 {
            let bridge = format!("b{number}");
            story.at(now).enter(&trunk, &bridge).enter(&phone, &bridge);
            now += talk;
            story.at(now).leave(&trunk, &bridge).leave(&phone, &bridge);
        }
        story.hangup(&trunk);
    }
    story.at(now).hangup(&phone);
    (story, phone)
}

/// Returns the number that the customer dialed (`did`). The customer's channel has this name,
/// starts on the first of these extensions, and goes through the others.
fn did(name: &str, extens: &[&str]) -> Option<String> {
    let city = channel(name, 1).caller("998901110001");
    let steps: Vec<Channel> = extens
        .iter()
        .map(|exten| city.clone().exten(exten))
        .collect();
    let mut story = Story::new();
    story.at(0.0).create(&steps[0], Ring);
    for (step, second) in steps[1..].iter().zip(1_u32..) {
        story.at(f64::from(second)).mention(step);
    }
    story.at(60.0).hangup(&steps[steps.len() - 1]);
    story.call().did
}

#[test]
fn did_is_extension_at_channel_creation() {
    let city = "PJSIP/city-00000001";
    for number in ["7001", "+998712001122", "71"] {
        let found = did(city, &[number, "s", "101", "600"]);
        assert_eq!(found.as_deref(), Some(number));
    }
    for other in ["", "s", "start", "7", "10a", "+", "sip:7001@host"] {
        assert_eq!(did(city, &[other, "101", "7001"]), None, "{other}");
    }
    let (story, _) = outbound_call(&[("PJSIP/city-00000002", "998901110001@city", 3.0)]);
    assert_eq!(story.call().did, None, "a call out");
    assert_eq!(did("PJSIP/102-00000001", &["101"]), None, "a colleague");
}

/// CEL rows from a broker arrive in arbitrary order, and several may have the same millisecond.
#[test]
fn dialplan_step_at_the_time_of_creation_is_not_did() {
    for step in ["s", "101"] {
        let (born, later) = (customer(1).exten("7001"), customer(1).exten(step));
        let mut story = Story::from_cel();
        story.at(0.0).app(&later, "Dial", "PJSIP/101,20");
        story.create(&born, Unknown).at(9.0).hangup(&later);
        assert_eq!(story.call().did.as_deref(), Some("7001"), "{step}");
    }
    let (born, later) = (customer(1).exten(""), customer(1).exten("101"));
    let mut story = Story::from_cel();
    story.at(0.0).create(&born, Unknown).mention(&later).at(9.0);
    story.hangup(&later);
    assert_eq!(story.call().did, None, "nothing was dialed");
}

#[test]
fn did_is_unknown_if_channel_creation_was_missed() {
    let customer = customer(1).exten("7001");
    let mut story = Story::new();
    story.at(0.0).state(&customer, Ring).at(9.0);
    story.hangup(&customer);
    assert_eq!(story.call().did, None);
}

#[test]
fn outbound_number_is_read_from_the_dial_string() {
    let (story, _) = outbound_call(&[("PJSIP/city-00000002", "998901110001@city", 3.0)]);
    assert_eq!(number(&story.call()), Some(("998901110001", true)));
}

#[test]
fn dialed_number_without_dial_string_keeps_prefix() {
    let (story, _) = outbound_call(&[("PJSIP/city-00000002", "city", 3.0)]);
    assert_eq!(number(&story.call()), Some(("9998901110001", false)));
}

#[test]
fn cel_dial_string_is_read_from_the_dial_application_data() {
    let phone = channel("PJSIP/101-00000001", 1)
        .exten("9998901110001")
        .caller("101");
    let trunk = channel("PJSIP/city-00000002", 2)
        .join_call(&phone)
        .exten("s");
    let mut story = Story::from_cel();
    story.at(0.0).create(&phone, Unknown);
    story.app(
        &phone,
        "Dial",
        "PJSIP/998901110001@city&PJSIP/998901119999@gsm,20,tT",
    );
    story
        .at(0.1)
        .create(&trunk, Unknown)
        .at(5.0)
        .hangups(&[&trunk, &phone]);
    assert_eq!(number(&story.call()), Some(("998901110001", true)));
}

/// The carrier requires a technical prefix in the dial string, so only the extension is a valid
/// number.
#[test]
fn dialed_extension_is_a_candidate_in_every_source() {
    for source in ["AMI 12", "AMI 1.x", "CEL"] {
        let mut phone = channel("PJSIP/101-00000001", 1)
            .exten("9998901110001")
            .caller("101");
        let mut line = channel("PJSIP/city-00000002", 2)
            .join_call(&phone)
            .exten("s");
        if source == "AMI 1.x" {
            phone.0.linkedid = "".into();
            line.0.linkedid = "".into();
        }
        let step = phone.clone().exten("s");
        let mut story = if source == "CEL" {
            Story::from_cel()
        } else {
            Story::new()
        };
        story.at(0.0).create(&phone, Ring);
        story.app(&step, "Dial", "PJSIP/1010998901110001@city,20");
        story.at(0.5).create(&line, Down);
        if source != "CEL" {
            story.dial(&step, &line, "1010998901110001@city");
        }
        // The same phone's next call.
        story.at(4.0).mention(&phone.clone().exten("9998901119999"));
        story.at(5.0).hangups(&[&line, &phone]);
        let call = story.call();
        assert_eq!(number(&call), Some(("1010998901110001", true)), "{source}");
        let more: Vec<&str> = (call.more_numbers.iter())
            .map(|number| number.text.as_str())
            .collect();
        assert_eq!(more, ["9998901110001"], "{source}");
    }
}

#[test]
fn consecutive_cel_dials_have_separate_numbers() {
    // CEL only reports the start of an application if the application's name changes, whereas the
    // application's data is in every row.
    let phone = channel("PJSIP/101-00000001", 1)
        .exten("9998901110003")
        .caller("101");
    let first_dial = phone.clone().running("Dial", "PJSIP/998901110003@city,20");
    let second_dial = phone.clone().running("Dial", "PJSIP/998901110002@city,20");
    let legs = [2, 3].map(|number| {
        channel(&format!("PJSIP/city-{number:08x}"), number)
            .join_call(&phone)
            .exten("s")
    });
    let mut story = Story::from_cel();
    story.at(0.0).create(&phone, Unknown);
    story
        .app(&first_dial, "Dial", "PJSIP/998901110003@city,20")
        .at(0.1)
        .create(&legs[0], Unknown);
    story.at(1.0).enter(&legs[0], "b1").enter(&first_dial, "b1");
    story.at(4.0).leave(&first_dial, "b1").hangup(&legs[0]);
    story.at(4.1).create(&legs[1], Unknown);
    story
        .at(5.0)
        .enter(&legs[1], "b2")
        .enter(&second_dial, "b2");
    story
        .at(7.0)
        .leave(&second_dial, "b2")
        .hangups(&[&legs[1], &phone]);
    let calls = story.calls();
    let numbers: Vec<_> = calls.iter().map(number).collect();
    assert_eq!(
        numbers,
        [Some(("998901110003", true)), Some(("998901110002", true))]
    );
}

#[test]
fn dial_naming_another_trunk_does_not_set_the_number() {
    let phone = channel("PJSIP/101-00000001", 1).exten("102").caller("101");
    let trunk = channel("PJSIP/city-00000002", 2)
        .join_call(&phone)
        .exten("s");
    let mut story = Story::from_cel();
    story
        .at(0.0)
        .create(&phone, Unknown)
        .app(&phone, "Dial", "PJSIP/998901119999@gsm,20");
    story
        .at(0.1)
        .create(&trunk, Unknown)
        .at(5.0)
        .hangups(&[&trunk, &phone]);
    assert_eq!(number(&story.call()), Some(("102", false)));
}

#[test]
fn caller_text_that_is_not_a_number_yields_no_number() {
    for text in ["anonymous", "Anonymous", "s", ""] {
        let city = customer(1).caller(text);
        let mut story = Story::new();
        story.at(0.0).create(&city, Ring).at(5.0).hangup(&city);
        assert_eq!(number(&story.call()), None, "{text}");
    }
}

#[test]
fn first_number_of_the_caller_is_used() {
    let city = customer(1);
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&city, Ring)
        .mention(&city.clone().caller("101"));
    story.at(5.0).hangup(&city.clone().caller("101"));
    assert_eq!(number(&story.call()), Some(("+998901110001", false)));
}

#[test]
fn second_carrier_after_refusal_answers_same_call() {
    let (story, phone) = outbound_call(&[
        ("PJSIP/city-00000002", "998901110001@city", 0.0),
        ("PJSIP/gsm-00000003", "998901110001@gsm", 3.0),
    ]);
    let call = story.call();
    assert_eq!(call.linkedid.as_str(), phone.id());
    assert_eq!(
        (call.trunk.as_deref(), number(&call)),
        (Some("gsm"), Some(("998901110001", true)))
    );
    assert_eq!(seconds(&call), (3.0, 6.0));
}

#[test]
fn number_dialed_with_two_prefixes_is_one_customer() {
    let (story, _) = outbound_call(&[
        ("PJSIP/city-00000002", "998901110001@city", 1.0),
        ("PJSIP/gsm-00000003", "00998901110001@gsm", 3.0),
    ]);
    assert_eq!(seconds(&story.call()).0, 4.0);
}

#[test]
fn two_numbers_that_both_talked_are_two_calls() {
    let (story, phone) = outbound_call(&[
        ("PJSIP/city-00000002", "998901110001@city", 3.0),
        ("PJSIP/city-00000003", "998901110002@city", 4.0),
    ]);
    let calls = story.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0].linkedid.as_str(), phone.id());
    assert!(calls[1].linkedid.as_str().ends_with(".3"));
    assert_eq!(number(&calls[0]), Some(("998901110001", true)));
    assert_eq!(number(&calls[1]), Some(("998901110002", true)));
    assert_eq!((seconds(&calls[0]).0, seconds(&calls[1]).0), (3.0, 4.0));
}

#[test]
fn customer_number_is_the_dialed_one_that_talked() {
    let (story, _) = outbound_call(&[
        ("PJSIP/city-00000002", "998901110001@city", 3.0),
        ("PJSIP/city-00000003", "998901110002@city", 0.0),
    ]);
    assert_eq!(number(&story.call()), Some(("998901110001", true)));
}

/// An originated channel isn't listed in any `Dial`. The colleague's next `Dial`, on a trunk that
/// doesn't specify a peer, starts right after the end of the originated channel, which is within
/// the tolerance for the end of a `Dial`.
#[test]
fn originated_channel_gets_no_number_from_the_next_dial() {
    let first = channel("DAHDI/i1/1-1", 1)
        .exten("s")
        .running("AppDial2", "(Outgoing Line)");
    let phone = channel("PJSIP/101-00000002", 2)
        .join_call(&first)
        .exten("s");
    let next = channel("DAHDI/i1/3-1", 3).join_call(&first).exten("s");
    let mut story = Story::from_cel();
    story
        .at(0.0)
        .create(&first, Unknown)
        .create(&phone, Unknown);
    story
        .at(1.0)
        .enter(&first, "b1")
        .enter(&phone, "b1")
        .at(2.0)
        .hangup(&first)
        .leave(&phone, "b1");
    story
        .at(2.01)
        .app(&phone, "Dial", "DAHDI/i1/998901110003,20")
        .create(&next, Unknown);
    story
        .at(3.0)
        .enter(&next, "b2")
        .enter(&phone, "b2")
        .at(4.0)
        .hangups(&[&next, &phone]);
    let calls = story.calls();
    let numbers: Vec<_> = calls.iter().map(number).collect();
    assert_eq!(numbers, [None, Some(("998901110003", true))]);
}
