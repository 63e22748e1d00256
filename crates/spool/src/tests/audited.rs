//! Tests that the audit finds out what became of each call in a PBX's CDR file, even once the
//! call's row has been purged.

use super::call::{finished_call, journal, time_at};
use crate::tables::audited::SUMMARIES_KEPT_FOR;
use crate::{
    AuditedCall, AuditedValues, CallFate, Finished, JournaledCall, Op, RowId, Settings, State,
    Step, Store, tables,
};
use callbridge_call::EventTime;
use callbridge_model::{CallUuid, Outcome, Reason};
use std::time::Duration;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Returns a call as a file reports it, either under its own ID (`own`) or only under a channel's.
fn audited_call(call: &Finished, own: bool) -> AuditedCall {
    let ids = call.call.also_known_as.iter().skip(usize::from(!own));
    AuditedCall {
        pbx: "pbx1".to_owned(),
        ids: ids.map(|id| id.as_str().to_owned()).collect(),
        uuid: if own {
            call.judged.record.uuid.unwrap_or_else(unknown_uuid)
        } else {
            unknown_uuid()
        },
    }
}

/// Returns a UUID that no call has.
fn unknown_uuid() -> CallUuid {
    CallUuid(uuid::Uuid::from_u128(u128::MAX))
}

fn fate_of(store: &Store, call: AuditedCall) -> CallFate {
    let fates = tables::audited::fates(store, &[call]).expect("readable");
    fates[0].fate
}

fn store() -> Store {
    super::store(Settings::default())
}

