//! What happened in a call, as facts with their times: small enough to be kept with every call, and
//! enough to draw it.
//!
//! Names of one letter keep it small where it is stored; what they stand for is the field's name.

use crate::units::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Channels that a timeline holds at most; customers and telephones go before plumbing.
pub const CHANNELS_MAX: usize = 64;
/// Moments, stays and talks that a timeline holds at most.
pub const ENTRIES_MAX: usize = 1024;
/// Bytes of a name or dial string in a timeline at most.
pub const TEXT_BYTES_MAX: usize = 120;

/// Returns the channels for which there is room, each with its number in the timeline, and how many
/// are left out: the customer's first,
/// then other real parties', then plumbing. `is` says of a channel whether it is the customer's,
/// and whether it is a real party's.
pub(crate) fn kept(
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

/// The channels of one call and what became of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeline {
    /// Channels in the order in which they were made.
    #[serde(rename = "c")]
    pub channels: Vec<Channel>,
    /// Ids of the bridges, in the order they were entered.
    #[serde(rename = "b", default, skip_serializing_if = "Vec::is_empty")]
    pub bridges: Vec<String>,
    /// Spans in which the customer was connected with a channel, by beginning.
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    pub talk: Vec<TalkSpan>,
    /// Channels and entries for which there was no room.
    #[serde(rename = "x", default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

/// One channel of the call, over all its life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Unique id of the channel.
    #[serde(rename = "i")]
    pub id: UniqueId,
    /// Name of the channel: `PJSIP/city-0000004f`.
    #[serde(rename = "n")]
    pub name: String,
    /// Role of whoever is at the channel.
    #[serde(rename = "p")]
    pub party: Role,
    /// Way in which the channel came to be.
    #[serde(rename = "w")]
    pub way: Way,
    /// The event that says so, in words: `created in state Ring`.
    #[serde(rename = "h")]
    pub how: String,
    /// Time of the channel's first sign of life.
    #[serde(rename = "f")]
    pub from: EventTime,
    /// Time of the channel's hang-up, or of its last sign of life.
    #[serde(rename = "t")]
    pub to: EventTime,
    /// Moments of the channel, by time; a hang-up that was received is the last.
    #[serde(rename = "m", default, skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// The bridges that it was in, by time.
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    pub stays: Vec<Stay>,
}

impl Channel {
    /// Returns `true` when the channel's hang-up was received.
    pub fn hung_up(&self) -> bool {
        let last = self.moments.last();
        last.is_some_and(|moment| matches!(moment.what, MomentKind::HungUp { .. }))
    }
}

/// Role that a channel has in the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The customer's, on this trunk (none for an internal call's first telephone).
    #[serde(rename = "c")]
    Customer(Option<String>),
    /// Somebody else's on this trunk: another customer's, or a mobile the call was forwarded to.
    /// `?` is a line that no trunk takes.
    #[serde(rename = "t")]
    Trunk(String),
    /// A telephone's inside the company.
    #[serde(rename = "e")]
    Extension(String),
    /// Nobody's: a channel of the PBX's own.
    #[serde(rename = "p")]
    Plumbing,
}

/// Way in which a channel came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// Somebody called in on it.
    #[serde(rename = "i")]
    CameIn,
    /// The PBX called somebody on it.
    #[serde(rename = "o")]
    Dialed,
}

/// Something that happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Time at which the thing happened.
    #[serde(rename = "a")]
    pub at: EventTime,
    /// The thing that happened, with its details.
    #[serde(rename = "w")]
    pub what: MomentKind,
}

/// The thing that happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MomentKind {
    /// The channel was dialed, by another or by the PBX.
    #[serde(rename = "d")]
    Dialed {
        /// By the channel of this number in [`Timeline::channels`]; `None` where nobody did, or
        /// it is not among them.
        #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
        by: Option<u16>,
        /// Dial string: `998901110001@city`; empty where it is not known.
        #[serde(rename = "s", default, skip_serializing_if = "String::is_empty")]
        string: String,
    },
    /// The channel rings: somebody is called on it.
    #[serde(rename = "r")]
    Rings,
    /// The channel was picked up.
    #[serde(rename = "u")]
    Up,
    /// Dialing it ended: `ANSWER`, `BUSY`, `CANCEL`…; empty where that was not told.
    #[serde(rename = "e")]
    DialEnded(String),
    /// The channel hung up, for this Q.850 cause.
    #[serde(rename = "h")]
    HungUp {
        /// The cause's number; `None` where it is not known.
        #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
        cause: Option<u16>,
    },
}

/// Time spent in one bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stay {
    /// Time at which the channel entered.
    #[serde(rename = "f")]
    pub from: EventTime,
    /// Time at which the channel left.
    #[serde(rename = "t")]
    pub to: EventTime,
    /// The bridge's number in [`Timeline::bridges`].
    #[serde(rename = "b")]
    pub bridge: u16,
    /// Set for a holding bridge, in which nobody hears anybody: a parking lot, music, a queue.
    #[serde(rename = "h", default, skip_serializing_if = "std::ops::Not::not")]
    pub holding: bool,
}

/// Time in which the customer was connected with another real party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TalkSpan {
    /// Time at which the talk began.
    #[serde(rename = "f")]
    pub from: EventTime,
    /// Time at which the talk ended.
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
