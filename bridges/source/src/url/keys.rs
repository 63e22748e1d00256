//! The keys after the question mark: taken one by one, each fault gathered.

use super::UrlFault;
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;

/// `%2F` → `/`; a plus stays a plus. Bytes that are no UTF-8 become U+FFFD.
pub(super) fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The keys of one URL that nobody has taken yet.
pub(super) struct Keys<'a> {
    url: &'a str,
    given: BTreeMap<String, String>,
}

impl<'a> Keys<'a> {
    /// Splits `query`; keys that `scheme` does not know and repeated ones become faults.
    pub(super) fn read(
        url: &'a str,
        scheme: &str,
        known: &[&str],
        query: &str,
        faults: &mut Vec<UrlFault>,
    ) -> Self {
        let mut given = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decoded(key), decoded(value));
            if !known.contains(&key.as_str()) {
                faults.push(UrlFault::Key {
                    url: url.to_owned(),
                    key,
                    scheme: scheme.to_owned(),
                    known: known.join("=, ") + "=",
                });
            } else if value.is_empty() {
                faults.push(UrlFault::Missing {
                    url: url.to_owned(),
                    part: "a value",
                    cure: format!("write {key}=VALUE, or leave {key} out"),
                });
            } else if given.insert(key.clone(), value).is_some() {
                faults.push(UrlFault::Twice {
                    url: url.to_owned(),
                    key,
                });
            }
        }
        Self { url, given }
    }

    pub(super) fn take(&mut self, key: &str) -> Option<String> {
        self.given.remove(key)
    }

    /// A value that must be one of `words`.
    pub(super) fn word<T: Clone>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
        allowed: &'static str,
        faults: &mut Vec<UrlFault>,
    ) -> Option<T> {
        let value = self.take(key)?;
        let found = words.iter().find(|(word, _)| *word == value);
        if found.is_none() {
            faults.push(self.fault(key, value.clone(), allowed));
        }
        found.map(|(_, meaning)| meaning.clone())
    }

    pub(super) fn fault(
        &self,
        key: &'static str,
        value: String,
        allowed: &'static str,
    ) -> UrlFault {
        UrlFault::Value {
            url: self.url.to_owned(),
            key,
            value,
            allowed,
        }
    }
}
