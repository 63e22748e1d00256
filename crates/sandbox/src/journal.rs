//! The call journal: accepted writes, their outcome, and the records (§2.6, §3.2, §4.5).
//!
//! ```text
//! accept ─▶ pending ──due──▶ SUCCESS, one record per uuid
//!                       └──▶ FAILED, unknown leadId or employeeId
//! ```

use super::lead::Leads;
use super::token::{Company, TokenKey};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How long the status of a write can be read (§3.2).
pub const STATUS_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Most writes of one life of the sandbox; more are answered 500.
pub const WRITES_MAX: u64 = 2_000_000;
/// What the service puts before a uuid (§2.6).
pub const PREFIX: &str = "oapi-";

/// A submission that passed validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Submission {
    /// §2.6
    pub lead_id: i64,
    /// §2.6
    pub employee_id: Option<i64>,
    /// As sent, without the prefix.
    pub uuid: String,
    /// Epoch seconds.
    pub started_at: i64,
    /// Seconds.
    pub duration_sec: i64,
    /// Seconds; under the name that the sandbox was given for it.
    pub talk_time_sec: Option<i64>,
    /// §2.6
    pub answered: bool,
    /// `INBOUND` or `OUTBOUND`.
    pub direction: String,
    /// Under the name that the sandbox was given for it.
    pub client_phone: Option<String>,
    /// Fields that the document does not name, tolerated.
    pub others: Map<String, Value>,
}

/// An accepted write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingWrite {
    /// Its `requestId`.
    pub request_id: String,
    /// Whose journal.
    pub company: i64,
    /// The token that alone can read its status.
    pub token: TokenKey,
    /// When it was accepted.
    pub accepted_at: EventTime,
    /// When it is written.
    pub due: EventTime,
    /// Its 200 with the requestId left for the client at once and whole.
    pub answered: bool,
    /// It is to end FAILED whatever it says.
    pub doomed: bool,
    /// What it says.
    pub call: Submission,
}

/// A record of the journal, with what the service derives (§2.6).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// With the prefix.
    pub uuid: String,
    /// The write that made it.
    pub request_id: String,
    /// Whose journal.
    pub company_id: i64,
    /// What was sent; the uuid here is as sent.
    pub call: Submission,
    /// `startedAt + durationSec`
    pub ended_at: i64,
    /// From `answered`.
    pub hangup_cause: String,
    /// Always `OPEN_API`; others for records that are not ours.
    pub provider: String,
    /// When it was written.
    pub registered_at: EventTime,
}

/// Where a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Accepted, not yet written.
    Pending,
    /// Written, now or by an earlier write of the same uuid.
    Success,
    /// Unknown leadId or employeeId.
    Failed,
}

/// The status entry of a write.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// Who can read it.
    #[serde(skip)]
    pub token: TokenKey,
    /// When the write was accepted.
    pub accepted_at: EventTime,
    /// The endpoint that took it.
    pub of: &'static str,
    /// Its uuid as sent; empty for other writes than calls.
    pub uuid: String,
    /// Where the write is.
    pub status: Status,
    /// Why it failed, for people.
    pub why: Option<&'static str>,
}

impl JournalEntry {
    const fn new(token: TokenKey, accepted_at: EventTime, of: &'static str, uuid: String) -> Self {
        Self {
            token,
            accepted_at,
            of,
            uuid,
            status: Status::Pending,
            why: None,
        }
    }
}

/// The last write of a uuid.
#[derive(Clone, Debug)]
struct Last {
    request_id: String,
    answered: bool,
    call: Submission,
}

/// What is known of a uuid that comes again.
#[derive(Clone, Debug, PartialEq)]
pub struct Earlier {
    /// Where the last write of it is.
    pub status: Status,
    /// Its 200 reached the client, as far as can be known here.
    pub answered: bool,
    /// It said the same.
    pub same: bool,
}

/// Records, writes and their status.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    records: Vec<Record>,
    by_uuid: BTreeMap<(i64, String), usize>,
    pending: BTreeMap<(EventTime, u64), PendingWrite>,
    entries: BTreeMap<String, JournalEntry>,
    by_age: VecDeque<String>,
    last: BTreeMap<(i64, String), Last>,
    accepted: u64,
}

impl Journal {
    /// Takes a write in.
    pub fn accept(&mut self, write: PendingWrite) {
        let id = write.request_id.clone();
        let uuid = write.call.uuid.clone();
        let entry = JournalEntry::new(write.token, write.accepted_at, "call-history", uuid);
        self.keep(&id, entry);
        let last = Last {
            request_id: id,
            answered: write.answered,
            call: write.call.clone(),
        };
        self.last
            .insert((write.company, write.call.uuid.clone()), last);
        self.pending.insert((write.due, self.accepted), write);
    }

