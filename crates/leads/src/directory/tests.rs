//! Tests of the directory, which knows the leads of phone numbers.

use super::ledger::Learned;
use super::memory::Remembered;
use super::profile::{Name, ProfileNews, Responsible};
use super::*;
use callbridge_call::EpochSeconds;
use callbridge_model::{EmployeeId, LeadId, Phone};
use proptest::prelude::*;

fn lead(id: i64) -> LeadId {
    LeadId::new(id).expect("positive")
}

/// Returns the phone number whose last digit is `n`.
fn phone(n: i64) -> Phone {
    Phone::from_digits(998_901_110_000 + n).expect("a number")
}

/// Returns news about a lead at second `at`. `first` is the last digit of the lead's first phone.
fn news(id: i64, at: i64, what: ChangeKind, first: Option<i64>) -> LeadNews {
    let first = first.map_or(FirstPhone::None, |n| FirstPhone::Is(phone(n)));
    LeadNews::new(lead(id), EpochSeconds::new(at), what, first)
}

fn created_news(id: i64, at: i64, n: i64) -> LeadNews {
    news(id, at, ChangeKind::Created, Some(n))
}

/// Returns the phone numbers with these last digits.
fn phones(digits: &[i64]) -> Vec<Phone> {
    digits.iter().map(|n| phone(*n)).collect()
}

/// Adds a change to the contact `id` to `news`, given the last digits of its phones before and
/// after.
fn add_contact(mut news: LeadNews, id: i64, before: &[i64], now: &[i64]) -> LeadNews {
    news.contacts.push(ContactPhones {
        name: FactUpdate::Unchanged,
        slot: Slot::for_contact(Some(id)),
        now: phones(now),
        before: phones(before),
    });
    news
}

/// Returns the news that the leads `from` were merged into the lead `into` at second `at`.
fn merge_news(into: i64, at: i64, first: Option<i64>, from: &[i64]) -> LeadNews {
    LeadNews {
        merged: from.iter().map(|id| lead(*id)).collect(),
        ..news(into, at, ChangeKind::Merged, first)
    }
}

fn directory_of(history: &[LeadNews]) -> Remembered {
    let directory = Remembered::default();
    for news in history {
        directory.learn(news);
    }
    directory
}

/// Returns the leads for the phone number whose last digit is `n`.
fn leads_of(directory: &Remembered, n: i64) -> Vec<i64> {
    let found = directory.find(&phone(n)).leads();
    found.into_iter().map(LeadId::get).collect()
}

/// Returns a directory with this history, after checking that the reversed history results in the
/// same directory.
fn directory_in_both_orders(history: &[LeadNews]) -> Remembered {
    let backwards: Vec<LeadNews> = history.iter().rev().cloned().collect();
    let directory = directory_of(history);
    assert_eq!(directory, directory_of(&backwards));
    directory
}

#[test]
fn lead_has_only_the_phone_of_its_newest_snapshot() {
    let changed = news(1, 20, ChangeKind::StageChanged, Some(2));
    let directory = directory_in_both_orders(&[created_news(1, 10, 1), changed]);
    assert_eq!(
        (leads_of(&directory, 1), leads_of(&directory, 2)),
        (vec![], vec![1])
    );
}

#[test]
fn lead_is_found_by_every_phone_of_a_contact_until_removed() {
    let grown = add_contact(
        news(1, 20, ChangeKind::PropertiesUpdated, Some(1)),
        7,
        &[1],
        &[1, 2],
    );
    let mut history = vec![created_news(1, 10, 1), grown];
    assert_eq!(leads_of(&directory_in_both_orders(&history), 2), [1]);
    let shrunk = add_contact(
        news(1, 30, ChangeKind::PropertiesUpdated, Some(1)),
        7,
        &[1, 2],
        &[1],
    );
    history.push(shrunk);
    let directory = directory_in_both_orders(&history);
    assert_eq!(
        (leads_of(&directory, 1), leads_of(&directory, 2)),
        (vec![1], vec![])
    );
    history.push(add_contact(
        news(1, 40, ChangeKind::PropertiesUpdated, None),
        7,
        &[1],
        &[],
    ));
    let directory = directory_in_both_orders(&history);
    assert_eq!(leads_of(&directory, 1), [0; 0]);
    let held = &directory.find(&phone(1)).holders;
    assert_eq!(held.len(), 0, "nobody holds it any more: {held:?}");
}

