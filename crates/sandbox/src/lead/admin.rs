//! What a person does to leads in the CRM: `POST /sandbox/admin/lead…`, `GET /sandbox/leads`.
//!
//! ```text
//! lead          {"id"?, "name", "phone" or "phones" or "contacts": [{"name", "phones": []}],
//!                "statusId", "pipeId", "responsibleId", "balance", "currency", "uuid", "source",
//!                "fields": {"11": "x", "14": ["a", "b"]}}: a new one
//! lead/update   {"id", …} with any of the same; what is not named stays, a field's null clears
//! lead/merge    {"into": 4001, "from": [4002, 4003]}
//! lead/delete   {"id": 4001}
//! ```
//!
//! Each takes a `company` beside; without one the first company is meant. An answer is the lead.

use super::act::fresh;
use super::order::Draft;
use super::record::{Contact, FieldValues, Lead};
use super::store::LeadChange;
use super::{body, order};
use crate::admin::AdminAnswer;
use crate::body::BodyFields;
use crate::core::{Change, Sandbox};
use crate::lead::act;
use crate::shapes::LeadRows;
use callbridge_call::EventTime;
use serde_json::{Map, Value, json};

/// Answers `admin/lead` and what lies below it; `None` for another path.
pub fn answer(
    core: &mut Sandbox,
    now: EventTime,
    act: &str,
    fields: &Map<String, Value>,
) -> Option<AdminAnswer> {
    let mut fields = BodyFields::new(fields.clone());
    Some(match act {
        "lead" => create(core, now, &mut fields),
        "lead/update" => update(core, now, &mut fields),
        "lead/merge" => merge(core, now, &mut fields),
        "lead/delete" => delete(core, now, &mut fields),
        _ => return None,
    })
}

