//! The body of a delivery (§6.5): the envelope with the blocks of its event, and no block that
//! would be null.

use super::event::{CrmEvent, Property, PropertyChange};
use super::shapes::{CallId, Shapes};
use crate::journal::PREFIX;
use callbridge_call::EventTime;
use serde_json::{Map, Value, json};

/// An event as it was recorded (§6.1.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// `eventId`: the same for every installation it goes to (§6.1.3).
    pub event_id: uuid::Uuid,
    /// When it was recorded.
    pub at: EventTime,
    /// Whose it is.
    pub company: i64,
    /// What happened.
    pub event: CrmEvent,
}

impl Recorded {
    /// The body as JSON, in the shapes that the document leaves open.
    pub fn body(&self, shapes: &Shapes) -> Value {
        let mut body = json!({
            "eventId": self.event_id,
            "eventType": self.event.name(),
            "occurredAt": self.at.floor_seconds(),
            "companyId": self.company,
        });
        if let Value::Object(fields) = &mut body {
            blocks(&self.event, shapes, fields);
            if shapes.extra {
                strange(fields);
            }
        }
        body
    }
}

fn blocks(event: &CrmEvent, shapes: &Shapes, body: &mut Map<String, Value>) {
    let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
    match event {
        CrmEvent::LeadCreated { lead } | CrmEvent::LeadDeleted { lead } => {
            put("lead", json!(lead));
        }
        CrmEvent::LeadAssigned { lead, from, to } => {
            put("lead", json!(lead));
            let block = json!({
                "fromResponsibleId": from.id, "fromResponsibleName": from.name,
                "toResponsibleId": to.id, "toResponsibleName": to.name,
            });
            put("assignment", block);
        }
        CrmEvent::LeadStageChanged { lead, from, to } => {
            put("lead", json!(lead));
            let block = json!({
                "fromStatusId": from.id, "fromStatusName": from.name,
                "toStatusId": to.id, "toStatusName": to.name,
            });
            put("stageChange", block);
        }
        CrmEvent::LeadPropertiesUpdated { lead, changes } => {
            put("lead", json!(lead));
            let entries = changes.iter().map(entry).collect();
            put("propertyChanges", Value::Array(entries));
        }
        CrmEvent::LeadMerged { lead, merged } => {
            put("lead", json!(lead));
            // §6.6: the surviving id is never in the list.
            let others: Vec<i64> = merged.iter().copied().filter(|id| *id != lead.id).collect();
            put("mergedLeadIds", json!(others));
        }
        CrmEvent::CallCompleted { call } => {
            let mut block = json!(call);
            block["callId"] = match shapes.call_id {
                CallId::Prefixed => json!(call.call_id),
                CallId::Plain => {
                    json!(call.call_id.strip_prefix(PREFIX).unwrap_or(&call.call_id))
                }
            };
            put("call", block);
        }
    }
}

/// An entry of `propertyChanges` (§6.7); an absent `from` or `to` is left out.
fn entry(change: &PropertyChange) -> Value {
    let mut entry = match change.kind {
        Property::Name => json!({ "type": "NAME" }),
        Property::Balance => json!({ "type": "BALANCE" }),
        Property::Contact(id) => json!({ "type": "CONTACT", "contactId": id }),
        Property::CustomField(id) => json!({ "type": "CUSTOM_FIELD", "fieldId": id }),
    };
    for (name, text) in [("from", &change.from), ("to", &change.to)] {
        if let Some(text) = text {
            entry[name] = json!(text);
        }
    }
    entry
}

/// Fields and values of a later version (§6.5, Versioning 2): a receiver reads past them.
fn strange(body: &mut Map<String, Value>) {
    body.insert("schemaVersion".to_owned(), json!("2031-01"));
    body.insert(
        "context".to_owned(),
        json!({ "actor": { "id": 5, "roles": [null, 1.5] } }),
    );
    if let Some(lead) = body.get_mut("lead") {
        lead["temperature"] = json!("HOT");
        if let Some(list) = lead["attributions"].as_array_mut() {
            list.push(json!({
                "channelId": 77, "source": "HOLOGRAM", "channelValue": "x",
                "attachedTimestamp": 1_795_151_317, "weight": 0.5,
            }));
        }
    }
    if let Some(changes) = body
        .get_mut("propertyChanges")
        .and_then(Value::as_array_mut)
    {
        changes.push(json!({ "type": "MOOD", "moodId": 3, "from": "calm", "to": "glad" }));
    }
    if let Some(call) = body.get_mut("call") {
        call["sentiment"] = json!({ "score": 0.9 });
        call["record"] = json!({
            "fileId": 9, "url": "https://files.example.com/9?signature=x",
            "expiresAt": 1_795_500_000, "durationSec": null, "codec": "opus",
        });
    }
}
