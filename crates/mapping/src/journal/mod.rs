//! Maps a finished call to the values for the CRM's journal.
//!
//! The input is a [`FinishedCall`], the administrator's flags ([`Rules`]), the lead and employee
//! lists ([`People`]), and `now`. The output is [`Judged`]. The code uses no clock, file, or
//! socket, and the same call always gets the same UUID. A dead letter is judged again ([`remap`])
//! when a user requests it or when its lead becomes known.
//!
//! | module | contents |
//! |---|---|
//! | [`figures`] | UUID, start, duration, and talk time |

pub mod figures;

use crate::people::{LeadAnswer, People};
use crate::trunk::{Trunk, Trunks};
use callbridge_call::{Direction, EventTime, FinishedCall, RawNumber};
use callbridge_model::number::normalize;
use callbridge_model::{
    CallRecord, Country, EmployeeId, Judged, LeadId, Outcome, Phone, Reason, SuppliedFacts,
};
use figures::Figures;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The administrator's flags that apply to all calls.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// All trunks given in `--trunk`.
    pub trunks: Trunks,
    /// The settings for messages that don't specify a trunk.
    pub without_trunk: Option<Trunk>,
    /// Calls that started before this time are skipped (`--not-before`).
    pub not_before: Option<EventTime>,
    /// Earliest start for individual PBXs, by ID (a file's `from=DATE`).
    pub since: BTreeMap<String, EventTime>,
    /// Country of CRM numbers without a country code, from `--country` or the only country among
    /// the trunks.
    pub country: Option<Country>,
    /// Whether a call waits if its extension has no employee (`--require-employee`).
    pub require_employee: bool,
    /// Whether calls go to a hub (`--forward`), which may know the lead. In that case, a trunk
    /// without a lead rule leaves the lead to the hub.
    pub forwards: bool,
}

impl Rules {
    /// Returns every trunk whose rules may apply to a call, including [`Rules::without_trunk`].
    pub fn every_trunk(&self) -> impl Iterator<Item = &Trunk> {
        self.trunks.iter().chain(&self.without_trunk)
    }

    /// Returns the earliest start of this PBX's journaled calls, or `None` if there's no limit.
    fn limit(&self, pbx: &str) -> Option<EventTime> {
        // `pbx1/branch` is a second PBX whose calls come from the source for `pbx1`.
        let of_source = pbx.split('/').next().and_then(|root| self.since.get(root));
        let own = self.since.get(pbx).or(of_source);
        self.not_before.max(own.copied())
    }
}

/// Maps a finished call on this PBX to a record, and decides whether it's journaled.
///
/// `now` is the wall clock's time or, for a recording, the time of the last event. It's used as the
/// time when the call arrived.
pub fn judge(
    call: &FinishedCall,
    pbx: &str,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Judged {
    let trunk = trunk_of(call, pbx, rules);
    let figures = Figures::from_call(call, now);
    let mut remarks = call.remarks.clone();
    remarks.extend(figures.remarks.iter().cloned());
    let in_order = call.employees_in_order.iter().map(ToString::to_string);
    let mut record = CallRecord {
        uuid: Some(figures::uuid(pbx, &call.linkedid)),
        linkedid: call.linkedid.as_str().to_owned(),
        pbx: pbx.to_owned(),
        direction: call.direction,
        answered: call.answered,
        lead_id: None,
        lead_from: None,
        trunk: call.trunk.clone(),
        client_phone: client_phone(call, trunk, people),
        did: call.did.clone(),
        employee: call.employee.as_ref().map(ToString::to_string),
        employee_id: None,
        employees_in_order: in_order.collect(),
        started_at: figures.started_at,
        duration_sec: figures.duration_sec,
        talk_time_sec: figures.talk_time_sec,
        incomplete: call.incomplete.is_some(),
        estimate: call.estimate,
        by_hand: None,
    };
    let limit = rules.limit(pbx);
    let (outcome, reason, message) = match exclusion(call, trunk, limit, &figures) {
        Some((outcome, why)) => {
            record.uuid = None;
            (outcome, None, why)
        }
        None => {
            let owners = find_owners(call, trunk, (rules, people), &record);
            if let Some((lead, origin)) = &owners.lead {
                record.lead_id = Some(*lead);
                record.lead_from = Some(origin.clone());
            }
            record.employee_id = owners.employee_id;
            if trunk.is_some_and(|trunk| trunk.employees.is_some()) {
                remarks.extend(owners.no_employee.clone());
            }
            let error = facts(call, &figures).or_else(|| owners.missing(rules.require_employee));
            match error {
                Some((reason, why)) => (Outcome::DeadLetter, Some(reason), why),
                None => (Outcome::Journal, None, String::new()),
            }
        }
    };
    let early = limit.is_some_and(|limit| call.started < limit);
    let called_in = call.direction == Direction::Inbound && !early;
    Judged {
        outcome,
        reason,
        message,
        live: call.live,
        remarks,
        kept_out_unanswered: called_in
            && trunk.is_some_and(|trunk| trunk.journal && trunk.keeps_out(call)),
        ..Judged::journaled(record, now)
    }
}

/// Returns the trunk whose rules apply to a call. [`Rules::without_trunk`] applies to messages that
/// don't specify a trunk or come from a PBX without trunks.
fn trunk_of<'a>(call: &FinishedCall, pbx: &str, rules: &'a Rules) -> Option<&'a Trunk> {
    let without_trunk = if call.given.is_some() {
        rules.without_trunk.as_ref()
    } else {
        None
    };
    let Some(name) = call.trunk.as_deref() else {
        return without_trunk;
    };
    let found = rules.trunks.find(pbx, name);
    if found.is_none() && rules.trunks.of_pbx(pbx).next().is_none() {
        return without_trunk;
    }
    found
}

