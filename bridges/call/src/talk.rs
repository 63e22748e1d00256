//! Computes when the customer was connected to other real parties, and to which ones. Calls from
//! channel events and calls from CDRs share this code, but determine in different ways who can hear
//! whom.

use crate::call::DecidingEvents;
use crate::timeline::TalkSpan;
use crate::trunk::{self, Party};
use crate::units::{EventTime, Extension};
use std::collections::BTreeMap;
use std::time::Duration;

/// Minimum talk time of an answered call. Anything shorter was picked up by accident.
pub(crate) const ANSWERED_FROM: Duration = Duration::from_millis(500);

/// The customer's connections. Channels are indices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Talk {
    /// How long the customer was connected to at least one party.
    pub(crate) total: Duration,
    /// When the first connection started, and its channel.
    pub(crate) first: Option<(EventTime, usize)>,
    /// When the last connection ended.
    pub(crate) last: Option<EventTime>,
    /// When each connection with the customer started, and its channel. If several start at the
    /// same moment, those shorter than `ANSWERED_FROM` come first.
    pub(crate) began: Vec<(EventTime, usize)>,
    /// Each span during which a channel was connected to the customer, given by its start, its end,
    /// and the channel.
    pub(crate) spans: Vec<(EventTime, EventTime, usize)>,
    /// Whether the durations are unknown.
    pub(crate) untimed: bool,
}

impl Talk {
    /// Returns `true` if the talk time was at least half a second, or anything at all if durations
    /// aren't known.
    pub(crate) fn is_answer(&self) -> bool {
        self.would_answer(self.total)
    }

    /// Returns `true` if this much talk time makes a call answered.
    pub(crate) fn would_answer(&self, talk: Duration) -> bool {
        talk >= ANSWERED_FROM || self.untimed && talk > Duration::ZERO
    }

    /// Computes the connections given the moments at which anything changed. `connected` returns
    /// the channels that the customer is connected to from one moment to the next.
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
            let from = span[0];
            let to = span[1];
            let with = connected(from, to);
            if let Some(&first) = with.first() {
                talk.total += to.since(from);
                talk.first = talk.first.or(Some((from, first)));
                talk.last = Some(to);
            }
            for &channel in &with {
                let last = latest
                    .get(&channel)
                    .and_then(|&i| talk.spans.get_mut(i))
                    .filter(|span| span.1 == from);
                if let Some(span) = last {
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
        // An attended transfer replaces the transferrer with the customer. On Asterisk 13, the
        // customer enters an instant before the transferrer leaves, so this order keeps the
        // transferrer from being considered the last to talk.
        let spans = &talk.spans;
        talk.began.sort_by_cached_key(|&(at, channel)| {
            let span = spans
                .iter()
                .find(|(from, _, with)| *from == at && *with == channel);
            let stays = span.is_some_and(|(from, to, _)| to.since(*from) >= ANSWERED_FROM);
            (at, stays)
        });
        talk
    }

    /// Returns the extensions in the order they were connected to the customer. Consecutive
    /// duplicates are dropped.
    pub(crate) fn in_order<'p>(&self, party: impl Fn(usize) -> &'p Party<'p>) -> Vec<Extension> {
        let mut order: Vec<Extension> = self
            .began
            .iter()
            .filter_map(|&(_, channel)| party(channel).extension().cloned())
            .collect();
        order.dedup();
        order
    }

    /// Returns the talk spans with the channels that are in the timeline, in sorted order. `number`
    /// has the number of each of these channels.
    pub(crate) fn timeline_spans(&self, number: &BTreeMap<usize, u16>) -> Vec<TalkSpan> {
        let mut talk = Vec::new();
        for &(from, to, channel) in &self.spans {
            if let Some(&with) = number.get(&channel) {
                talk.push(TalkSpan { from, to, with });
            }
        }
        talk.sort_unstable();
        talk
    }

    /// Records the events that decided `answered` and `talkTimeSec`.
    ///
    /// `name` returns a channel's name, and `customer` is the name of the customer's channel.
    /// `texts` describes the start and end of the conversation, and `never` is the time and
    /// description to use if there was none.
    pub(crate) fn note<'n>(
        &self,
        why: &mut DecidingEvents,
        name: impl Fn(usize) -> &'n str,
        customer: &str,
        texts: [&str; 2],
        never: (EventTime, &str),
    ) {
        if let (Some((from, with)), Some(until)) = (self.first, self.last) {
            why.note("answered", from, name(with), texts[0]);
            why.note("talkTimeSec", until, customer, texts[1]);
        } else {
            why.note("answered", never.0, customer, never.1);
            why.note("talkTimeSec", never.0, customer, never.1);
        }
    }
}

/// Returns the customer's channel that was connected the longest, or the last one tried if none was
/// connected. `talk` computes the given channels' connections.
pub(crate) fn longest(customers: &[usize], talk: impl Fn(&[usize]) -> Talk) -> usize {
    if let [only] = customers {
        return *only;
    }
    let longest = customers.iter().max_by_key(|&&i| (talk(&[i]).total, i));
    longest.copied().unwrap_or(0)
}

/// Returns the two halves of each Local channel among these names, as indices.
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
