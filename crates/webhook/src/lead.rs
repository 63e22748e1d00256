//! Reads what `LEAD_*` events report about a lead (§2.5, §6.6, §6.7), for the directory.

use callbridge_call::EpochSeconds;
use callbridge_leads::directory::news::Slot;
use callbridge_leads::directory::profile::ProfileNews;
use callbridge_leads::directory::{ChangeKind, ContactPhones, FirstPhone, LeadNews};
use callbridge_model::{Country, LeadId};
use serde_json::Value;

/// Maximum number of entries to read from a list in an event.
const ENTRIES_MAX: usize = 1_000;

/// Reads what an event reports about a lead. `kind` is the event's name, and `json` its body.
/// Returns `None` if the lead or the time is missing, or if the event isn't about a lead.
pub fn news(
    kind: &str,
    json: &Value,
    occurred_at: Option<EpochSeconds>,
    country: Option<Country>,
) -> Option<LeadNews> {
    let snapshot = &json["lead"];
    let lead = lead_id(&snapshot["id"])?;
    let what = ChangeKind::from_event(kind)?;
    let mut merged = merged_leads(&json["mergedLeadIds"], lead);
    merged.retain(|_| what == ChangeKind::Merged);
    let at = occurred_at.or_else(|| seconds(&snapshot["updatedTimestamp"]))?;
    // Fields that would be null are omitted (§6.5), so if the phone is missing, there isn't one.
    let phone = match &snapshot["phone"] {
        Value::String(text) => FirstPhone::parse(Some(text), country),
        Value::Null => FirstPhone::None,
        _ => FirstPhone::Unchanged,
    };
    Some(LeadNews {
        merged,
        profile: ProfileNews::read_snapshot(snapshot),
        contacts: contacts(&json["propertyChanges"], country),
        ..LeadNews::new(lead, at, what, phone)
    })
}

fn merged_leads(ids: &Value, survivor: LeadId) -> Vec<LeadId> {
    let entries = ids.as_array().into_iter().flatten().take(ENTRIES_MAX);
    entries
        .filter_map(lead_id)
        .filter(|id| *id != survivor)
        .collect()
}

/// Reads the changed contacts in `propertyChanges` (§6.7). Changes to other properties don't
/// contain any phones.
fn contacts(changes: &Value, country: Option<Country>) -> Vec<ContactPhones> {
    let changes = changes.as_array().into_iter().flatten().take(ENTRIES_MAX);
    let of_contact = changes.filter(|change| change["type"] == "CONTACT");
    let contacts = of_contact.map(|change| {
        let slot = Slot::for_contact(id_in(&change["contactId"]));
        let from = change["from"].as_str();
        let to = change["to"].as_str();
        ContactPhones::read_change(slot, from, to, country)
    });
    contacts.collect()
}

/// Reads a lead ID from a number or a string of digits, returning `None` for any other value.
pub(super) fn lead_id(value: &Value) -> Option<LeadId> {
    id_in(value).and_then(LeadId::new)
}

