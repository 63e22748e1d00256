//! Tests of lead profiles, which consist of names, responsible employees, and stages.

use super::super::memory::Remembered;
use super::super::{ChangeKind, ContactPhones, FirstPhone, LeadNews, Slot};
use super::*;
use callbridge_model::{Country, LeadId};
use proptest::prelude::*;
use serde_json::json;

fn lead(id: i64) -> LeadId {
    LeadId::new(id).expect("positive")
}

/// Returns the news in an event about a lead at second `at`.
fn event(id: i64, at: i64, what: ChangeKind, snapshot: Value) -> LeadNews {
    let country = Country::parse("UZ");
    LeadNews {
        profile: ProfileNews::read_snapshot(&snapshot),
        ..LeadNews::new(
            lead(id),
            EpochSeconds::new(at),
            what,
            FirstPhone::parse(snapshot["phone"].as_str(), country),
        )
    }
}

fn snapshot(name: &str, responsible: i64, stage: &str) -> Value {
    json!({
        "name": name, "responsibleId": responsible, "statusName": stage,
        "responsibleName": format!("Employee {responsible}"), "phone": "+998901110001",
    })
}

/// Adds a change to the contact `id` to `news`. `to` is the contact after the change, such as `Anna
/// [+998901110001]`.
fn add_contact(news: LeadNews, id: i64, to: Option<&str>) -> LeadNews {
    let change =
        ContactPhones::read_change(Slot::for_contact(Some(id)), None, to, Country::parse("UZ"));
    LeadNews {
        contacts: vec![change],
        ..news
    }
}

fn directory_of<'a>(history: impl Iterator<Item = &'a LeadNews>) -> Remembered {
    let directory = Remembered::default();
    for news in history {
        drop(directory.learn(news));
    }
    directory
}

fn text_or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Returns a lead's profile after this history, as a single line. Also checks that the reversed
/// history and duplicate news result in the same directory.
fn profile_text(history: &[LeadNews], id: i64) -> String {
    let directory = directory_of(history.iter());
    let backwards = directory_of(history.iter().rev().chain(history));
    assert_eq!(directory, backwards);
    let profile = directory.profile(lead(id));
    let responsible = profile.responsible.map(|id| id.to_string());
    format!(
        "{}, {} {}, {}",
        text_or_dash(profile.name),
        text_or_dash(responsible),
        text_or_dash(profile.responsible_name),
        text_or_dash(profile.stage)
    )
}

fn name_text(text: &str) -> Option<String> {
    Name::new(text).map(String::from)
}

#[test]
fn name_is_one_safe_line_of_at_most_200_bytes() {
    assert_eq!(
        name_text(" Anna\r\n  Karimova\t").as_deref(),
        Some("Anna Karimova")
    );
    assert_eq!(
        name_text("A\u{1b}[31mnna\u{202e}!").as_deref(),
        Some("A [31mnna!")
    );
    assert_eq!(name_text("Zoʻr 李 é").as_deref(), Some("Zoʻr 李 é"));
    for nothing in ["", " \n\t", "\u{200b}", "\u{0}\u{feff}\u{2028}"] {
        assert_eq!(name_text(nothing), None, "{nothing:?}");
    }
    let long = name_text(&"я".repeat(500)).expect("a name");
    assert_eq!((long.len(), long.chars().count()), (200, 100));
    let odd = name_text(&format!("a{}", "я".repeat(500))).expect("a name");
    assert_eq!(odd.len(), 199, "cut at a character");
    assert_eq!(name_text(&"ab ".repeat(90)).expect("a name").len(), 200);
    let debug = format!("{:?}", Name::new("Anna"));
    assert_eq!(debug, "Some(Name(4 bytes))");
}

#[test]
fn profile_shows_the_newest_value_of_each_fact() {
    let mut history = vec![event(
        1,
        10,
        ChangeKind::Created,
        snapshot("Anna", 15, "New"),
    )];
    assert_eq!(profile_text(&history, 1), "Anna, 15 Employee 15, New");
    history.push(event(
        1,
        30,
        ChangeKind::Assigned,
        snapshot("Anna", 16, "New"),
    ));
    history.push(event(
        1,
        20,
        ChangeKind::StageChanged,
        snapshot("Anna", 15, "Won"),
    ));
    assert_eq!(profile_text(&history, 1), "Anna, 16 Employee 16, New");
    // A row only changes the facts that it contains.
    let row = LeadNews {
        profile: ProfileNews::read(&json!({"id": 1, "statusName": "Lost"})),
        ..event(1, 40, ChangeKind::Filter, json!({}))
    };
    history.push(row);
    assert_eq!(profile_text(&history, 1), "Anna, 16 Employee 16, Lost");
    // A fact that's missing from an event's snapshot is removed.
    history.push(event(
        1,
        50,
        ChangeKind::Assigned,
        json!({"name": "Anna K."}),
    ));
    assert_eq!(profile_text(&history, 1), "Anna K., - -, -");
}

