//! A dead letter judged anew: at a person's request, or because its lead became known.

use super::{Rules, who};
use crate::people::People;
use callbridge_call::{EventTime, FinishedCall};
use callbridge_model::{CallRecord, EmployeeId, Judged, LeadId, Outcome, Said};
use serde::{Deserialize, Serialize};

/// Origin, in a record, of a lead that a person gave with a retry.
pub const BY_HAND: &str = "given by hand, with a retry";

/// The employee that a person asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmployeeWish {
    /// The employee with this id of the CRM.
    Is(EmployeeId),
    /// The call is journaled without an employee.
    None,
}

/// Values that a person sets for a call with a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Lead to journal it under; `None` for the one that the rules give now.
    pub lead: Option<LeadId>,
    /// Employee to journal it under; `None` for the one that the lists give now.
    pub employee: Option<EmployeeWish>,
    /// Answer and length of talk, for letters `incomplete`.
    pub said: Option<Said>,
}

impl Wish {
    /// For the letter's acts: `retry with lead 4002, employee 501`.
    pub fn words(&self) -> String {
        let lead = self.lead.map(|lead| format!("lead {lead}"));
        let employee = self.employee.map(|employee| match employee {
            EmployeeWish::Is(id) => format!("employee {id}"),
            EmployeeWish::None => "no employee".to_owned(),
        });
        let answered = self.said.and_then(|said| said.answered);
        let answered = answered.map(|answered| match answered {
            true => "answered".to_owned(),
            false => "not answered".to_owned(),
        });
        let talk = self.said.and_then(|said| said.talk_sec);
        let talk = talk.map(|talk| format!("{talk} s of talk"));
        let with = [lead, employee, answered, talk].into_iter().flatten();
        match with.collect::<Vec<_>>().join(", ").as_str() {
            "" => "retry".to_owned(),
            with => format!("retry with {with}"),
        }
    }
}

/// Judges a kept call anew: its uuid, start, duration and talk stay as they were put down, its lead
/// and employee are asked for again. `by` is `None` for a release from parking, which only a known
/// lead (and employee, where one is required) brings about; a person's retry also sends a call that
/// was dead for its facts, with the values it was shown with.
///
/// The outcome is [`Outcome::Journal`], or [`Outcome::DeadLetter`] with what is still missing.
pub fn remap(
    old: &CallRecord,
    call: &FinishedCall,
    by: Option<Wish>,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Judged {
    let trunk = match call.given {
        Some(_) => super::words::trunk_of(call, &old.pbx, rules),
        None => {
            let name = old.trunk.as_deref();
            name.and_then(|name| rules.trunks.find(&old.pbx, name))
        }
    };
    let mut record = old.clone();
    let mut known = call.clone();
    // What was put down then is what counts: a later version may tell calls otherwise.
    known.employee = old.employee.clone().map(callbridge_call::Extension::new);
    if record.client_phone.is_none() {
        let shown = || super::shown_to_a_lead(call, trunk, people);
        record.client_phone = super::phone_of(call, trunk).or_else(shown);
    }
    let mut found = who(&known, trunk, (rules, people), &record);
    let wish = by.unwrap_or_default();
    (record.lead_id, record.lead_from) = match wish.lead {
        Some(lead) => (Some(lead), Some(BY_HAND.to_owned())),
        None => (found.lead_id, found.lead_from.take()),
    };
    record.employee_id = match wish.employee {
        None => found.employee_id,
        Some(EmployeeWish::None) => None,
        Some(EmployeeWish::Is(employee)) => Some(employee),
    };
    found.no_lead = found.no_lead.filter(|_| record.lead_id.is_none());
    let missing = found.missing(rules.require_employee && wish.employee.is_none());
    let mut judged = Judged::journaled(record, now);
    if let Some((reason, message)) = missing {
        judged.outcome = Outcome::DeadLetter;
        (judged.reason, judged.message) = (Some(reason), message);
    }
    judged
}