    /// Takes in the status of a write that is done elsewhere; gives its number.
    pub fn enter(&mut self, id: &str, token: TokenKey, at: EventTime, of: &'static str) -> u64 {
        self.keep(id, JournalEntry::new(token, at, of, String::new()));
        self.accepted
    }

    fn keep(&mut self, id: &str, entry: JournalEntry) {
        self.accepted += 1;
        self.entries.insert(id.to_owned(), entry);
        self.by_age.push_back(id.to_owned());
    }

    /// A write is done, or could not be.
    pub fn end(&mut self, id: &str, why: Option<&'static str>) {
        if let Some(entry) = self.entries.get_mut(id) {
            entry.status = if why.is_some() {
                Status::Failed
            } else {
                Status::Success
            };
            entry.why = why;
        }
    }

    /// The calls of a lead that was merged are the survivor's.
    pub fn move_lead(&mut self, company: i64, from: i64, into: i64) {
        for record in &mut self.records {
            if record.company_id == company && record.call.lead_id == from {
                record.call.lead_id = into;
            }
        }
    }

    /// How many writes were accepted so far.
    pub const fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Ends the writes that are due, each at its own moment.
    pub fn settle(&mut self, now: EventTime, companies: &BTreeMap<i64, Company>, leads: &Leads) {
        while let Some(first) = self.pending.first_entry() {
            if first.key().0 > now {
                break;
            }
            let write = first.remove();
            let why = self.write(&write, companies.get(&write.company), leads);
            self.end(&write.request_id, why);
        }
        self.forget(now);
    }

    fn write(
        &mut self,
        write: &PendingWrite,
        company: Option<&Company>,
        leads: &Leads,
    ) -> Option<&'static str> {
        let Some(company) = company else {
            return Some("unknown company");
        };
        let call = &write.call;
        if write.doomed {
            return Some("by order of a fault");
        }
        if !leads.exists(company, call.lead_id) {
            return Some("unknown leadId");
        }
        if call
            .employee_id
            .is_some_and(|id| !company.employees.contains(id))
        {
            return Some("unknown employeeId");
        }
        let key = (write.company, call.uuid.clone());
        if !self.by_uuid.contains_key(&key) {
            self.by_uuid.insert(key, self.records.len());
            self.records.push(Record {
                uuid: format!("{PREFIX}{}", call.uuid),
                request_id: write.request_id.clone(),
                company_id: write.company,
                ended_at: call.started_at.saturating_add(call.duration_sec),
                hangup_cause: if call.answered { "ANSWER" } else { "NO_ANSWER" }.to_owned(),
                provider: "OPEN_API".to_owned(),
                registered_at: write.due,
                call: call.clone(),
            });
        }
        None
    }

    /// Status entries are dropped one retention after nobody can read them any more: until then a
    /// late poll is told from one of an id that never was.
    fn forget(&mut self, now: EventTime) {
        while let Some(id) = self.by_age.front() {
            let old = (self.entries.get(id))
                .is_none_or(|entry| now.since(entry.accepted_at) > STATUS_KEPT * 2);
            if !old {
                break;
            }
            self.entries.remove(id);
            self.by_age.pop_front();
        }
    }

    /// Adds a record that came another way, as a colleague's telephony does.
    pub fn add(&mut self, record: Record) {
        self.by_uuid.insert(
            (record.company_id, record.call.uuid.clone()),
            self.records.len(),
        );
        self.records.push(record);
    }

    /// A person deletes a record in the CRM: a write with its uuid makes a new one.
    pub fn delete(&mut self, company: i64, uuid: &str) {
        let key = (company, uuid.to_owned());
        if let Some(at) = self.by_uuid.remove(&key) {
            self.last.remove(&key);
            self.records.remove(at);
            self.by_uuid
                .values_mut()
                .filter(|place| **place > at)
                .for_each(|place| *place -= 1);
        }
    }

    /// A person changes a record in the CRM.
    pub fn edit(&mut self, record: Record) {
        let key = (record.company_id, record.call.uuid.clone());
        if let Some(at) = self.by_uuid.get(&key) {
            self.records[*at] = record;
        }
    }

    /// The status entry of a requestId.
    pub fn entry(&self, request_id: &str) -> Option<&JournalEntry> {
        self.entries.get(request_id)
    }

    /// All status entries by their requestId.
    pub const fn entries(&self) -> &BTreeMap<String, JournalEntry> {
        &self.entries
    }

    /// What an earlier write of the same uuid was.
    pub fn earlier(&self, company: i64, call: &Submission) -> Option<Earlier> {
        let last = self.last.get(&(company, call.uuid.clone()))?;
        let status = self
            .entries
            .get(&last.request_id)
            .map_or(Status::Success, |e| e.status);
        Some(Earlier {
            status,
            answered: last.answered,
            same: last.call == *call,
        })
    }

    /// The records in the order they were written.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Writes not yet done.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }
}
