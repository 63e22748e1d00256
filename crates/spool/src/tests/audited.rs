//! Is each call of a PBX's file found as what became of it, also when its row is purged?

use super::call::{at, finished, journal};
use crate::tables::summaries::SUMMARIES_KEPT_FOR;
use crate::{AuditedCall, CallFate, Finished, Op, RowId, Settings, State, Step, Store, tables};
use callbridge_call::EventTime;
use callbridge_model::{CallUuid, Outcome, Reason};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// As a file tells of the call: by its own id, or by that of a channel alone.
fn told(call: &Finished, own: bool) -> AuditedCall {
    let ids = call.call.also_known_as.iter().skip(usize::from(!own));
    AuditedCall {
        pbx: "pbx1".to_owned(),
        ids: ids.map(|id| id.as_str().to_owned()).collect(),
        uuid: match own {
            true => call.judged.record.uuid.unwrap_or_else(other),
            false => other(),
        },
    }
}

/// No call's.
fn other() -> CallUuid {
    CallUuid(uuid::Uuid::from_u128(u128::MAX))
}

fn fate(store: &Store, call: AuditedCall) -> CallFate {
    let fates = tables::audited::fates(store, &[call]).expect("readable");
    fates[0]
}

fn store() -> Store {
    Store::in_memory(Settings::default()).expect("a store")
}

fn take(store: &mut Store, call: &Finished) {
    let op = Op::Finish(Box::new(call.clone()));
    store.write(vec![op]).expect("stored");
}

fn step(store: &mut Store, step: Step, now: EventTime) {
    let op = Op::Step {
        row: RowId(1),
        step,
        at: now,
    };
    store.write(vec![op]).expect("a step");
}

/// Everything that is due then is purged.
fn purge(store: &mut Store, now: EventTime) {
    for _ in 0..4 {
        store.write(vec![Op::Purge { now }]).expect("purged");
    }
}

#[test]
fn a_call_is_known_by_its_uuid_and_by_any_of_its_channels() {
    let mut store = store();
    let call = journal(1);
    assert_eq!(fate(&store, told(&call, true)), CallFate::Unknown);
    take(&mut store, &call);
    for own in [true, false] {
        let stands = CallFate::Stands(State::Ready);
        assert_eq!(fate(&store, told(&call, own)), stands);
    }
    let internal = finished(2, Outcome::Internal, None);
    take(&mut store, &internal);
    assert_eq!(fate(&store, told(&internal, true)), CallFate::Counted);
    let parked = finished(3, Outcome::DeadLetter, Some(Reason::NoLead));
    take(&mut store, &parked);
    let stands = CallFate::Stands(State::Parked);
    assert_eq!(fate(&store, told(&parked, false)), stands);
    let mut elsewhere = told(&call, false);
    elsewhere.pbx = "pbx2".to_owned();
    assert_eq!(fate(&store, elsewhere), CallFate::Unknown);
}

#[test]
fn a_call_that_goes_on_is_known_by_its_snapshot() {
    let mut store = store();
    let call = journal(1);
    let id = call.call.linkedid.as_str();
    let open = Op::Open {
        pbx: "pbx1#events".to_owned(),
        key: 7,
        snapshot: Some(format!("{{\"id\":\"{id}\"}}").into_bytes()),
    };
    store.write(vec![open]).expect("stored");
    assert_eq!(fate(&store, told(&call, true)), CallFate::Open);
    assert_eq!(fate(&store, told(&journal(2), true)), CallFate::Unknown);
}

#[test]
fn what_became_of_it_is_told_for_two_years_and_not_for_longer() {
    let mut store = store();
    let call = finished(1, Outcome::DeadLetter, Some(Reason::NoLead));
    let internal = finished(2, Outcome::Internal, None);
    take(&mut store, &call);
    take(&mut store, &internal);
    step(&mut store, Step::Discard, at(60));
    let stands = CallFate::Stands(State::Discarded);
    purge(&mut store, at(0).plus(60 * DAY));
    let rows = "SELECT (SELECT count(*) FROM calls) + (SELECT count(*) FROM tombstones)";
    assert_eq!(
        store.value::<i64>(rows, []),
        Ok(0),
        "only summaries are left"
    );
    for now in [at(0).plus(60 * DAY), at(0).plus(SUMMARIES_KEPT_FOR)] {
        purge(&mut store, now);
        assert_eq!(fate(&store, told(&call, true)), stands);
        assert_eq!(fate(&store, told(&internal, true)), CallFate::Counted);
    }
    purge(&mut store, at(60).plus(SUMMARIES_KEPT_FOR));
    assert_eq!(fate(&store, told(&call, true)), CallFate::Unknown);
    assert_eq!(fate(&store, told(&internal, true)), CallFate::Unknown);
}

#[test]
fn a_row_that_is_gone_is_told_and_its_call_can_be_taken_in_again() {
    let mut store = store();
    let call = journal(1);
    take(&mut store, &call);
    store.execute("DELETE FROM calls", []).expect("by hand");
    assert_eq!(fate(&store, told(&call, true)), CallFate::RowGone);
    let AuditedCall { pbx, ids, .. } = told(&call, true);
    let forget = Op::Forget { pbx, ids };
    let again = Op::Finish(Box::new(call.clone()));
    for _ in 0..2 {
        // The second time it is stored: nothing is forgotten, and it is no second call.
        store
            .write(vec![forget.clone(), again.clone()])
            .expect("taken in");
        let rows: i64 = store.value("SELECT count(*) FROM calls", []).expect("rows");
        assert_eq!(rows, 1);
        let stands = CallFate::Stands(State::Ready);
        assert_eq!(fate(&store, told(&call, false)), stands);
    }
}
