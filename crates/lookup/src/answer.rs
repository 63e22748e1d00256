//! A question of a dialplan, and what is answered to it. Pure: the same lists, leads and question
//! give the same answer.

use crate::harmless;
use callbridge_call::{Direction, RawNumber};
use callbridge_leads::directory::profile::LeadProfile;
use callbridge_mapping::{LeadAnswer, People, Trunk, Trunks};
use callbridge_model::{EmployeeId, LeadId, number::normalise};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use url::form_urlencoded;

/// Characters to be percent-encoded: all but those that RFC 3986 leaves as they are. A space is
/// `%20`: Asterisk's `hashcompat=yes` leaves a plus.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Query of a dialplan: the caller's number, and the trunk of the call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The caller's number as the PBX shows it.
    pub phone: String,
    /// The trunk's name; empty where there is one alone.
    pub trunk: String,
    /// The trunk's PBX, where several have a trunk of that name; else empty.
    pub pbx: String,
}

/// Form in which an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// An object, for FreeSWITCH and people.
    #[default]
    Json,
    /// `known=yes&lead=4001…`, for Asterisk's `CURL()` with `hashcompat`.
    Hash,
}

impl Question {
    /// Reads a query, with the form of the answer. What it lacks is empty; what it has twice counts
    /// once, the first time.
    pub fn read(query: &str) -> (Self, Format) {
        let (mut question, mut format) = (Self::default(), None);
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
        // A plus that was not encoded came as a space.
        if let Some(digits) = question.phone.strip_prefix(' ') {
            question.phone = format!("+{digits}");
        }
        (question, format.unwrap_or_default())
    }

    /// The trunk that is meant: the first of that name, or the only one where none is named.
    fn trunk<'a>(&self, trunks: &'a Trunks) -> Option<&'a Trunk> {
        let mut all = trunks.iter();
        if self.trunk.is_empty() {
            return all.next().filter(|_| all.next().is_none());
        }
        let of_pbx = |own: &str| self.pbx.is_empty() || own == self.pbx;
        let mut named = all.filter(|trunk| trunk.name == self.trunk);
        named.find(|trunk| trunk.pbx.as_deref().is_none_or(of_pbx))
    }
}

/// Verdict on the caller: `yes`, `several` or `no`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Known {
    /// One lead has the number.
    Yes,
    /// Several have it; which of them calls nobody knows.
    Several,
    /// No lead is known.
    No,
}

/// Reason why no lead is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum UnknownReason {
    /// No lead has the number.
    NoLead,
    /// The text is no number of a customer: hidden, an extension, or no number at all.
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

/// Answer to a question. Nothing in it can mean anything to a dialplan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Verdict on the caller: one lead has the number, several have it, or none.
    pub known: Known,
    /// The lead, as the call will be journaled if the dialplan says nothing else.
    pub lead: Option<LeadId>,
    /// Name of the lead, cleaned by `harmless`; `None` where it is not known.
    pub name: Option<String>,
    /// The extension of the responsible employee on this trunk's list.
    pub extension: Option<String>,
    /// The employee responsible for the lead.
    pub employee: Option<EmployeeId>,
    /// Name of the responsible employee, cleaned by `harmless`.
    pub employee_name: Option<String>,
    /// The stage of the pipeline.
    pub stage: Option<String>,
    /// Reason why no lead is known: `no_lead`; `None` for one or several leads.
    pub reason: Option<UnknownReason>,
}

impl Answer {
    /// Makes an answer that knows no lead, for this reason.
    pub fn no(reason: UnknownReason) -> Self {
        Self {
            reason: Some(reason),
            ..Self::bare(Known::No)
        }
    }

    const fn bare(known: Known) -> Self {
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

    /// Looks up who calls. `profile` says what is known of a lead, and which it is now.
    pub fn find(
        question: &Question,
        trunks: &Trunks,
        people: &People,
        profile: impl FnOnce(LeadId) -> (LeadId, LeadProfile),
    ) -> Self {
        let Some(trunk) = question.trunk(trunks) else {
            return Self::no(UnknownReason::NoTrunk);
        };
        let raw = RawNumber::new(&question.phone, false);
        let strip = trunk.strip.as_deref();
        let Some(phone) = normalise(&raw, trunk.country, strip, Direction::Inbound) else {
            return Self::no(UnknownReason::NoNumber);
        };
        let lead = match people.lead_of_phone(&phone, trunk) {
            LeadAnswer::One(lead, _) => lead,
            LeadAnswer::Two(..) => return Self::bare(Known::Several),
            LeadAnswer::None(_) => return Self::no(UnknownReason::NoLead),
        };
        let (lead, profile) = profile(lead);
        let shown = |text: Option<String>| {
            let text = harmless::name(&text?);
            (!text.is_empty()).then_some(text)
        };
        let employee = profile.responsible;
        let extension = employee.and_then(|id| extension(id, people, trunk));
        Self {
            lead: Some(lead),
            name: shown(profile.name),
            extension: extension.map(str::to_owned),
            employee,
            employee_name: shown(profile.responsible_name),
            stage: shown(profile.stage),
            ..Self::bare(Known::Yes)
        }
    }

    /// Returns the label under which the answer is counted.
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

    /// Writes the answer in the form that was asked for. Every field is there, empty (`null`) where
    /// nothing is known: a dialplan must not see what an earlier answer left.
    pub fn text(&self, format: Format) -> String {
        match format {
            // Texts and numbers always serialize.
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
        let encoded = |value| utf8_percent_encode(value, ENCODED);
        let pairs = fields
            .iter()
            .map(|(name, value)| format!("{name}={}", encoded(value)));
        pairs.collect::<Vec<_>>().join("&")
    }
}

fn text(value: &Option<impl ToString>) -> String {
    value.as_ref().map(ToString::to_string).unwrap_or_default()
}

/// The extension of an employee on a trunk, where it is one that a dialplan may dial.
pub fn extension<'a>(id: EmployeeId, people: &'a People, trunk: &'a Trunk) -> Option<&'a str> {
    let extension = people.extension_of(id, trunk)?;
    harmless::extension(extension.as_str())
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
