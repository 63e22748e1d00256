//! Writes that were accepted and are done when they are due (§3.2, §4.4).

use super::record::{Contact, FieldValues};
use crate::token::TokenKey;
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An accepted write other than a call's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// Its `requestId`.
    pub request_id: String,
    /// Whose leads.
    pub company: i64,
    /// The token that alone can read its status.
    pub token: TokenKey,
    /// When it was accepted.
    pub accepted_at: EventTime,
    /// When it is done.
    pub due: EventTime,
    /// It is to end FAILED whatever it says.
    pub doomed: bool,
    /// What it says.
    pub what: LeadAction,
}

/// What an order says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeadAction {
    /// `POST lead`
    Lead(Box<Draft>),
    /// `POST lead/{id}/field/list`
    Fields {
        /// The lead.
        lead: i64,
        /// The LED fields of the list; an empty one is cleared.
        values: FieldValues,
    },
    /// `POST lead-note/{id}/list`
    Notes {
        /// The lead.
        lead: i64,
        /// As sent.
        notes: Vec<Value>,
    },
    /// `POST lead-task`
    Task {
        /// The lead.
        lead: i64,
        /// As sent.
        task: Value,
    },
}

impl LeadAction {
    /// The word for it in the list of writes.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Lead(_) => "lead",
            Self::Fields { .. } => "lead-fields",
            Self::Notes { .. } => "lead-notes",
            Self::Task { .. } => "lead-task",
        }
    }
}

/// What is wanted of a lead: `None` leaves a property as it is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Draft {
    /// `None`: a new lead.
    pub id: Option<i64>,
    /// §2.5
    pub name: Option<String>,
    /// §2.5
    pub status_id: Option<i64>,
    /// §2.5; else the stage's.
    pub pipe_id: Option<i64>,
    /// §2.5; the inner `None`: nobody.
    pub responsible_id: Option<Option<i64>>,
    /// §2.5
    pub balance: Option<f64>,
    /// §2.5
    pub currency: Option<String>,
    /// All contacts of the lead; one with a known id is that one.
    pub contacts: Option<Vec<Contact>>,
    /// The complete set of its LED fields (§4.4.1).
    pub fields: Option<FieldValues>,
    /// Changed beside the others, an empty one is cleared (§4.4.1).
    pub upserts: FieldValues,
    /// §2.5
    pub uuid: Option<String>,
    /// `source` of an attribution to add.
    pub source: Option<String>,
}
