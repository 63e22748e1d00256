//! A token as the state folder names it.

use serde::{Deserialize, Serialize};
use std::fmt;

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
