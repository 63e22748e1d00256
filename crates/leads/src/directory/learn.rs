//! News taken in, wherever the entries are kept.

use super::entry::Entry;
use super::fact::What;
use super::ledger::Ledger;
use super::news::LeadNews;
use callbridge_model::{LeadId, Phone};
use std::collections::BTreeSet;

/// Leads of one merge at most, and leads read behind one that ends.
const LEADS_MAX: usize = 1_000;
/// Phones in one [`Learned`] at most; with more it is [`Learned::Many`].
const PHONES_MAX: usize = 10_000;

/// Numbers whose look-up may differ after a piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Learned {
    /// The news changed no entry.
    Nothing,
    /// Look-ups of these phones may differ now.
    Phones(BTreeSet<Phone>),
    /// Look-ups of more phones may differ than can be named.
    Many,
}

/// Takes one piece of news in.
///
/// # Errors
/// The ledger's.
pub fn learn<L: Ledger>(ledger: &L, news: &LeadNews) -> Result<Learned, L::Error> {
    let mut changed = Changed::default();
    let old = ledger.entry(news.lead)?;
    let mut new = old.clone();
    new.learn(news);
    changed.put(ledger, news.lead, &old, &new)?;
    if let What::Merged { from } = &news.what {
        let gone = from.iter().filter(|lead| **lead != news.lead);
        for lead in gone.take(LEADS_MAX) {
            let old = ledger.entry(*lead)?;
            let mut new = old.clone();
            new.merge(news.lead, news.at);
            changed.put(ledger, *lead, &old, &new)?;
        }
    }
    changed.finish(ledger)
}

#[derive(Default)]
struct Changed {
    any: bool,
    phones: BTreeSet<Phone>,
    /// Leads whose whole tree answers otherwise: every phone of a lead merged into them does.
    roots: Vec<LeadId>,
}

impl Changed {
    fn put<L: Ledger>(
        &mut self,
        ledger: &L,
        lead: LeadId,
        old: &Entry,
        new: &Entry,
    ) -> Result<(), L::Error> {
        if old == new {
            return Ok(());
        }
        self.any = true;
        ledger.put(lead, old, new)?;
        self.phones.extend(old.named());
        self.phones.extend(new.named());
        let stands = |entry: &Entry| {
            let life = &entry.life;
            (life.is_deleted(), life.merged, life.whole)
        };
        if stands(old) != stands(new) {
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
                    self.phones.extend(ledger.entry(lead)?.named());
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
