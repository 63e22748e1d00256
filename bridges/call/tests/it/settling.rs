//! Tests of when a call is over.

use crate::story::{
    Story, answered_by_101, assembler, channel, customer, moment, number, seconds, settings,
};
use callbridge_call::ChannelState::{Down, Ring, Up};
use callbridge_call::{Assembler, Endpoints, Line, PbxEvent, Settings, Timing, TrunkEndpoint};
use std::borrow::Cow;
use std::time::Duration;

fn send_events(assembler: &mut Assembler, story: &Story) {
    for (at, event) in &story.events {
        assembler.on_event(event, *at);
    }
}

#[test]
fn call_is_finished_half_a_second_after_its_last_hangup() {
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).hangups(&[&phone, &city]);
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assert_eq!(assembler.next_deadline(), Some(moment(5.5)));
    assembler.tick(moment(5.499));
    assert!(assembler.take_finished().is_empty());
    assembler.tick(moment(5.5));
    assert_eq!(
        (assembler.take_finished().len(), assembler.open_calls()),
        (1, 0)
    );
    assert_eq!(assembler.next_deadline(), None);
}

#[test]
fn new_line_within_the_settling_time_continues_the_call() {
    let (mut story, city, phone) = answered_by_101();
    let later = channel("PJSIP/city-00000003", 3).join_call(&city);
    story
        .at(5.0)
        .hangups(&[&phone, &city])
        .at(5.4)
        .create(&later, Down)
        .at(9.0)
        .hangup(&later);
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assert_eq!(assembler.take_finished().len(), 0);
    assembler.tick(moment(9.5));
    assert_eq!(assembler.take_finished().len(), 1);
}

#[test]
fn calls_of_a_file_settle_by_the_event_times() {
    // All calls arrive at the same instant, long after they happened.
    let mut assembler = assembler();
    let mut most_open = 0;
    for number in 0..100 {
        let city = customer(number);
        let mut story = Story::new();
        story.at(f64::from(number) * 10.0).create(&city, Ring);
        story.at(f64::from(number) * 10.0 + 5.0).hangup(&city);
        for (_, event) in &story.events {
            assembler.on_event(event, moment(1e7));
            most_open = most_open.max(assembler.open_calls());
        }
    }
    assert_eq!((most_open, assembler.take_finished().len()), (1, 99));
    assembler.finish_all(moment(1e7));
    assert_eq!(assembler.take_finished().len(), 1);
}

/// AMI 1.x doesn't report linkedids. If a hangup is missing, other channels show that the call is
/// over.
#[test]
fn end_of_file_finishes_call_without_linkedid_if_partners_left() {
    for (has_linkedid, has_phone_left) in [(false, true), (false, false), (true, true)] {
        let mut city = customer(1);
        let mut phone = channel("PJSIP/101-00000002", 2).join_call(&city);
        if !has_linkedid {
            city.0.linkedid = Cow::Borrowed("");
            phone.0.linkedid = Cow::Borrowed("");
        }
        let mut story = Story::new();
        story.at(0.0).create(&city, Ring).create(&phone, Down);
        story.dial(&city, &phone, "101");
        story.at(1.0).state(&phone, Up).join(&phone, &city);
        if has_phone_left {
            story.at(5.0).hangup(&phone);
        }
        let mut assembler = assembler();
        send_events(&mut assembler, &story);
        assembler.finish_all(moment(60.0));
        let reasons: Vec<Option<String>> = assembler
            .take_finished()
            .into_iter()
            .map(|call| call.incomplete)
            .collect();
        let is_over = !has_linkedid && has_phone_left;
        let expected = is_over.then(|| Some("a hang-up was not received".to_owned()));
        assert_eq!(reasons, Vec::from_iter(expected));
        assert_eq!(assembler.open_calls(), usize::from(!is_over));
    }
}

/// A rotated file is read after a newer one. The assembler used to mistake the stream's latest time
/// for the present and miss the older call's second phone, which started 0.3 s after the other
/// channels hung up.
#[test]
fn older_backlog_call_settles_by_its_own_times() {
    let mut story = Story::new();
    let newer = customer(9);
    story
        .at(100.0)
        .create(&newer, Ring)
        .at(101.0)
        .hangup(&newer);
    let city = customer(1);
    let first = channel("PJSIP/101-00000002", 2).join_call(&city);
    let second = channel("PJSIP/102-00000003", 3).join_call(&city);
    story.at(0.0).create(&city, Ring).create(&first, Down);
    story.at(5.0).hangups(&[&first, &city]);
    story.at(5.3).create(&second, Down).at(6.0).hangup(&second);
    let mut assembler = assembler();
    for (_, event) in &story.events {
        assembler.on_event(event, moment(1e7));
    }
    assembler.finish_all(moment(1e7));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), assembler.counts.late), (2, 0));
    let mut older = calls
        .iter()
        .filter(|call| call.linkedid.as_str() == city.id());
    let older = older.next().expect("the older call");
    assert!(older.ids().any(|id| id.as_str() == second.id()));
}

