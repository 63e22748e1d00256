//! A tolerant parser for the common envelope (§2.1). If the document doesn't say where a value is,
//! it's searched for in likely places. Unknown fields are ignored.

use super::lenient;
use callbridge_call::{Direction, EpochSeconds};
use callbridge_model::{CallUuid, Grant, is_hostile};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The status of a write that was successful (§3.2).
pub(crate) const SUCCESS: &str = "SUCCESS";

/// The CRM's word for a write that won't be done (§3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum FailureWord {
    /// The CRM doesn't know the write's lead, employee, or call.
    Failed,
}

/// The journal's prefix for our UUIDs (§2.6).
const PREFIX: &str = "oapi-";

/// Maximum length in characters of a human-readable text. Anything longer is cut off.
const WORDS_MAX: usize = 1000;

/// Maximum number of entries in `errors[]` to keep.
const ERRORS_MAX: usize = 100;

/// Maximum length of a requestId in bytes.
const REQUEST_ID_MAX: usize = 256;

/// Depth to which `data` is searched for a status, and a row for a UUID.
const STATUS_DEPTH: u32 = 2;
const ROW_DEPTH: u32 = 2;

/// Keys for a status, most likely first.
const STATUS_KEYS: [&str; 5] = ["status", "requestStatus", "state", "result", "outcome"];

/// Keys for a human-readable text.
const MESSAGE_KEYS: [&str; 6] = [
    "message",
    "error",
    "reason",
    "errorMessage",
    "description",
    "title",
];

/// Returns `true` if a response comes from the CRM, whose full and reduced envelopes both have a
/// Boolean `accept` (§2.1, §7.1). Any other response comes from a proxy.
pub fn is_own(answer: &Map<String, Value>) -> bool {
    answer.get("accept").is_some_and(Value::is_boolean)
}

/// A response's JSON object, whose fields haven't been read yet.
pub(super) struct Envelope(pub(super) Map<String, Value>);

