//! Removes a request's secrets from the texts in its response.
//!
//! A server or proxy may repeat a token or password in its response, and parts of the response end
//! up in logs and on terminals. These texts are redacted before they're shortened, because half a
//! secret wouldn't be recognized.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value};

/// The text that replaces a secret.
pub const REDACTED: &str = "[redacted]";

/// Minimum length in bytes of a secret to search for. Anything shorter could be part of an ordinary
/// word.
const SECRET_MIN: usize = 4;

/// The secrets of a request.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    secrets: Vec<SecretString>,
    /// The middle of each secret in base64, for each of the three offsets at which the secret can
    /// start within a longer text.
    base64: Vec<SecretString>,
}

impl Redactor {
    /// Creates a redactor for these secrets, which must be unencoded.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let mut redactor = Self::default();
        for secret in secrets {
            redactor.add(secret);
        }
        redactor
    }

    /// Adds a secret, which must be unencoded. Secrets shorter than 4 bytes are ignored.
    pub fn add(&mut self, secret: &str) {
        if secret.len() < SECRET_MIN {
            return;
        }
        self.secrets.push(SecretString::from(secret));
        for offset in 0..3 {
            let standard = middle_in_base64(secret, offset);
            let url_safe = standard.replace('+', "-").replace('/', "_");
            if url_safe != standard {
                self.base64.push(SecretString::from(url_safe));
            }
            self.base64.push(SecretString::from(standard));
        }
    }

    /// Replaces each secret in a text. Secrets are found verbatim, percent-encoded, escaped for
    /// JSON, and in base64, even within a longer text such as `user:password`.
    pub fn redact(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        let starts = self.start_bytes();
        while let Some(c) = rest.chars().next() {
            if !starts[usize::from(rest.as_bytes()[0])] {
                shown.push(c);
                rest = &rest[c.len_utf8()..];
            } else if let Some(length) = longest_match(&self.secrets, rest) {
                shown.push_str(REDACTED);
                rest = &rest[length..];
            } else if let Some(length) = longest_match(&self.base64, rest) {
                // The base64 characters around the match contain the rest of the secret.
                let before = shown.trim_end_matches(is_base64);
                shown.truncate(before.len());
                shown.push_str(REDACTED);
                rest = rest[length..].trim_start_matches(|c| is_base64(c) || c == '=');
            } else {
                shown.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        shown
    }

    /// Marks the bytes that a secret in a text can start with. Pages are megabytes long, and most
    /// of their bytes can't start a secret.
    fn start_bytes(&self) -> [bool; 256] {
        let mut starts = [false; 256];
        for secret in self.secrets.iter().chain(&self.base64) {
            // The first character may be escaped.
            for byte in secret.expose_secret().bytes().take(1).chain(*b"%\\+") {
                starts[usize::from(byte)] = true;
            }
        }
        starts
    }

    /// Replaces each secret in a JSON value's strings and keys.
    pub fn redact_json(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.redact(text),
            Value::Array(items) => {
                for item in items {
                    self.redact_json(item);
                }
            }
            Value::Object(map) => self.redact_object(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Replaces each secret in a JSON object's strings and keys.
    pub fn redact_object(&self, map: &mut Map<String, Value>) {
        for (key, mut value) in std::mem::take(map) {
            self.redact_json(&mut value);
            map.insert(self.redact(&key), value);
        }
    }
}

/// Returns the base64 characters that depend only on the secret if it's preceded by `offset` bytes
/// in its group of three.
fn middle_in_base64(secret: &str, offset: usize) -> String {
    let bytes = [&[0; 2][..offset], secret.as_bytes()].concat();
    let encoded = STANDARD_NO_PAD.encode(&bytes);
    // A character represents six bits. Characters that share bits with a byte outside the secret
    // are omitted.
    let first = (offset * 8).div_ceil(6);
    let end = bytes.len() * 8 / 6;
    encoded[first..end].to_owned()
}

/// Returns `true` for a character from either base64 alphabet, including percent-encoded ones.
const fn is_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '-' | '_' | '%')
}

/// Returns the length of the longest secret at the start of a text.
fn longest_match(secrets: &[SecretString], text: &str) -> Option<usize> {
    let lengths = secrets
        .iter()
        .filter_map(|secret| match_length(secret.expose_secret(), text));
    lengths.max()
}

fn match_length(secret: &str, text: &str) -> Option<usize> {
    if text.starts_with(secret) {
        return Some(secret.len());
    }
    let mut rest = text;
    for c in secret.chars() {
        let length = escaped_length(c, rest).or_else(|| rest.starts_with(c).then(|| c.len_utf8()));
        rest = &rest[length?..];
    }
    Some(text.len() - rest.len())
}

/// Returns the length of `c`'s escaped form at the start of a text, or `None` if the text doesn't
/// start with one.
fn escaped_length(c: char, text: &str) -> Option<usize> {
    match text.as_bytes().first()? {
        b'+' if c == ' ' => Some(1),
        b'%' => {
            let mut length = 0;
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                length += prefix_length(&text[length..], &format!("%{byte:02x}"))?;
            }
            Some(length)
        }
        b'\\' => {
            let short = match c {
                '"' | '\\' | '/' => Some(c),
                '\n' => Some('n'),
                '\r' => Some('r'),
                '\t' => Some('t'),
                _ => None,
            };
            if short.is_some_and(|short| text[1..].starts_with(short)) {
                return Some(2);
            }
            let mut length = 0;
            for unit in c.encode_utf16(&mut [0; 2]) {
                length += prefix_length(&text[length..], &format!("\\u{unit:04x}"))?;
            }
            Some(length)
        }
        _ => None,
    }
}

/// Returns the length of this prefix if the text starts with it, ignoring case.
fn prefix_length(text: &str, prefix: &str) -> Option<usize> {
    let beginning = text.get(..prefix.len())?;
    if beginning.eq_ignore_ascii_case(prefix) {
        Some(prefix.len())
    } else {
        None
    }
}

#[cfg(test)]
#[path = "redact_tests.rs"]
mod tests;