/// Returns the customer's number. If the call doesn't have one, returns the number on the first
/// channel that the PBX itself called, but only if a lead has that number, because it may be the
/// company's.
fn client_phone(call: &FinishedCall, trunk: Option<&Trunk>, people: &People) -> Option<Phone> {
    let (phone, of_customer) = likely_phone(call, trunk)?;
    if of_customer {
        return Some(phone);
    }
    match people.lead_of_phone(&phone, trunk?) {
        LeadAnswer::One(..) | LeadAnswer::Two(..) => Some(phone),
        LeadAnswer::None(_) => None,
    }
}

/// Returns the first valid number of a call. `false` means that it might be the company's.
fn likely_phone(call: &FinishedCall, trunk: Option<&Trunk>) -> Option<(Phone, bool)> {
    for number in call.number.iter().chain(&call.more_numbers) {
        if let Some(phone) = normalize_number(number, trunk, call.direction) {
            return Some((phone, true));
        }
    }
    let shown = normalize_number(call.shown_number.as_ref()?, trunk, call.direction)?;
    Some((shown, false))
}

/// Returns the number whose lead [`judge`] looks up. With the numbers of several calls, the caller
/// can look them up together before it judges the calls ([`People::with_leads_of`]).
pub fn phone_to_look_up(call: &FinishedCall, pbx: &str, rules: &Rules) -> Option<Phone> {
    let (phone, of_customer) = likely_phone(call, trunk_of(call, pbx, rules))?;
    let is_lead_given = call.given.is_some_and(|given| given.lead.is_some());
    let is_asked = call.direction != Direction::Internal && !is_lead_given;
    (is_asked || !of_customer).then_some(phone)
}

fn normalize_number(
    number: &RawNumber,
    trunk: Option<&Trunk>,
    direction: Direction,
) -> Option<Phone> {
    let country = trunk.and_then(|trunk| trunk.country);
    let strip = trunk.and_then(|trunk| trunk.strip.as_deref());
    normalize(number, country, strip, direction)
}

/// Returns the outcome and reason for a call that isn't journaled because of a flag or because it's
/// internal, or `None` for any other call.
fn exclusion(
    call: &FinishedCall,
    trunk: Option<&Trunk>,
    limit: Option<EventTime>,
    figures: &Figures,
) -> Option<(Outcome, String)> {
    if call.direction == Direction::Internal {
        return Some((Outcome::Internal, "no trunk took part".to_owned()));
    }
    if let Some(trunk) = trunk {
        let name = &trunk.name;
        if !trunk.journal {
            return Some((Outcome::Skipped, format!("trunk {name} has journal=no")));
        }
        if trunk.keeps_out(call) {
            let why = format!("unanswered, and trunk {name} has unanswered=no");
            return Some((Outcome::Skipped, why));
        }
    }
    // An impossible start can't be compared with the limit.
    if let Some(limit) = limit
        && figures.wrong_start.is_none()
        && call.started < limit
    {
        let why = "began before --not-before or a file's from=".to_owned();
        return Some((Outcome::Skipped, why));
    }
    None
}

