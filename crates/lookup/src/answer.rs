//! A dialplan's query and its result. This module does no I/O, so the same lists, leads, and query
//! always give the same result.

use crate::harmless;
use callbridge_call::{Direction, RawNumber};
use callbridge_leads::directory::profile::LeadProfile;
use callbridge_mapping::{LeadAnswer, People, Trunk, Trunks};
use callbridge_model::{EmployeeId, LeadId, number::normalize};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use url::form_urlencoded;

/// Characters to percent-encode, which are all except RFC 3986's unreserved ones. A space becomes
/// `%20`, because Asterisk's `hashcompat=yes` doesn't decode a plus.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A dialplan's query, which consists of the caller's number and the call's trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The number as shown by the PBX.
    pub phone: String,
    /// The trunk's name, which may be empty if there's only one trunk.
    pub trunk: String,
    /// The trunk's PBX if several PBXs have a trunk with that name, or else empty.
    pub pbx: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// An object, for FreeSWITCH and for reading it directly.
    #[default]
    Json,
    /// `known=yes&lead=4001…`, for Asterisk's `CURL()` with `hashcompat`.
    Hash,
}

impl Question {
    /// Parses a query and the format of the result. A missing parameter is empty, and only the
    /// first value of a repeated one counts.
    pub fn read(query: &str) -> (Self, Format) {
        let mut question = Self::default();
        let mut format = None;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let field = match &*name {
                "phone" => &mut question.phone,
                "trunk" => &mut question.trunk,
                "pbx" => &mut question.pbx,
                "format" => {
                    let is_hash = value == "hash";
                    format.get_or_insert(if is_hash { Format::Hash } else { Format::Json });
                    continue;
                }
                _ => continue,
            };
            if field.is_empty() {
                *field = value.into_owned();
            }
        }
        // A plus that wasn't encoded arrives as a space.
        if let Some(digits) = question.phone.strip_prefix(' ') {
            question.phone = format!("+{digits}");
        }
        (question, format.unwrap_or_default())
    }

    /// Returns the query's trunk, which is the first one with the given name, or the only trunk if
    /// no name is given.
    fn trunk<'a>(&self, trunks: &'a Trunks) -> Option<&'a Trunk> {
        let mut all = trunks.iter();
        if self.trunk.is_empty() {
            let first = all.next()?;
            return if all.next().is_none() {
                Some(first)
            } else {
                None
            };
        }
        all.find(|trunk| trunk.name == self.trunk && self.is_for_pbx(trunk.pbx.as_deref()))
    }

    fn is_for_pbx(&self, pbx: Option<&str>) -> bool {
        self.pbx.is_empty() || pbx.is_none_or(|pbx| pbx == self.pbx)
    }
}

/// How many leads have the caller's number, as `yes`, `several`, or `no`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Known {
    /// One lead has the number.
    Yes,
    /// Several leads have the number, so there's no telling which of them is calling.
    Several,
    /// No lead is known.
    No,
}

/// Why no lead is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UnknownReason {
    /// No lead has the number.
    NoLead,
    /// The text isn't a customer's number, because it's hidden, an extension, or not a number at
    /// all.
    NoNumber,
    /// There's no trunk with that name, or no name was given and there are several trunks.
    NoTrunk,
    /// The lookup timed out.
    Late,
    /// The queue of lookups was full.
    Full,
    /// The client's address or secret isn't allowed.
    Refused,
    /// The request has an unknown path, or a method other than GET and HEAD.
    BadRequest,
}

/// The result of a query. It doesn't contain anything that a dialplan could interpret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// `yes` if one lead has the number, or else `several` or `no`.
    pub known: Known,
    /// The lead that the call will be journaled with unless the dialplan sets a different one.
    pub lead: Option<LeadId>,
    /// The lead's name as sanitized by `harmless`, or `None` if it isn't known.
    pub name: Option<String>,
    /// The responsible employee's extension according to this trunk's list.
    pub extension: Option<String>,
    pub employee: Option<EmployeeId>,
    /// The responsible employee's name as sanitized by `harmless`.
    pub employee_name: Option<String>,
    /// The lead's stage in the pipeline.
    pub stage: Option<String>,
    /// Why no lead is known, such as `no_lead`, or `None` if there are one or several leads.
    pub reason: Option<UnknownReason>,
}

