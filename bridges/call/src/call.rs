//! The assembler's output, which is a call that's over.

use crate::timeline::Timeline;
use crate::units::{EventTime, Extension, Linkedid, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// The side that started the call, from the company's point of view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Direction {
    /// A customer called in on a trunk.
    Inbound,
    /// The company called out over a trunk.
    Outbound,
    /// A call that didn't involve a trunk.
    Internal,
    /// A trunk call whose start wasn't received, so it may be inbound or outbound. Such a call is
    /// always incomplete.
    Unknown,
}

impl Direction {
    /// Returns the direction's name, which is the same in the CRM and in all our JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Inbound => "INBOUND",
            Self::Outbound => "OUTBOUND",
            Self::Internal => "INTERNAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// A call whose channels have all hung up, with everything that can be learned from the PBX alone.
/// Its serialized form is for internal use only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinishedCall {
    /// The call's ID, which is its oldest linkedid or, for the second customer of a conference,
    /// that customer's own unique ID.
    pub linkedid: Linkedid,
    /// Other linkedids that became part of this call, and the unique IDs of all its channels. Late
    /// events with one of these IDs don't open a new call.
    pub also_known_as: Vec<UniqueId>,
    /// The call's direction, as determined by the first real party.
    pub direction: Direction,
    /// Whether the customer talked with another real party for at least half a second.
    pub answered: bool,
    /// The trunk of the customer's leg, as named in its flag, or `None` for internal calls.
    pub trunk: Option<String>,
    /// The customer's number as written by the PBX, before normalization.
    pub number: Option<RawNumber>,
    /// Further candidates for the customer's number, best first. The first valid one of `number`
    /// and these wins, and if none is valid, `number` is displayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_numbers: Vec<RawNumber>,
    /// Caller number of the customer's channel, if the PBX called the customer first and no event
    /// contains the dialed number. This may be the company's own number, so it's only considered
    /// the customer's if a lead has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_number: Option<RawNumber>,
    /// The number that the customer of an inbound call dialed, as written by the PBX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub did: Option<String>,
    /// The extension that the call is credited to.
    pub employee: Option<Extension>,
    /// All extensions that were connected with the customer, in chronological order.
    pub employees_in_order: Vec<Extension>,
    /// Time of the call's first event.
    pub started: EventTime,
    /// When the last customer leg hung up.
    pub ended: EventTime,
    /// How long a customer leg was connected with another real party.
    pub talk: Duration,
    /// Channel variables, with one entry per name. The root leg's value takes precedence.
    pub variables: Vec<Variable>,
    /// User fields of the call's CDRs and CEL events in the order received, without duplicates.
    pub userfields: Vec<String>,
    /// Why the call is incomplete, or `None` if it's complete.
    pub incomplete: Option<String>,
    /// Whether the call is known only from CDRs.
    pub estimate: bool,
    /// Whether any event lacked a timestamp, so that its arrival time was used instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_arrival: bool,
    /// Whether the call's first event was received within 5 s of happening. If not, the call is
    /// part of a backlog.
    pub live: bool,
    /// Log messages about clock problems, clamped values, and other corrections.
    pub remarks: Vec<String>,
    /// Events that determined the values, for `explain`.
    pub decided_by: Vec<DecidingEvent>,
    /// The timeline to draw, or `None` if a single message reported the whole call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// Distinct common prefixes, such as `PJSIP/citty`, of channels that had an outside number but
    /// don't match any trunk. They hint at a trunk that isn't configured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
    /// Distinct common prefixes, such as `TAPI/5`, of channels that may or may not be phones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_channels: Vec<String>,
    /// IDs given in the message that reported the whole call, or `None` if the call was assembled
    /// from events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<GivenIds>,
}

impl FinishedCall {
    /// Returns all of the call's IDs.
    pub fn ids(&self) -> impl Iterator<Item = &UniqueId> {
        std::iter::once(&self.linkedid).chain(&self.also_known_as)
    }
}

/// The lead and employee to which a message attributes a whole call. They take precedence over
/// every rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenIds {
    /// The CRM's ID of the lead, which is positive.
    pub lead: Option<i64>,
    /// The CRM's ID of the employee, which is positive.
    pub employee: Option<i64>,
}

/// A number, along with where it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawNumber {
    /// The number as written by the PBX, such as `+998901110001`, `9998901110001`, or
    /// `998901110001` from the dial string `998901110001@city`.
    pub text: String,
    /// Whether the number comes from a dial string. If such a number is valid as written, its first
    /// digits aren't a dial prefix.
    pub from_dial_string: bool,
}

impl RawNumber {
    /// Creates a number from this text.
    pub fn new(text: impl Into<String>, from_dial_string: bool) -> Self {
        Self {
            text: text.into(),
            from_dial_string,
        }
    }
}

/// Returns `true` for a number that a customer can dial, which means 2 to 24 digits after an
/// optional `+`. Names such as `s` and `start` don't qualify.
pub fn is_did(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or(text);
    (2..=24).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A channel variable of the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// The variable's name, such as `LEAD_ID`.
    pub name: String,
    /// The variable's value, or several if two legs of equal rank disagree. Never empty.
    pub values: Vec<String>,
}

/// The event that determined a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidingEvent {
    /// The value's name as in `explain --json`, such as `direction`, `answered`, or `talkTimeSec`.
    pub value: String,
    /// When the event happened.
    pub at: EventTime,
    /// The event's channel.
    pub channel: String,
    /// A human-readable reason, such as `came in on trunk city: created in state Ring`.
    pub message: String,
}

/// Returns the reason for a call's direction. `trunk` is the trunk of the customer's channel, and
/// `how` describes how that channel started.
pub(crate) fn direction_message(direction: Direction, trunk: Option<&str>, how: &str) -> String {
    let trunk = trunk.unwrap_or_default();
    match direction {
        Direction::Inbound => format!("came in on trunk {trunk}: {how}"),
        Direction::Outbound => format!("dialed out on trunk {trunk}: {how}"),
        Direction::Internal => "no trunk took part".to_owned(),
        Direction::Unknown => format!("trunk {trunk} was dialed, and it is not known by whom"),
    }
}

/// Returns a call's IDs, sorted and deduplicated, without the linkedids of this call and others
/// (`known`).
pub(crate) fn aliases(ids: impl Iterator<Item = UniqueId>, known: &[&UniqueId]) -> Vec<UniqueId> {
    let ids: BTreeSet<UniqueId> = ids.filter(|id| !known.contains(&id)).collect();
    ids.into_iter().collect()
}

/// Returns the distinct nonempty strings in their original order.
pub(crate) fn distinct<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let new = texts.filter(|text| !text.is_empty() && seen.insert(*text));
    new.map(str::to_owned).collect()
}

/// Collects the events and records that determined a call's values.
#[derive(Debug, Default)]
pub(crate) struct DecidingEvents(pub(crate) Vec<DecidingEvent>);

impl DecidingEvents {
    pub(crate) fn note(
        &mut self,
        value: &str,
        at: EventTime,
        channel: &str,
        message: impl Into<String>,
    ) {
        self.0.push(DecidingEvent {
            value: value.to_owned(),
            at,
            channel: channel.to_owned(),
            message: message.into(),
        });
    }
}