/// Reads an ID, which is a whole number given as a number or a string of digits.
pub(super) fn id_in(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64(),
        Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

/// Reads epoch seconds, with or without a fraction. Milliseconds and other units are rejected.
pub(super) fn seconds(value: &Value) -> Option<EpochSeconds> {
    const YEAR_5138: i64 = 100_000_000_000;
    let whole = value.as_i64().or_else(|| {
        let exact = value
            .as_f64()
            .filter(|seconds| (0.0..1e11).contains(seconds))?;
        exact.floor().to_string().parse().ok()
    });
    whole
        .filter(|seconds| (1..YEAR_5138).contains(seconds))
        .map(EpochSeconds::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_leads::directory::FactUpdate;
    use callbridge_leads::directory::profile::{Name, Responsible};
    use callbridge_model::{EmployeeId, Phone};
    use serde_json::json;

    fn read_news(kind: &str, json: &Value) -> Option<LeadNews> {
        let at = EpochSeconds::new(1_795_151_317);
        news(kind, json, Some(at), Country::parse("UZ"))
    }

    fn phone(n: u32) -> Phone {
        Phone::from_e164(&format!("+99890111000{n}")).expect("a number")
    }

    #[test]
    fn lead_event_change_kind_and_snapshot_phone_are_read() {
        let event = json!({"lead": {"id": 4001, "phone": "901110001", "attributions": [{}]}});
        for (kind, what) in [
            ("LEAD_CREATED", ChangeKind::Created),
            ("LEAD_ASSIGNED", ChangeKind::Assigned),
            ("LEAD_STAGE_CHANGED", ChangeKind::StageChanged),
            ("LEAD_PROPERTIES_UPDATED", ChangeKind::PropertiesUpdated),
            ("LEAD_MERGED", ChangeKind::Merged),
            ("LEAD_DELETED", ChangeKind::Deleted),
        ] {
            let news = read_news(kind, &event).expect("news");
            assert_eq!((news.what, news.phone), (what, FirstPhone::Is(phone(1))));
            assert!(news.contacts.is_empty() && !news.whole);
        }
        assert_eq!(read_news("LEAD_SOLD", &event), None);
    }

    fn name_update(name: &str) -> FactUpdate<Name> {
        FactUpdate::from(Name::new(name))
    }

    #[test]
    fn lead_event_profile_and_contact_names_are_read() {
        let event = json!({
            "lead": {"id": 4001, "name": "Deal", "responsibleId": 15, "responsibleName": "Olga",
                     "statusId": 2, "statusName": "In work"},
            "propertyChanges": [
                {"type": "CONTACT", "contactId": 7, "to": "Anna [+998901110001]"},
                {"type": "CONTACT", "contactId": 8, "from": "B [+998901110003]"},
            ],
        });
        let news = read_news("LEAD_PROPERTIES_UPDATED", &event).expect("news");
        assert_eq!(
            (news.profile.name, news.profile.stage),
            (name_update("Deal"), name_update("In work"))
        );
        let id = EmployeeId::new(15).expect("positive");
        let olga = Name::new("Olga");
        assert_eq!(
            news.profile.responsible,
            FactUpdate::Is(Responsible { id, name: olga })
        );
        let names: Vec<_> = news
            .contacts
            .into_iter()
            .map(|contact| contact.name)
            .collect();
        assert_eq!(names, [name_update("Anna"), FactUpdate::None]);
        // An event omits null fields (§6.5).
        let bare = read_news("LEAD_ASSIGNED", &json!({"lead": {"id": 4001}})).expect("news");
        let ProfileNews {
            name,
            responsible,
            stage,
        } = bare.profile;
        assert_eq!((name, stage), (FactUpdate::Unchanged, FactUpdate::None));
        assert_eq!(responsible, FactUpdate::None);
    }

    #[test]
    fn phones_of_contacts_and_merged_leads_are_read() {
        let event = json!({
            "lead": {"id": 4001},
            "mergedLeadIds": [4002, "4003", 4001, null],
            "propertyChanges": [
                {"type": "NAME", "from": "a", "to": "b [+998901110009]"},
                {"type": "CONTACT", "contactId": 7, "from": "A [+998901110001]",
                 "to": "A [+998901110001, +998901110002]"},
                {"type": "CONTACT", "contactId": 8, "from": "B [+998901110003]"},
                {"type": "HOROSCOPE", "to": {"sign": "lion"}},
                7,
            ],
        });
        let merged = read_news("LEAD_MERGED", &event).expect("news");
        let from = [4002, 4003].into_iter().filter_map(LeadId::new).collect();
        assert_eq!((merged.what, merged.merged), (ChangeKind::Merged, from));
        assert_eq!(merged.phone, FirstPhone::None);
        let changed = read_news("LEAD_PROPERTIES_UPDATED", &event)
            .expect("news")
            .contacts;
        let phones: Vec<_> = changed
            .iter()
            .map(|contact| (&contact.now[..], &contact.before[..]))
            .collect();
        let both = [phone(1), phone(2)];
        assert_eq!(phones, [(&both[..], &both[..1]), (&[], &[phone(3)])]);
    }

    #[test]
    fn lead_event_without_a_valid_lead_id_yields_no_news() {
        for lead in [json!(null), json!({}), json!({"id": -1}), json!([4001])] {
            assert_eq!(
                read_news("LEAD_CREATED", &json!({"lead": lead})),
                None,
                "{lead}"
            );
        }
        let event = json!({"lead": {"id": 4001, "updatedTimestamp": 1_795_151_000, "phone": 7}});
        let news = news("LEAD_CREATED", &event, None, None).expect("news");
        assert_eq!(news.at.get(), 1_795_151_000);
        assert_eq!(news.phone, FirstPhone::Unchanged);
    }
}
