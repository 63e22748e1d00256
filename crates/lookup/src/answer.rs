//! A dialplan's question and its answer. Pure: the same lists, leads, and question give the same
//! answer.

use crate::harmless;
use callbridge_call::{Direction, RawNumber};
use callbridge_leads::directory::profile::LeadProfile;
use callbridge_mapping::{LeadAnswer, People, Trunk, Trunks};
use callbridge_model::{EmployeeId, LeadId, number::normalize};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use url::form_urlencoded;

/// Characters to percent-encode: all except the unreserved characters of RFC 3986. A space is
/// `%20`, because Asterisk's `hashcompat=yes` does not decode a plus.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Query of a dialplan: the caller's number, and the trunk of the call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The number as the PBX shows it.
    pub phone: String,
    /// The trunk's name. It can be empty if there is only one trunk.
    pub trunk: String,
    /// The trunk's PBX if several PBXs have a trunk of that name. Otherwise empty.
    pub pbx: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// An object, for FreeSWITCH and people.
    #[default]
    Json,
    /// `known=yes&lead=4001…`, for Asterisk's `CURL()` with `hashcompat`.
    Hash,
}

impl Question {
    /// Parses a query, and the format of the answer. A missing parameter is empty. If a parameter
    /// occurs twice, the first value counts.
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
        // A plus that was not encoded arrives as a space.
        if let Some(digits) = question.phone.strip_prefix(' ') {
            question.phone = format!("+{digits}");
        }
        (question, format.unwrap_or_default())
    }

    /// Returns the trunk of the question: the first trunk with the name in the question, or the
    /// only trunk if the question names none.
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

/// The number of leads that have the caller's number, as `yes`, `several`, or `no`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Known {
    /// One lead has the number.
    Yes,
    /// Several leads have the number, so it is not known which of them calls.
    Several,
    /// No lead is known.
    No,
}

/// Reasons why no lead is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UnknownReason {
    /// No lead has the number.
    NoLead,
    /// The text is not a customer's number: hidden, an extension, or not a number at all.
    NoNumber,
    /// No trunk has that name, or none was named and there are several.
    NoTrunk,
    /// The lookup took longer than its time.
    Late,
    /// The queue of lookups was full.
    Full,
    /// The client's address or secret is not allowed.
    Refused,
    /// The request has another path, or a method other than GET and HEAD.
    BadRequest,
}

/// The answer to a question. It contains nothing that a dialplan could interpret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// `yes` if one lead has the number, or `several`, or `no`.
    pub known: Known,
    /// The lead that the call is journaled with, if the dialplan sets no other.
    pub lead: Option<LeadId>,
    /// Name of the lead, cleaned by `harmless`. `None` if the name is not known.
    pub name: Option<String>,
    /// The extension of the responsible employee, on this trunk's list.
    pub extension: Option<String>,
    pub employee: Option<EmployeeId>,
    /// Name of the responsible employee, cleaned by `harmless`.
    pub employee_name: Option<String>,
    /// The stage of the lead's pipeline.
    pub stage: Option<String>,
    /// The reason why no lead is known, such as `no_lead`. `None` for one or several leads.
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

    /// Looks up a caller. `profile` returns a lead's current id and its displayed values.
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

    /// Returns the label under which the answer is counted in [`Tally`](crate::tally::Tally).
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

    /// Formats the answer. Every field is present, and empty (`null`) if its value is not known, so
    /// a dialplan does not see values of an earlier answer.
    pub fn text(&self, format: Format) -> String {
        match format {
            // Strings and numbers always serialize.
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

/// Removes characters that a display cannot show. Returns `None` if the result is empty.
fn display_text(text: Option<String>) -> Option<String> {
    let name = harmless::name(&text?);
    if name.is_empty() { None } else { Some(name) }
}

fn text(value: &Option<impl ToString>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// Returns the extension of an employee on a trunk, if a dialplan can dial it safely.
pub fn extension<'a>(id: EmployeeId, people: &'a People, trunk: &'a Trunk) -> Option<&'a str> {
    let extension = people.extension_of(id, trunk)?;
    harmless::extension(extension.as_str())
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
