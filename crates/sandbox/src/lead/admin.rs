//! What a person does to leads in the CRM: `POST /sandbox/admin/lead…`, `GET /sandbox/leads`.
//!
//! ```text
//! lead          {"id"?, "name", "phone" or "phones" or "contacts": [{"name", "phones": []}],
//!                "statusId", "pipeId", "responsibleId", "balance", "currency", "uuid",
//!                "fields": {"11": "x", "14": ["a", "b"]}}: a new one
//! lead/update   {"id", …} with any of the same; what is not named stays, a field's null clears
//! lead/merge    {"into": 4001, "from": [4002, 4003]}
//! lead/delete   {"id": 4001}
//! ```
//!
//! Each takes a `company` beside; without one the first company is meant. An answer is the lead.

use super::act::{self, fresh};
use super::catalogue::stage;
use super::record::{Contact, FieldValues, Lead};
use super::store::LeadChange;
use crate::admin::{AdminAnswer, ids, text, whole};
use crate::body::is_phone;
use crate::core::{Change, Sandbox};
use callbridge_call::EventTime;
use serde_json::{Map, Value, json};

/// Answers `admin/lead` and what lies below it; null for no such path.
pub fn administer(
    core: &mut Sandbox,
    now: EventTime,
    act: &str,
    fields: &Map<String, Value>,
) -> AdminAnswer {
    let company = whole(fields, "company")?.unwrap_or(core.settings.company.id);
    if !core.companies.contains_key(&company) {
        return Err(format!("there is no company {company}"));
    }
    match act {
        "lead" => create(core, now, company, fields),
        "lead/update" => {
            let lead = existing(core, company, needed(fields, "id")?)?;
            let lead = laid_over(core, company, lead, fields)?;
            Ok(save(core, now, company, lead))
        }
        "lead/merge" => merge(core, now, company, fields),
        "lead/delete" => {
            let lead = existing(core, company, needed(fields, "id")?)?.id;
            core.change(now, Change::Lead(LeadChange::Deleted { company, lead }));
            Ok(json!({ "done": act }))
        }
        _ => Ok(Value::Null),
    }
}

fn create(
    core: &mut Sandbox,
    now: EventTime,
    company: i64,
    fields: &Map<String, Value>,
) -> AdminAnswer {
    let id = match whole(fields, "id")? {
        Some(id) if act::find_lead(core, company, id).is_some_and(|lead| lead.uuid.is_some()) => {
            return Err(format!("lead {id} is there already: use lead/update"));
        }
        Some(id) if id > 0 => id,
        Some(id) => return Err(format!("`{id}` is no id of a lead")),
        None => {
            let free = core.leads.free_id(&core.companies);
            free.ok_or("no id is left")?
        }
    };
    if core.leads.is_gone(company, id) {
        return Err(format!("lead {id} was merged or deleted: its id is spent"));
    }
    let lead = laid_over(core, company, fresh(id), fields)?;
    Ok(save(core, now, company, lead))
}

fn merge(
    core: &mut Sandbox,
    now: EventTime,
    company: i64,
    fields: &Map<String, Value>,
) -> AdminAnswer {
    let into = existing(core, company, needed(fields, "into")?)?.id;
    let from = ids(fields, "from")?;
    for &id in &from {
        existing(core, company, id)?;
    }
    if from.is_empty() || from.contains(&into) {
        return Err("`from`: one lead or more, and not `into` itself".to_owned());
    }
    let change = LeadChange::Merged {
        company,
        into,
        from,
    };
    core.change(now, Change::Lead(change));
    Ok(shown(core, company, into))
}

fn needed(fields: &Map<String, Value>, name: &str) -> Result<i64, String> {
    whole(fields, name)?.ok_or_else(|| format!("`{name}` is missing"))
}

fn existing(core: &Sandbox, company: i64, id: i64) -> Result<Lead, String> {
    act::find_lead(core, company, id).ok_or_else(|| format!("there is no lead {id}"))
}

