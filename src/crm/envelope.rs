//! The common envelope (§2.1), read tolerantly: what the document does not publish is looked for
//! where it may stand, unknown fields pass by.

use super::answer::{Expiry, Grant, Page, TokenInfo};
use crate::journal::CallUuid;
use callbridge_call::EpochSeconds;
use serde_json::{Map, Value};

/// The prefix under which the journal keeps our uuids (§2.6).
const PREFIX: &str = "oapi-";

/// Characters kept of a text that is for people.
const WORDS_MAX: usize = 1000;

/// Bytes of a requestId; a longer one is no id.
const REQUEST_ID_MAX: usize = 256;

/// An answer's JSON object.
pub(super) struct Envelope(Map<String, Value>);

impl Envelope {
    /// `Err` says why the body is no JSON object.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(map)) => Ok(Self(map)),
            Ok(_) => Err("the body is JSON, but no object".to_owned()),
            Err(error) => Err(format!("the body is not JSON: {error}")),
        }
    }

    /// Said not to be accepted.
    pub(super) fn refused(&self) -> bool {
        self.0.get("accept") == Some(&Value::Bool(false))
    }

    /// The text for people.
    pub(super) fn message(&self) -> String {
        self.0.get("message").map(words).unwrap_or_default()
    }

    /// `errors[]` as the service sent it (§7.5); `Null` when it has none.
    pub(super) fn errors(&self) -> Value {
        match self.0.get("errors") {
            Some(Value::Array(all)) => all.iter().take(100).cloned().collect(),
            _ => Value::Null,
        }
    }

    /// `requestId` of the envelope, or inside `data`.
    pub(super) fn request_id(&self) -> Option<String> {
        let inside = self.data().and_then(|data| data.get("requestId"));
        let id = match self
            .0
            .get("requestId")
            .filter(|id| !id.is_null())
            .or(inside)?
        {
            Value::String(id) => id.trim().to_owned(),
            Value::Number(id) => id.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        (1..=REQUEST_ID_MAX).contains(&id.len()).then_some(id)
    }

    /// The status of an asynchronous write: `data` as a bare word, or an object (perhaps one
    /// deeper) with the word under `status`, `requestStatus` or `state`; else the envelope's.
    pub(super) fn status(&self) -> Option<(String, String)> {
        let places = [self.0.get("data"), self.0.get("data").and_then(only_object)];
        let found = places.into_iter().flatten().find_map(|place| match place {
            Value::String(word) => Some((word.clone(), String::new())),
            Value::Object(map) => status_of(map),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
        });
        let (word, said) = found.or_else(|| status_of(&self.0))?;
        let word = word.trim().to_uppercase();
        (1..=64)
            .contains(&word.chars().count())
            .then_some((word, said))
    }

    /// The record of `token/info` (§2.2); the company's id must be there.
    pub(super) fn token_info(&self) -> Option<TokenInfo> {
        let data = self.data()?;
        let part = |name: &str| data.get(name).and_then(Value::as_object);
        let company = part("company")?;
        let application = part("application");
        let permissions = data.get("permissions").and_then(Value::as_array);
        Some(TokenInfo {
            company: company.get("id").and_then(integer)?,
            company_name: company.get("name").map(words).unwrap_or_default(),
            application: application.and_then(|it| it.get("id")).and_then(integer),
            application_name: application
                .and_then(|it| it.get("name"))
                .map(words)
                .unwrap_or_default(),
            kind: data.get("kind").map(words).unwrap_or_default(),
            expires_at: data
                .get("expiresAt")
                .and_then(integer)
                .map(EpochSeconds::new),
            expires_in_days: data.get("expiresInDays").and_then(integer),
            grants: permissions.map(|all| all.iter().filter_map(grant).collect()),
        })
    }

    /// A page of the journal: rows as strings or objects with a `uuid`, under whatever key holds
    /// the array; `currentPage` and `totalPages` beside it or outside `data`.
    pub(super) fn page(&self) -> Option<Page> {
        let data = self.0.get("data")?;
        let rows = match data {
            Value::Array(rows) => rows,
            Value::Object(map) => map.values().filter_map(Value::as_array).max_by_key(|a| {
                (
                    a.iter().filter(|row| uuid_of(row).is_some()).count(),
                    a.len(),
                )
            })?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
        let count = |name: &str| {
            let value = data
                .get(name)
                .or_else(|| self.0.get(name))
                .and_then(integer);
            value.and_then(|value| u32::try_from(value).ok())
        };
        Some(Page {
            rows: u32::try_from(rows.len()).unwrap_or(u32::MAX),
            uuids: rows.iter().filter_map(uuid_of).collect(),
            current: count("currentPage"),
            total: count("totalPages"),
        })
    }

    /// §5.5: the message of a successful answer may be a warning in English.
    pub(super) fn expiry(&self) -> Option<Expiry> {
        let message = self.0.get("message")?.as_str()?;
        let rest = message.strip_prefix("Token ")?;
        if rest.starts_with("expires today") {
            return Some(Expiry { days: 0 });
        }
        let days = rest.strip_prefix("will expire in ")?.split(' ').next()?;
        Some(Expiry {
            days: days.parse().ok()?,
        })
    }

    fn data(&self) -> Option<&Map<String, Value>> {
        self.0.get("data").and_then(Value::as_object)
    }
}

/// The one object inside an object that has no status of its own: `{"request": {…}}`.
fn only_object(data: &Value) -> Option<&Value> {
    let mut objects = data.as_object()?.values().filter(|value| value.is_object());
    let only = objects.next()?;
    objects.next().is_none().then_some(only)
}

fn status_of(map: &Map<String, Value>) -> Option<(String, String)> {
    let word = ["status", "requestStatus", "state"]
        .into_iter()
        .find_map(|key| map.get(key).and_then(Value::as_str))?;
    let said = ["message", "error", "reason", "errorMessage", "description"]
        .into_iter()
        .find_map(|key| map.get(key).filter(|value| !value.is_null()).map(words));
    Some((word.to_owned(), said.unwrap_or_default()))
}

fn grant(value: &Value) -> Option<Grant> {
    match value {
        Value::Object(map) => Some(Grant {
            permission: map.get("permission")?.as_str()?.to_owned(),
            scope: map.get("scope")?.as_str()?.to_owned(),
        }),
        Value::String(text) => {
            let (permission, scope) = text.split_once(':')?;
            Some(Grant {
                permission: permission.to_owned(),
                scope: scope.to_owned(),
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

fn uuid_of(row: &Value) -> Option<CallUuid> {
    let text = match row {
        Value::String(text) => text,
        Value::Object(map) => map.get("uuid")?.as_str()?,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return None,
    };
    let bare = text.strip_prefix(PREFIX).unwrap_or(text);
    uuid::Uuid::try_parse(bare).ok().map(CallUuid)
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A text for people: a string as it is, anything else as JSON; cut to a bearable length.
fn words(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    text.chars().take(WORDS_MAX).collect()
}
