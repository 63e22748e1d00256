//! What a PBX says of a channel beside its name, as far as a call can depend on it.

use super::fact::{TEXT_BYTES_MAX, TEXTS_MAX};
use crate::event::ChannelTraits;
use crate::trunk::LineTraits;
use crate::units::{EventTime, UniqueId, clip};
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Each value as it was told first: destinations, numbers and profiles change with a transfer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LegTraits {
    /// Time of the earliest event that had traits of the channel.
    at: EventTime,
    #[serde(flatten)]
    pub(crate) line: LineTraits,
    #[serde(default, skip_serializing_if = "SmolStr::is_empty")]
    pub(crate) dialled: SmolStr,
    /// Set when the channel was met before anything of it could have been missed.
    pub(crate) fresh: bool,
    /// Set when the channel was linked with one other in all its life.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) sole: bool,
    /// Set when the channel was up already when it was met.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) listed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<EventTime>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) answered: Option<EventTime>,
    /// Links that were told of after they had begun.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) linked: Vec<(EventTime, UniqueId)>,
}

impl LegTraits {
    pub(super) fn new(at: EventTime) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    /// Takes in what an event of that time told; `true` if that changed anything.
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
            (&mut self.dialled, reported.dialled.as_ref()),
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
        self.created = self.created.into_iter().chain(reported.created).min();
        self.answered = self.answered.into_iter().chain(reported.answered).min();
        let linked = reported.linked.as_ref();
        let linked = linked.and_then(|(at, id)| Some((*at, UniqueId::new(id)?)));
        if let Some(linked) = linked
            && self.linked.len() < TEXTS_MAX
            && !self.linked.contains(&linked)
        {
            self.linked.push(linked);
        }
        *self != before
    }
}
