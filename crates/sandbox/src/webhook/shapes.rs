//! What the document leaves open about deliveries, or allows: a receiver has to take it all.

use serde::Deserialize;
use std::time::Duration;

/// How `callId` is written: "the conversation uuid in the journal" (§6.8), where it stands with
/// the prefix `oapi-` (§2.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallId {
    /// `oapi-…`
    #[default]
    Prefixed,
    /// As submitted.
    Plain,
}

/// One choice for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shapes {
    /// Of `callId`.
    pub call_id: CallId,
    /// Fields and values that the document does not have (§6.5, Versioning).
    pub extra: bool,
    /// Deliveries leave in any order (§6.1.4).
    pub shuffled: bool,
    /// So many of a hundred deliveries arrive twice (§6.1.4).
    pub twice_percent: u8,
    /// Up to this much later than they might, by the dice.
    pub late_max: Duration,
}
