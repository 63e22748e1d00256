//! Admin paths for leads: `POST /sandbox/admin/lead…` and `GET /sandbox/leads`.
//!
//! ```text
//! lead          {"id"?, "name", "phone" or "phones" or "contacts": [{"name", "phones": []}],
//!                "statusId", "pipeId", "responsibleId", "balance", "currency", "uuid",
//!                "fields": {"11": "x", "14": ["a", "b"]}}: a new one
//! lead/update   {"id", …} with any of these fields; others stay, and null clears a field
//! lead/merge    {"into": 4001, "from": [4002, 4003]}
//! lead/delete   {"id": 4001}
//! ```
//!
//! Each body can have a `company`. Without this field, the first company is meant. The answer is
//! the lead, except for a deletion.

use crate::{
    AdminAnswer, Contact, Lead, Sandbox, body::is_phone, body::needed, body::read, lead::act,
    lead::catalog::stage, lead::record::upsert,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The fields of a request body of the paths below `/sandbox/admin/lead`. Each path reads only some
/// of the fields.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Order {
    company: Option<i64>,
    id: Option<i64>,
    into: Option<i64>,
    from: Vec<i64>,
    name: Option<String>,
    phone: Option<String>,
    phones: Vec<String>,
    /// Values by field id: one value, a list of values, or null to clear the field.
    fields: BTreeMap<i64, Value>,
    /// Other properties of the lead, by their names in [`Lead`], such as `statusId`.
    #[serde(flatten)]
    properties: Map<String, Value>,
}

/// Answers `admin/lead` and the paths below it. Returns null if there is no such path.
pub fn administer(core: &mut Sandbox, act: &str, body: &[u8]) -> AdminAnswer {
    let order: Order = read(body)?;
    let company = order.company.unwrap_or(core.settings.company.id);
    if !core.companies.contains_key(&company) {
        return Err(format!("there is no company {company}"));
    }
    match act {
        "lead" => create(core, company, order),
        "lead/update" => {
            let lead = existing(core, company, needed(order.id, "id")?)?;
            let lead = laid_over(core, company, lead, order)?;
            Ok(act::save_lead(core, core.now, company, lead).record())
        }
        "lead/merge" => merge(core, company, order),
        "lead/delete" => {
            let lead = existing(core, company, needed(order.id, "id")?)?.id;
            act::delete_lead(core, core.now, company, lead);
            Ok(json!({ "done": act }))
        }
        _ => Ok(Value::Null),
    }
}

fn create(core: &mut Sandbox, company: i64, order: Order) -> AdminAnswer {
    let id = match order.id {
        Some(id) if act::find_lead(core, company, id).is_some_and(|lead| lead.uuid.is_some()) => {
            return Err(format!("lead {id} is there already: use lead/update"));
        }
        Some(id) if id > 0 => id,
        Some(id) => return Err(format!("`{id}` is not the id of a lead")),
        None => {
            let free = core.leads.free_id(&core.companies);
            free.ok_or("no id is left")?
        }
    };
    if core.leads.is_gone(company, id) {
        return Err(format!("lead {id} was merged or deleted: its id is spent"));
    }
    let lead = laid_over(core, company, Lead::fresh(id), order)?;
    Ok(act::save_lead(core, core.now, company, lead).record())
}

fn merge(core: &mut Sandbox, company: i64, order: Order) -> AdminAnswer {
    let into = existing(core, company, needed(order.into, "into")?)?.id;
    let from = order.from;
    for &id in &from {
        existing(core, company, id)?;
    }
    if from.is_empty() || from.contains(&into) {
        return Err("`from`: one lead or more, and not `into` itself".to_owned());
    }
    act::merge(core, core.now, company, into, &from);
    Ok(existing(core, company, into)?.record())
}

fn existing(core: &Sandbox, company: i64, id: i64) -> Result<Lead, String> {
    act::find_lead(core, company, id).ok_or_else(|| format!("there is no lead {id}"))
}

/// Lists the leads of all companies, with all their data.
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

/// Returns the lead with the values of the order. `phone` and `phones` replace all contacts with
/// the main contact, which keeps its id and gets these phones. Fails if a person could not save the
/// lead.
fn laid_over(core: &Sandbox, company: i64, lead: Lead, order: Order) -> Result<Lead, String> {
    let mut record = json!(lead);
    for (name, value) in &order.properties {
        record[name] = value.clone();
    }
    let mut next: Lead = serde_json::from_value(record).map_err(|error| error.to_string())?;
    if let Some(name) = &order.name {
        next.name.clone_from(name);
    }
    if let Some(stage) = stage(next.status_id)
        && !order.properties.contains_key("pipeId")
    {
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
    let phones: Vec<String> = order.phone.into_iter().chain(order.phones).collect();
    if !phones.is_empty() {
        let mut contact = next.contacts.into_iter().next().unwrap_or_default();
        contact.name = order.name.unwrap_or(contact.name);
        next.contacts = vec![Contact { phones, ..contact }];
    }
    let values = order.fields.into_iter().map(|(id, value)| match value {
        Value::Null => (id, Vec::new()),
        Value::Array(list) => (id, list),
        scalar => (id, vec![scalar]),
    });
    upsert(&mut next.fields, &values.collect());
    check(core, company, &next)?;
    Ok(next)
}

/// Returns an error if a person could not save the lead in the CRM, for example because its name is
/// empty.
fn check(core: &Sandbox, company: i64, lead: &Lead) -> Result<(), String> {
    if lead.name.trim().is_empty() {
        return Err("`name` is empty".to_owned());
    }
    if lead.status_id.is_some() && stage(lead.status_id).is_none() {
        return Err("`statusId`: no such stage".to_owned());
    }
    let employees = core.companies.get(&company).map(|own| &own.employees);
    if let Some(id) = lead.responsible_id
        && !employees.is_some_and(|employees| employees.contains(id))
    {
        return Err("unknown employeeId".to_owned());
    }
    let mut phones = lead.contacts.iter().flat_map(|contact| &contact.phones);
    match phones.find(|phone| !is_phone(phone)) {
        Some(phone) => Err(format!("`{phone}` is not a number such as +998901112233")),
        None => Ok(()),
    }
}
