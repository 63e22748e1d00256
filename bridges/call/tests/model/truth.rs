//! The model, which derives the true calls in a slow and simple way. It goes through the story
//! instant by instant, working out which channels can hear each other. It knows the rules of the
//! design, but nothing about events, IDs, names, or formats.

use crate::dialed::{attempts, customer_of, dialing_of, placed_by};
use crate::links::origin;
use crate::switch::{Act, Br, Ch, Deeds, Micros, Role};
use callbridge_call::Direction;
use std::collections::{BTreeMap, BTreeSet};

/// A call as it really happened.
#[derive(Clone, Debug)]
pub struct TrueCall {
    /// The channel whose ID is the call's linkedid.
    pub linkedid: Ch,
    pub direction: Direction,
    pub talk: Micros,
    pub trunk: Option<&'static str>,
    pub number: Option<String>,
    pub employee: Option<String>,
    pub employees_in_order: Vec<String>,
    pub started: Micros,
    pub ended: Micros,
    /// Whether the line to the customer wasn't dialed by a channel.
    pub originated: bool,
}

/// Minimum talk time of an answered call, which is half a second.
pub const ANSWERED_FROM: Micros = 500_000;

/// The time between two deeds, and each channel's bridge during that time.
struct Instant {
    from: Micros,
    to: Micros,
    /// Each channel's bridge, and when the channel entered it.
    place: BTreeMap<Ch, (Br, Micros)>,
}

/// When the customers were connected to other parties, and to which ones.
#[derive(Default)]
struct Talk {
    total: Micros,
    /// The channels that were connected to a customer, in the order that happened.
    began: Vec<Ch>,
}

/// Returns the story's calls, oldest first. If `links` are reported, a transfer in which the
/// parties never met isn't, and a call's linkedid is the channel that the customer's side started
/// with.
pub fn calls(story: &Deeds, links: bool) -> Vec<TrueCall> {
    let instants = instants(story);
    let mut calls = Vec::new();
    for part in connected_parts(story, &instants, links) {
        calls.extend(calls_in_part(story, &instants, &part, links));
    }
    calls.sort_by_key(|call| call.linkedid);
    calls
}

fn instants(story: &Deeds) -> Vec<Instant> {
    let mut place = BTreeMap::new();
    let mut instants: Vec<Instant> = Vec::new();
    for (i, deed) in story.deeds.iter().enumerate() {
        match deed.act {
            Act::Enter(bridge) => {
                place.insert(deed.channel, (bridge, deed.at));
            }
            Act::Leave(_) | Act::Hangup => {
                place.remove(&deed.channel);
            }
            Act::Born
            | Act::DialBegin { .. }
            | Act::DialEnd { .. }
            | Act::Refused { .. }
            | Act::Ringing
            | Act::Up
            | Act::Joined(_)
            | Act::Runs(_)
            | Act::Sign => {}
        }
        let to = story.deeds.get(i + 1).map_or(deed.at, |next| next.at);
        instants.push(Instant {
            from: deed.at,
            to,
            place: place.clone(),
        });
    }
    instants
}

/// Returns the channels whose audio reaches `channel` at this instant, which are those in its
/// bridge and those behind Local channels in that bridge.
fn audible_channels(story: &Deeds, instant: &Instant, channel: Ch) -> BTreeSet<Ch> {
    let mut received = BTreeSet::from([channel]);
    loop {
        let before = received.len();
        for a in received.clone() {
            for (&b, &(bridge, _)) in &instant.place {
                let here = instant.place.get(&a).map(|&(bridge, _)| bridge);
                if here == Some(bridge) && !story.bridges[bridge].is_holding() {
                    received.insert(b);
                }
            }
            if let Role::Local { other, .. } = story.channels[a].role
                && instant.place.contains_key(&a)
                && instant.place.contains_key(&other)
            {
                received.insert(other);
            }
        }
        if received.len() == before {
            received.remove(&channel);
            return received;
        }
    }
}

/// Returns the channels that `channel` can hear if each channel is in the bridge given in `places`.
pub fn heard_channels(story: &Deeds, places: &BTreeMap<Ch, Br>, channel: Ch) -> BTreeSet<Ch> {
    let place = places.iter().map(|(&ch, &bridge)| (ch, (bridge, 0)));
    let instant = Instant {
        from: 0,
        to: 0,
        place: place.collect(),
    };
    audible_channels(story, &instant, channel)
}

