//! Shapes that the document leaves unpublished; a client has to read them all.

use super::token::{CALL_READ, Grant};
use super::window::parse_duration;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// How a request's status stands in `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusShape {
    /// `{"status": "SUCCESS"}`
    Object,
    /// `"SUCCESS"`
    Bare,
}

/// How a page's rows look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// Objects with `uuid` and the call.
    Objects,
    /// The uuids alone.
    Strings,
}

/// Where `currentPage` and `totalPages` stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Paging {
    /// In `data`, with the rows under a key.
    Inside,
    /// Beside `data`, which is the array of rows.
    Beside,
}

/// What becomes of a range such as `registeredTimestampFrom`, or of `orders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Treatment {
    /// It limits the rows, or orders them; keys that nobody knows change nothing.
    Kept,
    /// It changes nothing.
    Ignored,
    /// 400.
    Refused,
}

/// Which moment `registeredTimestamp` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registered {
    /// When the record was written.
    Stored,
    /// The call's `startedAt`.
    Started,
}

/// How `callId` is written: "the conversation uuid in the journal" (§6.8), where it stands with
/// the prefix `oapi-` (§2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallId {
    /// `oapi-…`
    Prefixed,
    /// As submitted.
    Plain,
}

/// One choice for each thing that the document leaves open, named as in a text of faults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// Of a request's status.
    pub status: StatusShape,
    /// Of a page's rows (§4.7).
    pub rows: Rows,
    /// The key of the array of rows.
    pub rows_key: String,
    /// Of `currentPage` and `totalPages`.
    pub page: Paging,
    /// Of the range filter.
    pub range: Treatment,
    /// Of the order asked for.
    pub orders: Treatment,
    /// Largest page (30 to 100).
    pub size_max: i64,
    /// Of `registeredTimestamp`.
    pub registered: Registered,
    /// The right that `call-history/filter` needs, where §5.4.3 leaves it open; `None`: none.
    pub filter_grant: Option<Grant>,
    /// The same of `request/{requestId}`.
    pub request_grant: Option<Grant>,
    /// The status of a write that is not yet done (§3.2 names only the two ends).
    pub pending: String,
    /// Of `callId` in deliveries.
    pub webhook_call_id: CallId,
    /// Deliveries with fields and values that the document does not have (§6.5, Versioning).
    pub webhook_extra: bool,
    /// Deliveries leave in any order (§6.1.4).
    pub webhook_shuffled: bool,
    /// So many of a hundred deliveries arrive twice (§6.1.4).
    pub webhook_twice: u8,
    /// Deliveries leave up to this much later than they might, by the dice.
    pub webhook_late: Duration,
    /// Fields of its event that the journal shows as null, whatever was sent (§6.8).
    pub journal_without: Vec<String>,
    /// A telephony of the CRM's own that journals each call, too.
    pub journal_foreign: Option<String>,
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            status: StatusShape::Object,
            rows: Rows::Objects,
            rows_key: "content".to_owned(),
            page: Paging::Inside,
            range: Treatment::Kept,
            orders: Treatment::Kept,
            size_max: 100,
            registered: Registered::Stored,
            filter_grant: Grant::parse(CALL_READ),
            request_grant: None,
            pending: "PENDING".to_owned(),
            webhook_call_id: CallId::Prefixed,
            webhook_extra: false,
            webhook_shuffled: false,
            webhook_twice: 0,
            webhook_late: Duration::ZERO,
            journal_without: Vec::new(),
            journal_foreign: None,
        }
    }
}

impl Shapes {
    /// Sets one by its words in a text of faults.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "status" => self.status = one_of(value)?,
            "rows" => self.rows = one_of(value)?,
            "rows-key" => value.clone_into(&mut self.rows_key),
            "page" => self.page = one_of(value)?,
            "range" => self.range = one_of(value)?,
            "orders" => self.orders = one_of(value)?,
            "size-max" => {
                let size = value.parse().ok().filter(|size| (30..=100).contains(size));
                self.size_max = size.ok_or("size-max is 30 to 100")?;
            }
            "registered" => self.registered = one_of(value)?,
            "filter-grant" => self.filter_grant = grant(value)?,
            "request-grant" => self.request_grant = grant(value)?,
            "pending" => value.clone_into(&mut self.pending),
            "webhook-call-id" => self.webhook_call_id = one_of(value)?,
            "webhook-extra" => self.webhook_extra = yes(value)?,
            "webhook-shuffled" => self.webhook_shuffled = yes(value)?,
            "webhook-twice" => {
                let percent = value.strip_suffix('%').and_then(|n| n.parse().ok());
                let percent = percent.filter(|percent| *percent <= 100);
                self.webhook_twice = percent.ok_or("a percentage such as 20% expected")?;
            }
            "webhook-late" => self.webhook_late = parse_duration(value)?,
            "journal-without" => {
                self.journal_without = value.split(',').map(str::to_owned).collect();
            }
            "journal-foreign" => self.journal_foreign = Some(value.to_owned()),
            _ => return Err(format!("no shape `{name} {value}`")),
        }
        Ok(())
    }

    /// `data` of a request's status.
    pub fn status_data(&self, word: &str) -> Value {
        match self.status {
            StatusShape::Object => json!({ "status": word }),
            StatusShape::Bare => json!(word),
        }
    }
}

/// The choice of this word.
fn one_of<T: DeserializeOwned>(word: &str) -> Result<T, String> {
    serde_json::from_value(json!(word)).map_err(|error| error.to_string())
}

/// `none`, or `PERMISSION:SCOPE`.
fn grant(word: &str) -> Result<Option<Grant>, String> {
    let grant = Grant::parse(word);
    if grant.is_none() && word != "none" {
        let words = format!("`{word}` is neither none nor a grant such as {CALL_READ}");
        return Err(words);
    }
    Ok(grant)
}

fn yes(word: &str) -> Result<bool, String> {
    match word {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`{word}`: yes or no expected")),
    }
}
