//! Tests which stored call an ID refers to.

use super::call::{finished_call, journal, time_at};
use crate::{Finished, Op, Search, Settings, Store, tables};
use callbridge_call::UniqueId;
use callbridge_model::{CallUuid, Outcome, Reason};

/// Stores calls whose UUIDs start with these 32-bit words.
fn store(words: &[u32]) -> (Store, Vec<Finished>) {
    let mut store = super::store(Settings::default());
    let calls: Vec<Finished> = (1..).zip(words).map(|(n, word)| call(n, *word)).collect();
    for call in &calls {
        let done = store.write(vec![Op::Finish(Box::new(call.clone()))]);
        done.expect("stored");
    }
    (store, calls)
}

fn call(n: u32, word: u32) -> Finished {
    let mut call = match n {
        1 => journal(n),
        _ => finished_call(n, Outcome::DeadLetter, Some(Reason::NoLead)),
    };
    let uuid = uuid::Uuid::from_u128(u128::from(word) << 96 | u128::from(n));
    call.judged.record.uuid = Some(CallUuid(uuid));
    call
}

fn found_uuid(store: &Store, id: &str) -> Option<CallUuid> {
    match tables::calls::search_call(store, id).expect("readable") {
        Search::One(row) => Some(row.uuid),
        Search::None => None,
        Search::Several(uuids) => panic!("{uuids:?}"),
    }
}

#[test]
fn call_is_found_by_linkedid_channel_uuid_or_uuid_prefix() {
    let (store, calls) = store(&[0xabcd_ef01, 0x1234_5678]);
    let uuid = calls[0].judged.record.uuid;
    let text = uuid.expect("a uuid").to_string();
    let channel = calls[0].call.also_known_as[1].to_string();
    let linkedid = calls[0].judged.record.linkedid.as_str();
    let upper = text.to_uppercase();
    for id in [linkedid, &channel, &text, &upper, &text[..10], "abcd"] {
        assert_eq!(found_uuid(&store, id), uuid, "{id}");
    }
    for id in ["", "1", "abc", "zzzz", "abce", "1795151317.99999"] {
        assert_eq!(found_uuid(&store, id), None, "{id}");
    }
}

/// FreeSWITCH's IDs are UUIDs, just like those of calls in the CRM.
#[test]
fn call_is_found_by_ids_of_its_pbx_that_are_uuids() {
    let mut store = super::store(Settings::default());
    let ids = [
        "9e9c86ad-67c6-40f6-859f-aff427ca9117",
        "1203ba9f-3c1f-4f6c-9c3a-0c1a2b3c4d5e",
    ];
    let [linkedid, channel] = ids.map(|id| UniqueId::new(id).expect("an id"));
    let mut call = call(1, 0xabcd_ef01);
    call.judged.record.linkedid = linkedid.as_str().to_owned();
    call.call.also_known_as = vec![linkedid.clone(), channel];
    call.call.linkedid = linkedid;
    let uuid = call.judged.record.uuid;
    let done = store.write(vec![Op::Finish(Box::new(call))]);
    done.expect("stored");
    let own = uuid.expect("a uuid").to_string();
    for id in [ids[0], ids[1], &own] {
        assert_eq!(found_uuid(&store, id), uuid, "{id}");
    }
}

#[test]
fn stored_call_is_found_by_linkedid_after_seen_ids_are_purged() {
    let (mut store, calls) = store(&[0xabcd_ef01, 0x1234_5678]);
    let years = 100 * 365 * 86_400;
    store
        .write(vec![Op::Purge(time_at(years))])
        .expect("purged");
    let record = &calls[1].judged.record;
    let forgotten = tables::seen_calls::seen_call(&store, &record.pbx, &record.linkedid);
    assert_eq!(forgotten.expect("readable"), None);
    assert_eq!(found_uuid(&store, &record.linkedid), record.uuid);
}

#[test]
fn ambiguous_uuid_prefix_returns_all_matching_uuids() {
    let (store, calls) = store(&[0xabcd_0001, 0xabcd_0002, 0x1234_5678]);
    let Search::Several(uuids) = tables::calls::search_call(&store, "ABCD-00").expect("readable")
    else {
        panic!("two begin so");
    };
    let own = calls[..2].iter().filter_map(|call| call.judged.record.uuid);
    assert_eq!(uuids, own.collect::<Vec<_>>());
}
