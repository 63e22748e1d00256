//! Events of the CRM that are sent to applications (§6.2), and their bodies: the envelope with the
//! blocks of the event (§6.5–6.8). A block that would be null is left out.

use crate::{CallId, Shapes, journal::PREFIX};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The names of all events (§6.2).
pub const NAMES: [&str; 7] = [
    "LEAD_CREATED",
    "LEAD_ASSIGNED",
    "LEAD_STAGE_CHANGED",
    "LEAD_PROPERTIES_UPDATED",
    "LEAD_MERGED",
    "LEAD_DELETED",
    CALL_COMPLETED,
];

const CALL_COMPLETED: &str = "CALL_COMPLETED";

/// The groups of §6.2; only the first two publish events.
pub const GROUPS: [&str; 6] = [
    "LEAD",
    "CALL",
    "LEAD_NOTE",
    "LEAD_TASK",
    "CONTRACT",
    "CONTRACT_PAYMENT",
];

/// An event with its blocks, as they were when it happened (§6.5 "a snapshot").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrmEvent {
    /// The event's name in capitals (§6.2).
    pub name: String,
    /// The id of the lead or the conversation.
    pub subject: String,
    blocks: Map<String, Value>,
}

impl CrmEvent {
    /// Creates an event of a lead with its snapshot (§2.5).
    pub fn of_lead(name: &str, lead: Value) -> Self {
        Self {
            name: name.to_owned(),
            subject: lead["id"].to_string(),
            blocks: Map::from_iter([("lead".to_owned(), lead)]),
        }
    }

    /// Creates the event of a conversation that is finished and journaled (§6.8).
    pub fn of_call(call: Value) -> Self {
        Self {
            name: CALL_COMPLETED.to_owned(),
            subject: call["callId"].as_str().unwrap_or_default().to_owned(),
            blocks: Map::from_iter([("call".to_owned(), call)]),
        }
    }

    /// Adds a block of the body under its name.
    #[must_use]
    pub fn with_block(mut self, block: &str, value: Value) -> Self {
        self.blocks.insert(block.to_owned(), value);
        self
    }

    /// Returns the event's group, `CALL` or `LEAD` (§6.2).
    pub fn group(&self) -> &'static str {
        match self.call_id() {
            Some(_) => "CALL",
            None => "LEAD",
        }
    }

    /// Returns the conversation's id, or `None` for an event of a lead. Repeats within 24 hours are
    /// recognized by this id (§6.8).
    pub fn call_id(&self) -> Option<&str> {
        if self.name == CALL_COMPLETED {
            Some(&self.subject)
        } else {
            None
        }
    }
}

/// An event as it was recorded (§6.1.1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// `eventId`: the same for every installation that gets the event (§6.1.3).
    pub event_id: uuid::Uuid,
    /// The moment at which the event was recorded.
    pub at: EventTime,
    /// The id of the company that the event happened in.
    pub company: i64,
    /// The event with its blocks.
    pub event: CrmEvent,
}

impl Recorded {
    /// Returns the body of a delivery as JSON, in the formats that `shapes` selects.
    pub fn body(&self, shapes: &Shapes) -> Value {
        let mut body = Value::Object(self.event.blocks.clone());
        body["eventId"] = json!(self.event_id);
        body["eventType"] = json!(self.event.name);
        body["occurredAt"] = json!(self.at.floor_seconds());
        body["companyId"] = json!(self.company);
        if let (CallId::Plain, Some(id)) = (shapes.webhook_call_id, self.event.call_id()) {
            body["call"]["callId"] = json!(id.strip_prefix(PREFIX).unwrap_or(id));
        }
        if shapes.webhook_extra {
            add_unknown(&mut body);
        }
        body
    }
}

/// Adds invented fields and values, such as a later version could have. A receiver must ignore them
/// (§6.5, Versioning 2).
fn add_unknown(body: &mut Value) {
    body["schemaVersion"] = json!("2031-01");
    body["context"] = json!({ "actor": { "id": 5, "roles": [null, 1.5] } });
    if let Some(lead) = body.get_mut("lead") {
        lead["temperature"] = json!("HOT");
        if let Some(list) = lead["attributions"].as_array_mut() {
            list.push(json!({
                "channelId": 77, "source": "HOLOGRAM", "channelValue": "x",
                "attachedTimestamp": 1_795_151_317, "weight": 0.5,
            }));
        }
    }
    let changes = body.get_mut("propertyChanges");
    if let Some(changes) = changes.and_then(Value::as_array_mut) {
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
