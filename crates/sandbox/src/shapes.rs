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

/// What becomes of `registeredTimestampFrom`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Range {
    /// It limits the rows.
    Kept,
    /// It is an unknown field, tolerated.
    Ignored,
    /// 400.
    Refused,
}

/// What becomes of `orders`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Orders {
    /// Rows stand in the order asked for; keys that nobody knows change nothing.
    Kept,
    /// They are of the right shape, and change nothing.
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

/// Rights that §5.4.3 leaves open; `None`: none is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightsShape {
    /// Of `call-history/filter`.
    pub filter: Option<Grant>,
    /// Of `request/{requestId}`.
    pub request: Option<Grant>,
}

impl Default for RightsShape {
    fn default() -> Self {
        Self {
            filter: Grant::parse(CALL_READ),
            request: None,
        }
    }
}

impl RightsShape {
    /// `none`, or `PERMISSION:SCOPE`.
    fn parse(value: &str) -> Result<Option<Grant>, String> {
        match (value, Grant::parse(value)) {
            ("none", _) => Ok(None),
            (_, Some(grant)) => Ok(Some(grant)),
            (_, None) => Err(format!(
                "`{value}` is neither none nor a grant such as {CALL_READ}"
            )),
        }
    }
}

/// How `callId` is written: "the conversation uuid in the journal" (§6.8), where it stands with
/// the prefix `oapi-` (§2.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CallId {
    /// `oapi-…`
    #[default]
    Prefixed,
    /// As submitted.
    Plain,
}

/// What the document leaves open about deliveries, or allows: a receiver has to take it all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebhookShapes {
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

/// One choice for each thing that §4.7 leaves open about pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageShapes {
    /// Of its rows.
    pub rows: Rows,
    /// The key of the array of rows.
    pub rows_key: String,
    /// Of `currentPage` and `totalPages`.
    pub paging: Paging,
    /// Of the range filter.
    pub range: Range,
    /// Of the order asked for.
    pub orders: Orders,
    /// Largest page (30 to 100).
    pub size_max: i64,
}

/// One choice for each thing left open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// Of a request's status.
    pub status: StatusShape,
    /// Of a page of records.
    pub page: PageShapes,
    /// Of `registeredTimestamp`.
    pub registered: Registered,
    /// The status of a write that is not yet done (§3.2 names only the two ends).
    pub pending: String,
    /// What reading needs where the document leaves it open.
    pub rights: RightsShape,
    /// Of deliveries: `shape webhook-…`.
    pub webhook: WebhookShapes,
    /// Of the journal, for trials.
    pub journal: JournalShapes,
}

/// What a journal may be like that a client has to see through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalShapes {
    /// Fields of its event that it shows as null, whatever was sent (§6.8).
    pub without: Vec<String>,
    /// A telephony of the CRM's own that journals each call, too.
    pub foreign: Option<String>,
}

impl Default for Shapes {
    fn default() -> Self {
        Self {
            status: StatusShape::Object,
            page: PageShapes {
                rows: Rows::Objects,
                rows_key: "content".to_owned(),
                paging: Paging::Inside,
                range: Range::Kept,
                orders: Orders::Kept,
                size_max: 100,
            },
            registered: Registered::Stored,
            pending: "PENDING".to_owned(),
            rights: RightsShape::default(),
            webhook: WebhookShapes::default(),
            journal: JournalShapes::default(),
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
            "rows" => self.page.rows = one_of(value)?,
            "rows-key" => value.clone_into(&mut self.page.rows_key),
            "page" => self.page.paging = one_of(value)?,
            "range" => self.page.range = one_of(value)?,
            "orders" => self.page.orders = one_of(value)?,
            "size-max" => {
                let size = value.parse().ok().filter(|size| (30..=100).contains(size));
                self.page.size_max = size.ok_or("size-max is 30 to 100")?;
            }
            "registered" => self.registered = one_of(value)?,
            "filter-grant" => self.rights.filter = RightsShape::parse(value)?,
            "request-grant" => self.rights.request = RightsShape::parse(value)?,
            "pending" => value.clone_into(&mut self.pending),
            "webhook-call-id" => self.webhook.call_id = one_of(value)?,
            "webhook-extra" => self.webhook.extra = yes(value)?,
            "webhook-shuffled" => self.webhook.shuffled = yes(value)?,
            "webhook-twice" => {
                let percent = value.strip_suffix('%').and_then(|n| n.parse().ok());
                let percent = percent.filter(|percent| *percent <= 100);
                self.webhook.twice_percent = percent.ok_or("a percentage such as 20% expected")?;
            }
            "journal-without" => {
                self.journal.without = value.split(',').map(str::to_owned).collect();
            }
            "journal-foreign" => self.journal.foreign = Some(value.to_owned()),
            "webhook-late" => self.webhook.late_max = parse_duration(value)?,
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

fn yes(word: &str) -> Result<bool, String> {
    match word {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err(format!("`{word}`: yes or no expected")),
    }
}
