//! The sender's memory: what it keeps across restarts besides its slots, stored in the spool as a
//! small JSON text.

use crate::breaker::refusals::Refusals;
use callbridge_call::EventTime;
use callbridge_crm::PageSize;
use callbridge_model::TokenFingerprint;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;

/// Name of the spool setting that holds the memory.
pub const KEY: &str = "sender.memory";

/// The windows that a rate can have.
const WINDOWS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_secs(3600);

/// The part of the sender's state that survives a restart, besides its slots.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Memory {
    /// No journal pages are read before this time.
    pub pages_off_until: Option<EventTime>,
    /// Records per page, or `None` for the largest size.
    pub page_size: Option<PageSize>,
    /// URL at which the CRM last accepted a call.
    pub accepted_at: Option<String>,
    /// Time of the first failed submission since the last successful one.
    pub submit_failing_since: Option<EventTime>,
    /// The last token. Once it's replaced, the stored refusals no longer count.
    pub token: Option<TokenFingerprint>,
    /// The last rate's window. The stored slots don't include requests that ended longer ago than
    /// that.
    pub window: Option<Duration>,
    /// The lowered rate, if 429s below our cap showed that another program is using the token.
    pub shared: Option<Shared>,
    /// Each branch's consecutive refusals of one kind.
    pub refusals: Refusals,
    /// The token that the CRM refuses.
    pub refused: Option<Refused>,
    /// Messages about unreadable fields. If there are any, the sender starts with a silence,
    /// because it can't tell how many requests were sent.
    #[serde(skip)]
    pub doubts: Vec<String>,
}

/// A token that the CRM refuses. The sender checks it against `token/info` once a minute, even
/// after a restart (§7.7).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub token: TokenFingerprint,
    /// The last time the token was refused.
    pub at: EventTime,
}

/// The rate of a token that another program also uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Requests per window that the lowered rate allows.
    pub allowed: u32,
    /// Time of the last 429.
    pub since: EventTime,
}

impl Memory {
    /// Reads the memory from its stored text, or returns a fresh state's memory if there is none.
    /// An unreadable field is reset to its default, with a message in `doubts`.
    ///
    /// The window and the shared rate are always written, even if `null`, so if one of them is
    /// missing, its key was corrupted.
    pub fn read(text: Option<&str>) -> Self {
        let Some(text) = text else {
            return Self::default();
        };
        let mut fields: Map<String, Value> = match serde_json::from_str(text) {
            Ok(fields) => fields,
            Err(error) => {
                return Self {
                    doubts: vec![format!("all of it ({error})")],
                    ..Self::default()
                };
            }
        };
        let needed = ["window", "shared"].into_iter();
        let missing = needed.filter(|name| !fields.contains_key(*name));
        let mut doubts: Vec<_> = missing.map(|name| format!("{name} (missing)")).collect();
        let window: Option<Duration> = take(&mut fields, "window", &mut doubts);
        if let Some(window) = window.filter(|window| !WINDOWS.contains(window)) {
            doubts.push(format!("window ({window:?} is not the window of any rate)"));
        }
        Self {
            pages_off_until: take(&mut fields, "pages_off_until", &mut doubts),
            page_size: take(&mut fields, "page_size", &mut doubts),
            accepted_at: take(&mut fields, "accepted_at", &mut doubts),
            submit_failing_since: take(&mut fields, "submit_failing_since", &mut doubts),
            token: take(&mut fields, "token", &mut doubts),
            window: window.filter(|window| WINDOWS.contains(window)),
            shared: take(&mut fields, "shared", &mut doubts),
            refusals: take(&mut fields, "refusals", &mut doubts),
            refused: take(&mut fields, "refused", &mut doubts),
            doubts,
        }
    }

    /// Returns the JSON text to store under [`KEY`].
    pub fn text(&self) -> String {
        // Numbers, strings, and options always serialize. An empty text would count as unreadable
        // the next time it's read.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Reads one field, returning its default value if it's missing or unreadable. An unreadable field
/// is added to `doubts`, without affecting the others.
fn take<T: DeserializeOwned + Default>(
    fields: &mut Map<String, Value>,
    name: &str,
    doubts: &mut Vec<String>,
) -> T {
    let read = fields.remove(name).map(serde_json::from_value);
    read.unwrap_or_else(|| Ok(T::default()))
        .unwrap_or_else(|error| {
            doubts.push(format!("{name} ({error})"));
            T::default()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn full_memory() -> Memory {
        let print = TokenFingerprint::of("svc_pat_dead");
        Memory {
            token: Some(print.clone()),
            window: Some(Duration::from_secs(60)),
            shared: Some(Shared {
                allowed: 30,
                since: EventTime::from_seconds(7),
            }),
            refused: Some(Refused {
                token: print,
                at: EventTime::from_seconds(8),
            }),
            ..Memory::default()
        }
    }

    fn stored_fields(memory: &Memory) -> Map<String, Value> {
        serde_json::from_str(&memory.text()).expect("an object")
    }

    fn read(fields: &Map<String, Value>) -> Memory {
        Memory::read(Some(&Value::Object(fields.clone()).to_string()))
    }

    #[test]
    fn memory_round_trip_ignores_unknown_fields() {
        let whole = full_memory();
        let mut fields = stored_fields(&whole);
        assert_eq!(read(&fields), whole);
        fields.insert("later".to_owned(), json!({"a": 1}));
        assert_eq!(read(&fields), whole);
        assert_eq!(Memory::read(None), Memory::default());
    }

    #[test]
    fn unreadable_field_adds_one_doubt_and_keeps_other_fields() {
        let whole = full_memory();
        let names: Vec<String> = stored_fields(&whole).keys().cloned().collect();
        assert_eq!(names.len(), 9);
        for name in names {
            let mut fields = stored_fields(&whole);
            fields.insert(name.clone(), json!({"of": "another version"}));
            let found = read(&fields);
            assert_eq!(found.doubts.len(), 1, "{name}: {found:?}");
            assert!(found.doubts[0].starts_with(&name), "{found:?}");
            let (mut kept, mut expected) = (stored_fields(&found), stored_fields(&whole));
            kept.remove(&name);
            expected.remove(&name);
            assert_eq!(kept, expected, "{name}");
        }
    }

    #[test]
    fn renamed_fields_and_invalid_json_are_reported_as_doubts() {
        for name in ["window", "shared"] {
            let mut fields = stored_fields(&full_memory());
            let value = fields.remove(name).expect("written");
            fields.insert(format!("{name}_v2"), value);
            assert_eq!(read(&fields).doubts.len(), 1, "{name}");
        }
        for text in ["", "no JSON", "7", "[]"] {
            let mut found = Memory::read(Some(text));
            assert_eq!(std::mem::take(&mut found.doubts).len(), 1, "{text}");
            assert_eq!(found, Memory::default(), "{text}");
        }
        let mut fields = stored_fields(&full_memory());
        fields["refusals"] = json!({"west": {"reason": "of_later", "calls": []}});
        assert_eq!(read(&fields).doubts.len(), 1, "an unknown reason");
        for impossible in [0, 3601, u64::MAX] {
            fields = stored_fields(&full_memory());
            fields["window"] = json!({"secs": impossible, "nanos": 0});
            let found = read(&fields);
            assert_eq!((found.doubts.len(), found.window), (1, None));
        }
    }
}
