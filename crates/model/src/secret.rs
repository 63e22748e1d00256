//! Secrets such as tokens and passwords, which cannot be printed. They are also not part of a core
//! dump if the program crashes. The fingerprint and the rights of a token (§2.3) can be shown.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};
pub use secrecy::{ExposeSecret, SecretString as Secret};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Returns `true` for text that can be a token: visible ASCII, as in headers, and not empty.
pub fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

/// Forbids core dumps of this process, and debuggers except root's. Call it before the first secret
/// is read. If the system refuses, the program continues without this protection.
pub fn forbid_dumps() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    // The limit does not apply to a program that receives dumps over a pipe, although most respect
    // it.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// A short hash by which a token is recognized. It does not reveal the token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TokenFingerprint(String);

impl TokenFingerprint {
    /// Makes the fingerprint of a token: 16 hex digits of its SHA-1 (as UUIDv5).
    pub fn of(token: &str) -> Self {
        let hash = uuid::Uuid::new_v5(&uuid::Uuid::nil(), token.as_bytes());
        Self(hash.simple().to_string()[16..].to_owned())
    }

    /// Makes the fingerprint for no token: for an unresolved call, whose requestId no token can
    /// read.
    pub fn none() -> Self {
        Self(String::new())
    }

    pub fn stored(text: String) -> Self {
        Self(text)
    }

    /// Returns the 16 hex digits. Empty for no token.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TokenFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A right of a token that callbridge uses, in the form of an OAuth scope. The CRM also has other
/// rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr)]
pub enum Grant {
    /// Submit calls (§4.5.6). Without it, nothing can be journaled.
    #[strum(serialize = "PERMISSION_OPEN_API_CALL:SAVE")]
    CallSave,
    /// Read pages of the call journal.
    #[strum(serialize = "PERMISSION_OPEN_API_CALL:READ")]
    CallRead,
    /// Read leads and the list of CRM fields.
    #[strum(serialize = "PERMISSION_OPEN_API_LEAD:READ")]
    LeadRead,
    /// Write fields of leads (§4.4).
    #[strum(serialize = "PERMISSION_OPEN_API_LEAD:SAVE")]
    LeadSave,
}

impl Grant {
    /// Returns the right as in scopes and `grants`: `PERMISSION_OPEN_API_CALL:SAVE`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    /// Returns `true` if a token's grants contain this right. An empty list means that the CRM
    /// reported no grants.
    pub fn is_among(self, words: &[String]) -> bool {
        words.iter().any(|word| word == self.word())
    }
}
