//! Everything reported about one lead. Applying news is commutative and idempotent, so the result
//! does not depend on its order or on repeats:
//!
//! | fact | valid report of two |
//! |---|---|
//! | name of a slot; name, responsible, stage of the lead | the newer ([`super::profile`]) |
//! | phones of a slot | the newer; in one second by [`ChangeKind::rank`], then more phones |
//! | a phone that a contact gave up | the newer |
//! | the lead is living, deleted, or reported whole | the newer |
//! | the lead was merged | the newer; in one second the higher surviving id |
//!
//! If two reports are still equal, the order of the phones decides. So two changes of a contact
//! within one second, whose order is unknown, have the same result in any order.
//!
//! **A deleted lead** is living again only after a snapshot from a later second than its deletion.
//! The CRM writes an event together with its change (§6.1), so such a snapshot shows that the lead
//! was restored. **A merged lead** never lives again. Its calls go to the surviving lead, which has
//! its history, whatever is reported later.

use super::fact::{ChangeKind, FactUpdate};
use super::news::{LeadNews, Slot};
use super::profile::{Known, LeadProfile, Name, ProfileFacts};
use callbridge_call::EpochSeconds;
use callbridge_model::{LeadId, Phone};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum phones that are kept of one lead, including phones that its contacts gave up. Further
/// phones are left out.
pub const ROWS_MAX: usize = 1_000;

/// The phones of a slot, with the second and the source of their report. Of two facts about a slot,
/// the one with the higher precedence is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub at: EpochSeconds,
    pub source: ChangeKind,
    /// Empty if the slot is empty.
    pub phones: BTreeSet<Phone>,
    /// Name of the slot's contact, with its second. `None` if no name was reported, or if the name
    /// was forgotten.
    pub name: Option<Known<Name>>,
}

impl Fact {
    fn holds_over(&self, other: &Self) -> bool {
        self.precedence() > other.precedence()
    }

    fn precedence(&self) -> (EpochSeconds, u8, usize, &BTreeSet<Phone>, ChangeKind) {
        let rank = self.source.rank();
        let count = self.phones.len();
        (self.at, rank, count, &self.phones, self.source)
    }

    fn from_news(news: &LeadNews, phones: BTreeSet<Phone>, name: Option<Known<Name>>) -> Self {
        Self {
            at: news.at,
            source: news.what,
            phones,
            name,
        }
    }
}

/// Everything that was reported of one lead and is still valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Phones by their contact or snapshot.
    pub slots: BTreeMap<Slot, Fact>,
    /// Newest second at which a contact gave the phone up.
    pub gone: BTreeMap<(Slot, Phone), EpochSeconds>,
    pub life: Life,
    /// Name, responsible employee and stage.
    pub profile: ProfileFacts,
}

/// Newest seconds at which a lead was reported living, whole, deleted and merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Life {
    pub living: Option<EpochSeconds>,
    /// Newest second at which all contacts of the lead were reported. Earlier reports of contacts
    /// no longer count.
    pub whole: Option<EpochSeconds>,
    pub deleted: Option<EpochSeconds>,
    /// Second of the merge, and the surviving lead. `None` if the lead was not merged.
    pub merged: Option<(EpochSeconds, LeadId)>,
}

impl Life {
    /// Returns `true` if the lead was deleted, and no later report shows it living.
    pub fn is_deleted(&self) -> bool {
        self.deleted.is_some() && self.living <= self.deleted
    }
}

