//! The answers that a killed process had stored in its spool.
//!
//! A process can be killed before it stores an answer. Then it must ask again. On a busy machine,
//! the time since the answer does not show whether it was stored. The spool does.

use super::seen::Seen;
use std::collections::BTreeMap;

/// The contents of the spool after a kill.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// The calls by uuid.
    pub calls: BTreeMap<String, Stored>,
    /// The fingerprint of the token that the CRM refused.
    pub refused: Option<String>,
}

/// A call in the spool.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    pub state: String,
    pub request_id: Option<String>,
}

impl Stored {
    /// Returns `true` if no request about the call is needed.
    fn is_over(&self) -> bool {
        !["ready", "sending", "submitted"].contains(&self.state.as_str())
    }
}

impl Left {
    /// Returns `true` if the spool knows that this call was accepted under this requestId, or knows
    /// its outcome.
    pub fn accepted(&self, uuid: &str, request_id: &str) -> bool {
        let knows = |it: &Stored| it.is_over() || it.request_id.as_deref() == Some(request_id);
        self.calls.get(uuid).is_some_and(knows)
    }

    /// Returns `true` if the spool knows the outcome of this call.
    pub fn decided(&self, uuid: &str) -> bool {
        self.calls.get(uuid).is_some_and(Stored::is_over)
    }

    /// Returns `true` if the spool knows that this token is refused.
    pub fn knows_as_refused(&self, token: &str) -> bool {
        self.refused.as_deref() == Some(print(token).as_str())
    }
}

/// Returns the token's fingerprint in the spool: 16 hex digits of its UUIDv5.
fn print(token: &str) -> String {
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::nil(), token.as_bytes());
    hash.simple().to_string()[16..].to_owned()
}

/// Returns `true` if the answer was stored before the kill that ended its life. The last life was
/// not killed and knows all its answers. `kills` has one entry per kill.
pub fn known(seen: &Seen, kills: &[Left], written: impl Fn(&Left) -> bool) -> bool {
    kills.get(seen.life).is_none_or(written)
}