impl Envelope {
    /// Parses a body. The error says why it isn't a JSON object.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        match lenient::read(body)? {
            Value::Object(map) => Ok(Self(map)),
            _ => Err("the body is JSON, but not an object".to_owned()),
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.0.get("accept") == Some(&Value::Bool(false))
    }

    /// Returns the envelope's human-readable `message`, or an empty text if there is none.
    pub(super) fn message(&self) -> String {
        text_at(&self.0, "message")
    }

    /// Returns everything that an error says, which is the human-readable text, the parser's or
    /// validator's text in `data` (§7.1), and `error.messageCode` (§7.5) with its arguments.
    pub(super) fn explanation(&self) -> String {
        let message = self.message();
        let data = text_at(&self.0, "data");
        let mut text = match (message.as_str(), data.as_str()) {
            (_, "") => message,
            ("", _) => data,
            (one, other) if one == other => message,
            (one, other) => format!("{one}: {other}"),
        };
        let error = self.0.get("error").and_then(Value::as_object);
        if let Some(code) = error.and_then(message_code) {
            text = if text.is_empty() {
                code
            } else {
                format!("{text} ({code})")
            };
        }
        text.chars().take(WORDS_MAX).collect()
    }

    /// Returns the CRM's `errors[]` (§7.5), or `Null` if there are none.
    pub(super) fn errors(&self) -> Value {
        match self.0.get("errors") {
            Some(Value::Array(all)) => all.iter().take(ERRORS_MAX).cloned().collect(),
            _ => Value::Null,
        }
    }

    /// Reads a FAILED status's `errors[]`, either from the envelope or from inside `data`.
    pub(super) fn errors_of_status(&self) -> Value {
        let data = single_entry(self.0.get("data").unwrap_or(&Value::Null));
        self.0
            .get("errors")
            .and_then(nonempty_list)
            .or_else(|| listed_errors(data))
            .or_else(|| data.as_object()?.values().find_map(listed_errors))
            .unwrap_or_default()
    }

    /// Returns `requestId`, either from the envelope or from inside `data`.
    pub(super) fn request_id(&self) -> Option<String> {
        let inside = self.data().and_then(|data| data.get("requestId"));
        let outside = self.0.get("requestId").filter(|id| !id.is_null());
        let id = match outside.or(inside)? {
            Value::String(id) => id.trim().to_owned(),
            Value::Number(id) => id.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
        };
        if id.is_empty() || id.len() > REQUEST_ID_MAX || id.contains(is_hostile) {
            return None;
        }
        Some(id)
    }

    /// Returns an asynchronous write's status and its human-readable text. The status is `data`
    /// itself or a word under a known key in `data`, possibly one or two levels deeper. Failing
    /// that, it's one of the two documented words (§3.2) anywhere in `data`, or the envelope's own
    /// status.
    pub(super) fn status(&self) -> Option<(String, String)> {
        let data = self.0.get("data").unwrap_or(&Value::Null);
        let found = match single_entry(data) {
            Value::String(word) => Some((word.clone(), String::new())),
            data => keyed_status(data, STATUS_DEPTH).or_else(|| named_status(data)),
        };
        let (word, message) = found.or_else(|| status_of(&self.0))?;
        let word = word.trim().to_uppercase();
        if !(1..=64).contains(&word.chars().count()) {
            return None;
        }
        Some((word, message))
    }

    /// Reads the `token/info` record (§2.2), which must contain the company's ID.
    pub(super) fn token_info(&self) -> Option<TokenInfo> {
        let data = self.data()?;
        let company = data.get("company")?.as_object()?;
        let application = data.get("application").and_then(Value::as_object);
        let permissions = data.get("permissions").and_then(Value::as_array);
        Some(TokenInfo {
            company: company.get("id").and_then(integer)?,
            company_name: text_at(company, "name"),
            application: application.and_then(|application| integer(application.get("id")?)),
            application_name: application
                .map(|application| text_at(application, "name"))
                .unwrap_or_default(),
            kind: text_at(data, "kind"),
            expires_at: data
                .get("expiresAt")
                .and_then(integer)
                .map(EpochSeconds::new),
            expires_in_days: data.get("expiresInDays").and_then(integer),
            grants: permissions.map(|all| all.iter().filter_map(grant).collect()),
        })
    }

    /// Reads a page of the journal, whose rows may be of any kind and under any key, in `data` or
    /// one level deeper. `currentPage` and `totalPages` may be next to the rows, above them, or
    /// missing.
    pub(super) fn page(&self) -> Option<Page> {
        let data = self.0.get("data")?;
        let mut places: Vec<&Map<String, Value>> = Vec::new();
        if let Some(map) = data.as_object() {
            places.push(map);
            places.extend(map.values().filter_map(Value::as_object));
        }
        let best = places.iter().filter_map(|map| best_rows(map));
        let rows = data.as_array().or_else(|| best.max_by_key(rate_rows))?;
        places.push(&self.0);
        let mut shown = Vec::new();
        for row in rows {
            collect_calls(row, ROW_DEPTH, &mut shown);
        }
        Some(Page {
            rows: u32::try_from(rows.len()).unwrap_or(u32::MAX),
            uuids: shown.iter().map(|call| call.uuid).collect(),
            shown,
            current: first_count(&places, "currentPage"),
            total: first_count(&places, "totalPages"),
        })
    }

    /// Returns the number of days until the token expires, since the message in a successful
    /// response may contain a warning in English (§5.5).
    pub(super) fn token_days_left(&self) -> Option<u32> {
        let message = self.0.get("message")?.as_str()?;
        let rest = message.strip_prefix("Token ")?;
        if rest.starts_with("expires today") {
            return Some(0);
        }
        let days = rest.strip_prefix("will expire in ")?.split(' ').next()?;
        days.parse().ok()
    }

    fn data(&self) -> Option<&Map<String, Value>> {
        self.0.get("data").and_then(Value::as_object)
    }
}

