//! Maps a finished call to the values for the CRM's journal.
//!
//! The input is a [`FinishedCall`], the administrator's flags ([`Rules`]), the lists of leads and
//! employees ([`People`]), and `now`. The output is [`Judged`]. The code uses no clock, file, or
//! socket, and the same call always has the same uuid. A dead letter is judged again ([`remap`]) if
//! a person requests it, or if its lead becomes known.
//!
//! | module | what it contains |
//! |---|---|
//! | [`figures`] | uuid, start, duration, talk |

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
    /// All trunks that `--trunk` names.
    pub trunks: Trunks,
    /// Rules for messages without a trunk: the flags that apply to all of them.
    pub without_trunk: Option<Trunk>,
    /// Calls that began earlier are skipped (`--not-before`).
    pub not_before: Option<EventTime>,
    /// Earliest start for single PBXs, by their id (`from=DATE` of a file).
    pub since: BTreeMap<String, EventTime>,
    /// Country of the CRM's numbers without a country code: `--country`, or the only country of the
    /// trunks.
    pub country: Option<Country>,
    /// A call waits if its extension has no employee (`--require-employee`).
    pub require_employee: bool,
    /// Calls go to a hub (`--forward`), which can know the lead. Without a lead rule, a trunk
    /// leaves it to the hub.
    pub forwards: bool,
}

impl Rules {
    /// Returns every trunk whose rules can apply to a call, including the one for messages without
    /// a trunk.
    pub fn every_trunk(&self) -> impl Iterator<Item = &Trunk> {
        self.trunks.iter().chain(&self.without_trunk)
    }

    /// Returns the earliest start of journaled calls of this PBX. `None` without a limit.
    fn limit(&self, pbx: &str) -> Option<EventTime> {
        // `pbx1/branch` is a second PBX on the stream of `pbx1`.
        let of_source = pbx.split('/').next().and_then(|root| self.since.get(root));
        let own = self.since.get(pbx).or(of_source);
        self.not_before.max(own.copied())
    }
}

/// Judges a finished call of this PBX. `now` is the wall clock's time, or for a recording the time
/// of the last event. It is used as the call's time of arrival.
pub fn judge(
    call: &FinishedCall,
    pbx: &str,
    rules: &Rules,
    people: &People,
    now: EventTime,
) -> Judged {
    let trunk = trunk_of(call, pbx, rules);
    let figures = Figures::of(call, now);
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
    let (outcome, reason, message) = match left_out(call, trunk, limit, &figures) {
        Some((outcome, why)) => {
            record.uuid = None;
            (outcome, None, why)
        }
        None => {
            let who = who(call, trunk, (rules, people), &record);
            (record.lead_id, record.lead_from) = who.lead.clone().unzip();
            record.employee_id = who.employee_id;
            let listed = trunk.is_some_and(|trunk| trunk.employees.is_some());
            remarks.extend(who.no_employee.clone().filter(|_| listed));
            let missing = || who.missing(rules.require_employee);
            match facts(call, &figures, now).or_else(missing) {
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
        kept_out_unanswered: called_in && trunk.is_some_and(|it| it.journal && it.keeps_out(call)),
        ..Judged::journaled(record, now)
    }
}

/// Returns the trunk whose rules apply to a call. A message can have no trunk, or come from a PBX
/// without trunks. The rules without a trunk apply to these.
fn trunk_of<'a>(call: &FinishedCall, pbx: &str, rules: &'a Rules) -> Option<&'a Trunk> {
    let without = (rules.without_trunk.as_ref()).filter(|_| call.given.is_some());
    let Some(name) = call.trunk.as_deref() else {
        return without;
    };
    let has_none = || rules.trunks.of_pbx(pbx).next().is_none();
    let found = rules.trunks.find(pbx, name);
    found.or_else(|| without.filter(|_| has_none()))
}

/// Returns the customer's number. Without one, the number on the first channel that the PBX itself
/// called. That can be the company's own, but if a lead has it, it is the customer's.
fn client_phone(call: &FinishedCall, trunk: Option<&Trunk>, people: &People) -> Option<Phone> {
    for number in call.number.iter().chain(&call.more_numbers) {
        if let Some(phone) = normalized(number, trunk, call.direction) {
            return Some(phone);
        }
    }
    let phone = normalized(call.shown_number.as_ref()?, trunk, call.direction)?;
    match people.lead_of_phone(&phone, trunk?) {
        LeadAnswer::One(..) | LeadAnswer::Two(..) => Some(phone),
        LeadAnswer::None(_) => None,
    }
}

