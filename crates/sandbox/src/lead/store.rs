//! The leads of all companies: those that were made here, and what became of ids that are no more.
//!
//! A lead exists when it is known here, or when its id stands in the company's `--leads` (nothing
//! is known of such a one) and it was neither merged away nor deleted.

use super::record::{FieldValues, Lead};
use crate::token::{Company, IdSet, TokenKey};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Most leads of `--leads` without a record that a page is made of.
const BARE_LISTED_MAX: usize = 100_000;
/// Ids of new leads lie above this and above all others.
const NEW_ABOVE: i64 = 10_000;

/// A company's id and one of its records'.
pub type LeadKey = (i64, i64);

/// A change of what is known of leads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeadChange {
    /// A lead as it now is; its timestamps are those of the change.
    Saved {
        /// Whose lead.
        company: i64,
        /// Its state.
        lead: Box<Lead>,
    },
    /// Leads that were there when the sandbox was first started: no event tells of them.
    Imported {
        /// Whose leads.
        company: i64,
        /// Their state.
        leads: Vec<Lead>,
    },
    /// Leads went into another one.
    Merged {
        /// Whose leads.
        company: i64,
        /// The survivor.
        into: i64,
        /// They are missing from now on.
        from: Vec<i64>,
    },
    /// A lead was deleted.
    Deleted {
        /// Whose lead.
        company: i64,
        /// Its id.
        lead: i64,
    },
    /// An id of `--leads` exists again.
    Revived {
        /// Whose lead.
        company: i64,
        /// Its id.
        lead: i64,
    },
    /// A write was accepted, to be done when it is due.
    Ordered(Box<Order>),
}

/// An accepted write other than a call's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Order {
    /// Its `requestId`.
    pub request_id: String,
    /// Whose leads.
    pub company: i64,
    /// The token that alone can read its status.
    pub token: TokenKey,
    /// When it was accepted.
    pub accepted_at: EventTime,
    /// When it is done.
    pub due: EventTime,
    /// It is to end FAILED whatever it says.
    pub doomed: bool,
    /// What it says.
    pub what: LeadAction,
}

/// What an order says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeadAction {
    /// `None`: a write that is no longer served, of an earlier state file; nothing is done.
    pub fields: Option<FieldUpsert>,
}

/// `POST lead/{id}/field/list`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldUpsert {
    /// The lead.
    pub lead: i64,
    /// The LED fields of the list; an empty one is cleared.
    pub values: FieldValues,
}

/// Everything known of leads.
#[derive(Clone, Debug, Default)]
pub struct Leads {
    known: BTreeMap<LeadKey, Lead>,
    gone: BTreeSet<LeadKey>,
    /// By the moment they are due, then in the order they were accepted.
    pub(crate) pending: BTreeMap<(EventTime, u64), Order>,
    /// The last id given to a contact.
    last_contact: i64,
}

impl Leads {
    /// Does the company have this lead?
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
        leads.extend(self.own(company.id).map(Cow::Borrowed));
        leads.sort_by_key(|lead| lead.id);
        leads.dedup_by_key(|lead| lead.id);
        leads
    }

    fn own(&self, company: i64) -> impl Iterator<Item = &Lead> {
        let range = (company, i64::MIN)..=(company, i64::MAX);
        self.known.range(range).map(|(_, lead)| lead)
    }

    /// Was the id a lead's that is no more?
    pub fn is_gone(&self, company: i64, id: i64) -> bool {
        self.gone.contains(&(company, id))
    }

    /// Is more known of it than that it exists?
    pub(crate) fn is_known(&self, company: i64, id: i64) -> bool {
        self.known.contains_key(&(company, id))
    }

    /// An id that no lead has or had; `None` when there is none left.
    pub fn free_id(&self, companies: &BTreeMap<i64, Company>) -> Option<i64> {
        let known = self.known.keys().chain(&self.gone).map(|(_, id)| *id);
        let listed = companies
            .values()
            .filter_map(|company| company.leads.highest());
        let highest = known.chain(listed).max().unwrap_or(0).max(NEW_ABOVE);
        highest.checked_add(1)
    }

    /// Puts a lead in the place of what was known of its id.
    pub(super) fn put(&mut self, company: i64, mut lead: Lead) {
        for contact in &mut lead.contacts {
            if contact.id == 0 {
                contact.id = self.last_contact + 1;
            }
            self.last_contact = self.last_contact.max(contact.id);
        }
        let key = (company, lead.id);
        self.gone.remove(&key);
        self.known.insert(key, lead);
    }

    /// The lead is no more.
    pub(super) fn remove(&mut self, company: i64, id: i64) {
        self.known.remove(&(company, id));
        self.gone.insert((company, id));
    }

    pub(super) fn revive(&mut self, company: i64, id: i64) {
        self.gone.remove(&(company, id));
    }
}

impl IdSet {
    /// The ids in the order they were given; each once for each range it stands in.
    pub fn ids(&self) -> impl Iterator<Item = i64> {
        let ranges = self.ranges().iter();
        ranges
            .flat_map(|&(low, high)| low..=high)
            .filter(|&id| self.contains(id))
    }

    /// The highest id; `None` of the empty set.
    pub fn highest(&self) -> Option<i64> {
        self.ranges().iter().map(|&(_, high)| high).max()
    }
}
