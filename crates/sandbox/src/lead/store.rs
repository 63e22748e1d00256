//! The leads of all companies: leads with a record, and the ids of leads that no longer exist.
//!
//! A lead exists if it has a record here, or if its id is in the company's `--leads` (then only the
//! id is known) and it was neither merged away nor deleted.

use crate::{Company, FieldValues, IdSet, Lead, pairs};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Most ids of `--leads` that a listing includes.
const BARE_LISTED_MAX: usize = 100_000;
/// Ids of new leads are above this number, and above the ids of all other leads.
const NEW_ABOVE: i64 = 10_000;

/// The id of a company, and the id of one of its leads.
pub type LeadKey = (i64, i64);

/// An accepted write of `POST lead/{id}/field/list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldUpsert {
    /// The id of the lead that is written to.
    pub lead: i64,
    /// The values of the listed LED fields. An empty list clears a field.
    pub values: FieldValues,
}

/// The stored leads of all companies, and the ids of leads that were merged away or deleted.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Leads {
    #[serde(with = "pairs")]
    known: BTreeMap<LeadKey, Lead>,
    gone: BTreeSet<LeadKey>,
    /// The highest id that a contact has so far.
    last_contact: i64,
}

impl Leads {
    /// Returns `true` if the company has this lead.
    pub fn exists(&self, company: &Company, id: i64) -> bool {
        let key = (company.id, id);
        self.known.contains_key(&key) || (company.leads.contains(id) && !self.gone.contains(&key))
    }

    /// Returns the current lead, or `None` if the company does not have it.
    pub fn get(&self, company: &Company, id: i64) -> Option<Lead> {
        match self.known.get(&(company.id, id)) {
            Some(lead) => Some(lead.clone()),
            None => self.exists(company, id).then(|| Lead::bare(id)),
        }
    }

    /// Returns all leads of a company, sorted by id, including leads without a record.
    pub fn all(&self, company: &Company) -> Vec<Cow<'_, Lead>> {
        let bare = company.leads.ids().take(BARE_LISTED_MAX).filter(|&id| {
            let key = (company.id, id);
            !self.gone.contains(&key) && !self.known.contains_key(&key)
        });
        let mut leads: Vec<_> = bare.map(|id| Cow::Owned(Lead::bare(id))).collect();
        let own = (company.id, i64::MIN)..=(company.id, i64::MAX);
        leads.extend(self.known.range(own).map(|(_, lead)| Cow::Borrowed(lead)));
        leads.sort_by_key(|lead| lead.id);
        leads.dedup_by_key(|lead| lead.id);
        leads
    }

    /// Returns `true` if the lead was merged away or deleted.
    pub fn is_gone(&self, company: i64, id: i64) -> bool {
        self.gone.contains(&(company, id))
    }

    /// Returns `true` if the lead has a record.
    pub(crate) fn is_known(&self, company: i64, id: i64) -> bool {
        self.known.contains_key(&(company, id))
    }

    /// Returns an id that no lead of any company has or had, or `None` if there is no higher
    /// number.
    pub fn free_id(&self, companies: &BTreeMap<i64, Company>) -> Option<i64> {
        let known = self.known.keys().chain(&self.gone).map(|(_, id)| *id);
        let ranges = companies.values().flat_map(|company| &company.leads.ranges);
        let listed = ranges.map(|&(_, high)| high);
        let highest = known.chain(listed).max().unwrap_or(0).max(NEW_ABOVE);
        highest.checked_add(1)
    }

    /// Stores a lead in place of its earlier record. New contacts get ids. Returns the lead with
    /// these ids.
    pub(crate) fn put(&mut self, company: i64, mut lead: Lead) -> Lead {
        for contact in &mut lead.contacts {
            if contact.id == 0 {
                contact.id = self.last_contact + 1;
            }
            self.last_contact = self.last_contact.max(contact.id);
        }
        let key = (company, lead.id);
        self.gone.remove(&key);
        self.known.insert(key, lead.clone());
        lead
    }

    /// Removes a lead, and remembers its id as gone.
    pub(super) fn remove(&mut self, company: i64, id: i64) {
        self.known.remove(&(company, id));
        self.gone.insert((company, id));
    }

    pub(crate) fn revive(&mut self, company: i64, id: i64) {
        self.gone.remove(&(company, id));
    }
}

impl IdSet {
    /// Returns the ids in the order they were given. An id appears once for each range that
    /// contains it.
    pub fn ids(&self) -> impl Iterator<Item = i64> {
        let ids = self.ranges.iter().flat_map(|&(low, high)| low..=high);
        ids.filter(|&id| self.contains(id))
    }
}
