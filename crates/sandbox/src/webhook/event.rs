//! What happens in the CRM and is told to applications (§6.2, §6.6–6.8, §2.5).

use serde::{Deserialize, Serialize};

/// An event with what its blocks need, as it was when it happened (§6.5 "a snapshot").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrmEvent {
    /// A lead is created.
    LeadCreated {
        /// As it now is.
        lead: Box<LeadSnapshot>,
    },
    /// The responsible employee changes.
    LeadAssigned {
        /// With the new assignee.
        lead: Box<LeadSnapshot>,
        /// Who was responsible.
        from: Responsible,
        /// Who is.
        to: Responsible,
    },
    /// The lead moves to another stage, also between pipelines.
    LeadStageChanged {
        /// With the new stage.
        lead: Box<LeadSnapshot>,
        /// The stage before.
        from: Stage,
        /// The new one.
        to: Stage,
    },
    /// Name, balance, a contact or a custom field changes.
    LeadPropertiesUpdated {
        /// As it now is.
        lead: Box<LeadSnapshot>,
        /// One entry per property that changed; never stage or assignee.
        changes: Vec<PropertyChange>,
    },
    /// Leads are merged into one.
    LeadMerged {
        /// The survivor.
        lead: Box<LeadSnapshot>,
        /// Those merged into it; never the survivor itself.
        merged: Vec<i64>,
    },
    /// A lead is deleted.
    LeadDeleted {
        /// As it was at deletion.
        lead: Box<LeadSnapshot>,
    },
    /// A conversation is finished and journaled.
    CallCompleted {
        /// The conversation.
        call: Box<CompletedCall>,
    },
}

/// The names of §6.2.
pub const NAMES: [&str; 7] = [
    "LEAD_CREATED",
    "LEAD_ASSIGNED",
    "LEAD_STAGE_CHANGED",
    "LEAD_PROPERTIES_UPDATED",
    "LEAD_MERGED",
    "LEAD_DELETED",
    "CALL_COMPLETED",
];

/// The groups of §6.2; only the first two publish events.
pub const GROUPS: [&str; 6] = [
    "LEAD",
    "CALL",
    "LEAD_NOTE",
    "LEAD_TASK",
    "CONTRACT",
    "CONTRACT_PAYMENT",
];

impl CrmEvent {
    /// The event's name (§6.2).
    pub const fn name(&self) -> &'static str {
        match self {
            Self::LeadCreated { .. } => "LEAD_CREATED",
            Self::LeadAssigned { .. } => "LEAD_ASSIGNED",
            Self::LeadStageChanged { .. } => "LEAD_STAGE_CHANGED",
            Self::LeadPropertiesUpdated { .. } => "LEAD_PROPERTIES_UPDATED",
            Self::LeadMerged { .. } => "LEAD_MERGED",
            Self::LeadDeleted { .. } => "LEAD_DELETED",
            Self::CallCompleted { .. } => "CALL_COMPLETED",
        }
    }

    /// The event's group (§6.2).
    pub const fn group(&self) -> &'static str {
        match self {
            Self::LeadCreated { .. }
            | Self::LeadAssigned { .. }
            | Self::LeadStageChanged { .. }
            | Self::LeadPropertiesUpdated { .. }
            | Self::LeadMerged { .. }
            | Self::LeadDeleted { .. } => "LEAD",
            Self::CallCompleted { .. } => "CALL",
        }
    }

    /// The lead's or the conversation's id.
    pub fn subject(&self) -> String {
        match self {
            Self::LeadCreated { lead }
            | Self::LeadAssigned { lead, .. }
            | Self::LeadStageChanged { lead, .. }
            | Self::LeadPropertiesUpdated { lead, .. }
            | Self::LeadMerged { lead, .. }
            | Self::LeadDeleted { lead } => lead.id.to_string(),
            Self::CallCompleted { call } => call.call_id.clone(),
        }
    }

    /// The conversation's id, which 24 hours of repeats are known by (§6.8).
    pub fn call_id(&self) -> Option<&str> {
        match self {
            Self::CallCompleted { call } => Some(&call.call_id),
            Self::LeadCreated { .. }
            | Self::LeadAssigned { .. }
            | Self::LeadStageChanged { .. }
            | Self::LeadPropertiesUpdated { .. }
            | Self::LeadMerged { .. }
            | Self::LeadDeleted { .. } => None,
        }
    }
}

/// A stage of a pipeline; both null for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// `statusId`
    pub id: Option<i64>,
    /// `statusName`
    pub name: Option<String>,
}

/// An employee who is responsible; both null for nobody.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Responsible {
    /// `responsibleId`
    pub id: Option<i64>,
    /// `responsibleName`
    pub name: Option<String>,
}

