//! Fields of leads that show their calls (`--lead-field`).

use serde::{Deserialize, Serialize};

/// Fields of leads that show their calls (`--lead-field`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadFields {
    /// `ok`; `unchecked` before the CRM's fields were read; `off` while nothing is written.
    pub state: String,
    /// Why it is off.
    pub why: Option<String>,
    /// Until then, in epoch seconds.
    pub until: Option<i64>,
    /// Leads that wait to show something.
    pub waiting: u64,
    /// In the order of the flag's names.
    pub fields: Vec<LeadField>,
}

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadField {
    /// `last_call`, `last_missed`, `last_employee`.
    pub name: String,
    /// The CRM's id of it.
    pub id: i64,
    /// It is written; otherwise it is left out.
    pub ok: bool,
    /// What the CRM's fields say of it.
    pub what: String,
}
