//! Answer formats and rules that the document leaves open. A client must support all of them.

use crate::{CALL_READ, Grant, window::parse_duration};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::time::Duration;

/// The form of a request's status in `data`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusShape {
    /// An object with one key: `{"status": "SUCCESS"}`.
    Object,
    /// A string without an object: `"SUCCESS"`.
    Bare,
}

/// The form of a page's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rows {
    /// Objects with all values of the call or the lead.
    Objects,
    /// Bare values: the uuids of calls, or the ids of leads.
    Strings,
}

/// The place of `currentPage` and `totalPages` in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Paging {
    /// Both are in `data`, which has the rows under a key.
    Inside,
    /// Both are beside `data`, which is the array of rows.
    Beside,
}

/// The treatment of a range such as `registeredTimestampFrom`, or of `orders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Treatment {
    /// The field takes effect: a range limits the rows, and a known key of `orders` sorts them.
    Kept,
    /// The field changes nothing, as if it were not sent.
    Ignored,
    /// The request is answered with 400.
    Refused,
}

/// The moment that `registeredTimestamp` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Registered {
    /// The moment at which the record was written.
    Stored,
    /// The start of the call, as in `startedAt`.
    Started,
}

/// The form of `callId` in webhooks. It is "the conversation uuid in the journal" (§6.8), and the
/// journal's uuid has the prefix `oapi-` (§2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallId {
    /// The uuid with its prefix: `oapi-…`.
    Prefixed,
    /// The uuid as it was submitted.
    Plain,
}

/// One choice for each point that the document leaves open. Fault texts set a choice with `shape
/// NAME VALUE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// Form of a request's status.
    pub status: StatusShape,
    /// Form of a page's rows (§4.7).
    pub rows: Rows,
    /// The key of the array of rows.
    pub rows_key: String,
    /// Place of `currentPage` and `totalPages`.
    pub page: Paging,
    /// Treatment of the range filter.
    pub range: Treatment,
    /// Treatment of the requested order.
    pub orders: Treatment,
    /// Largest page size (30 to 100).
    pub size_max: i64,
    /// The moment shown as `registeredTimestamp`.
    pub registered: Registered,
    /// The grant that `call-history/filter` needs, which §5.4.3 leaves open. `None` means none.
    pub filter_grant: Option<Grant>,
    /// The grant that `request/{requestId}` needs, which §5.4.3 leaves open. `None` means none.
    pub request_grant: Option<Grant>,
    /// The status of a write that is not done yet. §3.2 names only the two final statuses.
    pub pending: String,
    /// Form of `callId` in deliveries.
    pub webhook_call_id: CallId,
    /// `true` to add fields and values that the document does not have (§6.5, Versioning) to
    /// deliveries.
    pub webhook_extra: bool,
    /// `true` to send deliveries in random order (§6.1.4).
    pub webhook_shuffled: bool,
    /// Percentage of deliveries that arrive twice (§6.1.4).
    pub webhook_twice: u8,
    /// Largest random delay of a delivery.
    pub webhook_late: Duration,
    /// Fields of a call's event that are null, whatever was submitted (§6.8).
    pub journal_without: Vec<String>,
    /// The provider name of another telephony system that journals each call, too. `None` if there
    /// is no such system.
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
    /// Sets a shape by its name and value, as in a text of faults.
    ///
    /// # Errors
    /// A message about the unknown name or invalid value.
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
                let percent = value
                    .strip_suffix('%')
                    .and_then(|digits| digits.parse().ok())
                    .filter(|percent| *percent <= 100);
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
}

/// Parses a choice from its name in a fault text, such as `bare`.
fn one_of<T: DeserializeOwned>(word: &str) -> Result<T, String> {
    serde_json::from_value(json!(word)).map_err(|error| error.to_string())
}

/// Parses a grant such as `PERMISSION:SCOPE`. The word `none` gives `None`.
fn grant(word: &str) -> Result<Option<Grant>, String> {
    match Grant::parse(word) {
        None if word != "none" => Err(format!(
            "`{word}` is neither none nor a grant such as {CALL_READ}"
        )),
        grant => Ok(grant),
    }
}

fn yes(word: &str) -> Result<bool, String> {
    match word {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`{word}`: yes or no expected")),
    }
}
