//! A tolerant parser for rows of `lead/filter` and the response to `GET lead/{id}`. Since the CRM
//! doesn't document their form (§2.8, §4.7), they're read like the snapshot in webhooks (§2.5), but
//! values may also be in other places:
//!
//! | value | places |
//! |---|---|
//! | rows | the array of objects in `data`, under any key, or `data` itself |
//! | pages | `currentPage`, `totalPages` in `data` or next to it (§2.1) |
//! | lead | `id` or `leadId`; the row may be wrapped in `lead` |
//! | time | `updatedTimestamp`, or else `createdTimestamp`, which can't be after it, or neither |
//! | name, responsible, stage | `name`, `responsibleId`, `responsibleName`, `statusName` |
//! | a contact's name | its `name` |
//! | phones | `phone`; `phones`; `phone` and `phones` of `contacts`, `contact`, `mainContact` |
//!
//! A phone is a string, a number, or an object with either of these under `phone`, `number`,
//! `phoneNumber`, or `value`.

use super::fact::{ChangeKind, FactUpdate};
use super::news::{ContactPhones, FirstPhone, LeadNews, Slot, phones_of};
use super::profile::{Name, ProfileNews};
use callbridge_call::EpochSeconds;
use callbridge_model::{Country, LeadId};
use serde_json::Value;

/// The time of a row without a time, so that any other news about its lead is newer.
const OLDEST: EpochSeconds = EpochSeconds::new(0);

/// Maximum number of contacts per row. Any further ones are dropped.
const CONTACTS_MAX: usize = 50;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowsPage {
    /// The rows, in the response's order.
    pub rows: Vec<LeadRow>,
    /// The response's `totalPages`, or `None` if it's missing.
    pub total: Option<u32>,
}

/// A row, as far as it can be parsed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LeadRow {
    /// `id` or `leadId`, or `None` if the row has no usable ID.
    pub lead: Option<LeadId>,
    /// `updatedTimestamp`, or `None` if the row has none.
    pub updated: Option<EpochSeconds>,
    /// Whether the row has an `updatedTimestamp` or a `createdTimestamp`.
    pub has_time: bool,
    /// What the row reports about its lead, or `None` without an ID.
    pub news: Option<LeadNews>,
    /// Whether the row has a field for phones, empty or not.
    pub has_phones: bool,
}

/// Reads a response of `lead/filter`, or returns `None` if it doesn't contain a list.
pub fn page(body: &Value, country: Option<Country>) -> Option<RowsPage> {
    let data = body.get("data").unwrap_or(body);
    let rows = list(data).or_else(|| list(body))?;
    let total = [data, body]
        .into_iter()
        .find_map(|place| place.get("totalPages"));
    Some(RowsPage {
        rows: rows
            .iter()
            .map(|row| read(row, ChangeKind::Filter, country))
            .collect(),
        total: total
            .and_then(read_integer)
            .and_then(|n| u32::try_from(n).ok()),
    })
}

/// Returns the rows, which are an array of objects, or an empty array if there's no other.
fn list(value: &Value) -> Option<&Vec<Value>> {
    if let Value::Array(rows) = value {
        return Some(rows);
    }
    let arrays = value.as_object()?.values().filter_map(Value::as_array);
    let filled = arrays
        .clone()
        .find(|rows| rows.first().is_some_and(Value::is_object));
    filled.or_else(|| arrays.clone().find(|rows| rows.is_empty()))
}

/// Reads one lead, either from a row of `lead/filter` or from the response to `GET lead/{id}`.
pub fn read(row: &Value, what: ChangeKind, country: Option<Country>) -> LeadRow {
    let wrapped = row.get("lead").filter(|lead| lead.is_object());
    let row = wrapped.unwrap_or(row);
    let lead = first_whole(row, ["id", "leadId"]).and_then(LeadId::new);
    let updated = seconds_under(row, "updatedTimestamp");
    let at = updated.or_else(|| seconds_under(row, "createdTimestamp"));
    let (phone, contacts, whole) = phones(row, country);
    let has_phones = phone != FirstPhone::Unchanged || !contacts.is_empty() || whole;
    let news = lead.map(|lead| LeadNews {
        profile: ProfileNews::read(row),
        contacts,
        whole,
        ..LeadNews::new(lead, at.unwrap_or(OLDEST), what, phone)
    });
    LeadRow {
        lead,
        updated,
        has_time: at.is_some(),
        news,
        has_phones,
    }
}