/// The lead of a body (§2.5).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeadSnapshot {
    /// Lead id.
    pub id: i64,
    /// Its name.
    pub name: String,
    /// Current stage.
    pub status_id: Option<i64>,
    /// Its name.
    pub status_name: Option<String>,
    /// Pipeline of the stage.
    pub pipe_id: Option<i64>,
    /// Its name.
    pub pipe_name: Option<String>,
    /// Assigned employee.
    pub responsible_id: Option<i64>,
    /// The employee's name.
    pub responsible_name: Option<String>,
    /// Lead balance.
    pub balance: f64,
    /// ISO code of the balance's currency.
    pub currency: Option<String>,
    /// First phone of the main contact.
    pub phone: Option<String>,
    /// Channel sources; empty when the lead has no channel.
    pub attributions: Vec<Attribution>,
    /// Lead uuid.
    pub uuid: Option<String>,
    /// Epoch seconds.
    pub created_timestamp: Option<i64>,
    /// Epoch seconds.
    pub updated_timestamp: Option<i64>,
}

/// A channel that a lead came by (§2.5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attribution {
    /// The channel.
    pub channel_id: i64,
    /// `WEBSITE`, `OPEN_API`…; the list grows.
    pub source: String,
    /// What identifies the customer there.
    pub channel_value: String,
    /// Epoch seconds.
    pub attached_timestamp: i64,
}

/// A property that changed (§6.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyChange {
    /// Which.
    pub kind: Property,
    /// Its text before; `None`: it was added.
    pub from: Option<String>,
    /// Its text now; `None`: it was removed.
    pub to: Option<String>,
}

/// Which property (§6.7 `type`, with its extra id).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Property {
    /// The lead's name.
    Name,
    /// [`balance_text`]
    Balance,
    /// [`contact_text`] of the contact with this id.
    Contact(i64),
    /// The rendered value of the lead-level field with this id.
    CustomField(i64),
}

/// `1500.5 USD`: the amount without trailing zeros (§6.7). Without a currency the amount alone.
pub fn balance_text(amount: f64, currency: Option<&str>) -> String {
    match currency {
        Some(currency) => format!("{amount} {currency}"),
        None => amount.to_string(),
    }
}

/// `Ali [+998901112233, +998935556677]`: the phones sorted (§6.7).
pub fn contact_text(name: &str, phones: &[String]) -> String {
    let mut phones: Vec<&str> = phones.iter().map(String::as_str).collect();
    phones.sort_unstable();
    format!("{name} [{}]", phones.join(", "))
}

/// The conversation of a body (§6.8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CompletedCall {
    /// The conversation's uuid in the journal, with its prefix.
    pub call_id: String,
    /// `OPEN_API`, `ONLINE_PBX`…
    pub provider: Option<String>,
    /// `CALL`, `OFFLINE_MEET`, `ONLINE_MEET`
    pub conversation_kind: String,
    /// `INBOUND` or `OUTBOUND`; a meeting is always `INBOUND`.
    pub direction: String,
    /// A missed call is told with false.
    pub answered: bool,
    /// Epoch seconds.
    pub started_at: Option<i64>,
    /// Epoch seconds.
    pub ended_at: Option<i64>,
    /// Seconds.
    pub duration_sec: Option<i64>,
    /// Seconds.
    pub talk_time_sec: Option<i64>,
    /// `ANSWER`, `NO_ANSWER`, `BUSY`…
    pub hangup_cause: Option<String>,
    /// The contact's number if known, else the caller's or the dialled one.
    pub client_phone: Option<String>,
    /// The operator's internal extension.
    pub operator_extension: Option<String>,
    /// Employee on the call.
    pub employee_id: Option<i64>,
    /// The employee's name.
    pub employee_name: Option<String>,
    /// Matched contact.
    pub contact_id: Option<i64>,
    /// The contact's name.
    pub contact_name: Option<String>,
    /// Leads that the conversation was journaled on; may be empty.
    pub lead_ids: Vec<i64>,
    /// Absent when no audio was captured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<Recording>,
}

impl Default for CompletedCall {
    /// An answered call that came in, of nobody.
    fn default() -> Self {
        Self {
            call_id: String::new(),
            provider: None,
            conversation_kind: "CALL".to_owned(),
            direction: "INBOUND".to_owned(),
            answered: true,
            started_at: None,
            ended_at: None,
            duration_sec: None,
            talk_time_sec: None,
            hangup_cause: None,
            client_phone: None,
            operator_extension: None,
            employee_id: None,
            employee_name: None,
            contact_id: None,
            contact_name: None,
            lead_ids: Vec::new(),
            record: None,
        }
    }
}

/// The audio of a conversation (§6.8 `record`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    /// File id.
    pub file_id: i64,
    /// Download link that expires.
    pub url: String,
    /// Epoch seconds; at most five days on.
    pub expires_at: i64,
    /// Seconds of audio when known.
    pub duration_sec: Option<i64>,
}
