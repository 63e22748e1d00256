//! Decides who each outside line was dialed for, and which lines form a single attempt. Like
//! `truth`, it knows the rules of the design but nothing about events.

use crate::links::{origin, parent};
use crate::switch::{Act, Ch, Deeds, Micros, Role};

/// How long after an unanswered line another one may be dialed as part of the same attempt.
const ATTEMPT_GAP: Micros = 5_000_000;

pub fn hangup_time(story: &Deeds, ch: Ch) -> Micros {
    let mut hangups = story.deeds.iter().filter(|deed| deed.act == Act::Hangup);
    let hangup = hangups.find(|deed| deed.channel == ch);
    hangup.map_or(Micros::MAX, |deed| deed.at)
}

fn has_answered(story: &Deeds, ch: Ch) -> bool {
    let mut ups = story.deeds.iter().filter(|deed| deed.act == Act::Up);
    ups.any(|deed| deed.channel == ch)
}

/// Returns the channels that led to this one, nearest first.
fn ancestors(story: &Deeds, ch: Ch) -> Vec<Ch> {
    let mut all = Vec::new();
    let mut at = ch;
    loop {
        let next = parent(story, at);
        if next == at {
            return all;
        }
        all.push(next);
        at = next;
    }
}

fn is_party(story: &Deeds, ch: Ch) -> bool {
    !matches!(
        story.channels[ch].role,
        Role::Local { .. } | Role::Plumbing { .. }
    )
}

/// Returns the party that dialed the channel, whether directly or through Local channels.
pub fn placed_by(story: &Deeds, ch: Ch) -> Option<Ch> {
    let mut ancestors = ancestors(story, ch).into_iter();
    ancestors.find(|&by| is_party(story, by))
}

/// Returns the customer in whose call this line was dialed. `awaits` decides whether a caller who's
/// still on the line is waiting for the phone that dialed it.
pub fn customer_of(
    story: &Deeds,
    line: Ch,
    callers: &[Ch],
    awaits: &dyn Fn(Ch, Ch, Ch) -> bool,
) -> Option<Ch> {
    let by = placed_by(story, line)?;
    match story.channels[by].role {
        Role::CameIn { .. } => Some(by),
        Role::DialedOut { .. } => Some(customer_of(story, by, callers, awaits).unwrap_or(by)),
        Role::Phone { .. } => callers.iter().copied().find(|&caller| {
            let born = story.channels[line].born;
            let is_up = story.channels[caller].born < born && born < hangup_time(story, caller);
            is_up && awaits(caller, by, line)
        }),
        Role::Local { .. } | Role::Plumbing { .. } => None,
    }
}

/// Groups dialed lines by attempt. Simultaneous attempts to reach the same number count as one.
pub fn attempts(story: &Deeds, lines: &[Ch], links: bool) -> Vec<Vec<Ch>> {
    let mut all: Vec<Vec<Ch>> = Vec::new();
    for &line in lines {
        let (own, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|attempt| {
            goes_on(story, attempt, line, links)
                || attempt
                    .iter()
                    .any(|&other| is_to_number_of(story, line, other))
        });
        all = others;
        let mut own: Vec<Ch> = own.into_iter().flatten().chain([line]).collect();
        own.sort_unstable();
        all.push(own);
    }
    all.sort();
    all
}

/// Returns `true` if the line was dialed in these lines' call while one of them was up or soon
/// after all of them had gone unanswered.
fn goes_on(story: &Deeds, attempt: &[Ch], line: Ch, links: bool) -> bool {
    let born = story.channels[line].born;
    let mut same = attempt
        .iter()
        .copied()
        .filter(|&other| first_channel(story, other, links) == first_channel(story, line, links))
        .peekable();
    if same.peek().is_none() {
        return false;
    }
    let ended = same.clone().map(|other| hangup_time(story, other)).max();
    let ended = ended.unwrap_or(Micros::MAX);
    let answered = same.any(|other| has_answered(story, other));
    born <= ended || !answered && born - ended <= ATTEMPT_GAP
}

fn first_channel(story: &Deeds, ch: Ch, links: bool) -> Ch {
    if links {
        origin(story, ch)
    } else {
        story.channels[ch].linkedid
    }
}

fn is_to_number_of(story: &Deeds, a: Ch, b: Ch) -> bool {
    let [born_a, born_b] = [a, b].map(|ch| story.channels[ch].born);
    born_a <= hangup_time(story, b)
        && born_b <= hangup_time(story, a)
        && dialed_number(story, a) == dialed_number(story, b)
}

fn dialed_number(story: &Deeds, ch: Ch) -> Option<&str> {
    match &story.channels[ch].role {
        Role::DialedOut { number, .. } => Some(number),
        Role::CameIn { .. } | Role::Phone { .. } | Role::Local { .. } | Role::Plumbing { .. } => {
            None
        }
    }
}

/// Returns the channel that dialing this line started with, which is either the first half of a
/// Local channel that leads to it or the line itself.
pub fn dialing_of(story: &Deeds, line: Ch) -> Ch {
    let ancestors = ancestors(story, line).into_iter();
    let locals = ancestors.take_while(|&by| !is_party(story, by));
    locals.last().unwrap_or(line)
}
