//! Tests that the directory in the database follows the rules for leads.

use super::call::{finished_call, time_at};
use crate::{DirectorySize, Done, Handle, Op, Settings, Store, tables};
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::memory::Remembered;
use callbridge_leads::directory::profile::{Name, ProfileNews, Responsible};
use callbridge_leads::directory::{
    ChangeKind, ContactPhones, FactUpdate, FirstPhone, LeadNews, Slot,
};
use callbridge_model::{EmployeeId, LeadId, Outcome, Phone, Reason};
use callbridge_testkit::Wait as _;
use proptest::prelude::*;

fn lead(id: i64) -> LeadId {
    LeadId::new(id).expect("positive")
}

fn phone(n: i64) -> Phone {
    Phone::from_digits(998_901_110_000 + n).expect("a number")
}

fn news(id: i64, at: i64, what: ChangeKind, first: Option<i64>) -> LeadNews {
    let first = first.map_or(FirstPhone::None, |n| FirstPhone::Is(phone(n)));
    LeadNews::new(lead(id), EpochSeconds::new(at), what, first)
}

fn learn(news: LeadNews) -> Op {
    Op::Learn(Box::new(news))
}

fn store() -> Store {
    super::store(Settings::default())
}

fn write(store: &mut Store, news: LeadNews) -> bool {
    let done = store.write(vec![learn(news)]).expect("stored");
    match done[..] {
        [Done::Learned(new)] => new,
        _ => panic!("{done:?}"),
    }
}

fn any_name() -> impl Strategy<Value = FactUpdate<Name>> {
    prop::option::of(prop::option::of("[a-c]{1,2}")).prop_map(|update| match update {
        None => FactUpdate::Unchanged,
        Some(name) => FactUpdate::from(name.as_deref().and_then(Name::new)),
    })
}

fn any_profile() -> impl Strategy<Value = ProfileNews> {
    let parts = (any_name(), any_name(), any_name(), 1_i64..4);
    parts.prop_map(|(name, called, stage, id)| ProfileNews {
        name,
        responsible: called.map(|called| Responsible {
            id: EmployeeId::new(id).expect("positive"),
            name: (id > 1).then_some(called),
        }),
        stage,
    })
}

fn any_phones() -> impl Strategy<Value = Vec<Phone>> {
    prop::collection::vec((0_i64..9).prop_map(phone), 0..3)
}

fn any_news() -> impl Strategy<Value = LeadNews> {
    let what = prop_oneof![
        2 => Just(ChangeKind::Created),
        3 => Just(ChangeKind::PropertiesUpdated),
        1 => Just(ChangeKind::Filter),
        1 => Just(ChangeKind::Deleted),
        2 => Just(ChangeKind::Merged),
    ];
    let contact = (
        prop::option::of(1_i64..4),
        any_name(),
        any_phones(),
        any_phones(),
    );
    let contact = contact.prop_map(|(id, name, before, now)| {
        let slot = Slot::for_contact(id);
        ContactPhones {
            name,
            slot,
            now,
            before,
        }
    });
    let contacts = prop::collection::vec(contact, 0..3);
    let first = prop::option::of(0_i64..9);
    let merged = prop::collection::vec((1_i64..6).prop_map(lead), 1..3);
    let about = (first, contacts, any_profile(), merged);
    (1_i64..6, 0_i64..6, what, about, any::<bool>()).prop_map(
        |(id, at, what, (first, contacts, profile, merged), whole)| LeadNews {
            merged: if what == ChangeKind::Merged {
                merged
            } else {
                Vec::new()
            },
            profile,
            whole: whole && what == ChangeKind::Filter,
            contacts,
            ..news(id, at, what, first)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(super::cases(40)))]

    #[test]
    fn directory_tables_match_the_rules_in_memory(
        history in prop::collection::vec(any_news(), 1..20)
    ) {
        let (remembered, mut store) = (Remembered::default(), store());
        for news in history {
            let known = remembered.clone();
            remembered.learn(&news);
            prop_assert_eq!(write(&mut store, news), known != remembered);
            for n in 0..9 {
                let on_disk = tables::directory::holders(&store, &phone(n)).expect("readable");
                prop_assert_eq!(on_disk, remembered.find(&phone(n)));
            }
            let phones: Vec<Phone> = (0..9).map(phone).collect();
            let together = tables::directory::leads_of_phones(&store, &phones);
            let together = together.expect("readable").into_iter();
            let expected = phones.iter().map(|phone| (remembered.find(phone), None));
            prop_assert!(together.eq(expected));
            for id in 1..6 {
                let on_disk = tables::directory::profile(&store, lead(id)).expect("readable");
                prop_assert_eq!(on_disk, remembered.profile(lead(id)));
            }
            let held = (0..9).filter(|n| remembered.has(&phone(*n))).count() as u64;
            let size = tables::directory::directory_size(&store).expect("readable");
            prop_assert_eq!(size, DirectorySize { phones: held, leads: remembered.living() });
            let listed = tables::directory::directory(&store, None, 100).expect("readable");
            prop_assert_eq!(listed.len() as u64, held);
        }
    }
}

fn merge_news(into: i64, at: i64, from: &[i64]) -> LeadNews {
    LeadNews {
        merged: from.iter().map(|id| lead(*id)).collect(),
        ..news(into, at, ChangeKind::Merged, None)
    }
}

