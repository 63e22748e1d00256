//! When the customer was connected with another real party, and with whom: the same for calls told
//! by channel events and by CDRs, which differ in how they know who hears whom.

use crate::call::DecidingEvents;
use crate::timeline::TalkSpan;
use crate::trunk::{self, Party};
use crate::units::{EventTime, Extension};
use std::collections::BTreeMap;
use std::time::Duration;

/// Talk shorter than this is a hand that slipped: not answered.
pub(crate) const ANSWERED_FROM: Duration = Duration::from_millis(500);

/// The customer's connections. Channels are told as indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Talk {
    /// Time for which the customer was connected with somebody.
    pub(crate) total: Duration,
    /// Beginning of the first connection, with its channel; in `last`, the end of the last one.
    pub(crate) first: Option<(EventTime, usize)>,
    pub(crate) last: Option<EventTime>,
    /// Each time somebody became connected with the customer: when, and which channel; of those
    /// of one moment first who was gone at once.
    pub(crate) began: Vec<(EventTime, usize)>,
    /// Each span in which a channel was connected with the customer: its beginning, its end, and
    /// the channel.
    pub(crate) spans: Vec<(EventTime, EventTime, usize)>,
    /// Set when the lengths are not known.
    pub(crate) untimed: bool,
}

impl Talk {
    /// Returns `true` for talk of half a second or more; where no times are known, for any.
    pub(crate) fn is_answer(&self) -> bool {
        self.would_answer(self.total)
    }

    /// Returns `true` when talk of this length is enough to be an answer.
    pub(crate) fn would_answer(&self, talk: Duration) -> bool {
        talk >= ANSWERED_FROM || self.untimed && talk > Duration::ZERO
    }

    /// The talk between these moments, at which anything changed, where `connected` says which
    /// channels the customer is connected with from one of them to the next.
    pub(crate) fn between(
        mut times: Vec<EventTime>,
        mut connected: impl FnMut(EventTime, EventTime) -> Vec<usize>,
    ) -> Self {
        times.sort_unstable();
        times.dedup();
        let mut talk = Self::default();
        let mut before: Vec<usize> = Vec::new();
        // Each channel's last span.
        let mut latest: BTreeMap<usize, usize> = BTreeMap::new();
        for span in times.windows(2) {
            let (from, to) = (span[0], span[1]);
            let with = connected(from, to);
            if let Some(&first) = with.first() {
                talk.total += to.since(from);
                talk.first = talk.first.or(Some((from, first)));
                talk.last = Some(to);
            }
            for &channel in &with {
                let before = latest.get(&channel).copied();
                let before = before.and_then(|i| talk.spans.get_mut(i));
                if let Some(span) = before.filter(|span| span.1 == from) {
                    span.1 = to;
                } else {
                    latest.insert(channel, talk.spans.len());
                    talk.spans.push((from, to, channel));
                }
            }
            let new = with.iter().filter(|channel| !before.contains(channel));
            talk.began.extend(new.map(|&channel| (from, channel)));
            before = with;
        }
        // An attended transfer puts the customer into the place of the transferer: on Asterisk 13
        // he is there an instant before the transferer is gone, who is not the last to talk.
        let spans = &talk.spans;
        let stays = |&(at, channel): &(EventTime, usize)| {
            let span = spans.iter().find(|it| it.0 == at && it.2 == channel);
            span.is_some_and(|span| span.1.since(at) >= ANSWERED_FROM)
        };
        talk.began.sort_by_cached_key(|it| (it.0, stays(it)));
        talk
    }

    /// Each extension that came to be connected with the customer, in that order; one that is the
    /// last already gains no second entry.
    pub(crate) fn in_order<'p>(&self, party: impl Fn(usize) -> &'p Party<'p>) -> Vec<Extension> {
        let began = self.began.iter();
        let order = began.filter_map(|&(_, channel)| party(channel).extension().cloned());
        let mut order: Vec<Extension> = order.collect();
        order.dedup();
        order
    }

    /// Returns the talks to be drawn: those with channels that have a number in the timeline.
    pub(crate) fn drawn(&self, number: &BTreeMap<usize, u16>) -> Vec<TalkSpan> {
        let talk = self.spans.iter().filter_map(|&(from, to, channel)| {
            let with = *number.get(&channel)?;
            Some(TalkSpan { from, to, with })
        });
        let mut talk: Vec<TalkSpan> = talk.collect();
        talk.sort_unstable();
        talk
    }

    /// Notes what decided whether there was talk with the customer of this name, in `words` for its
    /// beginning and its end; else when, and in which words, there was `never` any.
    pub(crate) fn note<'n>(
        &self,
        why: &mut DecidingEvents,
        name: impl Fn(usize) -> &'n str,
        customer: &str,
        words: [&str; 2],
        never: (EventTime, &str),
    ) {
        if let (Some((from, with)), Some(until)) = (self.first, self.last) {
            why.note("answered", from, name(with), words[0]);
            why.note("talkTimeSec", until, customer, words[1]);
        } else {
            why.note("answered", never.0, customer, never.1);
            why.note("talkTimeSec", never.0, customer, never.1);
        }
    }
}

/// Of the customer's channels the one that was connected longest, else the one tried last.
pub(crate) fn longest(customers: &[usize], talk: impl Fn(&[usize]) -> Talk) -> usize {
    if let [only] = customers {
        return *only;
    }
    let longest = customers.iter().max_by_key(|&&i| (talk(&[i]).total, i));
    longest.copied().unwrap_or(0)
}

/// The two halves of each Local channel among these names, as indices.
pub(crate) fn local_pairs<'a>(names: impl Iterator<Item = &'a str>) -> Vec<[usize; 2]> {
    let mut first: BTreeMap<&str, usize> = BTreeMap::new();
    let mut pairs = Vec::new();
    for (i, name) in names.enumerate() {
        if let Some(pair) = trunk::local_pair(name) {
            if let Some(&other) = first.get(pair) {
                pairs.push([other, i]);
            } else {
                first.insert(pair, i);
            }
        }
    }
    pairs
}
