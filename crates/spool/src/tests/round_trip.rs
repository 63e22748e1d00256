//! Tests that every stored value can be read back unchanged.

use super::call::{ask, finished_call, time_at};
use crate::{Done, Finished, Op, Settings, SlotRow, Store, tables};
use callbridge_call::call::DecidingEvent;
use callbridge_call::{
    Direction, EpochSeconds, EventTime, Extension, RawNumber, UniqueId, Variable,
};
use callbridge_model::{CallUuid, EmployeeId, LeadId, Outcome, Phone, TokenFingerprint};
use proptest::prelude::*;
use std::time::Duration;

fn store() -> Store {
    super::store(Settings::default())
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![
        Just(Direction::Inbound),
        Just(Direction::Outbound),
        Just(Direction::Internal)
    ]
}

fn moment() -> impl Strategy<Value = EventTime> {
    any::<i64>().prop_map(EventTime::from_micros)
}

fn ids() -> impl Strategy<Value = Vec<UniqueId>> {
    prop::collection::vec(
        "\\PC{1,20}".prop_filter_map("not empty", UniqueId::new),
        0..4,
    )
}

prop_compose! {
    /// Generates calls with arbitrary text, times, and any other values that the types allow.
    fn call()(
        text in prop::collection::vec("\\PC{0,30}", 8),
        ids in ids(),
        flags in prop::array::uniform6(any::<bool>()),
        direction in direction(),
        started in moment(),
        ended in moment(),
        talk in 0..u64::MAX,
        uuid in any::<u128>(),
        lead in any::<Option<i64>>(),
        digits in "[0-9]{3,15}",
        seconds in any::<(i64, u32, u32)>(),
    ) -> Finished {
        let mut all = finished_call(7, Outcome::Journal, None);
        let call = &mut all.call;
        call.also_known_as = ids;
        call.direction = direction;
        call.number = flags[0].then(|| RawNumber {
            text: text[0].clone(),
            from_dial_string: flags[1],
        });
        call.employee = flags[2].then(|| Extension::new(text[1].clone()));
        call.started = started;
        call.ended = ended;
        call.talk = Duration::from_micros(talk);
        call.variables = vec![Variable {
            name: text[2].clone(),
            values: vec![text[3].clone()],
        }];
        call.incomplete = flags[3].then(|| text[4].clone());
        call.userfields = text.clone();
        call.decided_by = vec![DecidingEvent {
            value: text[5].clone(),
            at: ended,
            channel: text[6].clone(),
            message: text[7].clone(),
        }];
        let record = &mut all.judged.record;
        record.uuid = Some(CallUuid(uuid::Uuid::from_u128(uuid)));
        record.direction = direction;
        record.lead_id = lead.and_then(LeadId::new);
        record.employee_id = lead.and_then(EmployeeId::new);
        record.client_phone = flags[4].then(|| Phone::from_e164(&format!("+{digits}"))).flatten();
        record.trunk = flags[5].then(|| text[2].clone());
        record.started_at = EpochSeconds::new(seconds.0);
        (record.duration_sec, record.talk_time_sec) = (seconds.1, seconds.2);
        all.judged.live = flags[5];
        all.judged.judged_at = started;
        all
    }
}

