//! The leads of all companies: those that were made here, and what became of ids that are no more.
//!
//! A lead exists when it is known here, or when its id stands in the company's `--leads` (nothing
//! is known of such a one) and it was neither merged away nor deleted.

use crate::{Company, FieldValues, IdSet, Lead, pairs};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Most leads of `--leads` without a record that a page is made of.
const BARE_LISTED_MAX: usize = 100_000;
/// Ids of new leads lie above this and above all others.
const NEW_ABOVE: i64 = 10_000;

/// A company's id and one of its records'.
pub type LeadKey = (i64, i64);

/// An accepted write of `POST lead/{id}/field/list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldUpsert {
    /// The id of the lead that is written to.
    pub lead: i64,
    /// The LED fields of the list; an empty one is cleared.
    pub values: FieldValues,
}

/// The stored leads of all companies, and the ids of those that are gone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Leads {
    #[serde(with = "pairs")]
    known: BTreeMap<LeadKey, Lead>,
    gone: BTreeSet<LeadKey>,
    /// The last id given to a contact.
    last_contact: i64,
}

impl Leads {
    /// Returns `true` where the company has this lead.
    pub fn exists(&self, company: &Company, id: i64) -> bool {
        let key = (company.id, id);
        self.known.contains_key(&key) || (company.leads.contains(id) && !self.gone.contains(&key))
    }

    /// The lead as it is; `None` when the company has no such one.
    pub fn get(&self, company: &Company, id: i64) -> Option<Lead> {
        match self.known.get(&(company.id, id)) {
            Some(lead) => Some(lead.clone()),
            None => self.exists(company, id).then(|| Lead::bare(id)),
        }
    }

    /// All leads of a company by their id, those without a record among them.
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

    /// Returns `true` for the id of a lead that was merged away or deleted.
    pub fn is_gone(&self, company: i64, id: i64) -> bool {
        self.gone.contains(&(company, id))
    }

    /// Returns `true` where more is known of the lead than that it exists.
    pub(crate) fn is_known(&self, company: i64, id: i64) -> bool {
        self.known.contains_key(&(company, id))
    }

    /// An id that no lead has or had; `None` when there is none left.
    pub fn free_id(&self, companies: &BTreeMap<i64, Company>) -> Option<i64> {
        let known = self.known.keys().chain(&self.gone).map(|(_, id)| *id);
        let ranges = companies.values().flat_map(|company| &company.leads.ranges);
        let listed = ranges.map(|&(_, high)| high);
        let highest = known.chain(listed).max().unwrap_or(0).max(NEW_ABOVE);
        highest.checked_add(1)
    }

    /// Stores a lead in place of all that was known of its id; gives it with its contacts' ids.
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
    /// The ids in the order they were given; each once for each range it stands in.
    pub fn ids(&self) -> impl Iterator<Item = i64> {
        let ids = self.ranges.iter().flat_map(|&(low, high)| low..=high);
        ids.filter(|&id| self.contains(id))
    }
}
