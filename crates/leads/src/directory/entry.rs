//! Everything reported about one lead. Applying news is commutative and idempotent, so the result
//! doesn't depend on its order or on duplicates:
//!
//! | fact | which of two reports is valid |
//! |---|---|
//! | a slot's name; a lead's name, responsible employee, stage | the newer ([`super::profile`]) |
//! | a slot's phones | the newer one; if equal, by [`ChangeKind::rank`], then by more phones |
//! | a phone that a contact gave up | the newer one |
//! | the lead is living, deleted, or completely reported | the newer one |
//! | the lead was merged | the newer one; if equal, the one with the higher surviving ID |
//!
//! If two reports are still equal, the order of the phones decides. This way, two changes to a
//! contact within the same second, whose order is unknown, have the same result in either order.
//!
//! **A deleted lead** is only considered living again after a snapshot from a second later than its
//! deletion. The CRM writes an event together with its change (§6.1), so such a snapshot shows that
//! the lead was restored. **A merged lead** never comes back. Its calls go to the surviving lead,
//! which has taken over its history, no matter what's reported later.

use super::fact::{ChangeKind, FactUpdate};
use super::news::{LeadNews, Slot};
use super::profile::{Known, LeadProfile, Name, ProfileFacts};
use callbridge_call::EpochSeconds;
use callbridge_model::{LeadId, Phone};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of phones to keep per lead, including those that its contacts gave up. Any
/// further ones are dropped.
pub const ROWS_MAX: usize = 1_000;

/// A slot's phones, along with when they were reported and by what. Of two facts about a slot, the
/// one with the higher precedence is valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    pub at: EpochSeconds,
    pub source: ChangeKind,
    /// Empty if the slot is empty.
    pub phones: BTreeSet<Phone>,
    /// The name of the slot's contact, along with when it was reported, or `None` if no name was
    /// reported or the name was forgotten.
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

/// Everything reported about one lead that's still valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Phones by their contact or snapshot.
    pub slots: BTreeMap<Slot, Fact>,
    /// Newest second at which a contact gave up the phone.
    pub gone: BTreeMap<(Slot, Phone), EpochSeconds>,
    pub life: Life,
    /// Name, responsible employee, and stage.
    pub profile: ProfileFacts,
}

/// Newest seconds at which a lead was reported as living, complete, deleted, and merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Life {
    pub living: Option<EpochSeconds>,
    /// Newest second at which all of the lead's contacts were reported. Earlier reports about
    /// contacts no longer count.
    pub whole: Option<EpochSeconds>,
    pub deleted: Option<EpochSeconds>,
    /// When the lead was merged and the surviving lead, or `None` if it wasn't merged.
    pub merged: Option<(EpochSeconds, LeadId)>,
}

impl Life {
    /// Returns `true` if the lead was deleted and no later report shows that it's living.
    pub fn is_deleted(&self) -> bool {
        self.deleted.is_some() && self.living <= self.deleted
    }
}

impl Entry {
    /// Adds news about this lead. For leads merged into this one, call [`Entry::merge`] on their
    /// entries.
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

    /// Records that this lead was merged into another one.
    pub fn merge(&mut self, survivor: LeadId, at: EpochSeconds) {
        self.life.merged = self.life.merged.max(Some((at, survivor)));
        self.forget_names();
    }

    /// Returns the displayed profile, with the main contact's name if it's known. The main contact
    /// is the one that has the snapshot's `phone` (§2.5), or the only contact if no such phone is
    /// reported.
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

    /// Returns every phone in the entry, including those that contacts gave up.
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