/// Returns the channels in the bridge of `channel`, or none if it's a room or a holding bridge,
/// since those don't turn two calls into one.
fn channels_in_same_bridge(story: &Deeds, instant: &Instant, channel: Ch) -> BTreeSet<Ch> {
    let bridge = instant.place[&channel].0;
    if story.bridges[bridge].is_holding() || story.bridges[bridge].technology == "softmix" {
        return BTreeSet::new();
    }
    let here = instant.place.iter();
    let here = here.filter(|(_, (other, _))| *other == bridge);
    here.map(|(&other, _)| other).collect()
}

/// Returns the parts of the story, which are groups of channels connected by dialing, a linkedid, a
/// shared bridge, a transfer, or a pickup. Each part is in order of creation. A room only connects
/// channels if `links` are reported.
fn connected_parts(story: &Deeds, instants: &[Instant], links: bool) -> Vec<Vec<Ch>> {
    let mut pairs: BTreeSet<(Ch, Ch)> = BTreeSet::new();
    for (i, channel) in story.channels.iter().enumerate() {
        pairs.insert((i, channel.linkedid));
        pairs.extend(channel.dialed_by.map(|by| (i, by)));
    }
    for deed in &story.deeds {
        if let Act::Joined(with) = deed.act
            && !links
        {
            pairs.insert((deed.channel, with));
        }
    }
    for instant in instants {
        for &a in instant.place.keys() {
            let met = if links {
                audible_channels(story, instant, a)
            } else {
                channels_in_same_bridge(story, instant, a)
            };
            pairs.extend(met.into_iter().map(|b| (a, b)));
        }
    }
    let mut part_of: Vec<Ch> = (0..story.channels.len()).collect();
    loop {
        let before = part_of.clone();
        for &(a, b) in &pairs {
            let low = part_of[a].min(part_of[b]);
            part_of[a] = low;
            part_of[b] = low;
        }
        if before == part_of {
            break;
        }
    }
    let mut parts: BTreeMap<Ch, Vec<Ch>> = BTreeMap::new();
    for (channel, &part) in part_of.iter().enumerate() {
        parts.entry(part).or_default().push(channel);
    }
    parts.into_values().collect()
}

fn is_real(story: &Deeds, channel: Ch) -> bool {
    match story.channels[channel].role {
        Role::CameIn { .. } | Role::DialedOut { .. } | Role::Phone { .. } => true,
        Role::Local { .. } | Role::Plumbing { .. } => false,
    }
}

fn extension(story: &Deeds, channel: Ch) -> Option<&str> {
    match &story.channels[channel].role {
        Role::Phone { extension, .. } => Some(extension),
        Role::CameIn { .. }
        | Role::DialedOut { .. }
        | Role::Local { .. }
        | Role::Plumbing { .. } => None,
    }
}

/// Returns when at least one of the customers is connected to a real party that isn't a customer.
fn talk(story: &Deeds, instants: &[Instant], customers: &[Ch]) -> Talk {
    let mut talk = Talk::default();
    let mut before = BTreeSet::new();
    for instant in instants.iter().filter(|instant| instant.to > instant.from) {
        let mut now: BTreeSet<Ch> = BTreeSet::new();
        for &customer in customers {
            let received = audible_channels(story, instant, customer).into_iter();
            now.extend(received.filter(|&ch| is_real(story, ch) && !customers.contains(&ch)));
        }
        if !now.is_empty() {
            talk.total += instant.to - instant.from;
        }
        // Channels that entered the bridge before the customer come first.
        let mut new: Vec<Ch> = now.difference(&before).copied().collect();
        new.sort_by_key(|ch| instant.place[ch].1);
        talk.began.extend(new);
        before = now;
    }
    talk
}