#[test]
fn phone_of_two_leads_finds_both_until_one_is_deleted() {
    let mut history = vec![created_news(1, 10, 1), created_news(2, 11, 1)];
    assert_eq!(leads_of(&directory_in_both_orders(&history), 1), [1, 2]);
    history.push(news(1, 12, ChangeKind::Deleted, Some(1)));
    assert_eq!(leads_of(&directory_in_both_orders(&history), 1), [2]);
}

#[test]
fn deleted_lead_is_restored_only_by_a_newer_change() {
    let mut history = vec![
        created_news(1, 10, 1),
        news(1, 20, ChangeKind::Deleted, Some(1)),
    ];
    assert_eq!(leads_of(&directory_in_both_orders(&history), 1), [0; 0]);
    history.push(news(1, 20, ChangeKind::StageChanged, Some(1)));
    let directory = directory_in_both_orders(&history);
    assert_eq!(leads_of(&directory, 1), [0; 0], "of the same second");
    let standing = directory.find(&phone(1)).holders[0].standing;
    assert_eq!(standing, Standing::Deleted(EpochSeconds::new(20)));
    history.push(news(1, 21, ChangeKind::PropertiesUpdated, Some(1)));
    assert_eq!(
        leads_of(&directory_in_both_orders(&history), 1),
        [1],
        "it was put back"
    );
}

#[test]
fn phones_of_merged_leads_find_the_survivor_in_any_order() {
    let chain = [
        created_news(1, 10, 1),
        created_news(2, 11, 2),
        created_news(3, 12, 3),
        merge_news(2, 20, Some(2), &[1]),
        merge_news(3, 30, Some(3), &[2]),
        news(1, 40, ChangeKind::Assigned, Some(4)),
    ];
    let directory = directory_in_both_orders(&chain);
    for n in [2, 3, 4] {
        assert_eq!(leads_of(&directory, n), [3], "phone {n}");
    }
    let late = directory_of(&[
        merge_news(3, 30, None, &[2]),
        merge_news(2, 20, None, &[1]),
        created_news(1, 10, 1),
    ]);
    assert_eq!(
        leads_of(&late, 1),
        [3],
        "each heard before what it follows from"
    );
}

#[test]
fn merged_lead_deleted_later_still_finds_the_survivor() {
    let directory = directory_in_both_orders(&[
        created_news(1, 10, 1),
        merge_news(2, 20, None, &[1]),
        news(1, 21, ChangeKind::Deleted, Some(1)),
    ]);
    assert_eq!(leads_of(&directory, 1), [2]);
    let gone =
        directory_in_both_orders(&[merge_news(2, 20, None, &[1]), created_news(1, 10, 1), {
            news(2, 30, ChangeKind::Deleted, None)
        }]);
    assert_eq!(leads_of(&gone, 1), [0; 0], "the survivor is gone");
}

#[test]
fn phone_removed_after_a_merge_no_longer_finds_the_survivor() {
    let change = news(2, 30, ChangeKind::PropertiesUpdated, Some(2));
    let history = [
        created_news(1, 10, 1),
        created_news(2, 11, 2),
        merge_news(2, 20, Some(2), &[1]),
        add_contact(change, 7, &[1], &[5]),
    ];
    let directory = directory_in_both_orders(&history);
    assert_eq!(leads_of(&directory, 1), [0; 0]);
    assert_eq!(
        (leads_of(&directory, 2), leads_of(&directory, 5)),
        (vec![2], vec![2])
    );
}

#[test]
fn complete_row_replaces_all_older_phones_of_the_lead() {
    let mut row = add_contact(news(2, 30, ChangeKind::Filter, Some(2)), 8, &[], &[2]);
    row.whole = true;
    let grown = add_contact(
        news(2, 11, ChangeKind::PropertiesUpdated, Some(2)),
        9,
        &[],
        &[3],
    );
    let history = [
        created_news(1, 10, 1),
        grown,
        merge_news(2, 20, Some(2), &[1]),
        row,
    ];
    let directory = directory_in_both_orders(&history);
    assert_eq!(
        (leads_of(&directory, 1), leads_of(&directory, 3)),
        (vec![], vec![])
    );
    assert_eq!(leads_of(&directory, 2), [2]);
}

fn learned_phones(digits: &[i64]) -> Learned {
    Learned::Phones(phones(digits).into_iter().collect())
}

