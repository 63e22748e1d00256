//! The answers that a killed process had stored in its spool.
//!
//! A process that is killed before it stores an answer must ask again. On a busy machine, the time
//! since the answer does not show whether the answer was stored. The spool shows that.

use super::seen::Seen;
use std::collections::BTreeMap;

/// The contents of the spool after a kill.
#[derive(Clone, Debug, Default)]
pub struct SpoolContents {
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

impl SpoolContents {
    /// Returns `true` if the spool knows that this call was accepted under this requestId, or knows
    /// its outcome.
    pub fn has_acceptance(&self, uuid: &str, request_id: &str) -> bool {
        self.calls
            .get(uuid)
            .is_some_and(|call| call.is_over() || call.request_id.as_deref() == Some(request_id))
    }

    /// Returns `true` if the spool knows the outcome of this call.
    pub fn has_outcome(&self, uuid: &str) -> bool {
        self.calls.get(uuid).is_some_and(Stored::is_over)
    }

    /// Returns `true` if the spool knows that this token is refused.
    pub fn has_refused_token(&self, token: &str) -> bool {
        self.refused.as_deref() == Some(fingerprint(token).as_str())
    }
}

/// Returns the token's fingerprint in the spool: 16 hex digits of its UUIDv5.
fn fingerprint(token: &str) -> String {
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::nil(), token.as_bytes());
    hash.simple().to_string()[16..].to_owned()
}

/// Returns `true` if the answer of `seen` was stored before the client was killed. `written` checks
/// the spool after that kill. `kills` has one entry per kill. The last process was not killed, so
/// all its answers count as stored.
pub fn is_known(
    seen: &Seen,
    kills: &[SpoolContents],
    written: impl Fn(&SpoolContents) -> bool,
) -> bool {
    kills.get(seen.life).is_none_or(written)
}