fn seconds_under(row: &Value, key: &str) -> Option<EpochSeconds> {
    read_integer(row.get(key)?).map(EpochSeconds::new)
}

/// Reads a row's phones, which are the lead's first phone and the contacts' phones, and returns
/// `true` along with them if the row has all of its lead's contacts.
fn phones(row: &Value, country: Option<Country>) -> (FirstPhone, Vec<ContactPhones>, bool) {
    let phone = match row.get("phone") {
        None => FirstPhone::Unchanged,
        Some(value) => FirstPhone::parse(text(value).as_deref(), country),
    };
    let mut contacts = Vec::new();
    if row.get("phones").is_some_and(Value::is_array)
        && let Some(mut phones) = read_contact(row, Slot::NAMELESS, country)
    {
        phones.name = FactUpdate::Unchanged;
        contacts.push(phones);
    }
    let mut is_whole = false;
    if let Some(Value::Array(all)) = row.get("contacts") {
        let before = contacts.len();
        let read = all.iter().take(CONTACTS_MAX);
        contacts
            .extend(read.filter_map(|contact| read_contact(contact, slot_of(contact), country)));
        is_whole = all.len() <= CONTACTS_MAX && contacts.len() - before == all.len();
    }
    for key in ["mainContact", "contact"] {
        if let Some(contact) = row.get(key).filter(|contact| contact.is_object()) {
            contacts.extend(read_contact(contact, slot_of(contact), country));
        }
    }
    (phone, one_each(contacts), is_whole)
}

/// Returns the whole number under the first of these keys that has one.
fn first_whole(row: &Value, keys: [&str; 2]) -> Option<i64> {
    keys.into_iter().find_map(|key| read_integer(row.get(key)?))
}

fn slot_of(contact: &Value) -> Slot {
    Slot::for_contact(first_whole(contact, ["id", "contactId"]))
}

/// Reads a contact's phones, or returns `None` if the contact has no field for phones.
fn read_contact(contact: &Value, slot: Slot, country: Option<Country>) -> Option<ContactPhones> {
    let many = contact.get("phones").and_then(Value::as_array);
    let one = if slot.is_contact() || many.is_none() {
        contact.get("phone")
    } else {
        None
    };
    if many.is_none() && one.is_none() {
        return None;
    }
    let places = many.into_iter().flatten().chain(one);
    let texts: Vec<String> = places.filter_map(text).collect();
    let name = contact.get("name").and_then(Value::as_str);
    Some(ContactPhones {
        slot,
        name: name.map_or(FactUpdate::Unchanged, |name| Name::new(name).into()),
        now: phones_of(texts.iter().map(String::as_str), country),
        before: Vec::new(),
    })
}

/// Merges contacts that share an ID, as well as contacts without an ID.
fn one_each(contacts: Vec<ContactPhones>) -> Vec<ContactPhones> {
    let mut each: Vec<ContactPhones> = Vec::new();
    for contact in contacts {
        let mut known = each.iter_mut();
        match known.find(|known| known.slot == contact.slot) {
            Some(known) => {
                known.now.extend(contact.now);
                // There's no telling which of the contacts has the name.
                if known.name != contact.name {
                    known.name = FactUpdate::Unchanged;
                }
            }
            None => each.push(contact),
        }
    }
    each
}

/// Reads a phone as text from a string, a number, or an object that contains one.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Object(object) => {
            let keys = ["phone", "number", "phoneNumber", "value"].into_iter();
            let mut places = keys.filter_map(|key| object.get(key));
            places
                .find(|place| place.is_string() || place.is_number())
                .and_then(text)
        }
        Value::Null | Value::Bool(_) | Value::Array(_) => None,
    }
}

