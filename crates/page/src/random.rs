//! Random 256-bit tokens, of which only the hashes are stored.

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt::Write as _;

/// A secret for a browser. It can't be printed, but [`BrowserToken::reveal`] returns its text.
pub(crate) struct BrowserToken(String);

impl BrowserToken {
    /// Creates a new token, or returns `None` if the system doesn't provide random bytes.
    pub(crate) fn new() -> Option<Self> {
        let mut bytes = [0; 32];
        SystemRandom::new().fill(&mut bytes).ok()?;
        Some(Self(hex(&bytes)))
    }

    /// Returns the token's text, which is only meant for the browser.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

/// Returns a token's SHA-256 in hex, which is stored instead of the token.
pub(crate) fn hash(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

/// Returns the token for a session's forms. It's derived from the session's token, which only the
/// browser has, so it doesn't need to be stored.
pub(crate) fn form_token(token: &str) -> String {
    hash(&format!("form {token}"))
}

/// Returns the bytes in lowercase hex, such as `00ff`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