/// Returns the calls in one part of the story, which are one for each customer or a single internal
/// one.
fn calls_in_part(story: &Deeds, instants: &[Instant], part: &[Ch], links: bool) -> Vec<TrueCall> {
    let (mut came, mut went): (Vec<Ch>, Vec<Ch>) = (Vec::new(), Vec::new());
    for &ch in part {
        match story.channels[ch].role {
            Role::CameIn { .. } => came.push(ch),
            Role::DialedOut { .. } => went.push(ch),
            _ => {}
        }
    }
    let mut groups: Vec<(Direction, Vec<Ch>)> = Vec::new();
    let awaits = |caller, by, line| is_waiting(story, instants, caller, by, line);
    went.retain(|&line| customer_of(story, line, &came, &awaits).is_none());
    for lines in attempts(story, &went, links) {
        let numbers = split_by_number(story, instants, &lines);
        groups.extend(numbers.into_iter().map(|went| (Direction::Outbound, went)));
    }
    groups.extend(came.iter().map(|&ch| (Direction::Inbound, vec![ch])));
    groups.sort_by_key(|(_, customers)| customers[0]);
    if groups.is_empty() {
        let first = part.iter().find(|&&ch| is_real(story, ch)).copied();
        groups.extend(first.map(|first| (Direction::Internal, vec![first])));
    }
    let lines: Vec<Vec<Ch>> = groups.iter().map(|(_, lines)| lines.clone()).collect();
    let firsts: Vec<Ch> = groups.iter().map(|(_, customers)| customers[0]).collect();
    // Channels of other customers whose calls are connected to the first call.
    let others = firsts.get(1..).unwrap_or_default();
    let mut calls = Vec::new();
    for (i, (direction, customers)) in groups.into_iter().enumerate() {
        let mut own = part.to_vec();
        if i == 0 {
            own.retain(|&ch| !is_of_customers(story, ch, others));
        } else {
            own.retain(|&ch| is_in_call(story, ch, customers[0], links) || customers.contains(&ch));
        }
        let first = links.then(|| origin(story, customers[0]));
        let linkedid = match i {
            0 => first.unwrap_or(part[0]),
            _ => customers[0],
        };
        let mut call = call(story, instants, direction, &customers, &own, linkedid);
        if let Some(first) = first {
            call.started = story.channels[first].born;
        }
        let others = lines.iter().enumerate().filter(|&(other, _)| other != i);
        let others: Vec<Ch> = others.flat_map(|(_, lines)| lines.clone()).collect();
        if direction == Direction::Outbound
            && let Some(by) = placed_by(story, customers[0])
        {
            if !begins_call(story, instants, (by, customers[0]), &others) {
                let dialing = dialing_of(story, customers[0]);
                call.started = story.channels[dialing].born;
            }
            if call.talk == 0 {
                call.employee = extension(story, by).map(str::to_owned);
            }
        }
        calls.push(call);
    }
    calls
}

/// Returns `true` if the channel, or the channel of its linkedid, is one of the customers.
fn is_of_customers(story: &Deeds, ch: Ch, customers: &[Ch]) -> bool {
    let linkedid = story.channels[ch].linkedid;
    customers.contains(&linkedid) || customers.contains(&ch)
}

/// Returns `true` if the channel is in the call that started with the customer. With links, a call
/// contains all channels with the same first channel.
fn is_in_call(story: &Deeds, ch: Ch, customer: Ch, links: bool) -> bool {
    if links {
        origin(story, ch) == origin(story, customer)
    } else {
        story.channels[ch].linkedid == customer
    }
}

/// Returns `true` if the caller rang or talked to the phone `by` before it dialed the line, and
/// wasn't talking to another phone at that time.
fn is_waiting(story: &Deeds, instants: &[Instant], caller: Ch, by: Ch, line: Ch) -> bool {
    let at = story.channels[line].born;
    let is_phone = |&ch: &Ch| extension(story, ch) == extension(story, by);
    let heard = |instant: &Instant| {
        let mut heard = audible_channels(story, instant, caller);
        heard.retain(|&ch| is_real(story, ch));
        heard
    };
    let mut met = placed_by(story, by) == Some(caller);
    for instant in instants.iter().filter(|instant| instant.to > instant.from) {
        let heard = heard(instant);
        if heard.contains(&line) {
            return true;
        }
        met |= instant.from < at && heard.iter().any(is_phone);
        let now = instant.from <= at && at < instant.to;
        if now && !heard.is_empty() && !heard.iter().any(is_phone) {
            met = false;
            break;
        }
    }
    met
}

