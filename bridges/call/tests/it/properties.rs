//! Property tests of the assembler with arbitrary events in arbitrary order.

use crate::story::{Channel, Story, assembler, channel, moment, settings};
use callbridge_call::{
    Assembler, ChannelState, Direction, EventTime, FinishedCall, Kind, Origin, PbxEvent, Settings,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

const NAMES: [&str; 8] = [
    "PJSIP/city-0000000",
    "PJSIP/gsm-0000000",
    "PJSIP/101-0000000",
    "PJSIP/102-0000000",
    "SIP/carrier-0000000",
    "Local/101@in-0000000;1",
    "Local/101@in-0000000;2",
    "Snoop/1-0000000",
];

fn some_channel() -> impl Strategy<Value = Channel> {
    (0..16_u32, 0..16_u32).prop_map(|(number, linked)| {
        let name = NAMES[number as usize % NAMES.len()];
        let full = match name.split_once(';') {
            // Each name belongs to a single channel, as on a PBX.
            Some((local, half)) => format!("{local}{};{half}", number as usize / NAMES.len()),
            None => format!("{name}{number:x}"),
        };
        let linkedid = channel("", linked.min(number));
        channel(&full, number)
            .join_call(&linkedid)
            .caller("998901110001")
            .variable("LEAD_ID", "4001")
    })
}

fn some_state() -> impl Strategy<Value = ChannelState> {
    use ChannelState::{Down, PreRing, Ring, Ringing, Unknown, Up};
    prop::sample::select(vec![Down, Ring, PreRing, Ringing, Up, Unknown])
}

/// Adds an event of channel `a` to the story. `kind` selects the kind of event, and `b` is the
/// other channel for events that have two.
fn add(story: &mut Story, kind: u8, a: &Channel, b: &Channel, state: ChannelState, bridge: u8) {
    let bridge = format!("b{bridge}");
    match kind % 12 {
        0 | 1 => story.create(a, state),
        2 => story.state(a, state),
        // No channel dials itself with two linkedids at once.
        3 if a.id() != b.id() => story.dial(a, b, "998901110001@city"),
        3 => story.mention(a),
        4 => story.originate(a, "998901110002@gsm"),
        5 | 6 => story.enter(a, &bridge),
        7 => story.leave(a, &bridge),
        8 => story.join(a, b),
        9 => story.enter_kind(a, "lot", "holding_bridge"),
        10 => story.mention(a),
        _ => story.hangup(a),
    };
}

prop_compose! {
    fn some_story()(events in prop::collection::vec(
        (any::<u8>(), some_channel(), some_channel(), some_state(), 0..4_u8, 0..3000_u32,
            any::<bool>()),
        1..120,
    )) -> Story {
        let mut story = Story::new();
        let mut now = 0.0;
        for (kind, a, b, state, bridge, wait_ms, by_cel) in events {
            now += f64::from(1 + wait_ms % 400) / 1000.0;
            story.at(now).set_origin(if by_cel { Origin::Cel } else { Origin::Channel });
            add(&mut story, kind, &a, &b, state, bridge);
        }
        story
    }
}

/// Returns the finished calls, the number of open calls, and the number of late events.
fn run(story: &Story, late: bool) -> (Vec<FinishedCall>, usize, u64) {
    let mut assembler = assembler();
    let off = Duration::from_secs(if late { 86_400 } else { 0 });
    for (i, (at, event)) in story.events.iter().enumerate() {
        assembler.on_event(event, at.plus(off));
        let changes = if i % 8 == 0 {
            assembler.take_changes()
        } else {
            Vec::new()
        };
        for change in changes {
            let Some(snapshot) = change.snapshot else {
                continue;
            };
            assembler
                .restore(change.key, &snapshot)
                .expect("its own snapshot");
        }
    }
    let beyond = moment(0.0).plus(off).plus(Duration::from_secs(14 * 3600));
    assembler.tick(beyond);
    let open = assembler.open_calls();
    let late = assembler.counts.late;
    (assembler.take_finished(), open, late)
}

/// Returns the calls made from the events. No call settles before the last event, so the result
/// depends only on the order of the events.
fn settled_calls(events: &[(EventTime, PbxEvent<'static>)]) -> Vec<FinishedCall> {
    let mut assembler = Assembler::new(Settings {
        settle: Duration::from_secs(3600),
        ..settings()
    });
    for (at, event) in events {
        assembler.on_event(event, *at);
    }
    while let Some(deadline) = assembler.next_deadline() {
        assembler.tick(deadline);
    }
    let mut calls = assembler.take_finished();
    calls.sort_by(|a, b| a.linkedid.cmp(&b.linkedid));
    calls
}

/// Returns the time of a story's first hangup.
fn first_hangup(story: &Story) -> Option<EventTime> {
    times(story, |kind| matches!(kind, Kind::Hangup { .. })).min()
}

/// Returns when a story's last channel was dialed.
fn last_dial(story: &Story) -> Option<EventTime> {
    times(story, |kind| matches!(kind, Kind::DialBegin { .. })).max()
}

fn times(story: &Story, is_wanted: fn(&Kind<'_>) -> bool) -> impl Iterator<Item = EventTime> {
    story
        .events
        .iter()
        .filter_map(move |(at, event)| match event {
            PbxEvent::Channel(event) if is_wanted(&event.kind) => Some(*at),
            _ => None,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_call_ends_once_with_consistent_figures(story in some_story(), late in any::<bool>()) {
        let (calls, open, _) = run(&story, late);
        prop_assert_eq!(open, 0);
        let mut ids = BTreeSet::new();
        for call in &calls {
            prop_assert!(call.ended >= call.started);
            prop_assert!(call.talk <= call.ended.since(call.started));
            prop_assert_eq!(call.answered, call.talk >= Duration::from_millis(500));
            prop_assert!(!call.also_known_as.contains(&call.linkedid));
            let first = ids.insert(call.linkedid.clone());
            let internal = call.direction == Direction::Internal;
            prop_assert!(first || internal, "{} twice", call.linkedid);
            if let Some(last) = call.employees_in_order.last() {
                prop_assert_eq!(call.employee.as_ref(), Some(last));
            }
        }
    }

    #[test]
    fn every_channel_of_a_customer_is_part_of_a_call(story in some_story()) {
        let (calls, _, late) = run(&story, false);
        prop_assume!(late == 0);
        // A line dialed for a caller whose call has been emitted isn't a call.
        let (left, dialed) = (first_hangup(&story), last_dial(&story));
        prop_assume!(left.is_none_or(|left| dialed < Some(left.plus(Duration::from_millis(500)))));
        let known: BTreeSet<&str> = calls
            .iter()
            .flat_map(|call| call.also_known_as.iter().chain([&call.linkedid]))
            .map(|id| id.as_str())
            .collect();
        for (_, pbx_event) in &story.events {
            let PbxEvent::Channel(event) = pbx_event else { continue };
            let born = matches!(event.kind, callbridge_call::Kind::Born { .. });
            let trunks = ["PJSIP/city", "PJSIP/gsm"];
            // Conversations between colleagues in a room that's never empty aren't kept.
            if born && trunks.iter().any(|trunk| event.channel.name.starts_with(trunk)) {
                prop_assert!(known.contains(event.channel.uniqueid.as_ref()));
            }
        }
    }

    #[test]
    fn arrival_order_within_settling_time_changes_no_call(
        story in some_story(),
        delays in prop::collection::vec(0..400_u64, 120),
    ) {
        let arrivals = story.events.iter().zip(&delays);
        let mut shuffled: Vec<_> = arrivals
            .map(|((at, event), delay)| (at.plus(Duration::from_millis(*delay)), event.clone()))
            .collect();
        shuffled.sort_by_key(|&(at, _)| at);
        prop_assert_eq!(settled_calls(&story.events), settled_calls(&shuffled));
    }
}