fn read_integer(value: &Value) -> Option<i64> {
    let number = value.as_i64();
    number.or_else(|| value.as_str()?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn row_text(row: &Value) -> String {
        let row = read(row, ChangeKind::Filter, Country::parse("UZ"));
        let Some(news) = row.news else {
            return format!("nothing, phones {}", row.has_phones);
        };
        let first = match &news.phone {
            FirstPhone::Unchanged => "untold".to_owned(),
            FirstPhone::None => "none".to_owned(),
            FirstPhone::Is(phone) => phone.masked(),
        };
        let contacts = news.contacts.iter().map(|contact| {
            let phones: Vec<String> = contact.now.iter().map(|phone| phone.masked()).collect();
            format!(" {}:{}", contact.slot.0.max(0), phones.join("+"))
        });
        let whole = if news.whole { " whole" } else { "" };
        let contacts: String = contacts.collect();
        format!("{} @{} {first}{contacts}{whole}", news.lead, news.at)
    }

    #[test]
    fn lead_rows_are_read_in_many_shapes() {
        let a = json!({"id": 7, "updatedTimestamp": 10, "phone": "+998901110001"});
        assert_eq!(row_text(&a), "7 @10 …0001");
        let b = json!({"lead": {"id": "7", "updatedTimestamp": "10", "phone": null}});
        assert_eq!(row_text(&b), "7 @10 none");
        let phones = json!(["901110001", {"number": 998_901_110_002_i64}]);
        let c = json!({"leadId": 7, "createdTimestamp": 9, "phones": phones});
        assert_eq!(row_text(&c), "7 @9 untold 0:…0001+…0002");
        let d = json!({"id": 7, "updatedTimestamp": 10, "contacts": [
            {"id": 5, "phones": [{"phone": "+998901110001"}]}, {"contactId": 6, "phone": "x"},
        ]});
        assert_eq!(row_text(&d), "7 @10 untold 5:…0001 6: whole");
        let e = json!({"id": 7, "updatedTimestamp": 10, "contacts": [{"id": 5, "name": "A"}]});
        assert_eq!(row_text(&e), "7 @10 untold");
        let main = json!({"id": 5, "phone": "901110001"});
        let f = json!({"id": 7, "updatedTimestamp": 10, "mainContact": main});
        assert_eq!(row_text(&f), "7 @10 untold 5:…0001");
        assert_eq!(
            row_text(&json!({"name": "A", "phone": "901110001"})),
            "nothing, phones true"
        );
        assert_eq!(
            row_text(&json!({"id": 7, "updatedTimestamp": 10})),
            "7 @10 untold"
        );
    }

    #[test]
    fn lead_list_is_found_under_any_key_with_its_page_count() {
        let row = json!({"id": 7, "updatedTimestamp": 10, "phone": null});
        let inside = json!({"data": {"currentPage": 1, "totalPages": 3, "leads": [row]}});
        let beside = json!({"totalPages": 3, "data": [row], "errors": []});
        for body in [inside, beside] {
            let page = page(&body, None).expect("a list");
            assert_eq!((page.rows.len(), page.total), (1, Some(3)));
        }
        let empty = page(&json!({"data": {"content": [], "totalPages": 0}}), None);
        assert_eq!(empty.expect("a list").rows, []);
        assert_eq!(page(&json!({"data": null}), None), None);
        assert_eq!(page(&json!("x"), None), None);
    }

    proptest! {
        #[test]
        fn any_json_is_a_page_or_none_without_panic(text in "[\\[\\]{}:,\"0-9a-z ]{0,60}") {
            if let Ok(value) = serde_json::from_str::<Value>(&text) {
                let _ = page(&value, Country::parse("UZ"));
                let _ = page(&json!({"data": [value]}), None);
            }
        }
    }
}