#[test]
fn lead_news_lists_phones_whose_answer_can_change() {
    let first = [
        created_news(1, 10, 1),
        created_news(2, 11, 2),
        merge_news(2, 20, Some(2), &[1]),
    ];
    let directory = directory_of(&first);
    assert_eq!(directory.learn(&created_news(1, 10, 1)), Learned::Nothing);
    assert_eq!(
        directory.learn(&news(2, 30, ChangeKind::Deleted, Some(2))),
        learned_phones(&[1, 2])
    );
    assert_eq!(
        directory.learn(&news(3, 31, ChangeKind::Created, Some(3))),
        learned_phones(&[3])
    );
    assert_eq!(
        directory.learn(&merge_news(3, 40, Some(4), &[2])),
        learned_phones(&[1, 2, 3, 4])
    );
}

fn any_name() -> impl Strategy<Value = FactUpdate<Name>> {
    prop_oneof![
        2 => Just(FactUpdate::Unchanged),
        1 => Just(FactUpdate::None),
        3 => "[a-c]".prop_map(|name| FactUpdate::from(Name::new(&name))),
    ]
}

fn any_profile() -> impl Strategy<Value = ProfileNews> {
    (any_name(), any_name(), any_name()).prop_map(|(name, called, stage)| ProfileNews {
        name,
        responsible: called.map(|name| Responsible {
            id: EmployeeId::new(name.as_str().len() as i64).expect("positive"),
            name: Some(name),
        }),
        stage,
    })
}

fn any_news() -> impl Strategy<Value = LeadNews> {
    let what = prop_oneof![
        3 => Just(ChangeKind::Created),
        3 => Just(ChangeKind::PropertiesUpdated),
        1 => Just(ChangeKind::StageChanged),
        1 => Just(ChangeKind::Filter),
        1 => Just(ChangeKind::Deleted),
        2 => Just(ChangeKind::Merged),
    ];
    let contacts = prop::collection::vec(
        (
            1_i64..4,
            prop::collection::vec(0_i64..9, 0..3),
            prop::collection::vec(0_i64..9, 0..3),
            any_name(),
        ),
        0..3,
    );
    (
        1_i64..6,
        0_i64..6,
        what,
        prop::option::of(0_i64..9),
        contacts,
        any::<bool>(),
        any_profile(),
        prop::collection::vec((1_i64..6).prop_map(lead), 1..3),
    )
        .prop_map(
            |(id, at, what, first, contacts, whole, profile, mut merged)| {
                merged.retain(|_| what == ChangeKind::Merged);
                let whole = whole && what == ChangeKind::Filter;
                let news = news(id, at, what, first);
                let all = contacts.iter().fold(news, |news, (id, a, b, name)| {
                    let mut news = add_contact(news, *id, a, b);
                    if let Some(last) = news.contacts.last_mut() {
                        last.name = name.clone();
                    }
                    news
                });
                LeadNews {
                    merged,
                    whole,
                    profile,
                    ..all
                }
            },
        )
}

proptest! {
    #[test]
    fn news_in_any_order_or_repeated_make_the_same_directory(
        (ordered, shuffled) in prop::collection::vec(any_news(), 1..14).prop_flat_map(|history| {
            let mut twice = history.clone();
            twice.extend(history.clone());
            (Just(history), Just(twice).prop_shuffle())
        }),
    ) {
        let (ordered, shuffled) = (directory_of(&ordered), directory_of(&shuffled));
        prop_assert_eq!(&ordered, &shuffled);
    }

    #[test]
    fn leads_of_a_phone_change_only_if_the_phone_is_reported(
        history in prop::collection::vec(any_news(), 1..14),
    ) {
        let directory = Remembered::default();
        for news in &history {
            let before: Vec<Finding> = (0..9).map(|n| directory.find(&phone(n))).collect();
            let learned = directory.learn(news);
            for (n, before) in (0..).zip(before) {
                let named = match &learned {
                    Learned::Nothing => false,
                    Learned::Phones(phones) => phones.contains(&phone(n)),
                    Learned::Many => true,
                };
                let same = directory.find(&phone(n)).leads() == before.leads();
                prop_assert!(named || same, "{n} by {news:?}");
            }
        }
    }
}

#[test]
fn chained_merge_lists_phones_of_leads_merged_earlier() {
    let directory = Remembered::default();
    directory.learn(&news(3, 0, ChangeKind::PropertiesUpdated, Some(6)));
    directory.learn(&merge_news(2, 0, None, &[4]));
    directory.learn(&add_contact(
        news(4, 1, ChangeKind::Created, None),
        1,
        &[],
        &[6],
    ));
    let merge = merge_news(3, 0, None, &[2]);
    let Learned::Phones(phones) = directory.learn(&merge) else {
        panic!("something is new");
    };
    assert!(phones.contains(&phone(6)));
}
