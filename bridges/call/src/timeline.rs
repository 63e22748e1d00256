//! The timeline of a call: its channels and what happened to them, with times. It is small enough
//! to be kept with every call, and complete enough to draw the call.
//!
//! Serialized names have one letter, to save space. The name of the field is the long form.

use crate::units::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of channels in a timeline. Customers and telephones are kept before plumbing.
pub const CHANNELS_MAX: usize = 64;
/// Maximum number of moments, stays, and talk spans in a timeline, not counting hangups.
pub const ENTRIES_MAX: usize = 1024;
/// Maximum length of a name or dial string in a timeline, in bytes.
pub const TEXT_BYTES_MAX: usize = 120;

/// Returns the channels that fit, each with its number in the timeline, and the number of channels
/// that are left out. The customer's channels are kept first, then channels of other real parties,
/// then plumbing. `is` returns whether a channel is the customer's, and whether it is a real
/// party's.
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
    /// Channels in the order in which they were made.
    #[serde(rename = "c")]
    pub channels: Vec<Channel>,
    /// Ids of the bridges, in the order they were entered.
    #[serde(rename = "b", default, skip_serializing_if = "Vec::is_empty")]
    pub bridges: Vec<String>,
    /// Spans in which the customer was connected with a channel, by their beginning.
    #[serde(rename = "t", default, skip_serializing_if = "Vec::is_empty")]
    pub talk: Vec<TalkSpan>,
    /// Number of channels and entries that did not fit.
    #[serde(rename = "x", default, skip_serializing_if = "is_zero")]
    pub left_out: u32,
}

/// One channel of the call, from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// Unique id of the channel.
    #[serde(rename = "i")]
    pub id: UniqueId,
    /// Name of the channel: `PJSIP/city-0000004f`.
    #[serde(rename = "n")]
    pub name: String,
    /// Role of the party at the channel.
    #[serde(rename = "p")]
    pub party: Role,
    /// How the channel began.
    #[serde(rename = "w")]
    pub way: Way,
    /// Description of the event that shows how the channel began: `created in state Ring`.
    #[serde(rename = "h")]
    pub how: String,
    /// Earliest time at which the channel is known to have existed.
    #[serde(rename = "f")]
    pub from: EventTime,
    /// Time of the channel's hangup, or the latest time at which it is known to have existed.
    #[serde(rename = "t")]
    pub to: EventTime,
    /// Moments of the channel, by time. If a hangup was received, it is the last one.
    #[serde(rename = "m", default, skip_serializing_if = "Vec::is_empty")]
    pub moments: Vec<Moment>,
    /// Stays of the channel in bridges, by time.
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

/// Role that a channel has in the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// The customer, on this trunk. `None` for the first telephone of an internal call.
    #[serde(rename = "c")]
    Customer(Option<String>),
    /// Another party on this trunk: another customer, or a mobile to which the call was forwarded.
    /// `?` is a line that matches no trunk.
    #[serde(rename = "t")]
    Trunk(String),
    /// A telephone inside the company.
    #[serde(rename = "e")]
    Extension(String),
    /// An internal channel of the PBX, without a party.
    #[serde(rename = "p")]
    Plumbing,
}

/// How a channel began.
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
    /// Time at which it happened.
    #[serde(rename = "a")]
    pub at: EventTime,
    /// What happened, with its details.
    #[serde(rename = "w")]
    pub what: MomentKind,
}

/// What happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MomentKind {
    /// The channel was dialed, by another channel or by the PBX.
    #[serde(rename = "d")]
    Dialed {
        /// Number of the dialing channel in [`Timeline::channels`]. `None` if no channel dialed, or
        /// if it is not among them.
        #[serde(rename = "b", default, skip_serializing_if = "Option::is_none")]
        by: Option<u16>,
        /// Dial string: `998901110001@city`. Empty if it is not known.
        #[serde(rename = "s", default, skip_serializing_if = "String::is_empty")]
        string: String,
    },
    /// The channel rings.
    #[serde(rename = "r")]
    Rings,
    /// The channel was picked up.
    #[serde(rename = "u")]
    Up,
    /// Dialing the channel ended with this status: `ANSWER`, `BUSY`, `CANCEL`… Empty if the status
    /// was not reported.
    #[serde(rename = "e")]
    DialEnded(String),
    /// The channel hung up, for this Q.850 cause.
    #[serde(rename = "h")]
    HungUp {
        /// Number of the cause. `None` if it is not known.
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
    /// `true` for a holding bridge (a parking lot, music, a queue), in which no channel hears
    /// another.
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
