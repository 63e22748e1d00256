//! A directory in memory.

use super::entry::{Entry, Life, Slot};
use super::find::{Finding, LeadPhone, PhoneIndex, find};
use super::learn::{Learned, Ledger, learn};
use super::merges::root;
use super::news::LeadNews;
use super::profile::LeadProfile;
use callbridge_model::{LeadId, Phone};
use std::collections::BTreeMap;
use std::convert::Infallible;

/// Entries by lead: for tests and the simulation, where there are few.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered(BTreeMap<LeadId, Entry>);

impl Remembered {
    /// Takes one piece of news in.
    pub fn learn(&mut self, news: &LeadNews) -> Learned {
        let Ok(learned) = learn(self, news);
        learned
    }

    /// Some lead has this number, or had it when it ended.
    pub fn has(&self, phone: &Phone) -> bool {
        self.0.values().any(|entry| entry.phones().contains(phone))
    }

    /// Leads that are neither merged nor deleted.
    pub fn living(&self) -> u64 {
        let lives =
            |life: &Life| life.living.is_some() && !life.is_deleted() && life.merged.is_none();
        self.0.values().filter(|entry| lives(&entry.life)).count() as u64
    }

    /// What is shown of a lead, or of the one it was merged into.
    pub fn profile(&self, lead: LeadId) -> LeadProfile {
        let Ok(end) = root(lead, |lead| Ok::<_, Infallible>(self.life(lead)?.merged));
        let entry = self.0.get(&end.lead).cloned();
        entry.unwrap_or_default().profile()
    }

    /// Who has this number.
    pub fn find(&self, phone: &Phone) -> Finding {
        let Ok(found) = find(self, phone);
        found
    }
}

impl Ledger for Remembered {
    type Error = Infallible;

    fn entry(&mut self, lead: LeadId) -> Result<Entry, Infallible> {
        Ok(self.0.get(&lead).cloned().unwrap_or_default())
    }

    fn put(&mut self, lead: LeadId, _: &Entry, new: &Entry) -> Result<(), Infallible> {
        self.0.insert(lead, new.clone());
        Ok(())
    }

    fn merged_into(&mut self, lead: LeadId, limit: usize) -> Result<Vec<LeadId>, Infallible> {
        let into = |entry: &Entry| entry.life.merged.is_some_and(|(_, into)| into == lead);
        let leads = self.0.iter().filter(|(_, entry)| into(entry));
        Ok(leads.map(|(lead, _)| *lead).take(limit).collect())
    }
}

impl PhoneIndex for Remembered {
    type Error = Infallible;

    fn lead_phones(&self, phone: &Phone) -> Result<Vec<LeadPhone>, Infallible> {
        let mut rows = Vec::new();
        for (lead, entry) in &self.0 {
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
        Ok(self
            .0
            .get(&lead)
            .map(|entry| entry.life)
            .unwrap_or_default())
    }
}
