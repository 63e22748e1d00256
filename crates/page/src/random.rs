//! Tokens: 256 random bits, of which only a hash is kept.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt::Write as _;

/// A secret that a browser holds. It cannot be printed; [`BrowserToken::reveal`] writes it once.
pub(crate) struct BrowserToken(String);

impl BrowserToken {
    /// A new one; `None` where the system gives no random bytes.
    pub(crate) fn new() -> Option<Self> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(hex(&bytes)))
    }

    /// Returns the token itself, for the browser alone.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// Returns the SHA-256 of a token in hex: all that is kept of it.
pub(crate) fn hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

/// The token that a session's forms carry. It follows from the session's own, which only the
/// browser has, so nothing of it is kept.
pub(crate) fn form_token(token: &str) -> String {
    hash(&format!("form {token}"))
}

/// Returns the bytes in lower-case hex: `00ff`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