#[test]
fn active_calls_stay_open_at_the_end_of_a_file() {
    let (mut story, _, phone) = answered_by_101();
    story.at(5.0).hangup(&phone);
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assembler.finish_all(moment(5.0));
    assert_eq!(
        (assembler.take_finished().len(), assembler.open_calls()),
        (0, 1)
    );
}

#[test]
fn late_events_of_a_finished_call_open_no_new_call() {
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).hangups(&[&phone, &city]);
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assembler.tick(moment(6.0));
    assert_eq!(assembler.take_finished().len(), 1);
    send_events(&mut assembler, &story);
    assembler.tick(moment(60.0));
    assert_eq!(
        (assembler.take_finished().len(), assembler.open_calls()),
        (0, 0)
    );
    assert_eq!(assembler.counts.late, story.events.len() as u64);
}

#[test]
fn scrap_events_of_unknown_calls_are_dropped_as_ghosts() {
    // The events belong to calls that the assembler doesn't know, which happens with
    // NewConnectedLine.
    let mut story = Story::new();
    story
        .at(0.0)
        .mention(&customer(1))
        .at(0.1)
        .hangup(&customer(2));
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assembler.tick(moment(1.0));
    assert_eq!(
        (assembler.take_finished().len(), assembler.open_calls()),
        (0, 0)
    );
    // A minute later, both calls are dropped as ghosts.
    let mut later = Story::new();
    later.at(61.0).create(&customer(3), Ring);
    send_events(&mut assembler, &later);
    assert_eq!((assembler.open_calls(), assembler.counts.ghosts), (1, 2));
}

#[test]
fn hangup_received_before_channel_creation_is_kept() {
    let city = customer(1);
    let mut story = Story::new();
    story.at(0.01).hangup(&city).at(0.0).create(&city, Ring);
    let call = story.call();
    assert_eq!(seconds(&call), (0.0, 0.01));
    assert_eq!(call.incomplete, None);
}

#[test]
fn events_with_only_a_channel_name_join_the_named_channel() {
    // If the source doesn't have IDs, it reports an empty one, or the decoder generates one from
    // the name and time.
    for stand_in in ["", "PJSIP/city-00000001@1795000000"] {
        let city = customer(1);
        let mut nameless = city.clone();
        nameless.0.uniqueid = stand_in.into();
        nameless.0.linkedid = stand_in.into();
        let mut story = Story::new();
        // The name is reported without the unique ID, both before and after the unique ID is known.
        story.at(0.0).create(&nameless, Ring).at(0.1).mention(&city);
        story
            .at(1.0)
            .enter(&nameless, "b1")
            .at(5.0)
            .hangup(&nameless);
        // Two more events arrive after the hangup.
        story.at(5.1).leave(&nameless, "b1").mention(&nameless);
        let call = story.call();
        assert_eq!(call.linkedid.as_str(), city.id(), "{stand_in}");
        assert_eq!(seconds(&call), (0.0, 5.0));
        assert_eq!(number(&call), Some(("+998901110001", false)));
    }
}

#[test]
fn events_with_only_a_stand_in_id_are_not_a_call() {
    let city = customer(1);
    let mut scrap = city.clone();
    scrap.0.uniqueid = "PJSIP/city-00000001@1795000000".into();
    scrap.0.linkedid = scrap.0.uniqueid.clone();
    let mut story = Story::new();
    story.at(0.0).mention(&scrap).leave(&scrap, "b1");
    assert!(story.calls().is_empty());
    // Events that arrive after the channel's call has ended neither change it nor start another
    // one.
    let mut story = Story::new();
    story.at(0.0).create(&city, Ring).at(5.0).hangup(&city);
    story.at(10.0).mention(&scrap).leave(&scrap, "b1");
    assert_eq!(seconds(&story.call()), (0.0, 5.0));
}

