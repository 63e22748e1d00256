//! A call's timeline, which consists of its channels and what happened to them, and when. It's
//! small enough to be kept with every call, yet complete enough to draw the call.
//!
//! Serialized names are a single letter to save space. The field's name is the long form.

use crate::units::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of channels in a timeline. Customers and phones take precedence over plumbing.
pub const CHANNELS_MAX: usize = 64;
/// Maximum number of moments, stays, and talk spans in a timeline, not counting hangups.
pub const ENTRIES_MAX: usize = 1024;
/// Maximum length of a name or dial string in a timeline, in bytes.
pub const TEXT_BYTES_MAX: usize = 120;

/// Returns the channels that fit, each with its number in the timeline, along with how many were
/// left out.
///
/// The customer's channels take precedence, followed by those of other real parties, and then
/// plumbing. `is` returns whether a channel is the customer's, and whether it's a real party's.
pub(crate) fn fit_channels(
    mut channels: Vec<usize>,
    is: impl Fn(usize) -> (bool, bool),
) -> (BTreeMap<usize, u16>, u32) {
    let left_out = channels.len().saturating_sub(CHANNELS_MAX);
    channels.sort_by_key(|&i| (std::cmp::Reverse(is(i)), i));
    channels.truncate(CHANNELS_MAX);
    channels.sort_unstable();
    let numbers = channels.into_iter().zip(0..).collect();
    (numbers, u32::try_from(left_out).unwrap_or(u32::MAX))
}

/// The channels of one call and what happened to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Channels in the order they were created.
    #[serde(rename = "c")]
    pub channels: Vec<Channel>,
    /// IDs of the bridges, in the order they were entered.
    #[serde(rename = "b", default, skip_serializing_if = "Vec::is_empty")]
    pub bridges: Vec<String>,
    /// Spans during which the customer was connected to a channel, ordered by start.
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    pub talk: Vec<TalkSpan>,
    /// Number of channels and entries that didn't fit.
    #[serde(rename = "x", default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

/// One of the call's channels, from start to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// The channel's unique ID.
    #[serde(rename = "i")]
    pub id: UniqueId,
    /// The channel's name, such as `PJSIP/city-0000004f`.
    #[serde(rename = "n")]
    pub name: String,
    /// Role of the party at the channel.
    #[serde(rename = "p")]
    pub party: Role,
    /// How the channel started.
    #[serde(rename = "w")]
    pub way: Way,
    /// Description of the event that shows how the channel started: `created in state Ring`.
    #[serde(rename = "h")]
    pub how: String,
    /// Earliest time at which the channel is known to have existed.
    #[serde(rename = "f")]
    pub from: EventTime,
    /// When the channel hung up, or the latest time at which it's known to have existed.
    #[serde(rename = "t")]
    pub to: EventTime,
    /// The channel's moments in chronological order. If a hangup was received, it's the last one.
    #[serde(rename = "m", default, skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// The channel's bridge stays, in chronological order.
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<Stay>,
}

impl Channel {
    /// Returns `true` if the channel's hangup was received.
    pub fn hung_up(&self) -> bool {
        let last = self.moments.last();
        last.is_some_and(|moment| matches!(moment.what, MomentKind::HungUp { .. }))
    }
}

/// A channel's role in the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The customer, on this trunk, or `None` for the first phone in an internal call.
    #[serde(rename = "c")]
    Customer(Option<String>),
    /// Another party on this trunk, such as another customer or a mobile phone that the call was
    /// forwarded to. `?` means a line that doesn't match any trunk.
    #[serde(rename = "t")]
    Trunk(String),
    /// A phone inside the company.
    #[serde(rename = "e")]
    Extension(String),
    /// An internal PBX channel without a party.
    #[serde(rename = "p")]
    Plumbing,
}

/// How a channel started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// A party called the PBX on it.
    #[serde(rename = "i")]
    CameIn,
    /// The PBX called a party on it.
    #[serde(rename = "o")]
    Dialed,
}

/// Something that happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// When it happened.
    #[serde(rename = "a")]
    pub at: EventTime,
    /// What happened, including the details.
    #[serde(rename = "w")]
    pub what: MomentKind,
}

/// What happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MomentKind {
    /// The channel was dialed by another channel or by the PBX.
    #[serde(rename = "d")]
    Dialed {
        /// The dialing channel's number in [`Timeline::channels`], or `None` if it's not among them
        /// or no channel dialed.
        #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
        by: Option<u16>,
        /// The dial string, such as `998901110001@city`, or empty if it isn't known.
        #[serde(rename = "s", default, skip_serializing_if = "String::is_empty")]
        string: String,
    },
    /// The channel is ringing.
    #[serde(rename = "r")]
    Rings,
    /// The channel was picked up.
    #[serde(rename = "u")]
    Up,
    /// Dialing the channel ended with this status, such as `ANSWER`, `BUSY`, or `CANCEL`, or with
    /// an empty text if the status wasn't reported.
    #[serde(rename = "e")]
    DialEnded(String),
    /// The channel hung up with this Q.850 cause.
    #[serde(rename = "h")]
    HungUp {
        /// The cause's number, or `None` if it isn't known.
        #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
        cause: Option<u16>,
    },
}

/// Time spent in a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stay {
    /// When the channel entered.
    #[serde(rename = "f")]
    pub from: EventTime,
    /// When the channel left.
    #[serde(rename = "t")]
    pub to: EventTime,
    /// The bridge's number in [`Timeline::bridges`].
    #[serde(rename = "b")]
    pub bridge: u16,
    /// Whether this is a holding bridge (a parking lot, music on hold, or a queue), whose channels
    /// can't hear each other.
    #[serde(rename = "h", default, skip_serializing_if = "std::ops::Not::not")]
    pub holding: bool,
}

/// Time during which the customer was connected to another real party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TalkSpan {
    /// When the conversation started.
    #[serde(rename = "f")]
    pub from: EventTime,
    /// When the conversation ended.
    #[serde(rename = "t")]
    pub to: EventTime,
    /// The other party's number in [`Timeline::channels`].
    #[serde(rename = "w")]
    pub with: u16,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's shape")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
