//! The state of the requests about leads, including the pauses by kind and when the catalog is due.

use super::RequestKind;
use super::due::{CLOCK_SLACK, DAILY, DueRequests};
use super::lead::REST;
use crate::lead_field::Catalog;
use crate::lead_field::shows::{LOST, SOON};
use callbridge_call::EventTime;
use callbridge_model::{LeadId, Phone};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Number of failed attempts to read the catalog after which values are written unchecked.
pub const CATALOG_TRIES: u32 = 5;
/// After this many consecutive rejections (400) of field writes, the values are probably not to
/// blame, so all field writes are paused.
const REFUSALS_MAX: u32 = 3;

/// Maximum number of phone numbers per day for which several leads are looked up.
const NUMBERS_MAX: usize = 1_000;
/// Maximum number of leads to look up for one number.
const CLAIMANTS_MAX: usize = 20;

/// A pause in one kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// When the pause ends.
    pub until: EventTime,
    /// The reason, including the CRM's message.
    pub reason: String,
}

/// The state of lead requests. Stored in the spool as JSON, so fields may be added but never
/// renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMemory {
    /// The pause in looking up leads.
    pub lookups: Option<Rest>,
    /// The pause in writing fields.
    pub fields: Option<Rest>,
    /// Number of field writes rejected with 400 since one was last accepted.
    pub refused: u32,
    /// When the catalog is read next, in microseconds since the epoch.
    catalog_due: i64,
    /// Number of requests for the catalog since it was last read.
    pub catalog_tries: u32,
    /// The fields that the catalog was read for.
    pub catalog_for: String,
    /// Leads that must be looked up, because several of them have the same number.
    pub claimants: Vec<LeadId>,
    /// Numbers whose leads were queued for lookup, and when.
    claimed: BTreeMap<Phone, EventTime>,
}

impl RequestMemory {
    /// Returns the current pause for this kind, or `None` if requests of this kind can be sent.
    pub fn current_pause(&self, kind: RequestKind, now: EventTime) -> Option<&Rest> {
        let rest = match kind {
            RequestKind::LookUps => &self.lookups,
            RequestKind::Fields => &self.fields,
        };
        rest.as_ref()
            .filter(|rest| rest.until > now && rest.until <= now.plus(REST + CLOCK_SLACK))
    }

    /// Returns when a request of this kind that's due at `due` can be sent.
    pub fn after_rest(&self, kind: RequestKind, due: EventTime, now: EventTime) -> EventTime {
        self.current_pause(kind, now)
            .map_or(due, |rest| due.max(rest.until))
    }

    /// Starts a pause for this kind, which lasts for [`REST`].
    pub fn rest(&mut self, kind: RequestKind, reason: String, at: EventTime) {
        let until = at.plus(REST);
        match kind {
            RequestKind::LookUps => self.lookups = Some(Rest { until, reason }),
            RequestKind::Fields => self.fields = Some(Rest { until, reason }),
        }
    }

    /// Queues lookups of the leads that have this number, unless there's only one lead, or the
    /// number's leads were already queued within the last day.
    pub fn claim(&mut self, number: Phone, leads: Vec<LeadId>, now: EventTime) {
        self.claimed
            .retain(|_, at| now.since(*at) < DAILY && *at <= now.plus(CLOCK_SLACK));
        let full = self.claimed.len() >= NUMBERS_MAX;
        if leads.len() < 2 || full || self.claimed.contains_key(&number) {
            return;
        }
        self.claimed.insert(number, now);
        for lead in leads.into_iter().take(CLAIMANTS_MAX) {
            if !self.claimants.contains(&lead) {
                self.claimants.push(lead);
            }
        }
    }

    /// Removes a lead that has been looked up, or that can't be looked up today.
    pub fn claimant_done(&mut self, lead: LeadId) {
        self.claimants.retain(|claimant| *claimant != lead);
    }

    /// Records that the CRM rejected a field write. If too many have been rejected in a row,
    /// returns why all writes must be paused.
    pub fn note_refusal(&mut self, reason: &str) -> Option<String> {
        self.refused += 1;
        let too_many = self.refused >= REFUSALS_MAX;
        too_many.then(|| {
            self.refused = 0;
            format!("{REFUSALS_MAX} writes of fields in a row were refused: {reason}")
        })
    }

    /// Returns `true` if the catalog must be read now for these fields. Otherwise, records in
    /// `queue` when it must be read.
    pub fn check_catalog_due(&self, fields: &str, now: EventTime, queue: &mut DueRequests) -> bool {
        let due = EventTime::from_micros(self.catalog_due);
        (self.catalog_for != fields && self.catalog_tries == 0) || queue.is_due(due, now)
    }

    /// Records that the catalog is being requested. If there's no response, it's due again after
    /// [`LOST`].
    pub fn catalog_sent(&mut self, at: EventTime) {
        self.catalog_due = at.plus(LOST).micros();
        self.catalog_tries += 1;
    }

    /// Records that the request for the catalog wasn't sent, or that its response wasn't usable.
    /// The catalog is due again after [`SOON`].
    pub fn catalog_back(&mut self, at: EventTime) {
        self.catalog_due = at.plus(SOON).micros();
    }

    /// Records that the catalog was read for these fields. It's due again after a day, or after an
    /// hour if it couldn't be read.
    pub fn catalog_read(&mut self, catalog: &Catalog, fields: String, at: EventTime) {
        let again = catalog.unread.as_ref().map_or(DAILY, |_| REST);
        self.catalog_due = at.plus(again).micros();
        self.catalog_tries = 0;
        self.catalog_for = fields;
    }
}