fn store_call(store: &mut Store, call: &Finished) {
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

/// Purges all rows that are due by this time.
fn purge(store: &mut Store, now: EventTime) {
    for _ in 0..4 {
        store.write(vec![Op::Purge(now)]).expect("purged");
    }
}

#[test]
fn call_is_known_by_its_uuid_and_by_any_of_its_channels() {
    let mut store = store();
    let call = journal(1);
    assert_eq!(
        fate_of(&store, audited_call(&call, true)),
        CallFate::Unknown
    );
    store_call(&mut store, &call);
    for own in [true, false] {
        let expected_fate = CallFate::Stands(State::Ready);
        assert_eq!(fate_of(&store, audited_call(&call, own)), expected_fate);
    }
    let internal = finished_call(2, Outcome::Internal, None);
    store_call(&mut store, &internal);
    assert_eq!(
        fate_of(&store, audited_call(&internal, true)),
        CallFate::Counted
    );
    let waiting = finished_call(3, Outcome::DeadLetter, Some(Reason::NoLead));
    store_call(&mut store, &waiting);
    let expected_fate = CallFate::Stands(State::Waiting);
    assert_eq!(
        fate_of(&store, audited_call(&waiting, false)),
        expected_fate
    );
    let mut elsewhere = audited_call(&call, false);
    elsewhere.pbx = "pbx2".to_owned();
    assert_eq!(fate_of(&store, elsewhere), CallFate::Unknown);
}

#[test]
fn open_call_is_recognized_by_its_snapshot() {
    let mut store = store();
    let call = journal(1);
    let id = call.call.linkedid.as_str();
    let open = Op::Open {
        pbx: "pbx1#events".to_owned(),
        key: 7,
        snapshot: Some(format!("{{\"id\":\"{id}\"}}").into_bytes()),
    };
    store.write(vec![open]).expect("stored");
    assert_eq!(fate_of(&store, audited_call(&call, true)), CallFate::Open);
    assert_eq!(
        fate_of(&store, audited_call(&journal(2), true)),
        CallFate::Unknown
    );
}

#[test]
fn fate_of_purged_call_is_known_while_its_summary_is_kept() {
    let mut store = store();
    let call = finished_call(1, Outcome::DeadLetter, Some(Reason::NoLead));
    let internal = finished_call(2, Outcome::Internal, None);
    store_call(&mut store, &call);
    store_call(&mut store, &internal);
    step(&mut store, Step::Discard, time_at(60));
    let expected_fate = CallFate::Stands(State::Discarded);
    purge(&mut store, time_at(0).plus(60 * DAY));
    let rows = "SELECT (SELECT count(*) FROM calls) + (SELECT count(*) FROM seen_calls)";
    assert_eq!(
        store.query_one::<i64>(rows, ()),
        Ok(0),
        "only summaries are left"
    );
    for now in [
        time_at(0).plus(60 * DAY),
        time_at(0).plus(SUMMARIES_KEPT_FOR),
    ] {
        purge(&mut store, now);
        assert_eq!(fate_of(&store, audited_call(&call, true)), expected_fate);
        assert_eq!(
            fate_of(&store, audited_call(&internal, true)),
            CallFate::Counted
        );
    }
    purge(&mut store, time_at(60).plus(SUMMARIES_KEPT_FOR));
    assert_eq!(
        fate_of(&store, audited_call(&call, true)),
        CallFate::Unknown
    );
    assert_eq!(
        fate_of(&store, audited_call(&internal, true)),
        CallFate::Unknown
    );
}

#[test]
fn deleted_row_is_reported_and_call_can_be_added_again() {
    let mut store = store();
    let call = journal(1);
    store_call(&mut store, &call);
    store.execute("DELETE FROM calls", ()).expect("by hand");
    assert_eq!(
        fate_of(&store, audited_call(&call, true)),
        CallFate::RowGone
    );
    let AuditedCall { pbx, ids, .. } = audited_call(&call, true);
    let forget = Op::Forget { pbx, ids };
    let again = Op::Finish(Box::new(call.clone()));
    for _ in 0..2 {
        // The second time around, the call is stored, so nothing is forgotten and the call isn't
        // added again.
        store
            .write(vec![forget.clone(), again.clone()])
            .expect("taken in");
        let rows: i64 = store
            .query_one("SELECT count(*) FROM calls", ())
            .expect("rows");
        assert_eq!(rows, 1);
        let expected_fate = CallFate::Stands(State::Ready);
        assert_eq!(fate_of(&store, audited_call(&call, false)), expected_fate);
    }
}

/// Takes row 1 through all the steps from ready to confirmed by the CRM.
fn confirm_call(store: &mut Store, now: EventTime) {
    let token = callbridge_model::TokenFingerprint::of("token");
    let request_id = "r-1".to_owned();
    for one in [
        Step::Send,
        Step::Accepted { request_id, token },
        Step::Journaled(crate::OutcomeSource::Confirmation),
    ] {
        step(store, one, now);
    }
}

fn journaled_calls(store: &Store, asked: &[AuditedCall]) -> Vec<Option<JournaledCall>> {
    tables::audited::journaled(store, asked).expect("read")
}

#[test]
fn audit_returns_journaled_calls_without_values_once_purged() {
    let mut store = store();
    let call = journal(1);
    store_call(&mut store, &call);
    let asked = [
        audited_call(&call, true),
        audited_call(&call, false),
        audited_call(&journal(2), true),
    ];
    assert_eq!(
        journaled_calls(&store, &asked),
        [None, None, None],
        "it is ready"
    );
    confirm_call(&mut store, time_at(60));
    let record = &call.judged.record;
    let uuid = record.uuid.expect("a uuid");
    let shows = JournaledCall {
        uuid,
        started: record.started_at,
        since: Some(time_at(60)),
        sent: Some(crate::SentValues {
            leads: record.lead_id.into_iter().collect(),
            duration_sec: record.duration_sec,
            answered: record.answered,
            direction: record.direction,
        }),
    };
    let both = [Some(shows.clone()), Some(shows.clone()), None];
    assert_eq!(
        journaled_calls(&store, &asked),
        both,
        "by its own id, and by a channel's"
    );
    let known = tables::audited::known_as_journaled(&store, &[uuid]);
    assert_eq!(known, Ok(1));
    let unknown = tables::audited::known_as_journaled(&store, &[unknown_uuid()]);
    assert_eq!(unknown, Ok(0));
    purge(&mut store, time_at(0).plus(60 * DAY));
    let purged = JournaledCall {
        since: None,
        sent: None,
        ..shows
    };
    assert_eq!(journaled_calls(&store, &asked)[0], Some(purged));
}

#[test]
fn call_lost_by_crm_is_sent_again_with_same_uuid() {
    let mut store = store();
    let call = journal(1);
    store_call(&mut store, &call);
    confirm_call(&mut store, time_at(60));
    let why = "the journal does not have it".to_owned();
    step(
        &mut store,
        Step::SendAgain { why: why.clone() },
        time_at(90),
    );
    let row = tables::calls::row(&store, RowId(1))
        .expect("readable")
        .expect("a row");
    assert_eq!(
        (row.state, row.uuid),
        (State::Ready, call.judged.record.uuid.expect("a uuid"))
    );
    assert_eq!((&row.request_id, row.live), (&None, false));
    assert_eq!(
        row.attempts.last().map(|attempt| attempt.message.clone()),
        Some(why)
    );
    let books = store.books();
    assert!(
        books.balance() && books.ready == 1 && books.journaled == 0,
        "{books:?}"
    );
    // A webhook reports the call before we send it, so it counts as journaled.
    step(
        &mut store,
        Step::Journaled(crate::OutcomeSource::Webhook),
        time_at(91),
    );
    assert_eq!(
        fate_of(&store, audited_call(&call, true)),
        CallFate::Stands(State::Journaled)
    );
}

fn stored_values(store: &Store, call: &Finished) -> Option<AuditedValues> {
    let asked = [audited_call(call, false)];
    let mut fates = tables::audited::fates(store, &asked).expect("readable");
    fates.remove(0).values
}

#[test]
fn audited_values_are_as_reported_by_pbx_until_discarded() {
    let mut store = store();
    let mut call = finished_call(1, Outcome::DeadLetter, Some(Reason::NoLead));
    call.judged.record.by_hand = Some(callbridge_model::ByHand {
        at: time_at(9).floor_seconds(),
        reported_answered: false,
        reported_talk_sec: 0,
    });
    store_call(&mut store, &call);
    let record = &call.judged.record;
    let found = stored_values(&store, &call).expect("a row");
    assert_eq!(
        (found.started, found.duration_sec),
        (record.started_at, record.duration_sec)
    );
    assert_eq!((found.answered, found.talk_time_sec), (false, 0));
    assert_eq!(found.phone.as_deref(), record.phone());
    step(&mut store, Step::Discard, time_at(60));
    assert_eq!(stored_values(&store, &call), None);
}
