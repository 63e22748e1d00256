//! A directory in memory: for tests, where there are few entries.

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

/// A ledger in memory, by lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered(RefCell<BTreeMap<LeadId, Entry>>);

impl Remembered {
    pub fn learn(&self, news: &LeadNews) -> Learned {
        let Ok(learned) = learn(self, news);
        learned
    }

    /// Returns `true` if a lead has this number, or had it when it ended.
    pub fn has(&self, phone: &Phone) -> bool {
        let entries = self.0.borrow();
        entries.values().any(|entry| entry.phones().contains(phone))
    }

    /// Returns the number of leads that are neither merged nor deleted.
    pub fn living(&self) -> u64 {
        let lives =
            |life: &Life| life.living.is_some() && !life.is_deleted() && life.merged.is_none();
        let entries = self.0.borrow();
        entries.values().filter(|entry| lives(&entry.life)).count() as u64
    }

    /// Returns the displayed profile of a lead, or of the one it was merged into.
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
        let into = |entry: &Entry| entry.life.merged.is_some_and(|(_, into)| into == lead);
        let entries = self.0.borrow();
        let leads = entries.iter().filter(|(_, entry)| into(entry));
        Ok(leads.map(|(lead, _)| *lead).take(limit).collect())
    }

    fn lead_phones(&self, phone: &Phone) -> Result<Vec<LeadPhone>, Infallible> {
        let mut rows = Vec::new();
        for (lead, entry) in self.0.borrow().iter() {
            let mut slots: BTreeMap<Slot, LeadPhone> = BTreeMap::new();
            let row = |slot: Slot| LeadPhone {
                lead: *lead,
                slot,
                held: None,
                gone: None,
                life: entry.life,
            };
            for (slot, fact) in &entry.slots {
                if fact.phones.contains(phone) {
                    let held = slots.entry(*slot).or_insert_with(|| row(*slot));
                    held.held = Some((fact.at, fact.source));
                }
            }
            for ((slot, of), at) in &entry.gone {
                if of == phone {
                    slots.entry(*slot).or_insert_with(|| row(*slot)).gone = Some(*at);
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