/// Returns an error in the call itself, such as an impossible start, which takes precedence over a
/// missing lead or employee. For a call from a message, the error refers to the message's field.
fn facts(call: &FinishedCall, figures: &Figures) -> Option<(Reason, String)> {
    let of_message = call.given.is_some();
    if let Some(why) = &figures.wrong_start {
        let allowed =
            "from the year 2000 to five minutes ahead of this machine's clock, in seconds";
        let why = field_error(of_message, "startedAt", why, allowed);
        return Some((Reason::InvalidEpoch, why));
    }
    if let Some(why) = &figures.wrong_end {
        let why = field_error(of_message, "durationSec", why, "the time since startedAt");
        return Some((Reason::InvalidEpoch, why));
    }
    if let Some(why) = &call.incomplete {
        return Some((Reason::Incomplete, why.clone()));
    }
    let why = figures.talk_excess.as_ref()?;
    let why = field_error(of_message, "talkSec", why, "at most durationSec");
    Some((Reason::TalkExceedsDuration, why))
}

fn field_error(of_message: bool, field: &str, why: &str, allowed: &str) -> String {
    if of_message {
        format!("{field}: {why}; it must be {allowed}")
    } else {
        why.to_owned()
    }
}

/// The CRM IDs of a call's lead and employee, or why they're missing.
#[derive(Default)]
struct CallOwners {
    /// The lead, along with a description of where it came from for `explain`.
    lead: Option<(LeadId, String)>,
    employee_id: Option<EmployeeId>,
    no_lead: Option<(Reason, String)>,
    /// A message saying that the extension has no employee, or `None` if the employee is known or
    /// the call has no extension.
    no_employee: Option<String>,
}

fn find_owners(
    call: &FinishedCall,
    trunk: Option<&Trunk>,
    (rules, people): (&Rules, &People),
    record: &CallRecord,
) -> CallOwners {
    let given = call.given.unwrap_or_default();
    let Some(trunk) = trunk else {
        if rules.forwards {
            return CallOwners::default();
        }
        let message = match (call.given, &call.trunk) {
            (Some(_), Some(name)) => format!(
                "trunk: no --trunk of PBX {} is called {name}; it must be the name of a \
                 --trunk, or left out",
                record.pbx
            ),
            (Some(_) | None, _) => {
                let name = record.trunk.as_deref().unwrap_or("?");
                format!("no --trunk is called {name} any more, so no rule gives a lead")
            }
        };
        return CallOwners {
            no_lead: Some((Reason::NoLead, message)),
            ..CallOwners::default()
        };
    };
    let mut owners = CallOwners::default();
    if let Some(lead) = given.lead.and_then(LeadId::new) {
        owners.lead = Some((lead, "as the message says".to_owned()));
    } else {
        match people.lead_of(call, record.client_phone.as_ref(), trunk) {
            LeadAnswer::One(lead, origin) => owners.lead = Some((lead, origin)),
            LeadAnswer::None(why) => {
                let why = explain_missing_lead(call, trunk, record, why);
                owners.no_lead = Some((Reason::NoLead, why));
            }
            LeadAnswer::Two(_, _, why) => owners.no_lead = Some((Reason::AmbiguousLead, why)),
        }
    }
    let left_to_hub = rules.forwards && trunk.leads.is_empty();
    if left_to_hub {
        owners.no_lead = None;
    }
    let extension = call.employee.as_ref();
    owners.employee_id = given
        .employee
        .and_then(EmployeeId::new)
        .or_else(|| people.employee_of(extension?, trunk));
    if owners.employee_id.is_none()
        && let Some(extension) = extension
    {
        let name = &trunk.name;
        owners.no_employee = Some(match trunk.employees {
            Some(_) => format!("extension {extension} is not among the employees of {name}"),
            None => format!("extension {extension}: trunk {name} has no employees"),
        });
    }
    owners
}

/// Adds the error in the message's phone number to `why`, the reason for the missing lead.
fn explain_missing_lead(
    call: &FinishedCall,
    trunk: &Trunk,
    record: &CallRecord,
    why: String,
) -> String {
    if call.given.is_none() || record.client_phone.is_some() {
        return why;
    }
    let wrong = match (&call.number, trunk.country) {
        (None, _) => "phone: it is null".to_owned(),
        (Some(_), Some(country)) => {
            format!(
                "phone: it is not a valid number ({} or international)",
                country.code()
            )
        }
        (Some(_), None) => "phone: it is not a number in E.164".to_owned(),
    };
    format!("{wrong}; it must be like +998901110001, or you can give a leadId. {why}")
}

