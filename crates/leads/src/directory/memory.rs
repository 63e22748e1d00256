//! An in-memory directory for tests with few entries.

use super::entry::{Entry, Life};
use super::find::{Finding, find};
use super::ledger::{LeadPhone, Learned, Ledger, learn};
use super::merges::root;
use super::news::{LeadNews, Slot};
use super::profile::LeadProfile;
use callbridge_model::{LeadId, Phone};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::convert::Infallible;

/// An in-memory ledger, by lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered(RefCell<BTreeMap<LeadId, Entry>>);

impl Remembered {
    pub fn learn(&self, news: &LeadNews) -> Learned {
        let Ok(learned) = learn(self, news);
        learned
    }

    /// Returns `true` if a lead has this number, or had it when it was deleted or merged.
    pub fn has(&self, phone: &Phone) -> bool {
        let entries = self.0.borrow();
        entries.values().any(|entry| entry.phones().contains(phone))
    }

    /// Returns the number of leads that have been neither merged nor deleted.
    pub fn living(&self) -> u64 {
        let entries = self.0.borrow();
        let living = entries.values().filter(|entry| {
            let life = &entry.life;
            life.living.is_some() && !life.is_deleted() && life.merged.is_none()
        });
        living.count() as u64
    }

    /// Returns the displayed profile of a lead, or of the lead it was merged into.
    pub fn profile(&self, lead: LeadId) -> LeadProfile {
        let Ok(end) = root(lead, |lead| Ok::<_, Infallible>(self.life(lead)?.merged));
        let Ok(entry) = self.entry(end.lead);
        entry.profile()
    }

    /// Looks up every lead that has or had the number.
    pub fn find(&self, phone: &Phone) -> Finding {
        let Ok(found) = find(self, phone);
        found
    }
}

impl Ledger for Remembered {
    type Error = Infallible;

    fn entry(&self, lead: LeadId) -> Result<Entry, Infallible> {
        Ok(self.0.borrow().get(&lead).cloned().unwrap_or_default())
    }

    fn put(&self, lead: LeadId, _: &Entry, new: &Entry) -> Result<(), Infallible> {
        self.0.borrow_mut().insert(lead, new.clone());
        Ok(())
    }

    fn merged_into(&self, lead: LeadId, limit: usize) -> Result<Vec<LeadId>, Infallible> {
        let entries = self.0.borrow();
        let merged = entries.iter().filter(|(_, entry)| {
            let merged = entry.life.merged;
            merged.is_some_and(|(_, survivor)| survivor == lead)
        });
        Ok(merged.map(|(lead, _)| *lead).take(limit).collect())
    }

    fn lead_phones(&self, phone: &Phone) -> Result<Vec<LeadPhone>, Infallible> {
        let mut rows = Vec::new();
        for (lead, entry) in self.0.borrow().iter() {
            let mut slots: BTreeMap<Slot, LeadPhone> = BTreeMap::new();
            for (slot, fact) in &entry.slots {
                if fact.phones.contains(phone) {
                    let row = slots
                        .entry(*slot)
                        .or_insert_with(|| empty_row(*lead, *slot, entry.life));
                    row.held = Some((fact.at, fact.source));
                }
            }
            for ((slot, former), at) in &entry.gone {
                if former == phone {
                    let row = slots
                        .entry(*slot)
                        .or_insert_with(|| empty_row(*lead, *slot, entry.life));
                    row.gone = Some(*at);
                }
            }
            rows.extend(slots.into_values());
        }
        Ok(rows)
    }

    fn life(&self, lead: LeadId) -> Result<Life, Infallible> {
        Ok(self.entry(lead)?.life)
    }
}

const fn empty_row(lead: LeadId, slot: Slot, life: Life) -> LeadPhone {
    LeadPhone {
        lead,
        slot,
        held: None,
        gone: None,
        life,
    }
}
