//! The leads of all companies: those that were made here, and what became of ids that are no more.
//!
//! A lead exists when it is known here, or when its id stands in the company's `--leads` (nothing
//! is known of such a one) and it was neither merged away nor deleted.

use super::order::Order;
use super::record::Lead;
use crate::token::{Company, IdSet};
use callbridge_call::EventTime;
use serde::{Deserialize, Serialize};
use serde_json::Value;
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

/// A note or a history item on a lead; what stands in it is the client's.
#[derive(Clone, Debug, PartialEq)]
pub struct LeadItem {
    /// Its id.
    pub id: i64,
    /// When it came.
    pub at: EventTime,
    /// What was sent.
    pub body: Value,
}

/// A task; `lead` is whose it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// The lead.
    pub lead: i64,
    /// The rest.
    pub item: LeadItem,
}

/// Everything known of leads.
#[derive(Clone, Debug, Default)]
pub struct Leads {
    known: BTreeMap<LeadKey, Lead>,
    gone: BTreeSet<LeadKey>,
    /// By company and lead.
    pub(super) notes: BTreeMap<LeadKey, Vec<LeadItem>>,
    pub(super) history: BTreeMap<LeadKey, Vec<LeadItem>>,
    /// By company and task.
    pub(super) tasks: BTreeMap<LeadKey, Task>,
    /// By the moment they are due, then in the order they were accepted.
    pub(crate) pending: BTreeMap<(EventTime, u64), Order>,
    /// The last id given to a contact, a note, a task or a history item.
    last_part: i64,
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

    /// Does another lead of the company have this uuid?
    pub fn has_uuid(&self, company: i64, id: Option<i64>, uuid: &str) -> bool {
        self.own(company)
            .any(|lead| Some(lead.id) != id && lead.uuid.as_deref() == Some(uuid))
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

    /// The next id of a contact, note, task or history item.
    pub(super) const fn next_part(&mut self) -> i64 {
        self.last_part += 1;
        self.last_part
    }

    /// Puts a lead in the place of what was known of its id.
    pub(super) fn put(&mut self, company: i64, mut lead: Lead) {
        for contact in &mut lead.contacts {
            if contact.id == 0 {
                contact.id = self.next_part();
            }
            self.last_part = self.last_part.max(contact.id);
        }
        let key = (company, lead.id);
        self.gone.remove(&key);
        self.known.insert(key, lead);
    }

    /// The lead is no more; its parts are given back by the caller's wish.
    pub(super) fn remove(&mut self, company: i64, id: i64) {
        self.known.remove(&(company, id));
        self.gone.insert((company, id));
    }

    pub(super) fn revive(&mut self, company: i64, id: i64) {
        self.gone.remove(&(company, id));
    }

    /// Notes, tasks and history of one lead become another's.
    pub(super) fn move_parts(&mut self, company: i64, from: i64, into: i64) {
        for parts in [&mut self.notes, &mut self.history] {
            let moved = parts.remove(&(company, from)).unwrap_or_default();
            if !moved.is_empty() {
                parts.entry((company, into)).or_default().extend(moved);
            }
        }
        for ((owner, _), task) in &mut self.tasks {
            if *owner == company && task.lead == from {
                task.lead = into;
            }
        }
    }

    /// Notes, tasks and history of a deleted lead go with it.
    pub(super) fn drop_parts(&mut self, company: i64, lead: i64) {
        self.notes.remove(&(company, lead));
        self.history.remove(&(company, lead));
        self.tasks
            .retain(|(owner, _), task| *owner != company || task.lead != lead);
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
