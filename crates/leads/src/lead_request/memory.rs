//! What is remembered of requests about leads: which kinds rest, and when the catalogue is due.

use super::RequestKind;
use super::due::{CLOCK_SLACK, DAILY, DueRequests};
use super::lead::REST;
use crate::lead_field::Catalogue;
use crate::lead_field::shows::{LOST, SOON};
use callbridge_call::EventTime;
use callbridge_model::{LeadId, Phone};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Tries of the catalogue without an answer before values are written unchecked.
const CATALOGUE_TRIES: u32 = 5;
/// Refusals (400) of field writes in a row after which the values are not to blame.
const REFUSALS_MAX: u32 = 3;

/// Numbers claimed by several leads that are checked in a day.
const NUMBERS_MAX: usize = 1_000;
/// Leads of one number that are looked up.
const CLAIMANTS_MAX: usize = 20;

/// A kind of request that rests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// Moment at which the rest ends.
    pub until: EventTime,
    /// Reason in words, with the service's message.
    pub why: String,
}

/// Kept in the spool as JSON: fields may be added, never renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMemory {
    look_ups: Option<Rest>,
    fields: Option<Rest>,
    /// Field writes refused with 400 since one was accepted.
    refused: u32,
    /// Moment at which the catalogue is read next, in microseconds since the epoch.
    catalogue_due: i64,
    catalogue_tries: u32,
    /// Fields that the catalogue was read for.
    catalogue_for: String,
    /// Leads that claim a number together, to be looked up.
    #[serde(default)]
    claimants: Vec<LeadId>,
    /// Such numbers whose leads were taken up, and when.
    #[serde(default)]
    claimed: BTreeMap<Phone, EventTime>,
}

impl RequestMemory {
    /// Returns the rest that this kind is in now; `None` where it may be sent.
    pub fn resting(&self, kind: RequestKind, now: EventTime) -> Option<&Rest> {
        let rest = match kind {
            RequestKind::LookUps => &self.look_ups,
            RequestKind::Fields => &self.fields,
        };
        let is_on = |rest: &&Rest| rest.until > now && rest.until <= now.plus(REST + CLOCK_SLACK);
        rest.as_ref().filter(is_on)
    }

    /// Returns the moment at which a request of this kind that is due at `due` can go out.
    pub fn after_rest(&self, kind: RequestKind, due: EventTime, now: EventTime) -> EventTime {
        self.resting(kind, now).map_or(due, |it| due.max(it.until))
    }

    /// Begins a rest of this kind, for [`REST`].
    pub fn rest(&mut self, kind: RequestKind, why: String, at: EventTime) {
        let until = at.plus(REST);
        match kind {
            RequestKind::LookUps => self.look_ups = Some(Rest { until, why }),
            RequestKind::Fields => self.fields = Some(Rest { until, why }),
        }
    }

    /// Ends every rest, because the token may have been granted the missing right.
    pub fn granted(&mut self) {
        (self.look_ups, self.fields) = (None, None);
    }

    /// The leads of this number are looked up, unless they were within a day.
    pub fn claim(&mut self, number: Phone, leads: Vec<LeadId>, now: EventTime) {
        let recent = |at: &EventTime| now.since(*at) < DAILY && *at <= now.plus(CLOCK_SLACK);
        self.claimed.retain(|_, at| recent(at));
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

    /// Returns the next lead to be looked up.
    pub fn claimant(&self) -> Option<LeadId> {
        self.claimants.first().copied()
    }

    /// Removes a lead that was looked up, or cannot be today.
    pub fn claimant_done(&mut self, lead: LeadId) {
        self.claimants.retain(|it| *it != lead);
    }

    /// Notes that the service took a write of fields.
    pub const fn accepted(&mut self) {
        self.refused = 0;
    }

    /// The service refused one: why all of them should rest, where it was one too many in a row.
    pub fn refused(&mut self, why: &str) -> Option<String> {
        self.refused += 1;
        let too_many = self.refused >= REFUSALS_MAX;
        too_many.then(|| {
            self.refused = 0;
            format!("{REFUSALS_MAX} writes of fields in a row were refused: {why}")
        })
    }

    /// The catalogue was read, or given up, for these fields.
    pub fn knows(&self, fields: &str) -> bool {
        self.catalogue_for == fields
    }

    /// Returns `true` when the catalogue is to be read for these fields.
    pub fn wants_catalogue(&self, fields: &str, now: EventTime, queue: &mut DueRequests) -> bool {
        let due = EventTime::from_micros(self.catalogue_due);
        (!self.knows(fields) && self.catalogue_tries == 0) || queue.is_due(due, now)
    }

    /// Notes that the catalogue's request leaves: due again if a kill keeps the answer from us.
    pub fn catalogue_sent(&mut self, at: EventTime) {
        self.catalogue_due = at.plus(LOST).micros();
        self.catalogue_tries += 1;
    }

    /// Notes that the catalogue's request was of no use: due again soon.
    pub fn catalogue_back(&mut self, at: EventTime) {
        self.catalogue_due = at.plus(SOON).micros();
    }

    /// Returns `true` after so many tries that the catalogue is not requested again soon.
    pub const fn gives_catalogue_up(&self) -> bool {
        self.catalogue_tries >= CATALOGUE_TRIES
    }

    /// Notes that this was read for these fields, and sets the next read: after a day, or an hour
    /// where it failed.
    pub fn catalogue_read(&mut self, catalogue: &Catalogue, fields: String, at: EventTime) {
        let again = if catalogue.unread.is_none() {
            DAILY
        } else {
            REST
        };
        self.catalogue_due = at.plus(again).micros();
        self.catalogue_tries = 0;
        self.catalogue_for = fields;
    }
}
