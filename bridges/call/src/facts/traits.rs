//! What a PBX reports about a channel in addition to its name.

use super::applications::PAUSE_MAX;
use super::fact::{TEXT_BYTES_MAX, TEXTS_MAX};
use crate::trunk::LineTraits;
use crate::{ChannelTraits, EventTime, UniqueId, clip};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use std::time::Duration;

/// The traits of a channel, each with its first reported value, because destinations, numbers, and
/// profiles change with a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LegTraits {
    /// Time of the earliest event that had traits of the channel.
    at: EventTime,
    #[serde(flatten)]
    pub(crate) line: LineTraits,
    #[serde(default, skip_serializing_if = "SmolStr::is_empty")]
    pub(crate) dialed: SmolStr,
    /// Set if the channel was seen from its beginning, so none of its events can have been missed.
    pub(crate) fresh: bool,
    /// Set if the channel was linked with only one other channel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) sole: bool,
    /// Set if the channel was already up when it was first seen.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) listed: bool,
    /// Set if the switch recovered the channel after its process had ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) recovered: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<EventTime>,
    /// How long the command that dialed the channel waits before dialing again.
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    pub(crate) pause: Duration,
    /// Set if the channel's final event showed that it was never linked to another channel.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unlinked: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answered: Option<EventTime>,
    /// Links that were reported after they had begun: their beginnings and the other channels.
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

    /// Stores the traits that an event at `at` reports. Returns `true` if that changed anything.
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
