//! The output of the assembler: a call that is over.

use crate::timeline::Timeline;
use crate::units::{EventTime, Extension, Linkedid, UniqueId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// The side that began the call, seen from the company.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Direction {
    /// A customer called in on a trunk.
    Inbound,
    /// The company called out over a trunk.
    Outbound,
    /// A call in which no trunk took part.
    Internal,
    /// A call over a trunk whose beginning was not received. It can be either of the first two, and
    /// is always incomplete.
    Unknown,
}

impl Direction {
    /// Returns the direction as the CRM and all JSON write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Inbound => "INBOUND",
            Self::Outbound => "OUTBOUND",
            Self::Internal => "INTERNAL",
            Self::Unknown => "UNKNOWN",
        }
    }
}

/// A call whose channels have all hung up, with everything that can be known from the PBX only. It
/// is serialized only for our own use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinishedCall {
    /// The id of the call: its oldest linkedid, or for the second customer of a conference, that
    /// customer's own unique id.
    pub linkedid: Linkedid,
    /// Other linkedids that became part of this call, and the unique ids of all its channels. Late
    /// events with one of these ids open no new call.
    pub also_known_as: Vec<UniqueId>,
    /// Direction of the call, which the first real party decides.
    pub direction: Direction,
    /// Set if the customer and another real party talked for half a second or more.
    pub answered: bool,
    /// The trunk of the customer's leg, by the name that its flag gives. `None` for internal calls.
    pub trunk: Option<String>,
    /// The customer's number as the PBX wrote it, not yet normalized.
    pub number: Option<RawNumber>,
    /// Further candidates for the customer's number, the best first. `number` is tried before them,
    /// and the first valid number wins. If no number is valid, `number` is displayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_numbers: Vec<RawNumber>,
    /// Caller number of the customer's channel, if the PBX itself called the customer first and no
    /// event has the dialed number. It can be the company's number, so it counts as the customer's
    /// only if a lead has this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_number: Option<RawNumber>,
    /// The number that the customer of an inbound call dialed, as the PBX wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub did: Option<String>,
    /// The extension that the call is attributed to.
    pub employee: Option<Extension>,
    /// Each extension that was connected with the customer, in the order of time.
    pub employees_in_order: Vec<Extension>,
    /// Time of the call's first event.
    pub started: EventTime,
    /// Time at which the last customer leg hung up.
    pub ended: EventTime,
    /// Time for which a customer leg was connected with another real party.
    pub talk: Duration,
    /// Channel variables, one entry per name. If the root leg has a value, it wins.
    pub variables: Vec<Variable>,
    /// User fields of the call's CDRs and CEL events, in the order received, without repeats.
    pub userfields: Vec<String>,
    /// Reason why the facts are incomplete, or `None` if they are complete.
    pub incomplete: Option<String>,
    /// Set if only CDRs report the call.
    pub estimate: bool,
    /// Set if an event had no timestamp, so its arrival time was used instead.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_arrival: bool,
    /// `true` if the first event of the call arrived at most 5 s after its own time. Otherwise the
    /// call was read from a backlog.
    pub live: bool,
    /// Messages for the log about clock problems, clamped values, and other corrections.
    pub remarks: Vec<String>,
    /// Events that decided the values, for `explain`.
    pub decided_by: Vec<DecidingEvent>,
    /// Moments of the call's channels, to be drawn. `None` if a message reported the whole call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// Common prefixes of the channels that carried an outside number and belong to no trunk, such
    /// as `PJSIP/citty`, each once. They suggest a trunk that no flag names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
    /// Common prefixes of the channels that may or may not be phones, such as `TAPI/5`, each once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_channels: Vec<String>,
    /// Ids that the message contains if it reported the whole call. `None` if the call was
    /// assembled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<GivenIds>,
}

impl FinishedCall {
    /// Returns all ids of the call.
    pub fn ids(&self) -> impl Iterator<Item = &UniqueId> {
        std::iter::once(&self.linkedid).chain(&self.also_known_as)
    }
}

/// Lead and employee that the message of a whole call attributes it to. They take precedence over
/// every rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenIds {
    /// The CRM's number of the lead; positive.
    pub lead: Option<i64>,
    /// The CRM's number of the employee; positive.
    pub employee: Option<i64>,
}

/// A number and its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawNumber {
    /// The number as the PBX wrote it: `+998901110001`, `9998901110001`, or `998901110001` from the
    /// dial string `998901110001@city`.
    pub text: String,
    /// Set if the number was read from a dial string. If such a number is valid as written, its
    /// first digits are no dial prefix.
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

/// Returns `true` for a number that a customer can dial: 2 to 24 digits after an optional `+`.
/// Names such as `s` and `start` are no numbers.
pub fn is_did(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or(text);
    (2..=24).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A channel variable of the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Name of the variable: `LEAD_ID`, for example.
    pub name: String,
    /// Values of the variable: one, or several if two legs of equal rank disagree. Never empty.
    pub values: Vec<String>,
}

/// The event that decided a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidingEvent {
    /// The value's name as in `explain --json`: `direction`, `answered`, `talkTimeSec`…
    pub value: String,
    /// Time of the deciding event.
    pub at: EventTime,
    /// Channel of the deciding event.
    pub channel: String,
    /// The reason as text: `came in on trunk city: created in state Ring`.
    pub message: String,
}

/// Returns the reason for a call's direction. `trunk` is that of the customer's channel, and `how`
/// describes how that channel began.
pub(crate) fn direction_message(direction: Direction, trunk: Option<&str>, how: &str) -> String {
    let trunk = trunk.unwrap_or_default();
    match direction {
        Direction::Inbound => format!("came in on trunk {trunk}: {how}"),
        Direction::Outbound => format!("dialed out on trunk {trunk}: {how}"),
        Direction::Internal => "no trunk took part".to_owned(),
        Direction::Unknown => format!("trunk {trunk} was dialed, and it is not known by whom"),
    }
}

/// Returns the ids of a call, sorted and each once, without the linkedids of this and other calls
/// (`known`).
pub(crate) fn aliases(ids: impl Iterator<Item = UniqueId>, known: &[&UniqueId]) -> Vec<UniqueId> {
    let ids: BTreeSet<UniqueId> = ids.filter(|id| !known.contains(&id)).collect();
    ids.into_iter().collect()
}

/// Returns the texts in their order, each once. Empty texts are left out.
pub(crate) fn distinct<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let new = texts.filter(|text| !text.is_empty() && seen.insert(*text));
    new.map(str::to_owned).collect()
}

/// Collects the events and records that decided a call's values.
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
