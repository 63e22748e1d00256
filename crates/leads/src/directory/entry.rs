//! All that was told of one lead. Taking news in is commutative and takes the same news twice as
//! once, so that what is known does not depend on the order in which it came:
//!
//! | fact | of two the one that holds |
//! |---|---|
//! | a slot's name; name, responsible, stage of the lead | the newer ([`super::profile`]) |
//! | the phones of a slot | the newer; of one second by [`FactSource::rank`], then more phones |
//! | a phone taken from a contact | the newer |
//! | that it lives, was deleted, was told whole | the newer |
//! | that it was merged | the newer; of one second the higher surviving id |
//!
//! What is left then is settled by the phones' own order: two changes of one contact within one
//! second, of which nobody says which came first, end the same way whichever is heard first.
//!
//! **A deleted lead** lives again only by a snapshot of a later second than its deletion: the
//! service writes an event together with its change (§6.1), so such a snapshot tells that the lead
//! was put back. **A merged lead** never lives again: whatever is told of it later, its calls go
//! to the survivor, which has its history.

use super::fact::{FactSource, FactUpdate, What};
use super::news::{ContactPhones, LeadNews};
use super::profile::{Known, LeadProfile, Name, ProfileFacts};
use callbridge_call::EpochSeconds;
use callbridge_model::{LeadId, Phone};
use std::collections::{BTreeMap, BTreeSet};

/// Phones kept of one lead, and of one number taken from it, at most: news with more are left out.
pub const ROWS_MAX: usize = 1_000;

/// Where a lead's phones stand. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(i64);

impl Slot {
    /// The snapshot's `phone`: nobody says whose it is but that it is the main contact's.
    pub const SNAPSHOT: Self = Self(0);
    /// Contacts of a row that names none.
    pub const NAMELESS: Self = Self(-1);

    /// As it is stored: a contact's id, or one of the two.
    pub const fn stored(number: i64) -> Self {
        Self(number)
    }

    /// The number stored.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// Phones of a contact that is known by its id.
    pub const fn is_contact(self) -> bool {
        self.0 > 0
    }

    fn of(phones: &ContactPhones) -> Self {
        phones
            .contact
            .map_or(Self::NAMELESS, |contact| Self(contact.get()))
    }
}

/// The phones of a slot, since when, and what told it. In the order of what holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Since when.
    pub at: EpochSeconds,
    /// What told it.
    pub source: FactSource,
    /// None: the slot is empty.
    pub phones: BTreeSet<Phone>,
    /// What the slot's contact is called, and since when.
    pub name: Option<Known<Name>>,
}

impl Fact {
    fn holds_over(&self, other: &Self) -> bool {
        let order = |fact: &Self| (fact.at, fact.source.rank(), fact.phones.len());
        (order(self), &self.phones, self.source) > (order(other), &other.phones, other.source)
    }
}

/// What is known of one lead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its phones.
    pub slots: BTreeMap<Slot, Fact>,
    /// When a contact gave a phone up.
    pub gone: BTreeMap<(Slot, Phone), EpochSeconds>,
    /// How it stands.
    pub life: Life,
    /// What people know it by.
    pub profile: ProfileFacts,
}

/// How a lead stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Life {
    /// The newest second at which it was told to live.
    pub living: Option<EpochSeconds>,
    /// When all its contacts were told last: what was told of them before counts no more.
    pub whole: Option<EpochSeconds>,
    /// When it was deleted last.
    pub deleted: Option<EpochSeconds>,
    /// Into which lead it was merged, and when.
    pub merged: Option<(EpochSeconds, LeadId)>,
}

impl Life {
    /// It was deleted, and nothing newer tells of it.
    pub fn is_deleted(&self) -> bool {
        self.deleted
            .is_some_and(|deleted| self.living.is_none_or(|living| living <= deleted))
    }
}

impl Entry {
    /// Takes in what was told of this very lead. What is told of the leads merged into it is for
    /// their own entries: [`Entry::merge`].
    pub fn learn(&mut self, news: &LeadNews) {
        let source = news.what.source();
        match news.what {
            What::Deleted => self.life.deleted = self.life.deleted.max(Some(news.at)),
            What::Created
            | What::Assigned
            | What::StageChanged
            | What::PropertiesUpdated
            | What::Merged { .. }
            | What::Filter
            | What::Read => self.life.living = self.life.living.max(Some(news.at)),
        }
        if news.whole {
            self.life.whole = self.life.whole.max(Some(news.at));
        }
        let first = match &news.phone {
            FactUpdate::Unchanged => None,
            FactUpdate::None => Some(BTreeSet::new()),
            FactUpdate::Is(phone) => Some([phone.clone()].into()),
        };
        if let Some(phones) = first {
            let at = news.at;
            let name = None;
            self.set(
                Slot::SNAPSHOT,
                Fact {
                    at,
                    source,
                    phones,
                    name,
                },
            );
        }
        for contact in &news.contacts {
            let slot = Slot::of(contact);
            let phones: BTreeSet<Phone> = contact.now.iter().cloned().collect();
            for phone in contact
                .before
                .iter()
                .filter(|phone| !phones.contains(*phone))
            {
                self.take_from(slot, phone, news.at);
            }
            let at = news.at;
            let name = Known::updated(&contact.name, at, source, FactSource::PropertiesUpdated);
            self.set(
                slot,
                Fact {
                    at,
                    source,
                    phones,
                    name,
                },
            );
        }
        self.profile.learn(&news.profile, news.at, source);
        self.forget_before_the_whole();
        self.forget_names();
    }

    /// Takes in that it was merged into this lead.
    pub fn merge(&mut self, survivor: LeadId, at: EpochSeconds) {
        self.life.merged = self.life.merged.max(Some((at, survivor)));
        self.forget_names();
    }

    /// What is shown of it.
    pub fn profile(self) -> LeadProfile {
        let main = self.main_contact().cloned();
        self.profile.shown(main.as_ref())
    }

    /// The name of the contact that has the first phone of the main one (§2.5); where none is told,
    /// of the only contact.
    fn main_contact(&self) -> Option<&Name> {
        let first = self.slots.get(&Slot::SNAPSHOT);
        let first = first.and_then(|fact| fact.phones.first());
        let contacts = self
            .slots
            .iter()
            .filter(|(slot, _)| **slot != Slot::SNAPSHOT);
        let mut named = contacts.filter_map(|(_, fact)| {
            let is_main = first.is_none_or(|phone| fact.phones.contains(phone));
            fact.name.as_ref()?.fact.as_ref().filter(|_| is_main)
        });
        let name = named.next();
        name.filter(|_| first.is_some() || named.next().is_none())
    }

    /// The phones that it has, or had before it ended.
    pub fn phones(&self) -> BTreeSet<Phone> {
        let slots = self.slots.values();
        slots.flat_map(|fact| fact.phones.iter().cloned()).collect()
    }

    /// Every phone of which it says something: those that it gave up as well.
    pub fn named(&self) -> BTreeSet<Phone> {
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

    /// Names are gone with the lead.
    fn forget_names(&mut self) {
        let end = match self.life.merged {
            Some(_) => Some(EpochSeconds::new(i64::MAX)),
            None => self.life.deleted,
        };
        if let Some(end) = end {
            self.profile.forget_until(end);
            for fact in self.slots.values_mut() {
                fact.name.take_if(|it| it.at <= end);
            }
        }
    }

    fn forget_before_the_whole(&mut self) {
        if let Some(whole) = self.life.whole {
            self.slots.retain(|_, fact| {
                fact.name.take_if(|it| it.at < whole);
                fact.at >= whole
            });
        }
    }
}