/// Returns `true` if the call of a line dialed by `by` starts with `by`, i.e., if that party hadn't
/// been in a room or a holding bridge and hadn't done anything for another call's customer.
fn begins_call(story: &Deeds, instants: &[Instant], (by, line): (Ch, Ch), others: &[Ch]) -> bool {
    let at = story.channels[line].born;
    let mut before = instants.iter().filter(|instant| instant.from < at);
    !before.any(|instant| {
        let place = instant.place.get(&by);
        let seated = place.is_some_and(|&(bridge, _)| {
            let bridge = &story.bridges[bridge];
            bridge.is_holding() || bridge.technology == "softmix"
        });
        let met = audible_channels(story, instant, by);
        seated || instant.to > instant.from && others.iter().any(|other| met.contains(other))
    }) && !others.iter().any(|&other| {
        placed_by(story, other) == Some(by) && story.channels[other].born < at
            || placed_by(story, by) == Some(other)
    })
}

/// Groups a call's dialed lines by number, returning a single group if fewer than two numbers
/// talked.
fn split_by_number(story: &Deeds, instants: &[Instant], went: &[Ch]) -> Vec<Vec<Ch>> {
    let mut groups: Vec<(&str, Vec<Ch>)> = Vec::new();
    for &ch in went {
        let Role::DialedOut { number, .. } = &story.channels[ch].role else {
            continue;
        };
        match groups.iter_mut().find(|(known, _)| known == number) {
            Some((_, group)) => group.push(ch),
            None => groups.push((number, vec![ch])),
        }
    }
    groups.retain(|(_, lines)| talk(story, instants, lines).total >= ANSWERED_FROM);
    if groups.len() < 2 {
        return vec![went.to_vec()];
    }
    groups.into_iter().map(|(_, lines)| lines).collect()
}

fn call(
    story: &Deeds,
    instants: &[Instant],
    direction: Direction,
    customers: &[Ch],
    own: &[Ch],
    linkedid: Ch,
) -> TrueCall {
    let talk = talk(story, instants, customers);
    let mut order: Vec<String> = Vec::new();
    for extension in talk.began.iter().filter_map(|&ch| extension(story, ch)) {
        if order.last().map(String::as_str) != Some(extension) {
            order.push(extension.to_owned());
        }
    }
    let employee = match order.last() {
        Some(last) => Some(last.clone()),
        None if talk.total >= ANSWERED_FROM => None,
        None => employee_without_talk(story, direction, own),
    };
    let main = main_line(story, instants, customers);
    let (trunk, number) = match &story.channels[main].role {
        Role::CameIn { trunk, number } => (Some(trunk.name), number.clone()),
        Role::DialedOut { trunk, number } => (Some(trunk.name), Some(number.clone())),
        Role::Phone { .. } | Role::Local { .. } | Role::Plumbing { .. } => (None, None),
    };
    let hangups = story.deeds.iter().filter(|deed| deed.act == Act::Hangup);
    let ended = hangups.filter(|deed| customers.contains(&deed.channel));
    let first = if direction == Direction::Inbound {
        customers[0]
    } else if linkedid == customers[0] {
        linkedid
    } else {
        *own.first().unwrap_or(&linkedid)
    };
    TrueCall {
        linkedid,
        direction,
        talk: talk.total,
        trunk,
        number,
        employee,
        employees_in_order: order,
        started: story.channels[first].born,
        ended: ended.map(|deed| deed.at).max().unwrap_or(0),
        originated: story.channels[main].dialed_by.is_none(),
    }
}

/// Returns the employee of a call in which no party talked.
fn employee_without_talk(story: &Deeds, direction: Direction, own: &[Ch]) -> Option<String> {
    if direction != Direction::Inbound {
        let first = own.iter().find(|&&ch| is_real(story, ch))?;
        return extension(story, *first).map(str::to_owned);
    }
    let dialed = own.iter().filter_map(|&ch| match &story.channels[ch].role {
        Role::Phone {
            extension,
            placed: false,
        } => Some(extension),
        Role::Phone { placed: true, .. }
        | Role::CameIn { .. }
        | Role::DialedOut { .. }
        | Role::Local { .. }
        | Role::Plumbing { .. } => None,
    });
    let dialed: BTreeSet<&String> = dialed.collect();
    if dialed.len() > 1 {
        return None;
    }
    dialed.first().map(|&extension| extension.clone())
}

/// Returns the customer's line with the longest talk time, or the last line if none talked.
fn main_line(story: &Deeds, instants: &[Instant], customers: &[Ch]) -> Ch {
    *customers
        .iter()
        .max_by_key(|&&ch| (talk(story, instants, &[ch]).total, ch))
        .expect("a call has a customer")
}