impl CallOwners {
    /// Returns why the call can't be journaled yet, which is either that it has no lead or that it
    /// has no employee although one is required.
    fn missing(&self, employee_required: bool) -> Option<(Reason, String)> {
        if let Some(no_lead) = &self.no_lead {
            return Some(no_lead.clone());
        }
        if !employee_required {
            return None;
        }
        let why = self.no_employee.clone()?;
        Some((Reason::NoEmployee, why))
    }
}

/// Description of where a lead came from if a user set it in a retry.
pub const BY_HAND: &str = "given by hand, with a retry";

/// The employee chosen by a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmployeeChoice {
    Is(EmployeeId),
    /// The call is journaled without an employee.
    None,
}

/// Values that a user sets for a call in a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryValues {
    /// The call's lead, or `None` to use the one that the rules find now.
    pub lead: Option<LeadId>,
    /// The call's employee, or `None` to use the one in the lists now.
    pub employee: Option<EmployeeChoice>,
    /// Whether it was answered, talk time, and direction, for `incomplete` dead letters.
    pub said: Option<SuppliedFacts>,
}

impl RetryValues {
    /// Returns the text that's stored as the user's action: `retry with lead 4002, employee 501`.
    pub fn text(&self) -> String {
        let mut values = Vec::new();
        if let Some(lead) = self.lead {
            values.push(format!("lead {lead}"));
        }
        match self.employee {
            Some(EmployeeChoice::Is(id)) => values.push(format!("employee {id}")),
            Some(EmployeeChoice::None) => values.push("no employee".to_owned()),
            None => {}
        }
        let said = self.said.unwrap_or_default();
        match said.answered {
            Some(true) => values.push("answered".to_owned()),
            Some(false) => values.push("not answered".to_owned()),
            None => {}
        }
        if let Some(talk_sec) = said.talk_sec {
            values.push(format!("{talk_sec} s of talk"));
        }
        if let Some(direction) = said.direction {
            values.push(format!("direction {}", direction.word()));
        }
        if values.is_empty() {
            return "retry".to_owned();
        }
        format!("retry with {}", values.join(", "))
    }
}

/// Judges the stored call `old` again.
///
/// Its UUID, start, duration, and talk time are kept, while its lead and employee are looked up
/// again. `by` has the values that a user chose for a retry. Errors in the call itself, such as an
/// impossible start, aren't checked again, so a retry sends the stored values.
///
/// The outcome is [`Outcome::Journal`], or [`Outcome::DeadLetter`] if the lead or a required
/// employee is still missing.
pub fn remap(
    old: &CallRecord,
    call: &FinishedCall,
    by: Option<RetryValues>,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Judged {
    let trunk = match call.given {
        Some(_) => trunk_of(call, &old.pbx, rules),
        None => (old.trunk.as_deref()).and_then(|name| rules.trunks.find(&old.pbx, name)),
    };
    let mut record = old.clone();
    let mut known = call.clone();
    // The stored extension is used, even if the current rules would find a different one.
    known.employee = old.employee.clone().map(callbridge_call::Extension::new);
    if record.client_phone.is_none() {
        record.client_phone = client_phone(call, trunk, people);
    }
    let mut found = find_owners(&known, trunk, (rules, people), &record);
    let wish = by.unwrap_or_default();
    let lead = match wish.lead {
        Some(lead) => Some((lead, BY_HAND.to_owned())),
        None => found.lead.take(),
    };
    record.lead_id = lead.as_ref().map(|(lead, _)| *lead);
    record.lead_from = lead.map(|(_, origin)| origin);
    record.employee_id = match wish.employee {
        None => found.employee_id,
        Some(EmployeeChoice::None) => None,
        Some(EmployeeChoice::Is(employee)) => Some(employee),
    };
    if record.lead_id.is_some() {
        found.no_lead = None;
    }
    let missing = found.missing(rules.require_employee && wish.employee.is_none());
    let mut judged = Judged::journaled(record, now);
    if let Some((reason, message)) = missing {
        judged.outcome = Outcome::DeadLetter;
        judged.reason = Some(reason);
        judged.message = message;
    }
    judged
}

#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod tests;
