//! Compares the assembler's calls with the true ones.

use crate::story::{Arrival, Story};
use crate::switch::{Micros, TRUNKS};
use crate::telling::{Voice, id, moment, tell};
use crate::truth::{self, ANSWERED_FROM, TrueCall};
use callbridge_call::{
    Assembler, ChannelEvent, ChannelRef, Direction, Endpoints, EventTime, FinishedCall, Kind,
    Origin, PbxEvent, Settings, Timing, TrunkEndpoint,
};
use std::fmt::Write as _;
use std::time::Duration;

/// Times this close count as equal. AMI and CEL report one moment up to 1 ms apart.
const NEAR: Micros = 5_000;

/// Time for which no event arrives, because the machine is busy.
const WHILE: Duration = Duration::from_secs(20);

fn assembler(arrival: &Arrival) -> Assembler {
    let endpoints = TRUNKS.map(|trunk| TrunkEndpoint::new(trunk.name, trunk.endpoint));
    let mut assembler = Assembler::new(Settings::new(
        Endpoints::new(endpoints.to_vec()).expect("no conflict"),
    ));
    // Only a source that keeps its events can deliver them a day later and in another order.
    assembler.timing(Timing {
        kept: arrival.late,
        ..Timing::default()
    });
    assembler
}

/// Returns the events, each with the moment at which it arrives.
fn arrivals(story: &Story) -> Vec<(EventTime, PbxEvent<'static>)> {
    let off = Duration::from_secs(if story.arrival.late { 86_400 } else { 0 });
    let delays = &story.arrival.delays_ms;
    let told = tell(&story.deeds, story.manner).into_iter().enumerate();
    let mut arrivals: Vec<_> = told
        .map(|(i, told)| {
            let PbxEvent::Channel(event) = &told else {
                unreachable!("stories tell of channels only")
            };
            let delay = if delays.is_empty() {
                0
            } else {
                u64::from(delays[(i * 7 + i / 16) % delays.len()])
            };
            let at = event.at.unwrap_or(moment(0)).plus(off);
            (at.plus(Duration::from_millis(delay)), told)
        })
        .collect();
    arrivals.sort_by_key(|&(at, _)| at);
    let every = story.arrival.doubled;
    let again = |i: usize| every > 0 && i.is_multiple_of(every);
    let twice = arrivals.into_iter().enumerate().flat_map(|(i, arrival)| {
        let second = again(i).then(|| arrival.clone());
        std::iter::once(arrival).chain(second)
    });
    twice.collect()
}

/// Returns a truncated CEL row of an earlier call. It shows that the PBX reports bridges.
fn earlier() -> PbxEvent<'static> {
    PbxEvent::Channel(ChannelEvent {
        at: None,
        origin: Origin::Cel,
        channel: ChannelRef::default(),
        kind: Kind::BridgeLeave {
            bridge: "".into(),
            technology: "".into(),
        },
    })
}

fn assembled(story: &Story) -> (Vec<FinishedCall>, usize) {
    let mut assembler = assembler(&story.arrival);
    let mut now = moment(0);
    assembler.on_event(&earlier(), now);
    let mut arrivals = arrivals(story);
    if let Some(overtakes) = story.arrival.overtakes {
        let hangups = arrivals.iter().enumerate().filter(|(_, (_, told))| {
            matches!(told, PbxEvent::Channel(event) if matches!(event.kind, Kind::Hangup { .. }))
        });
        let hangups: Vec<usize> = hangups.map(|(at, _)| at).collect();
        let (_, overtaking) = arrivals.remove(hangups[overtakes % hangups.len()]);
        now = arrivals[0].0;
        assembler.on_event(&overtaking, now.minus(WHILE));
        assembler.tick(now);
    }
    for (at, told) in arrivals {
        now = now.max(at);
        assembler.on_event(&told, now);
        assembler.tick(now);
    }
    assembler.tick(now.plus(Duration::from_secs(2)));
    let mut calls = assembler.take_finished();
    calls.sort_by(|a, b| a.linkedid.age().cmp(&b.linkedid.age()));
    (calls, assembler.open_calls())
}

/// Returns the number of calls in the story, or how the assembler's calls differ from them.
pub fn differences(story: &Story) -> Result<usize, String> {
    let truth = truth::calls(&story.deeds, story.manner.voice == Voice::Links);
    let (calls, open) = assembled(story);
    let mut wrong = String::new();
    if open > 0 {
        let _ = writeln!(wrong, "{open} calls left open");
    }
    let ids = |calls: Vec<String>| calls.join(" ");
    if calls.len() != truth.len() {
        let told = calls.iter().map(|call| call.linkedid.to_string());
        let really = truth
            .iter()
            .map(|call| id(&story.deeds, story.manner, call.linkedid).to_string());
        let (told, really) = (ids(told.collect()), ids(really.collect()));
        let _ = writeln!(wrong, "calls {told} instead of {really}");
    }
    for (call, really) in calls.iter().zip(&truth) {
        compare(story, call, really, &mut wrong);
    }
    if wrong.is_empty() {
        Ok(truth.len())
    } else {
        Err(wrong)
    }
}

fn compare(story: &Story, call: &FinishedCall, really: &TrueCall, wrong: &mut String) {
    let mut check = |what: &str, told: String, truth: String| {
        if told != truth {
            let _ = writeln!(wrong, "{}: {what} {told} instead of {truth}", call.linkedid);
        }
    };
    let linkedid = id(&story.deeds, story.manner, really.linkedid);
    check("linkedid", call.linkedid.to_string(), linkedid.to_string());
    let directions = [call.direction, really.direction].map(|d| format!("{d:?}"));
    let [told, truth] = directions;
    check("direction", told, truth);
    check(
        "incomplete",
        format!("{:?}", call.incomplete),
        "None".into(),
    );
    let text = |text: Option<&str>| format!("{text:?}");
    check("trunk", text(call.trunk.as_deref()), text(really.trunk));
    let begun = call.started.micros() - moment(really.started).micros();
    if begun.abs() > NEAR {
        check(
            "start",
            call.started.to_string(),
            moment(really.started).to_string(),
        );
    }
    if really.direction == Direction::Internal {
        return;
    }
    let ended = call.ended.micros() - moment(really.ended).micros();
    if ended.abs() > NEAR {
        check(
            "end",
            call.ended.to_string(),
            moment(really.ended).to_string(),
        );
    }
    // No CEL row has the number of an originated channel.
    if story.manner.voice != Voice::Cel
        || !really.originated
        || really.direction == Direction::Inbound
    {
        let number = call.number.as_ref().map(|number| number.text.as_str());
        check("number", text(number), text(really.number.as_deref()));
    }
    if (really.talk - ANSWERED_FROM).abs() > NEAR {
        let answered = really.talk >= ANSWERED_FROM;
        check("answered", call.answered.to_string(), answered.to_string());
        let talk = if answered { really.talk } else { 0 };
        let told = i64::try_from(call.talk.as_micros()).unwrap_or(i64::MAX);
        if (told - talk).abs() > NEAR {
            check("talk", told.to_string(), talk.to_string());
        }
        let employee = call.employee.as_ref().map(|e| e.as_str());
        check("employee", text(employee), text(really.employee.as_deref()));
    }
    let order: Vec<&str> = call.employees_in_order.iter().map(|e| e.as_str()).collect();
    check(
        "employees",
        format!("{order:?}"),
        format!("{:?}", really.employees_in_order),
    );
}
