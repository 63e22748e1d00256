//! Compares the assembler's calls with the true ones.

use crate::story::{Arrival, Story};
use crate::switch::{Micros, TRUNKS};
use crate::telling::{Voice, id, moment, report_events};
use crate::truth::{self, ANSWERED_FROM, TrueCall};
use callbridge_call::{
    Assembler, ChannelEvent, ChannelRef, Direction, Endpoints, EventTime, FinishedCall, Kind,
    Origin, PbxEvent, Settings, Timing, TrunkEndpoint,
};
use std::fmt::Write as _;
use std::time::Duration;

/// Times that differ by at most 5 ms are considered equal, because AMI's and CEL's reports of the
/// same moment may be up to 1 ms apart.
const TOLERANCE: Micros = 5_000;

/// How long after an overtaking hangup all other events arrive, because the machine is busy.
const BUSY_TIME: Duration = Duration::from_secs(20);

fn assembler(arrival: &Arrival) -> Assembler {
    let endpoints = TRUNKS.map(|trunk| TrunkEndpoint::new(trunk.name, trunk.endpoint));
    let mut assembler = Assembler::new(Settings::new(
        Endpoints::new(endpoints.to_vec()).expect("no conflict"),
    ));
    // Only a source that keeps events can deliver them a day later and out of order.
    assembler.timing(Timing {
        kept: arrival.late,
        ..Timing::default()
    });
    assembler
}

/// Returns the story's events in arrival order, along with when they arrive.
fn arrivals(story: &Story) -> Vec<(EventTime, PbxEvent<'static>)> {
    let off = Duration::from_secs(if story.arrival.late { 86_400 } else { 0 });
    let delays = &story.arrival.delays_ms;
    let events = report_events(&story.deeds, story.manner).into_iter();
    let mut arrivals: Vec<_> = events
        .enumerate()
        .map(|(i, pbx_event)| {
            let PbxEvent::Channel(event) = &pbx_event else {
                unreachable!("stories have only channel events")
            };
            let delay = if delays.is_empty() {
                0
            } else {
                u64::from(delays[(i * 7 + i / 16) % delays.len()])
            };
            let at = event.at.unwrap_or(moment(0)).plus(off);
            (at.plus(Duration::from_millis(delay)), pbx_event)
        })
        .collect();
    arrivals.sort_by_key(|&(at, _)| at);
    let every = story.arrival.doubled;
    let twice = arrivals.into_iter().enumerate().flat_map(|(i, arrival)| {
        let is_doubled = every > 0 && i.is_multiple_of(every);
        let second = is_doubled.then(|| arrival.clone());
        std::iter::once(arrival).chain(second)
    });
    twice.collect()
}

/// Returns a truncated CEL row of an earlier call, which shows that the PBX reports bridges.
fn earlier_row() -> PbxEvent<'static> {
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

/// Sends all of the story's events, and returns the finished calls, oldest first, and the number of
/// open calls.
fn run_assembler(story: &Story) -> (Vec<FinishedCall>, usize) {
    let mut assembler = assembler(&story.arrival);
    let mut now = moment(0);
    assembler.on_event(&earlier_row(), now);
    let mut arrivals = arrivals(story);
    if let Some(overtakes) = story.arrival.overtakes {
        let hangups = arrivals.iter().enumerate().filter(|(_, (_, arrived))| {
            matches!(arrived, PbxEvent::Channel(event) if matches!(event.kind, Kind::Hangup { .. }))
        });
        let hangups: Vec<usize> = hangups.map(|(at, _)| at).collect();
        let (_, overtaking) = arrivals.remove(hangups[overtakes % hangups.len()]);
        now = arrivals[0].0;
        assembler.on_event(&overtaking, now.minus(BUSY_TIME));
        assembler.tick(now);
    }
    for (at, event) in arrivals {
        now = now.max(at);
        assembler.on_event(&event, now);
        assembler.tick(now);
    }
    assembler.tick(now.plus(Duration::from_secs(2)));
    let mut calls = assembler.take_finished();
    calls.sort_by(|a, b| a.linkedid.age().cmp(&b.linkedid.age()));
    (calls, assembler.open_calls())
}