/// Formats `error.messageCode` with its arguments (§7.5), or returns `None` if there's no code.
fn message_code(error: &Map<String, Value>) -> Option<String> {
    let code = value_text(error.get("messageCode")?);
    if code.is_empty() {
        return None;
    }
    match text_at(error, "args").as_str() {
        "" | "[]" | "{}" => Some(format!("messageCode {code}")),
        args => Some(format!("messageCode {code} {args}")),
    }
}

/// Returns the first integer under this key in `places`, or `None` if there is none or it's
/// negative or too large.
fn first_count(places: &[&Map<String, Value>], key: &str) -> Option<u32> {
    let mut values = places.iter().filter_map(|place| place.get(key));
    u32::try_from(values.find_map(integer)?).ok()
}

fn listed_errors(value: &Value) -> Option<Value> {
    nonempty_list(value.get("errors")?)
}

/// Returns a nonempty list, or `None` for any other value.
fn nonempty_list(value: &Value) -> Option<Value> {
    let all = value.as_array().filter(|all| !all.is_empty())?;
    Some(all.iter().take(ERRORS_MAX).cloned().collect())
}

/// Replaces a list that has a single entry with that entry.
fn single_entry(value: &Value) -> &Value {
    match value.as_array().map(Vec::as_slice) {
        Some([one]) => one,
        Some(_) | None => value,
    }
}

/// Finds a status under a known key, either in this object or in objects inside it, down to `depth`
/// levels. The outermost status wins.
fn keyed_status(value: &Value, depth: u32) -> Option<(String, String)> {
    let map = single_entry(value).as_object()?;
    let here = status_of(map);
    if here.is_some() || depth == 0 {
        return here;
    }
    let mut inside = map
        .values()
        .filter_map(|value| keyed_status(value, depth - 1));
    let (word, message) = inside.next()?;
    // If two statuses differ, there's no telling which one is meant.
    if !inside.all(|(other, _)| other.eq_ignore_ascii_case(&word)) {
        return None;
    }
    Some((word, message))
}

fn status_of(map: &Map<String, Value>) -> Option<(String, String)> {
    let word = STATUS_KEYS
        .into_iter()
        .find_map(|key| map.get(key).and_then(word_of))?;
    Some((word.to_owned(), message_in(map)))
}

/// Returns the object's human-readable text, or an empty text if it has none.
fn message_in(map: &Map<String, Value>) -> String {
    let mut all = MESSAGE_KEYS.into_iter().filter_map(|key| map.get(key));
    let message = all.find(|value| !value.is_null());
    message.map(value_text).unwrap_or_default()
}

