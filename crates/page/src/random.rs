//! Random tokens of 256 bits. Only their hashes are stored.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt::Write as _;

/// A secret for a browser. It cannot be printed. [`BrowserToken::reveal`] returns its text.
pub(crate) struct BrowserToken(String);

impl BrowserToken {
    /// Makes a new token. `None` if the system gives no random bytes.
    pub(crate) fn new() -> Option<Self> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(hex(&bytes)))
    }

    /// Returns the text of the token, only for the browser.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// Returns the SHA-256 of a token in hex, which is stored instead of the token.
pub(crate) fn hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

/// Returns the token for the forms of a session. It is derived from the session's token, which only
/// the browser has, so it need not be stored.
pub(crate) fn form_token(token: &str) -> String {
    hash(&format!("form {token}"))
}

/// Returns the bytes in lowercase hex: `00ff`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