/// Returns the number of true calls, or the differences as an error if the assembler's calls don't
/// match them.
pub fn differences(story: &Story) -> Result<usize, String> {
    let truth = truth::calls(&story.deeds, story.manner.voice == Voice::Links);
    let (calls, open) = run_assembler(story);
    let mut wrong = String::new();
    if open > 0 {
        let _ = writeln!(wrong, "{open} calls left open");
    }
    if calls.len() != truth.len() {
        let found: Vec<String> = calls.iter().map(|call| call.linkedid.to_string()).collect();
        let expected: Vec<String> = truth
            .iter()
            .map(|call| id(&story.deeds, story.manner, call.linkedid).to_string())
            .collect();
        let (found, expected) = (found.join(" "), expected.join(" "));
        let _ = writeln!(wrong, "calls {found} instead of {expected}");
    }
    for (call, true_call) in calls.iter().zip(&truth) {
        compare(story, call, true_call, &mut wrong);
    }
    if wrong.is_empty() {
        Ok(truth.len())
    } else {
        Err(wrong)
    }
}

/// Adds a line to `wrong` for each value of `call` that differs from `true_call`.
fn compare(story: &Story, call: &FinishedCall, true_call: &TrueCall, wrong: &mut String) {
    for (value, found, truth) in compared_values(story, call, true_call) {
        if found != truth {
            let _ = writeln!(
                wrong,
                "{}: {value} {found} instead of {truth}",
                call.linkedid
            );
        }
    }
}

/// Returns the values that must be equal, given by name, value in `call`, and value in `true_call`.
/// Times that are nearly equal are omitted.
fn compared_values(
    story: &Story,
    call: &FinishedCall,
    true_call: &TrueCall,
) -> Vec<(&'static str, String, String)> {
    let linkedid = id(&story.deeds, story.manner, true_call.linkedid);
    let mut values = vec![
        ("linkedid", call.linkedid.to_string(), linkedid.to_string()),
        (
            "direction",
            format!("{:?}", call.direction),
            format!("{:?}", true_call.direction),
        ),
        (
            "incomplete",
            format!("{:?}", call.incomplete),
            "None".into(),
        ),
        (
            "trunk",
            format!("{:?}", call.trunk.as_deref()),
            format!("{:?}", true_call.trunk),
        ),
    ];
    let begun = call.started.micros() - moment(true_call.started).micros();
    if begun.abs() > TOLERANCE {
        values.push((
            "start",
            call.started.to_string(),
            moment(true_call.started).to_string(),
        ));
    }
    if true_call.direction == Direction::Internal {
        return values;
    }
    let ended = call.ended.micros() - moment(true_call.ended).micros();
    if ended.abs() > TOLERANCE {
        values.push((
            "end",
            call.ended.to_string(),
            moment(true_call.ended).to_string(),
        ));
    }
    // CEL rows don't contain an originated channel's number.
    if story.manner.voice != Voice::Cel
        || !true_call.originated
        || true_call.direction == Direction::Inbound
    {
        let number = call.number.as_ref().map(|number| number.text.as_str());
        values.push((
            "number",
            format!("{number:?}"),
            format!("{:?}", true_call.number.as_deref()),
        ));
    }
    if (true_call.talk - ANSWERED_FROM).abs() > TOLERANCE {
        let answered = true_call.talk >= ANSWERED_FROM;
        values.push(("answered", call.answered.to_string(), answered.to_string()));
        let talk = if answered { true_call.talk } else { 0 };
        let found = i64::try_from(call.talk.as_micros()).unwrap_or(i64::MAX);
        if (found - talk).abs() > TOLERANCE {
            values.push(("talk", found.to_string(), talk.to_string()));
        }
        let employee = call.employee.as_ref().map(|e| e.as_str());
        values.push((
            "employee",
            format!("{employee:?}"),
            format!("{:?}", true_call.employee.as_deref()),
        ));
    }
    let order: Vec<&str> = call.employees_in_order.iter().map(|e| e.as_str()).collect();
    values.push((
        "employees",
        format!("{order:?}"),
        format!("{:?}", true_call.employees_in_order),
    ));
    values
}
