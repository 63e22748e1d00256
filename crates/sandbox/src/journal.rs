//! The call journal: accepted writes of calls and of lead fields, their outcome, and the records
//! (§2.6, §3.2, §4.4, §4.5).
//!
//! ```text
//! accept ─▶ pending ──due──▶ SUCCESS, one record per uuid
//!                       └──▶ FAILED, unknown leadId or employeeId
//! ```

use crate::{FieldUpsert, TokenKey, pairs};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time for which the status of a write can be read (§3.2).
pub const STATUS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Most writes that a sandbox accepts in its lifetime. Further writes are answered with 500.
pub const WRITES_MAX: u64 = 2_000_000;
/// The prefix that the CRM adds to a uuid (§2.6).
pub const PREFIX: &str = "oapi-";

/// The provider of submitted calls (§2.6).
pub(crate) const OPEN_API: &str = "OPEN_API";

/// A call that a client submitted and that passed validation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Submission {
    /// The id of the call's lead (§2.6).
    pub lead_id: i64,
    /// The id of the call's employee (§2.6). `None` if none was sent.
    pub employee_id: Option<i64>,
    /// The uuid as sent, without the prefix.
    pub uuid: String,
    /// Start of the call in epoch seconds.
    pub started_at: i64,
    /// Length of the call in seconds.
    pub duration_sec: i64,
    /// Talk time in seconds. [`crate::config::FieldNames::talk`] has the name of the body's field.
    pub talk_time_sec: Option<i64>,
    /// The value of `answered` as sent (§2.6).
    pub answered: bool,
    /// The direction: `INBOUND` or `OUTBOUND`.
    pub direction: String,
    /// The customer's number. [`crate::config::FieldNames::phone`] has the name of the body's
    /// field.
    pub client_phone: Option<String>,
    /// The operator's extension. [`crate::config::FieldNames::extension`] has the name of the
    /// body's field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator_extension: Option<String>,
    /// Fields of the body that the document does not name. The sandbox accepts and stores them.
    pub others: Map<String, Value>,
}

/// The content of an accepted write, by its endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// A call of `POST call-history`.
    Call(Submission),
    /// Field values of `POST lead/{id}/field/list`.
    Fields(FieldUpsert),
}

/// An accepted write, which was answered with 200, and its progress.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Write {
    /// The `requestId` in the answer to the write.
    pub request_id: String,
    /// The id of the company whose data the write changes.
    pub company: i64,
    /// The fingerprint of the token that submitted the write. Only this token can read the status.
    pub token: TokenKey,
    /// The moment at which the write was answered with 200.
    pub accepted_at: EventTime,
    /// The moment at which the write is carried out.
    pub due: EventTime,
    /// `true` if the 200 with the requestId was sent completely and without delay, so the client
    /// knows that the write was accepted.
    pub answered: bool,
    /// `true` if a fault rule makes the write end FAILED, whatever its content.
    pub doomed: bool,
    /// The call or the lead fields to write.
    pub content: Content,
    /// Progress of the write, as the status endpoint reports it.
    pub status: Status,
    /// The reason of the failure, for people. `None` unless the write failed.
    pub why: Option<String>,
}

/// A record of the journal, with the fields that the CRM derives (§2.6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The call's uuid with the prefix `oapi-`.
    pub uuid: String,
    /// The requestId of the write that made the record.
    pub request_id: String,
    /// The company whose journal holds the record.
    pub company_id: i64,
    /// The call as submitted; the uuid here has no prefix.
    pub call: Submission,
    /// End of the call in epoch seconds: `startedAt + durationSec`.
    pub ended_at: i64,
    /// `ANSWER` or `NO_ANSWER`, derived from `answered`.
    pub hangup_cause: String,
    /// `OPEN_API` for submitted calls, or the name of another provider.
    pub provider: String,
    /// The moment at which the record was written.
    pub registered_at: EventTime,
}

/// Progress of a write, named as in §3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Accepted, and not yet carried out.
    Pending,
    /// Written, now or by an earlier write of the same uuid.
    Success,
    /// Not written, because the leadId or employeeId is unknown, or because of a fault rule.
    Failed,
}

/// Records, and writes with their status.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Journal {
    /// The records in the order they were written.
    pub records: Vec<Record>,
    #[serde(with = "pairs")]
    by_uuid: BTreeMap<(i64, String), usize>,
    /// Writes by `requestId`, kept for twice [`STATUS_KEPT`].
    pub writes: BTreeMap<String, Write>,
    by_age: VecDeque<String>,
    /// The requestId of the last write of each call, by company and submitted uuid.
    #[serde(with = "pairs")]
    last: BTreeMap<(i64, String), String>,
    /// The requestIds of pending writes, by the moment they are due and then by acceptance.
    #[serde(with = "pairs")]
    pub pending: BTreeMap<(EventTime, u64), String>,
    accepted: u64,
}