/// Returns the operation that stores an open call, or deletes it if there's no snapshot.
fn open_op(pbx: &str, key: u64, snapshot: Option<&[u8]>) -> Op {
    Op::Open {
        pbx: pbx.to_owned(),
        key,
        snapshot: snapshot.map(<[u8]>::to_vec),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(super::cases(256)))]

    #[test]
    fn stored_calls_read_back_unchanged(call in call()) {
        let mut store = store();
        let done = store.write(vec![Op::Finish(Box::new(call.clone()))]).expect("stored");
        let [Done::New(id)] = done[..] else { panic!("{done:?}") };
        let row = tables::calls::row(&store, id).expect("readable").expect("a row");
        prop_assert_eq!(&row.record, &call.judged.record);
        prop_assert_eq!(&row.call, &call.call);
        prop_assert_eq!(Some(row.uuid), call.judged.record.uuid);
        prop_assert_eq!((row.live, row.since), (call.judged.live, call.judged.judged_at));
        for alias in &call.call.also_known_as {
            let pbx = &call.judged.record.pbx;
            let seen = tables::seen_calls::seen_call(&store, pbx, alias.as_str());
            let seen = seen.expect("readable").expect("buried");
            prop_assert_eq!(seen.uuid, call.judged.record.uuid);
        }
        let again = store.write(vec![Op::Finish(Box::new(call))]);
        prop_assert_eq!(again, Ok(vec![Done::Repeat(Some(id))]));
    }

    #[test]
    fn open_calls_read_back_unchanged(
        key in any::<u64>(), pbx in "\\PC*", bytes in any::<Vec<u8>>(), other in any::<Vec<u8>>(),
    ) {
        let mut store = store();
        let first = open_op(&pbx, key, Some(other.as_slice()));
        let second = open_op(&pbx, key, Some(bytes.as_slice()));
        store.write(vec![first, second]).expect("stored");
        let stored = Ok(vec![(pbx.clone(), key, bytes)]);
        prop_assert_eq!(tables::resume::all_open_calls(&store), stored);
        store.write(vec![open_op(&pbx, key, None)]).expect("stored");
        prop_assert_eq!(tables::resume::all_open_calls(&store), Ok(Vec::new()));
    }

    #[test]
    fn slots_read_back_unchanged(
        slot in any::<u32>(), sent in 0..i64::MAX as u64, answered in any::<Option<u32>>(),
        boot_id in "\\PC*", wall_sent in moment(),
    ) {
        let mut store = store();
        let slot = SlotRow {
            slot,
            token: TokenFingerprint::of(&boot_id),
            boot_id,
            sent: Duration::from_nanos(sent),
            answered: answered.map(|seconds| Duration::from_secs(seconds.into())),
            wall_sent,
        };
        store.write(vec![Op::Slot(slot.clone())]).expect("stored");
        prop_assert_eq!(tables::slots::slots(&store), Ok(vec![slot.clone()]));
        store.write(vec![Op::SlotGone(slot.slot)]).expect("stored");
        prop_assert_eq!(tables::slots::slots(&store), Ok(Vec::new()));
    }

    #[test]
    fn settings_positions_and_counters_read_back_unchanged(
        key in "\\PC+", value in "\\PC*", number in any::<i64>(), by in 0..u64::MAX / 4,
    ) {
        let mut store = store();
        let position = serde_json::json!({"inode": number, "name": value});
        store.write(vec![
            Op::Meta { key: key.clone(), value: value.clone() },
            Op::Position { source: key.clone(), position: position.clone() },
            Op::Count { counter: key.clone(), by },
            Op::Count { counter: key.clone(), by: 1 },
        ]).expect("stored");
        prop_assert_eq!(tables::meta::meta(&store, &key), Ok(Some(value)));
        prop_assert_eq!(tables::resume::position(&store, &key), Ok(Some(position)));
        prop_assert_eq!(store.counters().get(&key).copied(), Some(by + 1));
        store.write(vec![Op::MetaGone(key.clone())]).expect("stored");
        prop_assert_eq!(tables::meta::meta(&store, &key), Ok(None));
    }
}

#[test]
fn empty_spool_has_no_positions_calls_or_counts() {
    let store = store();
    assert_eq!(tables::resume::position(&store, "file:///x"), Ok(None));
    assert_eq!(tables::calls::row(&store, crate::RowId(1)), Ok(None));
    assert_eq!(
        tables::work_queue::head(&store, &ask(time_at(0))),
        Ok(crate::WorkQueue::default())
    );
    assert_eq!(store.books(), callbridge_model::status::Books::default());
}
