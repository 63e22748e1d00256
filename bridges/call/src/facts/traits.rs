//! What a PBX reports about a channel in addition to its name.

use super::applications::PAUSE_MAX;
use super::fact::{TEXT_BYTES_MAX, TEXTS_MAX};
use crate::trunk::LineTraits;
use crate::{ChannelTraits, EventTime, UniqueId, clip};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::time::Duration;

/// A channel's traits, keeping the first value reported for each, because destinations, numbers,
/// and profiles change when a call is transferred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LegTraits {
    /// Time of the earliest event that reported traits of the channel.
    at: EventTime,
    #[serde(flatten)]
    pub(crate) line: LineTraits,
    #[serde(default, skip_serializing_if = "SmolStr::is_empty")]
    pub(crate) dialed: SmolStr,
    /// Whether the channel has been seen from its start, so that none of its events can have been
    /// missed.
    pub(crate) fresh: bool,
    /// Whether the channel was only ever linked with one other channel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) sole: bool,
    /// Whether the channel was already up when it was first seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) listed: bool,
    /// Whether the switch recovered the channel after its process had ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) recovered: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<EventTime>,
    /// How long the command that dialed the channel waits before redialing.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub(crate) pause: Duration,
    /// Whether the channel's final event showed that it was never linked to another channel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unlinked: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answered: Option<EventTime>,
    /// Links that weren't reported until after they had begun, given by start time and the other
    /// channel.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) linked: Vec<(EventTime, UniqueId)>,
}

impl LegTraits {
    /// Creates the traits of a channel that was first described at this time.
    pub(super) fn new(at: EventTime) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    /// Stores the traits reported by an event at `at`, returning `true` if that changed anything.
    pub(super) fn note(
        &mut self,
        at: EventTime,
        reported: &ChannelTraits<'_>,
        context: &str,
    ) -> bool {
        let before = self.clone();
        let earlier = at < self.at;
        let line = &mut self.line;
        for (known, text) in [
            (&mut line.gateway, reported.gateway.as_ref()),
            (&mut line.profile, reported.profile.as_ref()),
            (&mut line.context, context),
            (&mut line.address, reported.address.as_ref()),
            (&mut line.extension, reported.extension.as_ref()),
            (&mut self.dialed, reported.dialed.as_ref()),
        ] {
            if !text.is_empty() && (earlier || known.is_empty()) && known != text {
                *known = clip(text, TEXT_BYTES_MAX).into();
            }
        }
        self.at = self.at.min(at);
        self.line.inbound |= reported.inbound;
        self.listed |= reported.listed && !self.fresh;
        self.fresh |= reported.fresh;
        self.sole |= reported.sole;
        self.unlinked |= reported.unlinked;
        self.pause = self.pause.max(reported.pause.min(PAUSE_MAX));
        self.recovered |= reported.recovered;
        self.created = self.created.into_iter().chain(reported.created).min();
        self.answered = self.answered.into_iter().chain(reported.answered).min();
        if let Some((at, id)) = &reported.linked
            && let Some(linked) = UniqueId::new(id).map(|id| (*at, id))
            && self.linked.len() < TEXTS_MAX
            && !self.linked.contains(&linked)
        {
            self.linked.push(linked);
        }
        *self != before
    }
}