fn normalized(number: &RawNumber, trunk: Option<&Trunk>, direction: Direction) -> Option<Phone> {
    let country = trunk.and_then(|trunk| trunk.country);
    let strip = trunk.and_then(|trunk| trunk.strip.as_deref());
    normalize(number, country, strip, direction)
}

/// Returns outcome and reason of a call that is not journaled because of a flag or because it is
/// internal. `None` for any other.
fn left_out(
    call: &FinishedCall,
    trunk: Option<&Trunk>,
    limit: Option<EventTime>,
    figures: &Figures,
) -> Option<(Outcome, String)> {
    if call.direction == Direction::Internal {
        return Some((Outcome::Internal, "no trunk took part".to_owned()));
    }
    let skipped = |why: String| Some((Outcome::Skipped, why));
    if let Some(trunk) = trunk {
        if !trunk.journal {
            return skipped(format!("trunk {} has journal=no", trunk.name));
        }
        if trunk.keeps_out(call) {
            let name = &trunk.name;
            return skipped(format!("unanswered, and trunk {name} has unanswered=no"));
        }
    }
    // An impossible start is neither before nor after.
    let limit = limit.filter(|_| figures.wrong_start.is_none())?;
    (call.started < limit).then_some(())?;
    skipped("began before --not-before or a file's from=".to_owned())
}

/// Finds an error of the call itself. These errors come before the search for lead and employee.
/// Errors of a message name its field.
fn facts(call: &FinishedCall, figures: &Figures, now: EventTime) -> Option<(Reason, String)> {
    let of_message = call.given.is_some();
    let named = |field: &str, why: &str, allowed: &str| {
        if of_message {
            format!("{field}: {why}; it must be {allowed}")
        } else {
            why.to_owned()
        }
    };
    let started = figures.wrong_start.as_ref().map(|why| {
        let allowed =
            "from the year 2000 to five minutes ahead of this machine's clock, in seconds";
        named("startedAt", why, allowed)
    });
    let ended = figures::wrong_start(call.ended, now).filter(|_| of_message);
    let ended = ended.map(|_| {
        let ahead = call.ended.since(now).as_secs();
        let why = format!("the call would end {ahead} s ahead of this machine's clock");
        named("durationSec", &why, "the time since startedAt")
    });
    let excess = figures.talk_excess.as_ref();
    let excess = excess.map(|why| named("talkSec", why, "at most durationSec"));
    let faults = [
        (Reason::InvalidEpoch, started.or(ended)),
        (Reason::Incomplete, call.incomplete.clone()),
        (Reason::TalkExceedsDuration, excess),
    ];
    let mut faults = faults.into_iter();
    faults.find_map(|(reason, why)| Some((reason, why?)))
}

/// Lead and employee of a call by their CRM ids, or why they are missing.
#[derive(Default)]
struct Who {
    /// The lead, and text for its origin, as `explain` shows it.
    lead: Option<(LeadId, String)>,
    employee_id: Option<EmployeeId>,
    no_lead: Option<(Reason, String)>,
    /// Message that the extension has no employee. `None` if an employee is known, and if the call
    /// has no extension.
    no_employee: Option<String>,
}

