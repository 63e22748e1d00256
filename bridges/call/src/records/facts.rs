//! Turns the records of one call into channels and their facts, as if events had reported them.
//! Interpreting the facts is left to the resolver, so that no rule has to exist twice.
//!
//! ```text
//! SIP/city-01 → SIP/101-02  Dial  …:00 to …:30, answered at …:10
//!
//! SIP/city-01   came in at …:00   up at …:10   in a bridge …:10 to …:30   hung up at …:30
//! SIP/101-02    dialed at …:00    up at …:10   in a bridge …:10 to …:30   hung up at …:30
//! ```

use super::channels::{Channel, Channels, RecordedWay};
use super::group::Group;
use super::meetings::{self, Stay};
use super::record::Record;
use crate::call::distinct;
use crate::facts::{Fact, FactKind, Leg, OpenCall};
use crate::resolve::is_number;
use crate::{ChannelRef, ChannelState, Endpoints, EventTime, FinishedCall, Origin, is_did};

/// Returns the call with these channels and their facts.
pub(super) fn open_call(group: &Group, channels: &Channels<'_>, endpoints: &Endpoints) -> OpenCall {
    let first = channels.records.first();
    let began = first.map_or(group.arrived, |record| record.start);
    let mut call = OpenCall::new(began, group.arrived, group.is_live());
    let stays = meetings::stays(channels);
    for room in stays.iter().filter(|stay| stay.is_room) {
        call.rooms.insert(room.bridge.as_str().into());
    }
    for (place, channel) in (0..).zip(&channels.all) {
        let mut leg = leg(channel, channels, place);
        for record in &channel.own {
            describe(&mut leg, record, endpoints);
        }
        for record in &channel.reached {
            leg.userfields
                .note(record.start, userfields(record, endpoints).1);
        }
        for stay in stays.iter().filter(|stay| stay.channel == channel.name) {
            add_stay(&mut leg, stay);
        }
        let end = channel.end().max(leg.last);
        leg.last = end;
        leg.facts.push(fact(end, FactKind::Hangup));
        let first = leg.first;
        *call.legs.get_or_add(channel.id.clone(), first, place) = leg;
    }
    call
}

/// Returns the channel, including how it started.
fn leg(channel: &Channel<'_>, channels: &Channels<'_>, place: u64) -> Leg {
    let first = channel.beginning();
    let mut leg = Leg::new(channel.id.clone(), first, place);
    leg.names.note(first, channel.name);
    let linkedid = first_linkedid(channel, channels, 0);
    leg.linkedids.note(first, linkedid.unwrap_or_default());
    match channel.way {
        RecordedWay::CameIn => came_in(&mut leg, channel),
        RecordedWay::Dialed => was_dialed(&mut leg, channel, channels),
        RecordedWay::Originated => {
            let born = FactKind::Born(ChannelState::Down);
            leg.facts.push(fact(first, born));
            leg.describe(first, &running("AppDial2", ""));
        }
        RecordedWay::Unknown => {}
    }
    leg
}

fn came_in(leg: &mut Leg, channel: &Channel<'_>) {
    let first = leg.first;
    leg.facts
        .push(fact(first, FactKind::Born(ChannelState::Ring)));
    for number in callers(channel) {
        leg.callers.note(first, number);
    }
    for record in &channel.own {
        leg.extens.note(record.start, &record.destination);
    }
    // The dialed number is only known if the dialplan stores it in its own column. The record's
    // destination is merely the last step of the dialplan.
    let mut dids = channel.own.iter().map(|record| record.did.as_str());
    leg.did = dids.find(|did| is_did(did)).map(Into::into);
}

/// Returns the caller's number and then the one in the caller ID, according to the caller's
/// channel.
///
/// Later records are used only if no earlier one has a number or hides it, because the dialplan may
/// have changed both by then.
fn callers<'a>(channel: &Channel<'a>) -> Vec<&'a str> {
    for record in &channel.own {
        let quoted = record.caller_id.rsplit_once('<');
        let quoted = quoted.and_then(|(_, number)| number.split('>').next());
        let texts = vec![record.source.as_str(), quoted.unwrap_or_default()];
        let shows = |text: &&str| is_number(text) || text.eq_ignore_ascii_case("anonymous");
        if texts.iter().any(shows) {
            return texts;
        }
    }
    Vec::new()
}