fn survivor(store: &Store, id: i64) -> Option<LeadId> {
    tables::directory::survivor(store, lead(id)).expect("readable")
}

#[test]
fn surviving_lead_is_found_through_chains_unless_deleted() {
    let mut store = store();
    write(&mut store, merge_news(3, 30, &[2]));
    write(&mut store, merge_news(2, 20, &[1]));
    assert_eq!(survivor(&store, 1), Some(lead(3)));
    assert_eq!((survivor(&store, 3), survivor(&store, 9)), (None, None));
    write(&mut store, merge_news(1, 40, &[3]));
    let all = [1, 2, 3].map(|id| survivor(&store, id));
    let one = Some(lead(1));
    assert_eq!(all, [None, one, one], "the oldest merge of the loop is cut");
    write(&mut store, news(1, 50, ChangeKind::Deleted, None));
    assert_eq!(survivor(&store, 2), None, "it is gone");
}

fn assignment_news(id: i64, at: i64, to: i64) -> LeadNews {
    LeadNews {
        profile: ProfileNews {
            responsible: FactUpdate::from(EmployeeId::new(to))
                .map(|id| Responsible { id, name: None }),
            ..ProfileNews::default()
        },
        ..news(id, at, ChangeKind::Assigned, None)
    }
}

#[test]
fn responsible_employees_exclude_deleted_and_merged_leads() {
    let mut store = store();
    for (id, to) in [(1, 15), (2, 16), (3, 15), (4, 17), (5, 18), (6, 0)] {
        write(&mut store, assignment_news(id, 10, to));
    }
    write(&mut store, assignment_news(2, 20, 15));
    write(&mut store, news(4, 30, ChangeKind::Deleted, None));
    let merged = LeadNews {
        merged: vec![lead(5)],
        ..news(1, 30, ChangeKind::Merged, None)
    };
    write(&mut store, merged);
    let found = tables::directory::responsible_employees(&store).expect("readable");
    let found: Vec<_> = found.iter().map(|(id, leads)| (id.get(), *leads)).collect();
    assert_eq!(found, [(15, 3)]);
}

/// Returns a page of up to 3 numbers after the nth number.
fn phones_after(store: &Store, after: Option<i64>) -> Vec<Phone> {
    let after = after.map(phone);
    let page = tables::directory::directory(store, after.as_ref(), 3).expect("readable");
    page.into_iter().map(|(phone, _)| phone).collect()
}

#[test]
fn directory_list_continues_from_page_to_page() {
    let mut store = store();
    for n in [4, 2, 8, 6] {
        write(&mut store, news(n, 10, ChangeKind::Created, Some(n)));
    }
    let first = phones_after(&store, None);
    assert_eq!(first, [phone(2), phone(4), phone(6)]);
    assert_eq!(phones_after(&store, Some(6)), [phone(8)]);
    assert_eq!(phones_after(&store, Some(8)), []);
}

fn awaited_numbers(handle: &Handle) -> Option<Vec<Phone>> {
    let asked = handle.read(|store| Ok(store.take_awaited())).wait();
    asked.expect("readable")
}

/// Stores a dead letter with this reason for a call from the nth number.
fn store_letter(handle: &Handle, n: i64, reason: Reason) {
    let mut call = finished_call(
        u32::try_from(n).expect("small"),
        Outcome::DeadLetter,
        Some(reason),
    );
    call.judged.record.client_phone = Some(phone(n));
    let done = handle.write(vec![Op::Finish(Box::new(call))]).wait();
    assert!(matches!(done.as_deref(), Ok([Done::New(_)])), "{done:?}");
}

/// Stores the news that lead `id` was created with the nth number.
fn store_created(handle: &Handle, id: i64, at: i64, n: i64) {
    let op = learn(news(id, at, ChangeKind::Created, Some(n)));
    handle.write(vec![op]).wait().expect("stored");
}

#[test]
fn learned_lead_lists_numbers_of_waiting_calls_once() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    store_letter(&handle, 1, Reason::NoLead);
    store_letter(&handle, 2, Reason::AmbiguousLead);
    store_letter(&handle, 3, Reason::Failed);
    for n in 1..6 {
        store_created(&handle, n, 10, n);
    }
    assert_eq!(awaited_numbers(&handle), Some(vec![phone(1), phone(2)]));
    assert_eq!(awaited_numbers(&handle), Some(vec![]), "told once");
    store_created(&handle, 1, 10, 1);
    assert_eq!(awaited_numbers(&handle), Some(vec![]), "nothing new");
    guard.close();
}

fn leads_of_first_phone(handle: &Handle) -> Vec<LeadId> {
    let found = handle
        .read(|store| tables::directory::holders(store, &phone(1)))
        .wait();
    found.expect("readable").leads()
}

#[test]
fn directory_survives_a_restart() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    let op = learn(news(
        1,
        time_at(1).floor_seconds().get(),
        ChangeKind::Created,
        Some(1),
    ));
    handle.write(vec![op]).wait().expect("stored");
    guard.close();
    let (handle, guard) = place.open(Settings::default());
    assert_eq!(leads_of_first_phone(&handle), [lead(1)]);
    guard.close();
}