#[test]
fn call_without_hangup_ends_incomplete_after_max_call() {
    let (story, _, _) = answered_by_101();
    let mut assembler = Assembler::new(Settings {
        max_call: Duration::from_secs(60),
        ..settings()
    });
    send_events(&mut assembler, &story);
    assert_eq!(assembler.next_deadline(), Some(moment(60.0)));
    assembler.tick(moment(59.9));
    assert!(assembler.take_finished().is_empty());
    assembler.tick(moment(60.0));
    let calls = assembler.take_finished();
    assert_eq!(
        calls[0].incomplete.as_deref(),
        Some("no hang-up was received within --max-call")
    );
    // The call ends at its last event, not at the end of the wait.
    assert_eq!(calls[0].ended, moment(1.0));
    assert_eq!((assembler.open_calls(), assembler.counts.forced), (0, 1));
}

/// If a channel is waiting alone in a bridge, the bridge counts as a room, and calls in a room may
/// last longer than `--max-call`. The assembler must know that a channel has left even if its exit
/// arrives before its entry.
#[test]
fn bridge_entry_received_after_leave_does_not_make_room() {
    let (mut in_order, city, phone) = answered_by_101();
    in_order.at(4.0).leave(&phone, "b1").leave(&city, "b1");
    let mut entry_last = in_order.clone();
    let (_, entry) = entry_last.events.remove(4);
    let entered = matches!(&entry, PbxEvent::Channel(event) if event.channel == phone.0);
    assert!(entered, "{entry:?}");
    entry_last.events.push((moment(4.1), entry));
    let [in_order, entry_last] = [in_order, entry_last].map(|story| {
        let mut assembler = assembler();
        send_events(&mut assembler, &story);
        assembler.tick(moment(13.0 * 3600.0));
        assembler.take_finished()
    });
    let incomplete = Some("no hang-up was received within --max-call");
    assert_eq!(in_order[0].incomplete.as_deref(), incomplete);
    assert_eq!(entry_last, in_order);
}

#[test]
fn longest_silent_call_ends_incomplete_if_too_many_are_open() {
    let mut assembler = Assembler::new(Settings {
        max_open_calls: 2,
        ..settings()
    });
    let mut story = Story::new();
    for number in 1..=3 {
        story.at(f64::from(number)).create(&customer(number), Ring);
    }
    story.events.insert(
        2,
        { story.clone() }.at(2.5).mention(&customer(1)).events[3].clone(),
    );
    send_events(&mut assembler, &story);
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), assembler.open_calls()), (1, 2));
    assert_eq!(calls[0].linkedid.as_str(), customer(2).id());
    assert!(calls[0].incomplete.is_some());
}

#[test]
fn call_on_a_trunk_with_leads_in_cdrs_waits_for_the_cdr() {
    let city = TrunkEndpoint::new("city", "PJSIP/city");
    let endpoints = vec![TrunkEndpoint {
        awaits_cdr: true,
        ..city
    }];
    let endpoints = Endpoints::new(endpoints).expect("no conflict");
    let cdr_wait = Some(Duration::from_secs(10));
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).hangups(&[&phone, &city]);
    for (cdr_at, userfield, finished_at) in [
        (7.0, "lead=4001", 7.0),
        (7.0, "", 15.0),
        (7.0, "lead=", 15.0),
        (5.2, "lead=4001", 5.5),
    ] {
        let mut assembler = Assembler::new(Settings {
            cdr_wait,
            ..Settings::new(endpoints.clone())
        });
        send_events(&mut assembler, &story);
        let mut cdr = Story::new();
        cdr.at(cdr_at).cdr(&city, userfield);
        send_events(&mut assembler, &cdr);
        assembler.tick(moment(finished_at - 0.01));
        let early = assembler.take_finished().len();
        assembler.tick(moment(finished_at));
        let in_time = early + assembler.take_finished().len();
        assert_eq!(in_time, 1, "{userfield} at {cdr_at}");
        assert!(
            early == 0 || cdr_at >= finished_at,
            "{userfield} at {cdr_at}"
        );
    }
}

/// Returns a customer's call to 101 through a Local channel. The call starts at second `at`, and
/// the numbers in the unique IDs start at `first`.
fn call_through_local_channel(at: f64, first: u32) -> Story {
    let city = channel("PJSIP/city-00000000", first);
    let one = channel("Local/101@in-00000000;1", first + 1).join_call(&city);
    let two = channel("Local/101@in-00000000;2", first + 2).join_call(&city);
    let phone = channel("PJSIP/101-00000001", first + 3).join_call(&city);
    let mut story = Story::new();
    story.at(at).create(&city, Ring);
    story
        .create(&one, Down)
        .create(&two, Ring)
        .create(&phone, Down);
    let [near, far] = ["near", "far"].map(|bridge| format!("{bridge}-{first}"));
    story.at(at + 1.0).enter(&phone, &far).enter(&two, &far);
    story.enter(&one, &near).enter(&city, &near);
    story.at(at + 3.0).hangups(&[&phone, &two, &one, &city]);
    story
}

