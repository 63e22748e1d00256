//! Fields of leads that show their calls (`--lead-field`).

use serde::{Deserialize, Serialize};

/// Fields of leads that show their calls (`--lead-field`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeadFields {
    /// `ok`, `unchecked` before the CRM's fields were read, or `off` while nothing is written.
    pub state: String,
    /// Why nothing is written. `null` unless `state` is `off`.
    pub reason: Option<String>,
    /// Epoch seconds until which writing is paused. `null` if it is not paused, and while a grant
    /// is missing.
    pub until: Option<i64>,
    /// Leads with values to write.
    pub waiting: u64,
    /// The fields, in the order of the flag's names.
    pub fields: Vec<LeadField>,
}

/// A field of leads, as a `--lead-field` flag names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeadField {
    /// The flag's name for the value: `last_call`, `last_missed` or `last_employee`.
    pub name: String,
    /// The field's id in the CRM.
    pub id: i64,
    /// `true` if the field is written or not checked yet. `false` if it cannot be written and is
    /// left out.
    pub ok: bool,
    /// Result of the check against the CRM's list of fields, as text.
    pub message: String,
}