impl Journal {
    /// Adds an accepted write. The write is carried out at its time `due`.
    pub fn accept(&mut self, write: Write) {
        let id = write.request_id.clone();
        if let Content::Call(call) = &write.content {
            let key = (write.company, call.uuid.clone());
            self.last.insert(key, id.clone());
        }
        self.accepted += 1;
        self.pending.insert((write.due, self.accepted), id.clone());
        self.by_age.push_back(id.clone());
        self.writes.insert(id, write);
    }

    /// Removes the earliest write that is due at `now` from the pending writes, and returns it.
    pub(super) fn next_due(&mut self, now: EventTime) -> Option<Write> {
        let first = self.pending.first_entry()?;
        if first.key().0 > now {
            return None;
        }
        self.writes.get(&first.remove()).cloned()
    }

    /// Sets the final status of the write with the requestId `id`: FAILED if there is a reason
    /// `why`, otherwise SUCCESS.
    pub(super) fn end(&mut self, id: &str, why: Option<&str>) {
        if let Some(write) = self.writes.get_mut(id) {
            write.status = why.map_or(Status::Success, |_| Status::Failed);
            write.why = why.map(str::to_owned);
        }
    }

    /// Assigns the calls of a merged lead to the surviving lead.
    pub fn move_lead(&mut self, company: i64, from: i64, into: i64) {
        for record in &mut self.records {
            if record.company_id == company && record.call.lead_id == from {
                record.call.lead_id = into;
            }
        }
    }

    /// Returns the number of writes accepted so far, including writes that were removed because of
    /// their age.
    pub const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the journal record for a submitted call, or `None` if the journal already has a
    /// record with the call's uuid.
    pub(super) fn record_of(&self, write: &Write, call: &Submission) -> Option<Record> {
        let key = (write.company, call.uuid.clone());
        (!self.by_uuid.contains_key(&key)).then(|| Record {
            uuid: format!("{PREFIX}{}", call.uuid),
            request_id: write.request_id.clone(),
            company_id: write.company,
            ended_at: call.started_at.saturating_add(call.duration_sec),
            hangup_cause: if call.answered { "ANSWER" } else { "NO_ANSWER" }.to_owned(),
            provider: OPEN_API.to_owned(),
            registered_at: write.due,
            call: call.clone(),
        })
    }

    /// Returns a copy of a record as another telephony system, named `provider`, journals the same
    /// call. That system received the call two seconds earlier.
    pub(super) fn foreign_of(own: &Record, provider: &str) -> Record {
        let mut record = own.clone();
        record.call.uuid = format!("{provider}-{}", own.call.uuid);
        record.call.started_at -= 2;
        record.uuid.clone_from(&record.call.uuid);
        provider.clone_into(&mut record.provider);
        record
    }

    /// Removes writes that were accepted more than twice [`STATUS_KEPT`] ago. Their status has been
    /// unreadable for half of this time. They are kept longer to distinguish a late poll from a
    /// poll of an id that never existed.
    pub(super) fn forget(&mut self, now: EventTime) {
        while let Some(id) = self.by_age.front()
            && self
                .writes
                .get(id)
                .is_none_or(|write| now.since(write.accepted_at) > STATUS_KEPT * 2)
        {
            self.writes.remove(id);
            self.by_age.pop_front();
        }
    }

    /// Appends a record to the journal.
    pub fn add(&mut self, record: Record) {
        let key = (record.company_id, record.call.uuid.clone());
        self.by_uuid.insert(key, self.records.len());
        self.records.push(record);
    }

    /// Deletes the record with this submitted uuid, as a person does in the CRM. The next write
    /// with the same uuid makes a new record.
    pub fn delete(&mut self, company: i64, uuid: &str) {
        let key = (company, uuid.to_owned());
        if let Some(at) = self.by_uuid.remove(&key) {
            self.last.remove(&key);
            self.records.remove(at);
            let later = self.by_uuid.values_mut().filter(|place| **place > at);
            later.for_each(|place| *place -= 1);
        }
    }

    /// Returns the last write with the uuid of this call, unless the write was removed because of
    /// its age.
    pub fn earlier(&self, company: i64, call: &Submission) -> Option<&Write> {
        let id = self.last.get(&(company, call.uuid.clone()))?;
        self.writes.get(id)
    }
}