#[test]
fn reused_local_channel_name_does_not_join_call_awaiting_cdr() {
    let city = TrunkEndpoint::new("city", "PJSIP/city");
    let endpoints = vec![TrunkEndpoint {
        awaits_cdr: true,
        ..city
    }];
    let mut assembler = Assembler::new(Settings {
        cdr_wait: Some(Duration::from_secs(10)),
        ..Settings::new(Endpoints::new(endpoints).expect("no conflict"))
    });
    let before = call_through_local_channel(0.0, 1);
    let after = call_through_local_channel(6.0, 101);
    send_events(&mut assembler, &before);
    send_events(&mut assembler, &after);
    // Duplicate events of the first call don't join the calls either.
    send_events(&mut assembler, &before);
    assembler.tick(moment(60.0));
    let calls = assembler.take_finished();
    let talks: Vec<_> = calls.iter().map(|call| call.talk.as_secs()).collect();
    assert_eq!(talks, [2, 2]);
}

#[test]
fn call_begun_before_listening_is_incomplete() {
    let (story, city, phone) = answered_by_101();
    let mut rest = story.with_events(story.events[4..].to_vec());
    rest.at(5.0).hangups(&[&phone, &city]);
    let call = rest.call();
    assert_eq!(
        call.incomplete.as_deref(),
        Some("the beginning of the call was not received")
    );
}

#[test]
fn caller_waiting_since_before_listening_is_not_lost() {
    // The customer is waiting in a queue. The agents' channels have the customer's linkedid, and
    // come and go.
    let city = customer(1);
    let (first, second) = ("PJSIP/101-00000002", "PJSIP/102-00000003");
    let (first, second) = (
        channel(first, 2).join_call(&city),
        channel(second, 3).join_call(&city),
    );
    let mut story = Story::new();
    story.at(0.0).create(&first, Down).at(5.0).hangup(&first);
    story
        .at(9.0)
        .create(&second, Down)
        .at(11.0)
        .enter(&second, "b1")
        .enter(&city, "b1");
    story.at(15.0).hangups(&[&second, &city]);
    let call = story.call();
    assert_eq!(
        (call.linkedid.as_str(), call.trunk.as_deref()),
        (city.id(), Some("city"))
    );
    assert_eq!(
        call.incomplete.as_deref(),
        Some("the beginning of the call was not received")
    );
}

#[test]
fn batch_in_reverse_order_with_a_pause_is_one_complete_call() {
    let (city, phone) = (
        customer(1),
        channel("PJSIP/101-00000002", 2).join_call(&customer(1)),
    );
    let mut story = Story::new();
    story
        .at(0.0)
        .create(&city, Ring)
        .at(0.5)
        .create(&phone, Down)
        .at(8.0)
        .enter(&phone, "b")
        .enter(&city, "b")
        .at(28.0)
        .leave(&phone, "b")
        .leave(&city, "b")
        .hangup(&phone)
        .hangup(&city);
    let mut assembler = assembler();
    // All events arrive live at the end of the call, with a one-second pause in the middle.
    let mut now = moment(28.0);
    for (i, (_, event)) in story.events.iter().rev().enumerate() {
        now = now.plus(Duration::from_millis(if i == 6 { 1000 } else { 1 }));
        assembler.tick(now);
        assembler.on_event(event, now);
    }
    assembler.tick(now.plus(Duration::from_secs(1)));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), assembler.counts.clock_set), (1, 0));
    assert_eq!(seconds(&calls[0]), (20.0, 28.0));
    assert_eq!((calls[0].answered, &calls[0].incomplete), (true, &None));
}