impl Answer {
    pub fn unknown(reason: UnknownReason) -> Self {
        Self {
            reason: Some(reason),
            ..Self::empty(Known::No)
        }
    }

    const fn empty(known: Known) -> Self {
        Self {
            known,
            lead: None,
            name: None,
            extension: None,
            employee: None,
            employee_name: None,
            stage: None,
            reason: None,
        }
    }

    /// Looks up a caller. `profile` returns a lead's current ID and its displayed values.
    pub fn find(
        question: &Question,
        trunks: &Trunks,
        people: &People,
        profile: impl FnOnce(LeadId) -> (LeadId, LeadProfile),
    ) -> Self {
        let Some(trunk) = question.trunk(trunks) else {
            return Self::unknown(UnknownReason::NoTrunk);
        };
        let raw = RawNumber::new(&question.phone, false);
        let strip = trunk.strip.as_deref();
        let Some(phone) = normalize(&raw, trunk.country, strip, Direction::Inbound) else {
            return Self::unknown(UnknownReason::NoNumber);
        };
        let lead = match people.lead_of_phone(&phone, trunk) {
            LeadAnswer::One(lead, _) => lead,
            LeadAnswer::Two(..) => return Self::empty(Known::Several),
            LeadAnswer::None(_) => return Self::unknown(UnknownReason::NoLead),
        };
        let (lead, profile) = profile(lead);
        let employee = profile.responsible;
        let extension = employee.and_then(|id| extension(id, people, trunk));
        Self {
            lead: Some(lead),
            name: display_text(profile.name),
            extension: extension.map(str::to_owned),
            employee,
            employee_name: display_text(profile.responsible_name),
            stage: display_text(profile.stage),
            ..Self::empty(Known::Yes)
        }
    }

    /// Returns the label under which the result is counted in [`Tally`](crate::tally::Tally).
    pub(crate) fn label(&self) -> &'static str {
        match self.reason {
            None
            | Some(UnknownReason::NoLead | UnknownReason::NoNumber | UnknownReason::NoTrunk) => {
                self.known.into()
            }
            Some(UnknownReason::Late) => "late",
            Some(UnknownReason::Full) => "full",
            Some(UnknownReason::Refused) => "refused",
            Some(UnknownReason::BadRequest) => "bad",
        }
    }

    /// Formats the result. Every field is present, and empty (`null`) if its value isn't known, so
    /// that a dialplan doesn't see values from an earlier result.
    pub fn text(&self, format: Format) -> String {
        match format {
            // Strings and numbers can always be serialized.
            Format::Json => serde_json::to_string(self).unwrap_or_default() + "\n",
            Format::Hash => self.hash(),
        }
    }

    fn hash(&self) -> String {
        let fields = [
            ("known", <&str>::from(self.known).to_owned()),
            ("lead", text(&self.lead)),
            ("name", text(&self.name)),
            ("extension", text(&self.extension)),
            ("employee", text(&self.employee)),
            ("employeeName", text(&self.employee_name)),
            ("stage", text(&self.stage)),
            ("reason", text(&self.reason.map(<&str>::from))),
        ];
        let mut pairs = Vec::new();
        for (name, value) in fields {
            pairs.push(format!("{name}={}", utf8_percent_encode(&value, ENCODED)));
        }
        pairs.join("&")
    }
}

/// Removes characters that a display can't show, returning `None` if nothing is left.
fn display_text(text: Option<String>) -> Option<String> {
    let name = harmless::name(&text?);
    if name.is_empty() { None } else { Some(name) }
}

fn text(value: &Option<impl ToString>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Returns an employee's extension on a trunk, if a dialplan can safely dial it.
pub fn extension<'a>(id: EmployeeId, people: &'a People, trunk: &'a Trunk) -> Option<&'a str> {
    let extension = people.extension_of(id, trunk)?;
    harmless::extension(extension.as_str())
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
