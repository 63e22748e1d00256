//! What the document leaves open about deliveries, or allows: a receiver has to take it all.

use crate::duration::parse_duration;
use std::time::Duration;

/// How `callId` is written: "the conversation uuid in the journal" (§6.8), where it stands with
/// the prefix `oapi-` (§2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallId {
    /// `oapi-…`
    Prefixed,
    /// As submitted.
    Plain,
}

/// One choice for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// Of `callId`.
    pub call_id: CallId,
    /// Fields and values that the document does not have (§6.5, Versioning).
    pub extra: bool,
    /// Deliveries leave in any order (§6.1.4).
    pub shuffled: bool,
    /// So many of a hundred deliveries arrive twice (§6.1.4).
    pub twice_percent: u8,
    /// Up to this much later than they might, by the dice.
    pub late_max: Duration,
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            call_id: CallId::Prefixed,
            extra: false,
            shuffled: false,
            twice_percent: 0,
            late_max: Duration::ZERO,
        }
    }
}

impl Shapes {
    /// Sets one by its words after `shape webhook-`; `None` for a name that is none of ours.
    pub fn set(&mut self, name: &str, value: &str) -> Option<Result<(), String>> {
        let wrong = |expected: &str| Err(format!("`{value}`: {expected} expected"));
        let yes = match value {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        };
        Some(match (name, value, yes) {
            ("call-id", "prefixed", _) => self.take(|shapes| shapes.call_id = CallId::Prefixed),
            ("call-id", "plain", _) => self.take(|shapes| shapes.call_id = CallId::Plain),
            ("call-id", ..) => wrong("prefixed or plain"),
            ("extra", _, Some(yes)) => self.take(|shapes| shapes.extra = yes),
            ("shuffled", _, Some(yes)) => self.take(|shapes| shapes.shuffled = yes),
            ("extra" | "shuffled", _, None) => wrong("yes or no"),
            ("twice", ..) => match value.strip_suffix('%').and_then(|n| n.parse().ok()) {
                Some(percent @ 0..=100) => self.take(|shapes| shapes.twice_percent = percent),
                _ => wrong("a percentage such as 20%"),
            },
            ("late", ..) => parse_duration(value).map(|time| self.late_max = time),
            _ => return None,
        })
    }

    fn take(&mut self, set: impl FnOnce(&mut Self)) -> Result<(), String> {
        set(self);
        Ok(())
    }
}