impl Entry {
    /// Adds news of this lead. For the leads that were merged into this lead, call [`Entry::merge`]
    /// of their entries.
    pub fn learn(&mut self, news: &LeadNews) {
        let source = news.what;
        let life = &mut self.life;
        if source == ChangeKind::Deleted {
            life.deleted = life.deleted.max(Some(news.at));
        } else {
            life.living = life.living.max(Some(news.at));
        }
        if news.whole {
            life.whole = life.whole.max(Some(news.at));
        }
        match &news.phone {
            FactUpdate::Unchanged => {}
            FactUpdate::None => {
                self.set(Slot::SNAPSHOT, Fact::from_news(news, BTreeSet::new(), None));
            }
            FactUpdate::Is(phone) => {
                let phones = BTreeSet::from([phone.clone()]);
                self.set(Slot::SNAPSHOT, Fact::from_news(news, phones, None));
            }
        }
        for contact in &news.contacts {
            let slot = contact.slot;
            let phones: BTreeSet<Phone> = contact.now.iter().cloned().collect();
            for phone in (contact.before.iter()).filter(|phone| !phones.contains(*phone)) {
                self.take_from(slot, phone, news.at);
            }
            let own = ChangeKind::PropertiesUpdated;
            let name = Known::from_update(&contact.name, news.at, source, own);
            self.set(slot, Fact::from_news(news, phones, name));
        }
        self.profile.learn(&news.profile, news.at, source);
        if let Some(whole) = self.life.whole {
            self.slots.retain(|_, fact| {
                fact.name.take_if(|name| name.at < whole);
                fact.at >= whole
            });
        }
        self.forget_names();
    }

    /// Notes that this lead was merged into another.
    pub fn merge(&mut self, survivor: LeadId, at: EpochSeconds) {
        self.life.merged = self.life.merged.max(Some((at, survivor)));
        self.forget_names();
    }

    /// Returns the displayed profile, with the main contact's name if known. The main contact is
    /// the contact that has the snapshot's `phone` (§2.5). If no such phone is reported, it is the
    /// only contact.
    pub fn profile(self) -> LeadProfile {
        let snapshot = self.slots.get(&Slot::SNAPSHOT);
        let first_phone = snapshot.and_then(|fact| fact.phones.first());
        let mut names = self
            .slots
            .iter()
            .filter(|(slot, fact)| {
                let has_first_phone = first_phone.is_none_or(|phone| fact.phones.contains(phone));
                has_first_phone && **slot != Slot::SNAPSHOT
            })
            .filter_map(|(_, fact)| fact.name.as_ref()?.fact.as_ref());
        let name = names.next();
        let is_main = first_phone.is_some() || names.next().is_none();
        self.profile.into_profile(if is_main { name } else { None })
    }

    /// Returns the phones that the lead has, or had before it was deleted or merged.
    pub fn phones(&self) -> BTreeSet<Phone> {
        (self.slots.values())
            .flat_map(|fact| fact.phones.iter().cloned())
            .collect()
    }

    /// Returns every phone in the entry, including phones that contacts gave up.
    pub fn named_phones(&self) -> BTreeSet<Phone> {
        let gone = self.gone.keys().map(|(_, phone)| phone.clone());
        self.phones().into_iter().chain(gone).collect()
    }

    fn rows(&self) -> usize {
        let slots = self.slots.values().map(|fact| fact.phones.len().max(1));
        slots.sum::<usize>() + self.gone.len()
    }

    fn set(&mut self, slot: Slot, fact: Fact) {
        let full = self.rows() + fact.phones.len().max(1) > ROWS_MAX;
        match self.slots.get_mut(&slot) {
            Some(known) => {
                let name = known.name.take().max(fact.name.clone());
                if fact.holds_over(known) {
                    *known = fact;
                }
                known.name = name;
            }
            None if !full => drop(self.slots.insert(slot, fact)),
            None => {}
        }
    }

    fn take_from(&mut self, slot: Slot, phone: &Phone, at: EpochSeconds) {
        if self.rows() < ROWS_MAX || self.gone.contains_key(&(slot, phone.clone())) {
            let gone = self.gone.entry((slot, phone.clone())).or_insert(at);
            *gone = at.max(*gone);
        }
    }

    /// Forgets the names of a lead that was deleted or merged.
    fn forget_names(&mut self) {
        let end = match self.life.merged {
            Some(_) => Some(EpochSeconds::new(i64::MAX)),
            None => self.life.deleted,
        };
        if let Some(end) = end {
            self.profile.forget_until(end);
            for fact in self.slots.values_mut() {
                fact.name.take_if(|name| name.at <= end);
            }
        }
    }
}
