//! A report from the CRM about a lead, which contains the facts in an event or a row, without its
//! JSON.

use super::fact::{ChangeKind, FactUpdate};
use super::profile::{Name, ProfileNews};
use callbridge_call::EpochSeconds;
use callbridge_model::number::e164;
use callbridge_model::{Country, LeadId, Phone};

/// Maximum number of phones per contact. Any further ones are dropped.
pub const PHONES_MAX: usize = 100;

/// A report about a lead. News may arrive in any order and any number of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadNews {
    /// The lead, or for a merge, the surviving lead (§6.6).
    pub lead: LeadId,
    /// The report's second, which is an event's `occurredAt` (§6.5), or a row's `updatedTimestamp`
    /// (§2.5) or else its `createdTimestamp`, or zero if the row has neither.
    pub at: EpochSeconds,
    /// The kind of event or response that reported the news.
    pub what: ChangeKind,
    /// Leads that no longer exist because they were merged into this one.
    pub merged: Vec<LeadId>,
    /// The snapshot's `phone`, which is the main contact's first phone (§2.5).
    pub phone: FirstPhone,
    /// Name, responsible employee, and stage, if the news contains them.
    pub profile: ProfileNews,
    pub contacts: Vec<ContactPhones>,
    /// Whether `contacts` are all of the lead's contacts. Never true for an event (§6.7).
    pub whole: bool,
}

impl LeadNews {
    /// Creates the news from a snapshot, without a profile or contacts.
    pub fn new(lead: LeadId, at: EpochSeconds, what: ChangeKind, phone: FirstPhone) -> Self {
        Self {
            lead,
            at,
            what,
            phone,
            merged: Vec::new(),
            profile: ProfileNews::default(),
            contacts: Vec::new(),
            whole: false,
        }
    }
}

/// The main contact's first phone.
pub type FirstPhone = FactUpdate<Phone>;

impl FirstPhone {
    /// Reads a snapshot's `phone`, which is null or missing if there is none (§2.5, §6.5).
    pub fn parse(text: Option<&str>, country: Option<Country>) -> Self {
        Self::from(text.and_then(|text| e164(text, country)))
    }
}

/// Where some of a lead's phones come from, as the number stored for it. That's either one contact,
/// given by its ID (§6.7 `contactId`), the snapshot's `phone` (0), or a row's contacts without IDs
/// (-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(pub i64);

impl Slot {
    /// The snapshot's `phone`, which belongs to the main contact, whose ID isn't known.
    pub const SNAPSHOT: Self = Self(0);
    /// A row's contacts without IDs.
    pub const NAMELESS: Self = Self(-1);

    /// Returns the slot for the contact with this ID in the CRM, which is [`Self::NAMELESS`] unless
    /// the ID is positive.
    pub fn for_contact(id: Option<i64>) -> Self {
        id.filter(|id| *id > 0).map_or(Self::NAMELESS, Self)
    }

    /// Returns `true` for the phones of a contact with a known ID.
    pub const fn is_contact(self) -> bool {
        self.0 > 0
    }
}

/// One contact's phones and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContactPhones {
    /// The contact's slot, which is the nameless one for all of a row's contacts without IDs.
    pub slot: Slot,
    /// The contact's name, without its phones.
    pub name: FactUpdate<Name>,
    /// The contact's current phones, or empty if the contact was removed.
    pub now: Vec<Phone>,
    /// The phones that the contact had before the change. Empty for rows, which don't contain
    /// earlier phones.
    pub before: Vec<Phone>,
}