fn was_dialed(leg: &mut Leg, channel: &Channel<'_>, channels: &Channels<'_>) {
    for record in channel.dialed_by() {
        let by = channels.get(&record.channel);
        let what = FactKind::Dialed {
            by: by.map(|by| by.id.clone()),
            string: String::new(),
        };
        leg.facts.push(fact(record.start, what));
        // The dialed channel has the destination as its number.
        leg.callers.note(record.start, &record.destination);
    }
}

/// Returns the channel's original linkedid, if the PBX logs linkedids. It's either the channel's
/// own unique ID or the first linkedid of the channel that dialed it. `steps` counts the channels
/// visited so far.
fn first_linkedid<'c>(
    channel: &'c Channel<'_>,
    channels: &'c Channels<'_>,
    steps: usize,
) -> Option<&'c str> {
    let dialed = channel.dialed_by().next();
    let record = channel.own.first().copied().or(dialed);
    let record = record.or(channel.reached.first().copied())?;
    if record.linkedid.is_empty() {
        return None;
    }
    let own = channel.own.first().map(|own| own.uniqueid.as_str());
    match (channel.way, own, dialed) {
        (RecordedWay::CameIn, Some(own), _) if !own.is_empty() => Some(own),
        (RecordedWay::Dialed, _, Some(dialed)) if steps < channels.all.len() => {
            first_linkedid(channels.get(&dialed.channel)?, channels, steps + 1)
        }
        _ => Some(&record.linkedid),
    }
}

/// Returns the user fields from the records of the call's own lines, which take precedence over
/// those of other channels, since these may be about other calls.
pub(super) fn userfields_of_lines(
    channels: &Channels<'_>,
    call: &FinishedCall,
    endpoints: &Endpoints,
) -> Vec<String> {
    let lines = channels.of_call(call);
    let lines = lines.filter(|line| endpoints.find(line.name).is_some());
    let own = lines.flat_map(|line| &line.own);
    let records = own.filter(|record| !record.was_called());
    distinct(records.map(|record| userfields(record, endpoints).0))
}

/// Adds what a record says about its own channel.
fn describe(leg: &mut Leg, record: &Record, endpoints: &Endpoints) {
    if record.is_of_login() {
        leg.describe(record.start, &running("AgentLogin", ""));
    } else if record.is_of_conference() {
        leg.describe(record.start, &running("ConfBridge", ""));
    } else if !record.only_joins() {
        for at in [record.start, record.end] {
            leg.describe(at, &running(record.dialing_app(), &record.data));
        }
    }
    if let Some(at) = record.answer.filter(|_| record.answered) {
        leg.facts.push(fact(at.max(leg.first), UP));
    }
    let (field, _) = userfields(record, endpoints);
    leg.userfields.note(record.start, field);
    if !record.linkedid.is_empty() {
        // A channel takes on a different linkedid when it joins another call, which has happened by
        // the end of the record.
        leg.linkedids.note(record.end, &record.linkedid);
        if leg.id.as_str() != record.uniqueid {
            leg.linkedids.note(record.end, &record.uniqueid);
        }
    }
}

/// Splits the user field into that of the record's own channel and that of its destination, which
/// Asterisk writes into the same column, separated by a semicolon. This matters when the
/// destination may be another customer's line.
fn userfields<'r>(record: &'r Record, endpoints: &Endpoints) -> (&'r str, &'r str) {
    let is_trunk = |name: &str| endpoints.find(name).is_some();
    match record.userfield.split_once(';') {
        Some((own, of_dest))
            if is_trunk(&record.dest) && (own.is_empty() || is_trunk(&record.channel)) =>
        {
            (own, of_dest)
        }
        Some(_) | None => (&record.userfield, ""),
    }
}

fn add_stay(leg: &mut Leg, stay: &Stay<'_>) {
    leg.facts.push(fact(stay.from, UP));
    for (at, enters) in [(stay.from, true), (stay.to, false)] {
        let what = FactKind::enter_or_leave(stay.bridge.clone(), enters, false);
        leg.facts.push(fact(at, what));
    }
    leg.last = leg.last.max(stay.to);
}

const UP: FactKind = FactKind::State(ChannelState::Up);

fn fact(at: EventTime, what: FactKind) -> Fact {
    Fact::new(at, Origin::Channel, what)
}

/// Returns a channel reference that's running this application.
fn running<'a>(application: &'a str, data: &'a str) -> ChannelRef<'a> {
    ChannelRef {
        application: application.into(),
        app_data: data.into(),
        ..ChannelRef::default()
    }
}