fn create(core: &mut Sandbox, now: EventTime, fields: &mut BodyFields) -> AdminAnswer {
    let company = company(core, fields)?;
    let draft = draft(core, fields)?;
    let id = match draft.id {
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
    let wanted = order::Draft { id: None, ..draft };
    let lead = act::laid_over(core, company, fresh(id), &wanted)?;
    Ok(save(core, now, company, lead))
}

fn update(core: &mut Sandbox, now: EventTime, fields: &mut BodyFields) -> AdminAnswer {
    let company = company(core, fields)?;
    let mut wanted = draft(core, fields)?;
    let id = wanted.id.ok_or("`id` is missing")?;
    let lead = act::find_lead(core, company, id).ok_or_else(|| missing(id))?;
    if let Some(contacts) = &mut wanted.contacts {
        // The main contact stays the one it was: its phone is another now.
        for (contact, was) in contacts.iter_mut().zip(&lead.contacts) {
            if contact.id == 0 {
                contact.id = was.id;
            }
            if contact.name.is_empty() {
                contact.name.clone_from(&was.name);
            }
        }
    }
    let lead = act::laid_over(core, company, lead, &wanted)?;
    Ok(save(core, now, company, lead))
}

fn merge(core: &mut Sandbox, now: EventTime, fields: &mut BodyFields) -> AdminAnswer {
    let company = company(core, fields)?;
    let into = whole(fields, "into")?.ok_or("`into` is missing")?;
    let list = fields
        .list("from")
        .map_err(|_| "`from`: a list of leads expected")?;
    let from: Vec<i64> = list
        .into_iter()
        .flatten()
        .filter_map(|id| id.as_i64())
        .collect();
    for &id in from.iter().chain([&into]) {
        act::find_lead(core, company, id).ok_or_else(|| missing(id))?;
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

fn delete(core: &mut Sandbox, now: EventTime, fields: &mut BodyFields) -> AdminAnswer {
    let company = company(core, fields)?;
    let lead = whole(fields, "id")?.ok_or("`id` is missing")?;
    act::find_lead(core, company, lead).ok_or_else(|| missing(lead))?;
    core.change(now, Change::Lead(LeadChange::Deleted { company, lead }));
    Ok(json!({ "done": "lead/delete" }))
}

fn missing(id: i64) -> String {
    format!("there is no lead {id}")
}

fn save(core: &mut Sandbox, now: EventTime, company: i64, lead: Lead) -> Value {
    let id = lead.id;
    let lead = Box::new(lead);
    core.change(now, Change::Lead(LeadChange::Saved { company, lead }));
    shown(core, company, id)
}

fn shown(core: &Sandbox, company: i64, id: i64) -> Value {
    let lead = act::find_lead(core, company, id);
    lead.map_or(Value::Null, |lead| lead.record(LeadRows::Full))
}

/// Every lead of every company, with all that is known.
pub fn all(core: &Sandbox) -> Value {
    let mut rows = Vec::new();
    for company in core.companies.values() {
        for lead in core.leads.all(company) {
            let mut row = lead.record(LeadRows::Full);
            row["companyId"] = json!(company.id);
            rows.push(row);
        }
    }
    Value::Array(rows)
}

fn company(core: &Sandbox, fields: &mut BodyFields) -> Result<i64, String> {
    let id = whole(fields, "company")?.unwrap_or(core.settings.company.id);
    let known = core.companies.contains_key(&id);
    known
        .then_some(id)
        .ok_or_else(|| format!("there is no company {id}"))
}

fn whole(fields: &mut BodyFields, name: &str) -> Result<Option<i64>, String> {
    fields
        .integer(name, i64::MAX)
        .map_err(|_| format!("`{name}`: number expected"))
}

/// As POST lead, with `phone` and `phones` of the main contact, and `fields` as an object too.
fn draft(core: &Sandbox, fields: &mut BodyFields) -> Result<Draft, String> {
    let upserts = match fields.map.get("fields") {
        Some(Value::Object(map)) => {
            let upserts = field_values(map)?;
            fields.map.remove("fields");
            upserts
        }
        _ => FieldValues::new(),
    };
    let phones: Vec<Value> = match fields.map.remove("phone") {
        None => Vec::new(),
        Some(Value::Null) => vec![Value::Null],
        Some(phone) => vec![phone],
    };
    let more = fields.map.remove("phones");
    let more = more
        .as_ref()
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let source = fields.map.remove("source");
    if !phones.is_empty() || !more.is_empty() {
        let phones: Vec<Value> = phones.into_iter().chain(more).collect();
        let phones: Vec<&Value> = phones.iter().filter(|phone| !phone.is_null()).collect();
        let name = fields.map.get("name").cloned().unwrap_or(Value::Null);
        let contacts = json!([{ "name": name, "phones": phones }]);
        fields.map.insert("contacts".to_owned(), contacts);
    }
    let words = |refusal| format!("{refusal:?}");
    let draft = body::draft(fields, &core.settings.catalogue).map_err(words)?;
    if !fields.errors.is_empty() {
        return Err(format!("{:?}", fields.errors));
    }
    Ok(Draft {
        upserts,
        source: source.and_then(|source| source.as_str().map(str::to_owned)),
        ..draft
    })
}

fn field_values(map: &Map<String, Value>) -> Result<FieldValues, String> {
    let mut values = FieldValues::new();
    for (id, value) in map {
        let id: i64 = id
            .parse()
            .map_err(|_| format!("`{id}` is no id of a field"))?;
        let value = match value {
            Value::Null => Vec::new(),
            Value::Array(list) => list.clone(),
            scalar => vec![scalar.clone()],
        };
        values.insert(id, value);
    }
    Ok(values)
}

/// The main contact of a lead that is made from a phone alone.
impl Contact {
    /// With one phone.
    pub fn of(name: &str, phone: &str) -> Self {
        Self {
            name: name.to_owned(),
            phones: vec![phone.to_owned()],
            ..Self::default()
        }
    }
}