/// Returns the word in `"SUCCESS"`, or in `{"name": "SUCCESS"}`, which is another common form for
/// enums.
fn word_of(value: &Value) -> Option<&str> {
    match value {
        Value::String(word) => Some(word),
        Value::Object(map) => ["name", "code", "value", "key", "status"]
            .into_iter()
            .find_map(|key| map.get(key).and_then(Value::as_str)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// Finds a final status (§3.2) under any key except for those of human-readable texts, because
/// every good response has the message `Success` (§2.1).
fn named_status(data: &Value) -> Option<(String, String)> {
    let map = data.as_object()?;
    let deeper = map.values().filter_map(Value::as_object);
    let mut finals = std::iter::once(map).chain(deeper).flat_map(|map| {
        map.iter()
            .filter_map(move |(key, value)| Some((final_word(key, value)?, map)))
    });
    let (word, map) = finals.next()?;
    if !finals.all(|(other, _)| other == word) {
        return None;
    }
    Some((word, message_in(map)))
}

fn final_word(key: &str, value: &Value) -> Option<String> {
    let word = value.as_str()?.trim().to_uppercase();
    let is_final = word == SUCCESS || word.parse::<FailureWord>().is_ok();
    if !is_final || MESSAGE_KEYS.contains(&key) {
        return None;
    }
    Some(word)
}

/// Formats a permission with its scope, from an object or a text.
fn grant(value: &Value) -> Option<String> {
    match value {
        Value::Object(map) => {
            let permission = map.get("permission")?.as_str()?;
            let scope = map.get("scope")?.as_str()?;
            Some(format!("{permission}:{scope}"))
        }
        Value::String(text) => text.contains(':').then(|| text.clone()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// Returns the object's array that most likely contains the rows.
fn best_rows(map: &Map<String, Value>) -> Option<&Vec<Value>> {
    let lists = map.values().filter_map(Value::as_array);
    lists.max_by_key(rate_rows)
}

/// Rates how likely an array contains a page's rows, by how many of its elements identify a call,
/// and then by how many elements it has.
fn rate_rows(rows: &&Vec<Value>) -> (usize, usize) {
    let calls = rows.iter().filter(|row| names_a_call(row)).count();
    (calls, rows.len())
}

fn names_a_call(row: &Value) -> bool {
    let mut found = Vec::new();
    collect_calls(row, ROW_DEPTH, &mut found);
    !found.is_empty()
}

/// Collects everything in a row that may be the UUID of one of our calls, under any key, along with
/// the fields next to it. Since our UUIDs are derived only from the call, one never matches by
/// chance.
fn collect_calls(row: &Value, depth: u32, found: &mut Vec<ShownCall>) {
    match row {
        Value::String(text) => {
            if let Some(uuid) = uuid_in(text) {
                add_call(uuid, &Map::new(), found);
            }
        }
        Value::Object(map) if depth > 0 => {
            for uuid in map.values().filter_map(Value::as_str).filter_map(uuid_in) {
                add_call(uuid, map, found);
            }
            for value in map.values().filter(|value| value.is_object()) {
                collect_calls(value, depth - 1, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {}
    }
}

fn add_call(uuid: CallUuid, fields: &Map<String, Value>, found: &mut Vec<ShownCall>) {
    if !found.iter().any(|call| call.uuid == uuid) {
        found.push(ShownCall::read(uuid, fields));
    }
}

fn uuid_in(text: &str) -> Option<CallUuid> {
    let text = text.trim();
    let bare = match text.split_at_checked(PREFIX.len()) {
        Some((prefix, bare)) if prefix.eq_ignore_ascii_case(PREFIX) => bare,
        Some(_) | None => text,
    };
    uuid::Uuid::try_parse(bare).ok().map(CallUuid)
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        // Some systems write 3.0 for 3.
        Value::Number(number) => number.as_i64().or_else(|| whole_number(number.as_f64()?)),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn whole_number(number: f64) -> Option<i64> {
    // Above this number, a float can no longer tell consecutive integers apart.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        Some(number as i64)
    } else {
        None
    }
}

/// Returns the human-readable text under a key, or an empty text if there is none.
fn text_at(map: &Map<String, Value>, key: &str) -> String {
    map.get(key).map(value_text).unwrap_or_default()
}

/// Formats a human-readable text, which is a string as is or anything else as JSON, truncated to a
/// readable length.
fn value_text(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            other.to_string()
        }
    };
    text.chars().take(WORDS_MAX).collect()
}

/// A page of the call journal (§4.5, §4.7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// Number of rows on the page, for calls from any provider.
    pub rows: u32,
    /// The UUIDs that may be ours, without the `oapi-` prefix.
    pub uuids: Vec<CallUuid>,
    /// The same calls, along with the fields in their rows.
    pub shown: Vec<ShownCall>,
    /// `currentPage`, counting from 1, or `None` if it's missing.
    pub current: Option<u32>,
    /// `totalPages`, or `None` if it's missing.
    pub total: Option<u32>,
}

/// The fields of a call as shown in a row of the journal. Since the document doesn't describe the
/// rows (§4.7), a field is read if its name is the one used for submission (§2.6) or in webhooks
/// (§6.8) and its value has the right type. Otherwise, it's unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownCall {
    /// The UUID, without the `oapi-` prefix.
    pub uuid: CallUuid,
    /// `leadId` or `leadIds`, or empty if the row has none.
    pub leads: Vec<i64>,
    /// `durationSec`, in seconds, or `None` if the row has none.
    pub duration_sec: Option<i64>,
    /// `answered`, or `None` if the row has none.
    pub answered: Option<bool>,
    /// `direction`, or `None` if the row has none.
    pub direction: Option<Direction>,
}

impl ShownCall {
    /// Reads the object that contains a UUID.
    pub(super) fn read(uuid: CallUuid, row: &Map<String, Value>) -> Self {
        let one = row.get("leadId").and_then(integer);
        let many = row.get("leadIds").and_then(Value::as_array);
        let leads = one
            .into_iter()
            .chain(many.into_iter().flatten().filter_map(integer));
        Self {
            uuid,
            leads: leads.collect(),
            duration_sec: row.get("durationSec").and_then(integer),
            answered: row.get("answered").and_then(Value::as_bool),
            direction: row.get("direction").and_then(direction),
        }
    }
}

fn direction(value: &Value) -> Option<Direction> {
    match &*value.as_str()?.trim().to_ascii_uppercase() {
        "INBOUND" => Some(Direction::Inbound),
        "OUTBOUND" => Some(Direction::Outbound),
        _ => None,
    }
}

/// The `token/info` record (§2.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenInfo {
    /// `company.id`. A record without it isn't read.
    pub company: i64,
    /// `company.name`, or empty if it's missing.
    pub company_name: String,
    /// `application.id`, if it's present.
    pub application: Option<i64>,
    /// `application.name`, or empty if it's missing.
    pub application_name: String,
    /// `PAT` or `ACCESS`, or empty if it's missing.
    pub kind: String,
    /// `expiresAt`, or `None` if the token doesn't expire.
    pub expires_at: Option<EpochSeconds>,
    /// `expiresInDays`, which is the number of days left as counted by the CRM.
    pub expires_in_days: Option<i64>,
    /// The connection's grants, each as `PERMISSION:SCOPE`, or `None` if they're missing.
    pub grants: Option<Vec<String>>,
}

impl TokenInfo {
    /// Returns `true` if the token has this grant, or if its grants are missing.
    pub fn may(&self, grant: Grant) -> bool {
        let grants = self.grants.as_ref();
        grants.is_none_or(|grants| grant.is_among(grants))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiReply, Endpoint, read};
    use serde_json::json;

    const ID: &str = "5f0c2f54-6f2e-5a8b-9d7e-0c4b6f5c1a11";

    /// Returns the calls on a page that only has this row.
    fn calls_shown(row: &Value) -> Vec<ShownCall> {
        let body = json!({"data": {"list": [row]}}).to_string();
        match read(Endpoint::Filter, 200, body.as_bytes()).answer {
            Ok(ApiReply::Page(page)) => page.shown,
            other => panic!("no page: {other:?}"),
        }
    }

    #[test]
    fn journal_row_is_read_without_its_invalid_values() {
        let uuid = CallUuid(uuid::Uuid::try_parse(ID).expect("a uuid"));
        let whole = ShownCall {
            uuid,
            leads: vec![4001],
            duration_sec: Some(61),
            answered: Some(true),
            direction: Some(Direction::Inbound),
        };
        let plain = json!({"uuid": format!("oapi-{ID}"), "leadId": 4001, "durationSec": 61,
            "answered": true, "direction": "INBOUND"});
        assert_eq!(calls_shown(&plain), std::slice::from_ref(&whole));
        assert_eq!(calls_shown(&json!({"id": 7, "call": plain})), [whole]);
        // A value with the wrong type is ignored.
        let odd = json!({"uuid": ID, "leadId": {"id": 1}, "durationSec": 61.5,
            "answered": "yes", "direction": "BOTH"});
        assert_eq!(calls_shown(&odd), [ShownCall::read(uuid, &Map::new())]);
        let leads = calls_shown(&json!({"uuid": ID, "leadIds": [4001, "4002", null]}));
        assert_eq!(leads[0].leads, [4001, 4002]);
    }
}