impl ContactPhones {
    /// Reads a `CONTACT` entry in `propertyChanges` (§6.7), where `from` and `to` have the form
    /// `<name> [<phone>, <phone>]`. If `to` is missing, the contact was removed.
    pub fn read_change(
        slot: Slot,
        from: Option<&str>,
        to: Option<&str>,
        country: Option<Country>,
    ) -> Self {
        let name = to.and_then(|text| {
            let name_end = text.rfind('[').unwrap_or(text.len());
            Name::new(&text[..name_end])
        });
        let now = to.map(|text| phones_in(text, country));
        let before = from.map(|text| phones_in(text, country));
        Self {
            slot,
            name: FactUpdate::from(name),
            now: now.unwrap_or_default(),
            before: before.unwrap_or_default(),
        }
    }
}

/// Reads the distinct phones in `<name> [<phone>, <phone>]`, in order. Since names may contain
/// brackets, the phones are in the last ones. Anything that isn't a phone is skipped.
pub fn phones_in(text: &str, country: Option<Country>) -> Vec<Phone> {
    let Some((_, rest)) = text.rsplit_once('[') else {
        return Vec::new();
    };
    let inner = rest.rsplit_once(']').map_or(rest, |(inner, _)| inner);
    phones_of(inner.split([',', ';']), country)
}

/// Parses strings as numbers, returning up to [`PHONES_MAX`] distinct ones in order. Anything that
/// isn't a number is skipped.
pub fn phones_of<'a>(texts: impl Iterator<Item = &'a str>, country: Option<Country>) -> Vec<Phone> {
    let mut phones: Vec<Phone> = Vec::new();
    for phone in texts.filter_map(|text| e164(text, country)) {
        if phones.len() < PHONES_MAX && !phones.contains(&phone) {
            phones.push(phone);
        }
    }
    phones
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<String> {
        let phones = phones_in(text, Country::parse("UZ"));
        phones
            .iter()
            .map(|phone| phone.as_str().to_owned())
            .collect()
    }

    #[test]
    fn contact_phones_are_read_from_the_last_brackets() {
        let (a, b) = ("+998901110001", "+998901110002");
        assert_eq!(read("Anna [+998901110001, +998901110002]"), [a, b]);
        assert_eq!(read("Anna [VIP] [big] [901110001]"), [a]);
        assert_eq!(read("[+998901110002, 90 111-00-02]"), [b], "each once");
        assert_eq!(read("Anna [+998901110001, 101, +998901110002"), [a, b]);
        assert_eq!(read(" [998901110001;998901110002] "), [a, b]);
        for nothing in [
            "",
            "Anna",
            "Anna []",
            "Anna [ ]",
            "Anna [VIP]",
            "Anna ]901110001[",
        ] {
            assert_eq!(read(nothing), [""; 0], "{nothing}");
        }
    }

    #[test]
    fn removed_contact_has_no_phones_but_reports_former_ones() {
        let contact = Slot::for_contact(Some(7));
        let gone = ContactPhones::read_change(contact, Some("A [+998901110001]"), None, None);
        let phone = Phone::from_e164("+998901110001").expect("a number");
        assert_eq!((gone.now, gone.before), (vec![], vec![phone]));
    }

    #[test]
    fn change_kinds_are_stored_as_fixed_numbers() {
        let words: Vec<&str> = (0..)
            .map_while(ChangeKind::from_repr)
            .map(ChangeKind::word)
            .collect();
        assert_eq!(
            words,
            [
                "LEAD_CREATED",
                "LEAD_ASSIGNED",
                "LEAD_STAGE_CHANGED",
                "LEAD_PROPERTIES_UPDATED",
                "LEAD_MERGED",
                "LEAD_DELETED",
                "lead/filter",
                "GET lead",
            ]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_phones_or_none_without_panic(text in ".{0,80}") {
            let _ = phones_in(&text, Country::parse("UZ"));
            let _ = phones_in(&format!("x [{text}]"), None);
        }

        #[test]
        fn phones_are_found_after_any_contact_name(name in ".{0,20}", n in 0_u32..9) {
            let text = format!("{name} [+99890111000{n}]");
            prop_assert_eq!(read(&text), [format!("+99890111000{n}")]);
        }
    }
}
