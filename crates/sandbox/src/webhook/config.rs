//! The configuration of an application's webhooks (§2.7) and the keys that deliveries are signed
//! with (§6.4).

use super::event::{CrmEvent, GROUPS, NAMES};
use serde::{Deserialize, Serialize};
use std::fmt;
use url::Url;

/// Longest `targetUrl`, in UTF-16 units (§2.7, Limits).
pub const TARGET_LENGTH_MAX: usize = 1_024;

/// A signing key: 64 lowercase hex characters, whose text itself is the key (§6.4.2).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SigningKey(String);

impl SigningKey {
    /// A key of this text.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text, to sign with or to show once.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey([REDACTED])")
    }
}

/// Where the events of an application go: one for every company that installed it (§6.1.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// `targetUrl`
    pub target_url: String,
    /// Names of events, or of whole groups.
    pub events: Vec<String>,
    /// Delivery stops while false.
    pub enabled: bool,
    /// The application-level key; `None` until the first is set.
    pub secret: Option<SigningKey>,
}

impl Config {
    /// Is the event subscribed to?
    pub fn subscribes(&self, event: &CrmEvent) -> bool {
        let wanted = |name: &String| *name == event.name || name == event.group();
        self.enabled && self.events.iter().any(wanted)
    }

    /// What §2.7 has against it: `targetUrl` or `events`, and a reason of §7.5 where it has one.
    pub fn faults(&self, private_targets: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let mut wrong = |field, reason| faults.push(format!("{field}: {reason}"));
        if self.target_url.trim().is_empty() {
            wrong("targetUrl", "NOT_BLANK");
        } else if self.target_url.encode_utf16().count() > TARGET_LENGTH_MAX {
            wrong("targetUrl", "LENGTH");
        } else {
            match Url::parse(&self.target_url) {
                Err(_) => wrong("targetUrl", "NOT_A_URL"),
                Ok(url) => {
                    if let Err(why) = super::target::check(&url, private_targets) {
                        wrong("targetUrl", why);
                    }
                }
            }
        }
        if self.events.is_empty() {
            wrong("events", "NOT_EMPTY");
        }
        let known = |name: &String| NAMES.contains(&&**name) || GROUPS.contains(&&**name);
        if !self.events.iter().all(known) {
            wrong("events", "UNKNOWN_EVENT");
        }
        faults
    }
}

/// A connection of a company with an application (§5.4.2), which deliveries belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installation {
    /// The company.
    pub company: i64,
    /// The application.
    pub application: i64,
    /// Its own key; without one the application's signs (§6.4.4).
    pub secret: Option<SigningKey>,
    /// Nothing goes to it any more.
    pub revoked: bool,
}
