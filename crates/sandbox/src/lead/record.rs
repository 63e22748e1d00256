//! A lead with the fields that the document names (§2.4, §2.5), and its formats: the snapshot of
//! the webhooks, the record of the REST endpoints, and the lines of a `--leads` file.

use crate::{body::is_phone, lead::catalog::employee_name, lead::catalog::stage};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Creation of all leads of which only the id is known, in epoch seconds.
const BARE_CREATED: i64 = 1_700_000_000;
/// Namespace of the uuids of leads, which are made from their ids.
const NAMESPACE: uuid::Uuid = uuid::Uuid::from_u128(0x91b2_5c0e_77d4_4c1b_9d0a_6e13_af20_84d5);

/// Values of CRM fields by field id. A multi-select can have several values, in their order.
pub type FieldValues = BTreeMap<i64, Vec<Value>>;

/// A contact of a lead, with its phones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Contact {
    /// The contact's id (§6.7 `contactId`); 0 until its lead is stored.
    pub id: i64,
    /// The contact's name (§6.7). It can be empty.
    pub name: String,
    /// Phones in E.164, in the order they were written.
    pub phones: Vec<String>,
    /// Values of the contact's CRM fields (infoType CONTACT).
    pub fields: FieldValues,
}

/// A lead of a company.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lead {
    /// The lead's id, positive (§2.5).
    pub id: i64,
    /// The lead's name (§2.5). `Lead 4001` if it is unknown.
    pub name: String,
    /// The id of its stage (§3.3); `None` for a lead without one.
    pub status_id: Option<i64>,
    /// The id of the stage's pipeline.
    pub pipe_id: Option<i64>,
    /// The employee in charge; `None` for an unassigned lead.
    pub responsible_id: Option<i64>,
    /// The lead's balance in `currency` (§2.5).
    pub balance: f64,
    /// The balance's currency by its ISO code.
    pub currency: Option<String>,
    /// The lead's contacts, the main one first.
    pub contacts: Vec<Contact>,
    /// Values of the lead's CRM fields (infoType LED).
    pub fields: FieldValues,
    /// Channels attached to the lead, as objects (§2.5); empty without any.
    pub attributions: Vec<Value>,
    /// The lead's uuid (§2.5). `None` for a lead of which only the id is known.
    pub uuid: Option<String>,
    /// Creation in epoch seconds.
    pub created_timestamp: Option<i64>,
    /// Last change in epoch seconds. `None` for a lead of which only the id is known.
    pub updated_timestamp: Option<i64>,
}

impl Lead {
    /// Creates a lead of which only the id is known. It hasn't changed since its creation.
    pub fn bare(id: i64) -> Self {
        Self {
            id,
            name: format!("Lead {id}"),
            created_timestamp: Some(BARE_CREATED),
            ..Self::default()
        }
    }

    /// Creates a new lead, with a uuid that is made from its id.
    pub(super) fn fresh(id: i64) -> Self {
        let uuid = uuid::Uuid::new_v5(&NAMESPACE, &id.to_be_bytes());
        Self {
            uuid: Some(uuid.to_string()),
            created_timestamp: None,
            ..Self::bare(id)
        }
    }

    /// Sets `at` as the time of the last change, and as the time of creation if the lead has none.
    #[must_use]
    pub(crate) fn stamp(mut self, at: EventTime) -> Self {
        let second = at.floor_seconds().get();
        self.created_timestamp = self.created_timestamp.or(Some(second));
        self.updated_timestamp = Some(second);
        self
    }

    /// Returns the first phone of the main contact.
    pub fn phone(&self) -> Option<&str> {
        let main = self.contacts.first()?;
        main.phones.first().map(String::as_str)
    }

    /// Returns the contact with this id.
    pub fn contact(&self, id: i64) -> Option<&Contact> {
        self.contacts.iter().find(|contact| contact.id == id)
    }

    /// Returns the lead as the JSON object `lead` of webhooks (§2.5).
    pub fn snapshot(&self) -> Value {
        json!({
            "id": self.id, "name": self.name, "statusId": self.status_id,
            "statusName": stage(self.status_id).map(|stage| stage.name),
            "pipeId": self.pipe_id, "pipeName": self.pipe_id.map(pipe_name),
            "responsibleId": self.responsible_id,
            "responsibleName": self.responsible_id.map(employee_name),
            "balance": self.balance, "currency": self.currency, "phone": self.phone(),
            "attributions": self.attributions, "uuid": self.uuid,
            "createdTimestamp": self.created_timestamp, "updatedTimestamp": self.updated_timestamp,
        })
    }