fn save(core: &mut Sandbox, now: EventTime, company: i64, lead: Lead) -> Value {
    let id = lead.id;
    let lead = Box::new(lead);
    core.change(now, Change::Lead(LeadChange::Saved { company, lead }));
    shown(core, company, id)
}

fn shown(core: &Sandbox, company: i64, id: i64) -> Value {
    let lead = act::find_lead(core, company, id);
    lead.map_or(Value::Null, |lead| lead.record())
}

/// Every lead of every company, with all that is known.
pub fn all(core: &Sandbox) -> Value {
    let mut rows = Vec::new();
    for company in core.companies.values() {
        for lead in core.leads.all(company) {
            let mut row = lead.record();
            row["companyId"] = json!(company.id);
            rows.push(row);
        }
    }
    Value::Array(rows)
}

/// A lead with what is given laid over its properties; `phone` and `phones` are those of its main
/// contact, which stays the one it was.
fn laid_over(
    core: &Sandbox,
    company: i64,
    lead: Lead,
    given: &Map<String, Value>,
) -> Result<Lead, String> {
    let mut record = json!(lead);
    for (name, value) in given {
        if !["id", "fields"].contains(&name.as_str()) {
            record[name] = value.clone();
        }
    }
    let mut next: Lead = serde_json::from_value(record).map_err(|error| error.to_string())?;
    if let Some(stage) = stage(next.status_id).filter(|_| !given.contains_key("pipeId")) {
        next.pipe_id = Some(stage.pipe);
    }
    for (contact, was) in next.contacts.iter_mut().zip(&lead.contacts) {
        if contact.id == 0 {
            contact.id = was.id;
        }
        if contact.name.is_empty() {
            contact.name.clone_from(&was.name);
        }
    }
    let phones = phones(given)?;
    if !phones.is_empty() {
        let mut contact = next.contacts.into_iter().next().unwrap_or_default();
        if let Some(name) = text(given, "name")? {
            name.clone_into(&mut contact.name);
        }
        next.contacts = vec![Contact { phones, ..contact }];
    }
    if let Some(fields) = given.get("fields") {
        act::upsert(&mut next.fields, &field_values(fields)?);
    }
    check(core, company, &next)?;
    Ok(next)
}

fn phones(given: &Map<String, Value>) -> Result<Vec<String>, String> {
    let mut phones: Vec<String> = text(given, "phone")?
        .into_iter()
        .map(str::to_owned)
        .collect();
    if let Some(list) = given.get("phones") {
        let list: Vec<String> =
            serde_json::from_value(list.clone()).map_err(|error| format!("`phones`: {error}"))?;
        phones.extend(list);
    }
    Ok(phones)
}

/// `{"11": "x", "14": ["a", "b"], "12": null}`
fn field_values(fields: &Value) -> Result<FieldValues, String> {
    let map = fields.as_object().ok_or("`fields`: an object expected")?;
    let values = map.iter().map(|(id, value)| {
        let id: i64 = id
            .parse()
            .map_err(|_| format!("`{id}` is no id of a field"))?;
        let values = match value {
            Value::Null => Vec::new(),
            Value::Array(list) => list.clone(),
            scalar => vec![scalar.clone()],
        };
        Ok((id, values))
    });
    values.collect()
}

/// What a person could not save in the CRM.
fn check(core: &Sandbox, company: i64, lead: &Lead) -> Result<(), String> {
    if lead.name.trim().is_empty() {
        return Err("`name` is empty".to_owned());
    }
    if lead.status_id.is_some() && stage(lead.status_id).is_none() {
        return Err("`statusId`: no such stage".to_owned());
    }
    let employees = core.companies.get(&company).map(|own| &own.employees);
    let known = |id| employees.is_some_and(|employees| employees.contains(id));
    if lead.responsible_id.is_some_and(|id| !known(id)) {
        return Err("unknown employeeId".to_owned());
    }
    let mut phones = lead.contacts.iter().flat_map(|contact| &contact.phones);
    match phones.find(|phone| !is_phone(phone)) {
        Some(phone) => Err(format!("`{phone}` is no number such as +998901112233")),
        None => Ok(()),
    }
}