/// A colleague transfers the customer and hangs up. The hangup arrives before any other event of
/// the call. Those are read an hour later, because the machine is busy.
#[test]
fn hangup_before_channel_is_kept_through_processing_delay() {
    let (mut story, city, phone) = answered_by_101();
    let (asking, asked) = (
        channel("PJSIP/101-00000003", 3),
        channel("PJSIP/102-00000004", 4),
    );
    let asked = asked.join_call(&asking);
    story.at(3.0).create(&asking, Ring).create(&asked, Down);
    story.at(4.0).enter(&asking, "b2").enter(&asked, "b2");
    story.at(6.0).leave(&asking, "b2").leave(&city, "b1");
    story.enter(&city, "b2").hangup(&phone).at(6.1);
    story.hangup(&asking);
    story.at(8.0).leave(&asked, "b2").leave(&city, "b2");
    story.hangups(&[&asked, &city]);
    let hangup = story.events.iter().position(|(at, _)| *at == moment(6.1));
    let hangup = story.events.remove(hangup.expect("a hangup"));
    let mut assembler = assembler();
    let (begun, went_on) = (moment(86_400.0), moment(86_400.0 + 3_600.0));
    assembler.on_event(&hangup.1, begun);
    for now in [moment(86_401.0), went_on] {
        assembler.tick(now);
    }
    for (_, event) in story.events.iter().rev() {
        assembler.on_event(event, went_on);
    }
    assembler.tick(went_on.plus(Duration::from_secs(1)));
    let calls = assembler.take_finished();
    assert_eq!((calls.len(), assembler.open_calls()), (1, 0));
    assert_eq!(
        (seconds(&calls[0]), &calls[0].incomplete),
        ((7.0, 8.0), &None)
    );
}

/// The customer has left, but the phone's hangup wasn't received. When it is, nothing changes.
#[test]
fn call_left_by_its_customer_is_complete_once_settled() {
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).leave(&phone, "b1").leave(&city, "b1");
    story.hangup(&city);
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assert_eq!(assembler.next_deadline(), Some(moment(5.5)));
    assembler.tick(moment(5.4));
    assert!(assembler.take_finished().is_empty());
    assembler.tick(moment(5.5));
    let calls = assembler.take_finished();
    assert_eq!(
        (seconds(&calls[0]), &calls[0].incomplete),
        ((4.0, 5.0), &None)
    );
    let mut end = Story::new();
    end.at(901.0).hangup(&phone);
    send_events(&mut assembler, &end);
    assembler.tick(moment(902.0));
    assert!(assembler.take_finished().is_empty());
    assert_eq!(assembler.open_calls(), 0);
}

#[test]
fn waiting_customer_keeps_the_call_open() {
    let (mut story, city, phone) = answered_by_101();
    story.at(5.0).leave(&phone, "b1").leave(&city, "b1");
    story.hangup(&phone);
    let mut assembler = assembler();
    send_events(&mut assembler, &story);
    assembler.tick(moment(11.0 * 3600.0));
    assert!(assembler.take_finished().is_empty());
}

#[test]
fn calls_of_a_file_in_reverse_order_are_complete() {
    let mut story = Story::new();
    for (number, begin) in [(1, 0.0), (2, 10.0), (3, 20.0)] {
        let city = customer(number);
        story
            .at(begin)
            .create(&city, Ring)
            .at(begin + 5.0)
            .hangup(&city);
    }
    let mut assembler = assembler();
    let file = Line {
        source: 0,
        connection: 1,
    };
    assembler.timing(Timing {
        kept: true,
        line: Some(file),
        ..Timing::default()
    });
    for (_, event) in story.events.iter().rev() {
        assembler.on_event(event, moment(3600.0));
    }
    assembler.finish_all(moment(4000.0));
    let calls = assembler.take_finished();
    let values: Vec<_> = calls
        .iter()
        .map(|call| (seconds(call).1, call.live, &call.incomplete))
        .collect();
    assert_eq!(values, [(5.0, false, &None); 3]);
}

/// The PBX's clock was set ahead before the customer's hangup, and set back after it, and a
/// colleague stays on the line. The hangup seems to have overtaken earlier events, and those events
/// never arrive.
#[test]
fn hangup_ahead_of_its_arrival_is_not_awaited_for_ever() {
    let (mut story, city, phone) = answered_by_101();
    let guest = channel("PJSIP/102-00000009", 9).join_call(&city);
    story.at(3.0).create(&guest, Ring).state(&guest, Up);
    story.at(10_000.0).hangups(&[&phone, &city]);
    let mut assembler = assembler();
    for (arrival, (_, event)) in (0..).zip(&story.events) {
        assembler.on_event(event, moment(f64::from(arrival) / 100.0));
    }
    let mut later = Story::new();
    later.at(4.0).state(&guest, Up);
    let mut now = moment(1.0);
    assembler.on_event(&later.events[0].1, now);
    for _ in 0..3 {
        let Some(due) = assembler.next_deadline() else {
            break;
        };
        now = now.max(due);
        assembler.tick(now);
    }
    assert_eq!(assembler.take_finished().len(), 1);
    assert!(assembler.next_deadline().is_none_or(|due| due > now));
}
