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

/// Numbers that several leads claim, looked at in a day.
const NUMBERS_MAX: usize = 1_000;
/// Leads of one number that are looked up.
const CLAIMANTS_MAX: usize = 20;

/// A kind of request that rests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rest {
    /// Until when.
    pub until: EventTime,
    /// What the service said.
    pub why: String,
}

/// Kept in the spool as JSON: fields may be added, never renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestMemory {
    look_ups: Option<Rest>,
    fields: Option<Rest>,
    /// Field writes refused with 400 since one was accepted.
    refused: u32,
    /// When the catalogue is read next, in microseconds.
    catalogue_due: i64,
    catalogue_tries: u32,
    /// The fields it was read for.
    catalogue_for: String,
    /// Leads that claim a number together, to be looked up.
    #[serde(default)]
    claimants: Vec<LeadId>,
    /// Such numbers whose leads were taken up, and when.
    #[serde(default)]
    claimed: BTreeMap<Phone, EventTime>,
}

impl RequestMemory {
    /// Why this kind rests now, and until when.
    pub fn resting(&self, kind: RequestKind, now: EventTime) -> Option<&Rest> {
        let rest = match kind {
            RequestKind::LookUps => &self.look_ups,
            RequestKind::Fields => &self.fields,
        };
        let is_on = |rest: &&Rest| rest.until > now && rest.until <= now.plus(REST + CLOCK_SLACK);
        rest.as_ref().filter(is_on)
    }

    /// When one of this kind that is due then can go out.
    pub fn after_rest(&self, kind: RequestKind, due: EventTime, now: EventTime) -> EventTime {
        self.resting(kind, now).map_or(due, |it| due.max(it.until))
    }

    /// This kind rests for [`REST`].
    pub fn rest(&mut self, kind: RequestKind, why: String, at: EventTime) {
        let until = at.plus(REST);
        match kind {
            RequestKind::LookUps => self.look_ups = Some(Rest { until, why }),
            RequestKind::Fields => self.fields = Some(Rest { until, why }),
        }
    }

    /// What rests may be granted now.
    pub fn granted(&mut self) {
        (self.look_ups, self.fields) = (None, None);
    }

    /// The leads of this number are looked up, unless they were within a day.
    pub fn claim(&mut self, number: Phone, leads: Vec<LeadId>, now: EventTime) {
        let recent = |at: &EventTime| now.since(*at) < DAILY && *at <= now.plus(CLOCK_SLACK);
        self.claimed.retain(|_, at| recent(at));
        if leads.len() < 2
            || self.claimed.len() >= NUMBERS_MAX
            || self.claimed.contains_key(&number)
        {
            return;
        }
        self.claimed.insert(number, now);
        for lead in leads.into_iter().take(CLAIMANTS_MAX) {
            if !self.claimants.contains(&lead) {
                self.claimants.push(lead);
            }
        }
    }

    /// The next of these leads.
    pub fn claimant(&self) -> Option<LeadId> {
        self.claimants.first().copied()
    }

    /// This one was looked up, or cannot be today.
    pub fn claimant_done(&mut self, lead: LeadId) {
        self.claimants.retain(|it| *it != lead);
    }

    /// The service took a write of fields.
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

    /// The catalogue is to be read for these fields.
    pub fn wants_catalogue(
        &self,
        fields: &str,
        now: EventTime,
        requests: &mut DueRequests,
    ) -> bool {
        let due = EventTime::from_micros(self.catalogue_due);
        (!self.knows(fields) && self.catalogue_tries == 0) || requests.is_due(due, now)
    }

    /// Its request leaves: asked again if a kill keeps the answer from us.
    pub fn catalogue_sent(&mut self, at: EventTime) {
        self.catalogue_due = at.plus(LOST).micros();
        self.catalogue_tries += 1;
    }

    /// Its request was of no use.
    pub fn catalogue_back(&mut self, at: EventTime) {
        self.catalogue_due = at.plus(SOON).micros();
    }

    /// It is not asked for again soon.
    pub const fn gives_catalogue_up(&self) -> bool {
        self.catalogue_tries >= CATALOGUE_TRIES
    }

    /// This was read for these fields.
    pub fn catalogue_read(&mut self, catalogue: &Catalogue, fields: String, at: EventTime) {
        let again = match catalogue.unread {
            None => DAILY,
            Some(_) => REST,
        };
        self.catalogue_due = at.plus(again).micros();
        self.catalogue_tries = 0;
        self.catalogue_for = fields;
    }
}
