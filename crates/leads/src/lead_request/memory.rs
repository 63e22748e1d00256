//! State of the requests about leads: pauses by kind, and when the catalog is due.

use super::RequestKind;
use super::due::{CLOCK_SLACK, DAILY, DueRequests};
use super::lead::REST;
use crate::lead_field::Catalog;
use crate::lead_field::shows::{LOST, SOON};
use callbridge_call::EventTime;
use callbridge_model::{LeadId, Phone};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Tries of the catalog without an answer before values are written unchecked.
pub const CATALOG_TRIES: u32 = 5;
/// After this many refusals (400) of field writes in a row, the values are probably not the cause,
/// and all field writes are paused.
const REFUSALS_MAX: u32 = 3;

/// Maximum numbers per day for which several leads are looked up.
const NUMBERS_MAX: usize = 1_000;
/// Maximum leads of one number that are looked up.
const CLAIMANTS_MAX: usize = 20;

/// The pause of a kind of request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// Time at which the pause ends.
    pub until: EventTime,
    /// Text with the CRM's message.
    pub reason: String,
}

/// State of lead requests. Stored in the spool as JSON: fields can be added, never renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMemory {
    /// Pause of the lookups of leads.
    pub lookups: Option<Rest>,
    /// Pause of the writes of fields.
    pub fields: Option<Rest>,
    /// Field writes refused with 400 since one was accepted.
    pub refused: u32,
    /// Time of the catalog's next read, in microseconds since the epoch.
    catalog_due: i64,
    /// Requests for the catalog since it was last read.
    pub catalog_tries: u32,
    /// Fields that the catalog was read for.
    pub catalog_for: String,
    /// Leads that must be looked up, because several of them have the same number.
    pub claimants: Vec<LeadId>,
    /// Numbers whose leads were queued for lookup, and when.
    claimed: BTreeMap<Phone, EventTime>,
}

impl RequestMemory {
    /// Returns the current pause of this kind. `None` if requests of this kind can be sent.
    pub fn current_pause(&self, kind: RequestKind, now: EventTime) -> Option<&Rest> {
        let rest = match kind {
            RequestKind::LookUps => &self.lookups,
            RequestKind::Fields => &self.fields,
        };
        rest.as_ref()
            .filter(|rest| rest.until > now && rest.until <= now.plus(REST + CLOCK_SLACK))
    }

    /// Returns the time at which a request of this kind that is due at `due` can be sent.
    pub fn after_rest(&self, kind: RequestKind, due: EventTime, now: EventTime) -> EventTime {
        self.current_pause(kind, now)
            .map_or(due, |rest| due.max(rest.until))
    }

    /// Begins a pause of this kind, for [`REST`].
    pub fn rest(&mut self, kind: RequestKind, reason: String, at: EventTime) {
        let until = at.plus(REST);
        match kind {
            RequestKind::LookUps => self.lookups = Some(Rest { until, reason }),
            RequestKind::Fields => self.fields = Some(Rest { until, reason }),
        }
    }

    /// Queues lookups of the leads that have this number. Nothing is queued for a single lead, or
    /// if the number's leads were queued within a day.
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

    /// Removes a lead that was looked up, or that cannot be looked up today.
    pub fn claimant_done(&mut self, lead: LeadId) {
        self.claimants.retain(|claimant| *claimant != lead);
    }

    /// Notes that the CRM refused a field write. Returns why all writes must be paused, if too many
    /// were refused in a row.
    pub fn note_refusal(&mut self, reason: &str) -> Option<String> {
        self.refused += 1;
        let too_many = self.refused >= REFUSALS_MAX;
        too_many.then(|| {
            self.refused = 0;
            format!("{REFUSALS_MAX} writes of fields in a row were refused: {reason}")
        })
    }

    /// Returns `true` if the catalog must be read now for these fields. Otherwise, notes in `queue`
    /// when it must be read.
    pub fn check_catalog_due(&self, fields: &str, now: EventTime, queue: &mut DueRequests) -> bool {
        let due = EventTime::from_micros(self.catalog_due);
        (self.catalog_for != fields && self.catalog_tries == 0) || queue.is_due(due, now)
    }

    /// Notes that the catalog is requested. If no answer arrives, the catalog is due again after
    /// [`LOST`].
    pub fn catalog_sent(&mut self, at: EventTime) {
        self.catalog_due = at.plus(LOST).micros();
        self.catalog_tries += 1;
    }

    /// Notes that the request for the catalog was not sent, or had no usable answer. The catalog is
    /// due again after [`SOON`].
    pub fn catalog_back(&mut self, at: EventTime) {
        self.catalog_due = at.plus(SOON).micros();
    }

    /// Notes that the catalog was read for these fields. The next read is due after a day, or after
    /// an hour if the read failed.
    pub fn catalog_read(&mut self, catalog: &Catalog, fields: String, at: EventTime) {
        let again = catalog.unread.as_ref().map_or(DAILY, |_| REST);
        self.catalog_due = at.plus(again).micros();
        self.catalog_tries = 0;
        self.catalog_for = fields;
    }
}