#[test]
fn same_second_events_set_their_own_fact_and_read_overrides() {
    let mut history = vec![
        event(1, 10, ChangeKind::Created, snapshot("Z", 99, "Z")),
        event(
            1,
            10,
            ChangeKind::StageChanged,
            snapshot("B", 50, "In work"),
        ),
        event(1, 10, ChangeKind::Assigned, snapshot("B", 16, "Zero")),
        event(
            1,
            10,
            ChangeKind::PropertiesUpdated,
            snapshot("A", 50, "Zero"),
        ),
    ];
    assert_eq!(profile_text(&history, 1), "A, 16 Employee 16, In work");
    history.push(event(1, 10, ChangeKind::Read, snapshot("A", 17, "Done")));
    assert_eq!(profile_text(&history, 1), "A, 17 Employee 17, Done");
}

fn deal_update(at: i64) -> LeadNews {
    event(
        1,
        at,
        ChangeKind::PropertiesUpdated,
        snapshot("Deal 1", 15, "New"),
    )
}

#[test]
fn lead_has_the_name_of_its_main_contact_if_known() {
    let mut history = vec![event(
        1,
        10,
        ChangeKind::Created,
        snapshot("Deal 1", 15, "New"),
    )];
    history.push(add_contact(
        deal_update(20),
        8,
        Some("Boris [+998901110009]"),
    ));
    assert_eq!(
        profile_text(&history, 1),
        "Deal 1, 15 Employee 15, New",
        "another contact"
    );
    history.push(add_contact(
        deal_update(30),
        7,
        Some("Anna [VIP] [+998901110001]"),
    ));
    assert_eq!(profile_text(&history, 1), "Anna [VIP], 15 Employee 15, New");
    history.push(add_contact(
        deal_update(25),
        7,
        Some("Anne [+998901110001]"),
    ));
    assert_eq!(
        profile_text(&history, 1),
        "Anna [VIP], 15 Employee 15, New",
        "it came late"
    );
    history.push(add_contact(deal_update(40), 7, None));
    assert_eq!(
        profile_text(&history, 1),
        "Deal 1, 15 Employee 15, New",
        "the contact is gone"
    );
    // A row with phones but without names doesn't change any name.
    let mut row = add_contact(
        event(1, 60, ChangeKind::Filter, json!({})),
        7,
        Some("[901110001]"),
    );
    row.contacts[0].name = FactUpdate::Unchanged;
    (row.phone, row.profile) = (FirstPhone::Unchanged, ProfileNews::default());
    history.push(add_contact(
        deal_update(50),
        7,
        Some("Anna [+998901110001]"),
    ));
    history.push(row);
    assert_eq!(profile_text(&history, 1), "Anna, 15 Employee 15, New");
}

#[test]
fn contact_names_with_full_list_do_not_depend_on_order() {
    let phone = "A [+998901110001]";
    let update = event(1, 10, ChangeKind::Created, snapshot("Deal", 15, "New"));
    let whole = add_contact(event(1, 30, ChangeKind::Filter, json!({})), 8, Some(phone));
    let mut again = add_contact(event(1, 40, ChangeKind::Filter, json!({})), 7, Some(phone));
    again.contacts[0].name = FactUpdate::Unchanged;
    let history = [
        add_contact(update, 7, Some("Anna [+998901110001]")),
        LeadNews {
            whole: true,
            ..whole
        },
        again,
    ];
    profile_text(&history, 1);
}

#[test]
fn deleted_lead_has_no_names() {
    let change = event(
        1,
        15,
        ChangeKind::PropertiesUpdated,
        snapshot("Deal", 15, "New"),
    );
    let mut history = vec![
        event(1, 10, ChangeKind::Created, snapshot("Deal", 15, "New")),
        add_contact(change, 7, Some("Anna [+998901110001]")),
        event(1, 20, ChangeKind::Deleted, snapshot("Deal", 15, "New")),
    ];
    assert_eq!(profile_text(&history, 1), "-, - -, -");
    let directory = Remembered::default();
    history.iter().for_each(|news| drop(directory.learn(news)));
    assert!(!format!("{directory:?}").contains("Name("), "{directory:?}");
    history.push(event(
        1,
        30,
        ChangeKind::Assigned,
        snapshot("Deal 2", 16, "New"),
    ));
    assert_eq!(
        profile_text(&history, 1),
        "Deal 2, 16 Employee 16, New",
        "it was put back"
    );
}

