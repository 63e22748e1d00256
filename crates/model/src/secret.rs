//! Secrets cannot be printed: tokens and passwords live in [`Secret`]. Nor are they written down
//! with the rest of the memory when the program crashes. Of a token its fingerprint and its rights
//! (§2.3) may be shown.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
pub use secrecy::{ExposeSecret, SecretString as Secret};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Returns `true` for text that may be a token: visible ASCII, as headers carry it, and not empty.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Forbids core dumps of this process, and debuggers of anybody but root; called before the first
/// secret is read. Where the system refuses that, it goes on without.
pub fn forbid_dumps() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    // What takes dumps over a pipe is not bound by the limit, though most keep to it.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// A short hash by which a token is known again. Never the token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenFingerprint(String);

impl TokenFingerprint {
    /// The print of a token: 16 hex digits of its SHA-1 (by way of UUIDv5).
    pub fn of(token: &str) -> Self {
        let hash = uuid::Uuid::new_v5(&uuid::Uuid::nil(), token.as_bytes());
        Self(hash.simple().to_string()[16..].to_owned())
    }

    /// No token: of an unresolved call, whose requestId none can read.
    pub fn none() -> Self {
        Self(String::new())
    }

    /// A print as it was stored.
    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// The 16 hex digits; empty for no token.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A right of a token that callbridge has a use for, as it is written in an OAuth scope; the
/// service knows others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
pub enum Grant {
    /// Calls are submitted (§4.5.6): without it nothing can be journaled.
    #[strum(serialize = "PERMISSION_OPEN_API_CALL:SAVE")]
    CallSave,
    /// Pages of the call journal are read.
    #[strum(serialize = "PERMISSION_OPEN_API_CALL:READ")]
    CallRead,
    /// Leads and the list of CRM fields are read.
    #[strum(serialize = "PERMISSION_OPEN_API_LEAD:READ")]
    LeadRead,
    /// Fields of leads are written (§4.4).
    #[strum(serialize = "PERMISSION_OPEN_API_LEAD:SAVE")]
    LeadSave,
}

impl Grant {
    /// The right as scopes and `grants` spell it: `PERMISSION_OPEN_API_CALL:SAVE`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns `true` where the words of a token's grants hold this right; an empty list means that
    /// the service did not report any.
    pub fn is_among(self, words: &[String]) -> bool {
        words.iter().any(|word| word == self.word())
    }
}
