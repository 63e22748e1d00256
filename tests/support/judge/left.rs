//! What a killed process left behind: which answers it had written down, as its spool says.
//!
//! A kill may keep an answer from being written down, and then it is right to ask again. How long
//! writing takes says nothing on a busy machine; the spool itself does.

use super::seen::Seen;
use std::collections::BTreeMap;

/// What its spool held when it was gone.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// By uuid.
    pub calls: BTreeMap<String, Stored>,
    /// The print of the token that it knew as refused.
    pub refused: Option<String>,
}

/// A call in it.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    pub state: String,
    pub request_id: Option<String>,
}

impl Stored {
    /// Nothing is to be asked about it any more.
    fn is_over(&self) -> bool {
        !["ready", "sending", "submitted"].contains(&self.state.as_str())
    }
}

impl Left {
    /// That this call was accepted under this requestId, or more, had been written down.
    pub fn accepted(&self, uuid: &str, request_id: &str) -> bool {
        let knows = |it: &Stored| it.is_over() || it.request_id.as_deref() == Some(request_id);
        self.calls.get(uuid).is_some_and(knows)
    }

    /// The outcome of this call had been written down.
    pub fn decided(&self, uuid: &str) -> bool {
        self.calls.get(uuid).is_some_and(Stored::is_over)
    }

    /// That this token is refused had been written down.
    pub fn knows_as_refused(&self, token: &str) -> bool {
        self.refused.as_deref() == Some(print(token).as_str())
    }
}

/// By what a token is known in the spool: 16 hex digits of its UUIDv5.
fn print(token: &str) -> String {
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::nil(), token.as_bytes());
    hash.simple().to_string()[16..].to_owned()
}

/// What was heard in a life is known to it; to later ones, if it was written down. `kills` has what
/// each kill left; the last life was not killed.
pub fn known(seen: &Seen, kills: &[Left], written: impl Fn(&Left) -> bool) -> bool {
    kills.get(seen.life).is_none_or(written)
}