fn who(
    call: &FinishedCall,
    trunk: Option<&Trunk>,
    (rules, people): (&Rules, &People),
    record: &CallRecord,
) -> Who {
    let given = call.given.unwrap_or_default();
    let Some(trunk) = trunk else {
        if rules.forwards {
            return Who::default();
        }
        let words = match (call.given, &call.trunk) {
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
        return Who {
            no_lead: Some((Reason::NoLead, words)),
            ..Who::default()
        };
    };
    let by_rules = || match people.lead_of(call, record.client_phone.as_ref(), trunk) {
        LeadAnswer::One(lead, why) => Ok((lead, why)),
        LeadAnswer::None(why) => Err((Reason::NoLead, without_lead(call, trunk, record, why))),
        LeadAnswer::Two(_, _, why) => Err((Reason::AmbiguousLead, why)),
    };
    let said = given.lead.and_then(LeadId::new);
    let said = said.map(|lead| Ok((lead, "as the message says".to_owned())));
    let (lead, no_lead) = match said.unwrap_or_else(by_rules) {
        Ok(lead) => (Some(lead), None),
        Err(why) => (None, Some(why)),
    };
    let extension = call.employee.as_ref();
    let said = given.employee.and_then(EmployeeId::new);
    let employee_id =
        said.or_else(|| extension.and_then(|extension| people.employee_of(extension, trunk)));
    let unknown = extension.filter(|_| employee_id.is_none());
    let name = &trunk.name;
    let no_employee = unknown.map(|extension| match trunk.employees {
        Some(_) => format!("extension {extension} is not among the employees of {name}"),
        None => format!("extension {extension}: trunk {name} has no employees"),
    });
    let left_to_hub = rules.forwards && trunk.leads.is_empty();
    Who {
        lead,
        employee_id,
        no_lead: if left_to_hub { None } else { no_lead },
        no_employee,
    }
}

/// Adds the error of the message's phone to `why`, the reason for a missing lead.
fn without_lead(call: &FinishedCall, trunk: &Trunk, record: &CallRecord, why: String) -> String {
    if call.given.is_none() || record.client_phone.is_some() {
        return why;
    }
    let wrong = match (&call.number, trunk.country) {
        (None, _) => "phone: it is null".to_owned(),
        (Some(_), Some(it)) => {
            format!(
                "phone: it is not a valid number ({} or international)",
                it.code()
            )
        }
        (Some(_), None) => "phone: it is not a number in E.164".to_owned(),
    };
    format!("{wrong}; it must be like +998901110001, or you can give a leadId. {why}")
}

impl Who {
    /// Returns the reason why the call cannot be journaled yet: no lead, or no employee although
    /// one is required.
    fn missing(&self, employee: bool) -> Option<(Reason, String)> {
        let no_employee = self.no_employee.as_ref().filter(|_| employee);
        let no_employee = no_employee.map(|why| (Reason::NoEmployee, why.clone()));
        self.no_lead.clone().or(no_employee)
    }
}

/// Origin of a lead that a person set with a retry.
pub const BY_HAND: &str = "given by hand, with a retry";

/// The employee that a person chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EmployeeChoice {
    Is(EmployeeId),
    /// The call is journaled without an employee.
    None,
}

/// Values that a person sets for a call with a retry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryValues {
    /// Lead for the call. `None` for the current one of the rules.
    pub lead: Option<LeadId>,
    /// Employee for the call. `None` for the current one of the lists.
    pub employee: Option<EmployeeChoice>,
    /// Answer, talk time, and direction, for dead letters `incomplete`.
    pub said: Option<SuppliedFacts>,
}

impl RetryValues {
    /// Returns text for the actions: `retry with lead 4002, employee 501`.
    pub fn words(&self) -> String {
        let lead = self.lead.map(|lead| format!("lead {lead}"));
        let employee = self.employee.map(|employee| match employee {
            EmployeeChoice::Is(id) => format!("employee {id}"),
            EmployeeChoice::None => "no employee".to_owned(),
        });
        let answered = self.said.and_then(|said| said.answered);
        let answered = answered.map(|it| if it { "answered" } else { "not answered" }.to_owned());
        let talk = self.said.and_then(|said| said.talk_sec);
        let talk = talk.map(|talk| format!("{talk} s of talk"));
        let direction = self.said.and_then(|said| said.direction);
        let direction = direction.map(|direction| format!("direction {}", direction.word()));
        let with = [lead, employee, answered, talk, direction]
            .into_iter()
            .flatten();
        match with.collect::<Vec<_>>().join(", ").as_str() {
            "" => "retry".to_owned(),
            with => format!("retry with {with}"),
        }
    }
}

/// Judges a stored call again. Its uuid, start, duration and talk stay, and its lead and employee
/// are looked up again. Without `by`, the call is only released if its lead, and a required
/// employee, are known now. A person's retry also sends a call that was dead because of its facts,
/// with the displayed values.
///
/// The outcome is [`Outcome::Journal`], or [`Outcome::DeadLetter`] with what is still missing.
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
    // The stored values count, even if the current rules would give others.
    known.employee = old.employee.clone().map(callbridge_call::Extension::new);
    if record.client_phone.is_none() {
        record.client_phone = client_phone(call, trunk, people);
    }
    let mut found = who(&known, trunk, (rules, people), &record);
    let wish = by.unwrap_or_default();
    (record.lead_id, record.lead_from) = match wish.lead {
        Some(lead) => (Some(lead), Some(BY_HAND.to_owned())),
        None => found.lead.take().unzip(),
    };
    record.employee_id = match wish.employee {
        None => found.employee_id,
        Some(EmployeeChoice::None) => None,
        Some(EmployeeChoice::Is(employee)) => Some(employee),
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

#[cfg(test)]
mod message_tests;
#[cfg(test)]
mod tests;
