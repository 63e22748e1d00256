//! What the assembler gives out: a call that is over.

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

/// A call whose channels have all hung up, with what can be known from the PBX alone.
/// Serialized only to be kept and read by ourselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinishedCall {
    /// The id the call is known by: its oldest linkedid, or for the second customer of one
    /// conference that customer's own unique id.
    pub linkedid: Linkedid,
    /// Other linkedids that became part of this call, and the unique ids of all its channels:
    /// late events with one of them raise no ghost.
    pub also_known_as: Vec<UniqueId>,
    /// By the first real party.
    pub direction: Direction,
    /// The customer and another real party talked for half a second or more.
    pub answered: bool,
    /// The trunk of the customer's leg, by the name its flag gave it; `None` for internal calls.
    pub trunk: Option<String>,
    /// The customer's number as the PBX wrote it, not yet normalized.
    pub number: Option<RawNumber>,
    /// Further candidates for the customer's number, in their order. The first candidate that is
    /// valid wins. If none is, `number` is displayed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_numbers: Vec<RawNumber>,
    /// Number that the customer's channel shows, where the PBX itself called the customer first and
    /// no event has the number that it dialed. It may be the company's own, and is the customer's
    /// only where a lead has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown_number: Option<RawNumber>,
    /// The number that the customer of an inbound call dialed, as the PBX wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub did: Option<String>,
    /// The extension the call is put down to.
    pub employee: Option<Extension>,
    /// Each extension that came to be connected with the customer, in that order.
    pub employees_in_order: Vec<Extension>,
    /// Time of the call's first event.
    pub started: EventTime,
    /// The hang-up of the last customer leg.
    pub ended: EventTime,
    /// Time for which a customer leg was connected with another real party.
    pub talk: Duration,
    /// Channel variables, one entry a name: the root leg's value where it has one.
    pub variables: Vec<Variable>,
    /// User fields of the call's CDRs and CEL events, in the order heard, without repeats.
    pub userfields: Vec<String>,
    /// The facts are not complete; `None` when they are.
    pub incomplete: Option<String>,
    /// Set where CDRs alone report the call.
    pub estimate: bool,
    /// The call's first event arrived within 5 s of its own time: it happens now, it is not read
    /// from a backlog.
    pub live: bool,
    /// Clock trouble, clamps and other things that were set right, in words, for the log.
    pub remarks: Vec<String>,
    /// Events that decided the values, for `explain`.
    pub decided_by: Vec<DecidingEvent>,
    /// Moments of the call's channels, to be drawn; `None` where the call came whole, as a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeline: Option<Timeline>,
    /// Common prefixes of the channels that carried an outside number and belong to no trunk:
    /// `PJSIP/citty`, each once. A trunk that no flag names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
    /// Ids that the message names, where the call came whole, as one; `None` where it was
    /// assembled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<GivenIds>,
}

impl FinishedCall {
    /// All ids of the call.
    pub fn ids(&self) -> impl Iterator<Item = &UniqueId> {
        std::iter::once(&self.linkedid).chain(&self.also_known_as)
    }
}

/// Lead and employee that a call which came whole is put down to, by its message. They go before
/// every rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenIds {
    /// The CRM's number of the lead; positive.
    pub lead: Option<i64>,
    /// The CRM's number of the employee; positive.
    pub employee: Option<i64>,
}

/// A number, and where it was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawNumber {
    /// The number as the PBX wrote it: `+998901110001`, `998901110001@city`'s `998901110001`,
    /// `9998901110001`.
    pub text: String,
    /// Read from a dial string, so that no dial prefix stands before it if it is valid as it is.
    pub from_dial_string: bool,
}

impl RawNumber {
    /// The number that this text is.
    pub fn new(text: impl Into<String>, from_dial_string: bool) -> Self {
        Self {
            text: text.into(),
            from_dial_string,
        }
    }
}

/// Returns `true` for a number that a customer can dial: `s`, `start` and the name of a line are
/// none.
pub fn is_did(text: &str) -> bool {
    let digits = text.strip_prefix('+').unwrap_or(text);
    (2..=24).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// A channel variable of the call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Variable {
    /// Name of the variable: `LEAD_ID`, for example.
    pub name: String,
    /// Values of the variable: one, or several where two legs of equal rank disagree. Never empty.
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
    /// The reason: `came in on trunk city: created in state Ring`.
    pub message: String,
}

/// Gives the reason for a call's direction. `how` is the reason for the direction of its customer's
/// channel, which is on this trunk.
pub(crate) fn direction_words(direction: Direction, trunk: Option<&str>, how: &str) -> String {
    let trunk = trunk.unwrap_or_default();
    match direction {
        Direction::Inbound => format!("came in on trunk {trunk}: {how}"),
        Direction::Outbound => format!("dialed out on trunk {trunk}: {how}"),
        Direction::Internal => "no trunk took part".to_owned(),
        Direction::Unknown => format!("trunk {trunk} was dialed, and it is not known by whom"),
    }
}

/// All ids of a call, without those by which it or another of its calls is known.
pub(crate) fn aliases(ids: impl Iterator<Item = UniqueId>, known: &[&UniqueId]) -> Vec<UniqueId> {
    let ids: BTreeSet<UniqueId> = ids.filter(|id| !known.contains(&id)).collect();
    ids.into_iter().collect()
}

/// These texts in their order, each once, without the empty one.
pub(crate) fn distinct<'t>(texts: impl Iterator<Item = &'t str>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let new = texts.filter(|text| !text.is_empty() && seen.insert(*text));
    new.map(str::to_owned).collect()
}

/// Events and records that decided a call's values, as they are gathered.
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