    /// Returns the record of `GET lead/{id}`: the snapshot, contacts, and fields.
    pub fn record(&self) -> Value {
        let mut record = self.snapshot();
        let contacts = self.contacts.iter().map(|own| {
            let fields = fields_record(&own.fields);
            json!({ "id": own.id, "name": own.name, "phones": own.phones, "fields": fields })
        });
        record["contacts"] = contacts.collect();
        record["fields"] = fields_record(&self.fields);
        record
    }
}

fn fields_record(fields: &FieldValues) -> Value {
    let items = fields.iter().map(|(id, values)| match values.as_slice() {
        [value] => json!({ "id": id, "value": value }),
        values => json!({ "id": id, "valueList": values }),
    });
    Value::Array(items.collect())
}

fn pipe_name(id: i64) -> &'static str {
    match id {
        1 => "Sales",
        2 => "Service",
        _ => "Other",
    }
}

/// Formats a field's value as §6.7 shows it, with several values joined by `, `.
pub(super) fn render(values: &[Value]) -> String {
    let texts = values.iter().map(|value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    texts.collect::<Vec<_>>().join(", ")
}

/// Sets the listed values of fields. An empty list clears a field (§4.4), and other fields stay.
pub(crate) fn upsert(fields: &mut FieldValues, values: &FieldValues) {
    for (id, value) in values {
        if value.is_empty() {
            fields.remove(id);
        } else {
            fields.insert(*id, value.clone());
        }
    }
}

/// Parses the CSV text of a `--leads` file, and returns its leads with their phones.
///
/// ```text
/// leadId,phone,name,statusId,responsibleId
/// 4001,+998901112233,Ali,2,501
/// ```
///
/// All columns but `leadId` can be empty or left out. A lead can have several lines, one for each
/// of its phones.
///
/// # Errors
/// A message about the first line that cannot be read.
pub fn parse_list(text: &str) -> Result<Vec<Lead>, String> {
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(text.as_bytes());
    let headers = reader.headers().map_err(|error| error.to_string())?.clone();
    let id_at = column(&headers, "leadId").ok_or("the header names no column leadId")?;
    let phone_at = column(&headers, "phone");
    let name_at = column(&headers, "name");
    let stage_at = column(&headers, "statusId");
    let charge_at = column(&headers, "responsibleId");
    let mut leads: BTreeMap<i64, Lead> = BTreeMap::new();
    for (number, row) in reader.records().enumerate() {
        let row = row.map_err(|error| error.to_string())?;
        let line = number + 2;
        let id = cell(&row, Some(id_at));
        let Some(id) = id.parse::<i64>().ok().filter(|&id| id > 0) else {
            return Err(format!("line {line}: `{id}` is not the id of a lead"));
        };
        let phone = cell(&row, phone_at);
        let name = cell(&row, name_at);
        if !phone.is_empty() && !is_phone(phone) {
            let reason = "is not a number such as +998901112233";
            return Err(format!("line {line}: `{phone}` {reason}"));
        }
        let status = id_in(cell(&row, stage_at), "statusId", line)?;
        let known = stage(status);
        if status.is_some() && known.is_none() {
            return Err(format!("line {line}: `statusId`: no such stage"));
        }
        let responsible = id_in(cell(&row, charge_at), "responsibleId", line)?;
        let lead = leads.entry(id).or_insert_with(|| Lead::fresh(id));
        if !name.is_empty() {
            name.clone_into(&mut lead.name);
        }
        if let Some(known) = known {
            lead.status_id = status;
            lead.pipe_id = Some(known.pipe);
        }
        lead.responsible_id = responsible.or(lead.responsible_id);
        if lead.contacts.is_empty() && !(phone.is_empty() && name.is_empty()) {
            let mut main = Contact::default();
            main.name.clone_from(&lead.name);
            lead.contacts.push(main);
        }
        if let (Some(contact), false) = (lead.contacts.first_mut(), phone.is_empty()) {
            contact.phones.push(phone.to_owned());
        }
    }
    Ok(leads.into_values().collect())
}

fn column(headers: &csv::StringRecord, name: &str) -> Option<usize> {
    headers.iter().position(|header| header.trim() == name)
}

/// Returns the text of the cell in column `at`. A missing cell or column gives an empty text.
fn cell(row: &csv::StringRecord, at: Option<usize>) -> &str {
    at.and_then(|at| row.get(at)).map_or("", str::trim)
}

/// Parses the id in a cell. An empty cell gives `None`. `name` and `line` are for the error.
fn id_in(cell: &str, name: &str, line: usize) -> Result<Option<i64>, String> {
    if cell.is_empty() {
        return Ok(None);
    }
    match cell.parse::<i64>() {
        Ok(id) if id > 0 => Ok(Some(id)),
        Ok(_) | Err(_) => Err(format!("line {line}: `{name}`: `{cell}` is no id")),
    }
}
