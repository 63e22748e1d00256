//! The storage of what is known about leads, and how news is applied to it.

use super::entry::{Entry, Life};
use super::fact::ChangeKind;
use super::news::{LeadNews, Slot};
use callbridge_call::EpochSeconds;
use callbridge_model::{LeadId, Phone};
use std::collections::BTreeSet;

/// Maximum leads of one merge that are noted. Also the maximum merged leads that are read when
/// their surviving lead changes.
const LEADS_MAX: usize = 1_000;
/// Maximum phones in one [`Learned`]. With more phones, the result is [`Learned::Many`].
const PHONES_MAX: usize = 10_000;

/// Storage of entries that can be looked up by number.
pub trait Ledger {
    type Error;

    /// Reads everything known of a lead. Empty if nothing is known.
    ///
    /// # Errors
    /// If the storage fails.
    fn entry(&self, lead: LeadId) -> Result<Entry, Self::Error>;

    /// Replaces the lead's entry `old` with `new`.
    ///
    /// # Errors
    /// If the storage fails.
    fn put(&self, lead: LeadId, old: &Entry, new: &Entry) -> Result<(), Self::Error>;

    /// Returns the leads that were merged into this one, at most `limit`.
    ///
    /// # Errors
    /// If the storage fails.
    fn merged_into(&self, lead: LeadId, limit: usize) -> Result<Vec<LeadId>, Self::Error>;

    /// Returns every row of a number, sorted by lead.
    ///
    /// # Errors
    /// If the storage fails.
    fn lead_phones(&self, phone: &Phone) -> Result<Vec<LeadPhone>, Self::Error>;

    /// Reads the state of a lead. Returns the default if nothing is known of it.
    ///
    /// # Errors
    /// If the storage fails.
    fn life(&self, lead: LeadId) -> Result<Life, Self::Error>;
}

/// A number in one slot of a lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadPhone {
    /// The lead that the number was reported for.
    pub lead: LeadId,
    /// The slot of the lead that has the number, or gave it up.
    pub slot: Slot,
    /// Second and source of the report that the slot has the number. `None` if the slot does not
    /// have the number.
    pub held: Option<(EpochSeconds, ChangeKind)>,
    /// Newest second at which the slot's contact gave the number up.
    pub gone: Option<EpochSeconds>,
    /// State of the lead, read together with the row.
    pub life: Life,
}

/// Numbers whose lookup can change after a piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The news changed no entry.
    Nothing,
    /// Lookups of these phones can have changed.
    Phones(BTreeSet<Phone>),
    /// Lookups of too many phones to list can have changed.
    Many,
}

/// Applies one piece of news to the stored entries. Returns the numbers whose lookup can have
/// changed.
///
/// # Errors
/// The ledger's error.
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
    /// Leads whose state has changed. Lookups of phones of leads that were merged into these leads
    /// can also have changed.
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
