//! The storage for what's known about leads, and how news is applied to it.

use super::entry::{Entry, Life};
use super::fact::ChangeKind;
use super::news::{LeadNews, Slot};
use callbridge_call::EpochSeconds;
use callbridge_model::{LeadId, Phone};
use std::collections::BTreeSet;

/// Maximum number of leads to record per merge. This is also the maximum number of merged leads to
/// read when their surviving lead changes.
const LEADS_MAX: usize = 1_000;
/// Maximum number of phones in a [`Learned`]. If there are more, the result is [`Learned::Many`].
const PHONES_MAX: usize = 10_000;

/// Storage for entries that can be looked up by number.
pub trait Ledger {
    type Error;

    /// Reads everything known about a lead. The entry is empty if nothing is.
    ///
    /// # Errors
    /// Returns an error if the storage fails.
    fn entry(&self, lead: LeadId) -> Result<Entry, Self::Error>;

    /// Replaces the lead's entry `old` with `new`.
    ///
    /// # Errors
    /// Returns an error if the storage fails.
    fn put(&self, lead: LeadId, old: &Entry, new: &Entry) -> Result<(), Self::Error>;

    /// Returns up to `limit` leads that were merged into this one.
    ///
    /// # Errors
    /// Returns an error if the storage fails.
    fn merged_into(&self, lead: LeadId, limit: usize) -> Result<Vec<LeadId>, Self::Error>;

    /// Returns all of a number's rows, sorted by lead.
    ///
    /// # Errors
    /// Returns an error if the storage fails.
    fn lead_phones(&self, phone: &Phone) -> Result<Vec<LeadPhone>, Self::Error>;

    /// Reads a lead's state, or returns the default if nothing is known about it.
    ///
    /// # Errors
    /// Returns an error if the storage fails.
    fn life(&self, lead: LeadId) -> Result<Life, Self::Error>;
}

/// A number in one of a lead's slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadPhone {
    /// The lead that the number was reported for.
    pub lead: LeadId,
    /// The lead's slot that has the number or gave it up.
    pub slot: Slot,
    /// When it was reported that the slot has the number, and by what, or `None` if the slot
    /// doesn't have it.
    pub held: Option<(EpochSeconds, ChangeKind)>,
    /// Newest second at which the slot's contact gave up the number.
    pub gone: Option<EpochSeconds>,
    /// The lead's state, which is read together with the row.
    pub life: Life,
}

/// Numbers whose lookup may have a different result after a piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The news didn't change any entry.
    Nothing,
    /// Looking up these phones may have a different result.
    Phones(BTreeSet<Phone>),
    /// Looking up any of too many phones to list may have a different result.
    Many,
}

/// Applies one piece of news to the stored entries, and returns the numbers whose lookup may have a
/// different result.
///
/// # Errors
/// Returns the ledger's error.
pub fn learn<L: Ledger>(ledger: &L, news: &LeadNews) -> Result<Learned, L::Error> {
    let mut changed = Changed::default();
    changed.put(ledger, news.lead, |entry| entry.learn(news))?;
    let gone = news.merged.iter().filter(|lead| **lead != news.lead);
    for lead in gone.take(LEADS_MAX) {
        changed.put(ledger, *lead, |entry| entry.merge(news.lead, news.at))?;
    }
    changed.finish(ledger)
}

#[derive(Default)]
struct Changed {
    any: bool,
    phones: BTreeSet<Phone>,
    /// Leads whose state has changed. This may also affect lookups of phones of leads that were
    /// merged into these.
    roots: Vec<LeadId>,
}

impl Changed {
    fn put<L: Ledger>(
        &mut self,
        ledger: &L,
        lead: LeadId,
        change: impl FnOnce(&mut Entry),
    ) -> Result<(), L::Error> {
        let old = ledger.entry(lead)?;
        let mut new = old.clone();
        change(&mut new);
        if old == new {
            return Ok(());
        }
        self.any = true;
        ledger.put(lead, &old, &new)?;
        self.phones.extend(old.named_phones());
        self.phones.extend(new.named_phones());
        if changes_merged_leads(&old.life, &new.life) {
            self.roots.push(lead);
        }
        Ok(())
    }

    fn finish<L: Ledger>(mut self, ledger: &L) -> Result<Learned, L::Error> {
        if !self.any {
            return Ok(Learned::Nothing);
        }
        let mut seen: BTreeSet<LeadId> = self.roots.iter().copied().collect();
        while let Some(root) = self.roots.pop() {
            for lead in ledger.merged_into(root, LEADS_MAX + 1)? {
                if seen.insert(lead) {
                    self.phones.extend(ledger.entry(lead)?.named_phones());
                    self.roots.push(lead);
                }
            }
            if seen.len() > LEADS_MAX || self.phones.len() > PHONES_MAX {
                return Ok(Learned::Many);
            }
        }
        Ok(Learned::Phones(self.phones))
    }
}

/// Returns `true` if the change affects lookups of the leads that were merged into this one.
fn changes_merged_leads(old: &Life, new: &Life) -> bool {
    old.is_deleted() != new.is_deleted() || old.merged != new.merged || old.whole != new.whole
}