#[test]
fn merge_keeps_only_the_profile_of_the_surviving_lead() {
    let merged = LeadNews {
        merged: vec![lead(1)],
        ..event(2, 20, ChangeKind::Merged, snapshot("Boris", 16, "Won"))
    };
    let history = [
        event(1, 10, ChangeKind::Created, snapshot("Anna", 15, "New")),
        event(2, 11, ChangeKind::Created, snapshot("Boris", 16, "Won")),
        merged,
        event(1, 30, ChangeKind::Assigned, snapshot("Anna", 17, "Lost")),
    ];
    for id in [1, 2] {
        assert_eq!(profile_text(&history, id), "Boris, 16 Employee 16, Won");
    }
    let directory = Remembered::default();
    history.iter().for_each(|news| drop(directory.learn(news)));
    assert!(!format!("{directory:?}").contains("EmployeeId(17)"));
}

#[test]
fn invalid_names_and_employees_are_ignored() {
    let odd = json!({"name": 7, "responsibleId": {}, "statusName": ["x"]});
    assert_eq!(ProfileNews::read(&odd), ProfileNews::default());
    assert_eq!(ProfileNews::read(&json!("x")), ProfileNews::default());
    let text = ProfileNews::read(&json!({"responsibleId": "15"}));
    assert!(matches!(text.responsible, FactUpdate::Is(employee) if employee.id.get() == 15));
    let nobody = ProfileNews::read(&json!({"responsibleId": 0, "name": "\u{7}"}));
    assert_eq!(
        (nobody.responsible, nobody.name),
        (FactUpdate::None, FactUpdate::None)
    );
}

/// Generates news about one lead, each with a different second.
fn any_history() -> impl Strategy<Value = Vec<LeadNews>> {
    let one = (0_u8..12, 0_i64..4, 0_i64..4, 0_i64..4);
    prop::collection::vec(one, 1..12).prop_map(|all| {
        let news = all
            .into_iter()
            .zip(1..)
            .map(|((kind, name, who, stage), at)| {
                let what = match kind {
                    0 => ChangeKind::Deleted,
                    1..4 => ChangeKind::Created,
                    4..7 => ChangeKind::Assigned,
                    7..10 => ChangeKind::StageChanged,
                    _ => ChangeKind::PropertiesUpdated,
                };
                let update = match kind {
                    11 => json!({"name": format!("N{name}")}),
                    _ => snapshot(&format!("N{name}"), who, &format!("S{stage}")),
                };
                let news = event(1, at, what, update);
                match kind {
                    10 => add_contact(news, 7, Some(&format!("C{name} [+998901110001]"))),
                    _ => news,
                }
            });
        news.collect()
    })
}

fn known_value<T>(update: &FactUpdate<T>) -> Option<&T> {
    match update {
        FactUpdate::Is(value) => Some(value),
        FactUpdate::Unchanged | FactUpdate::None => None,
    }
}

fn text_of(name: Option<&Name>) -> Option<String> {
    name.map(|name| name.as_str().to_owned())
}

proptest! {
    #[test]
    fn newest_second_wins_for_each_fact_in_any_order(
        (history, shuffled) in any_history().prop_flat_map(|all| {
            let twice = [all.clone(), all.clone()].concat();
            (Just(all), Just(twice).prop_shuffle())
        }),
    ) {
        let directory = Remembered::default();
        shuffled.iter().for_each(|news| drop(directory.learn(news)));
        let last = history.iter().rposition(|news| news.what == ChangeKind::Deleted);
        let living = &history[last.map_or(0, |at| at + 1)..];
        let own = living.last().map(|news| &news.profile);
        let of_contact = living.iter().rev().find_map(|news| match &news.contacts.first()?.name {
            FactUpdate::Is(name) => Some(name),
            FactUpdate::Unchanged | FactUpdate::None => None,
        });
        let found = directory.profile(lead(1));
        let responsible = own.and_then(|own| known_value(&own.responsible));
        // A snapshot without a phone removes the main contact's phone.
        let phone = living.last().map(|news| news.phone.clone());
        let has_phone = matches!(phone, Some(FactUpdate::Is(_)));
        let has_contact = has_phone || phone == Some(FactUpdate::None);
        let name = match of_contact {
            Some(name) if has_contact => Some(name),
            Some(_) | None => own.and_then(|own| known_value(&own.name)),
        };
        prop_assert_eq!(found.name, text_of(name));
        prop_assert_eq!(found.responsible, responsible.map(|employee| employee.id));
        prop_assert_eq!(
            found.responsible_name,
            text_of(responsible.and_then(|employee| employee.name.as_ref()))
        );
        prop_assert_eq!(found.stage, text_of(own.and_then(|own| known_value(&own.stage))));
    }

    #[test]
    fn any_text_is_a_name_or_none(text in ".{0,300}") {
        if let Some(name) = Name::new(&text) {
            prop_assert!(!name.as_str().is_empty() && name.as_str().len() <= NAME_BYTES_MAX);
            prop_assert!(!name.as_str().contains(is_hostile));
            prop_assert_eq!(Name::new(name.as_str()), Some(name));
        }
    }
}
