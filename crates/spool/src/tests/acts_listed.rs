//! The acts behind `calls`, which list calls by page, by number, and between extensions.

use super::acts::{Act, SUBMITTED, write};
use super::call::{T0, finished_call, time_at};
use crate::{AuditedCall, CallFate, CallFilter, LeadByHand, Op, Place, Store, tables};
use callbridge_model::{LeadId, Outcome, Phone, TypedNumber};

fn number() -> TypedNumber {
    TypedNumber::read("890 0000007", []).expect("a number")
}

fn page(store: &Store, filter: &CallFilter) {
    tables::listed::list_calls(store, filter, filter.beginning()).expect("readable");
}

/// Stores the nth call, which started at second `started`. All of these calls have the same
/// customer.
fn store_customer_call(store: &mut Store, n: u32, started: i64, answered: bool) {
    let mut call = finished_call(n, Outcome::Journal, None);
    call.judged.record.client_phone = Phone::from_digits(998_930_000_002);
    call.judged.record.answered = answered;
    call.call.answered = answered;
    call.call.started = time_at(started);
    write(store, vec![Op::Finish(Box::new(call))]);
}

/// Returns the nth call as an audit looks it up.
fn audited_call(n: u32) -> AuditedCall {
    let call = finished_call(n, Outcome::Journal, None);
    let ids = call.call.also_known_as.iter();
    AuditedCall {
        pbx: "pbx1".to_owned(),
        ids: ids.map(|id| id.as_str().to_owned()).collect(),
        uuid: call.judged.record.uuid.expect("a uuid"),
    }
}

/// The acts behind `calls`. They run after [`super::acts_lead_requests::LEAD_ACTS`].
pub const LISTED: &[Act] = &[
    ("a page of calls", |store, _| {
        page(store, &CallFilter::default())
    }),
    ("calls of a time", |store, _| {
        let from = Some(T0 + 20);
        let until = Some(T0 + 30);
        page(
            store,
            &CallFilter {
                from,
                until,
                ..CallFilter::default()
            },
        );
    }),
    ("calls of a number", |store, _| {
        let phone = Some(number());
        page(
            store,
            &CallFilter {
                phone,
                ..CallFilter::default()
            },
        );
    }),
    ("calls of a number, newest first", |store, _| {
        let filter = CallFilter {
            phone: Some(number()),
            ..CallFilter::default()
        };
        drop(tables::listed::list_calls_back(store, &filter, Place::END, 50).expect("readable"));
    }),
    ("the newest calls", |store, _| {
        let filter = CallFilter::default();
        drop(tables::listed::list_calls_back(store, &filter, Place::END, 50).expect("readable"));
    }),
    ("what became of calls of a time", |store, _| {
        drop(tables::figures::outcomes(store, T0 + 20, T0 + 30).expect("readable"));
        let delays = tables::figures::confirmation_delays(store, T0 + 20, T0 + 30);
        drop(delays.expect("readable"));
    }),
    ("the newest call", |store, _| {
        let newest = tables::listed::newest_start(store, time_at(100_000).floor_seconds().get());
        assert!(newest.expect("readable").is_some());
    }),
    ("the extensions of the newest calls", |store, _| {
        drop(tables::unknown_employees::extensions_met(store).expect("readable"));
    }),
    (
        "a missed call, one that came late, and their talk",
        |store, _| {
            store_customer_call(store, 910_001, 910_000, false);
            store_customer_call(store, 910_002, 910_100, false);
            store_customer_call(store, 910_003, 910_050, true);
            let waiting = tables::missed::missed_waiting(store, None, None, 5).expect("readable");
            assert!(!waiting.is_empty());
            store_customer_call(store, 910_004, 910_200, true);
            let mut kept_out = finished_call(910_005, Outcome::Skipped, None);
            kept_out.judged.kept_out_unanswered = true;
            write(store, vec![Op::Finish(Box::new(kept_out))]);
            let from = T0 + 910_000;
            let calls = tables::figures::customer_calls(store, from, from + 500).expect("readable");
            assert_eq!(calls.len(), 5);
            drop(tables::trunk_calls::trunk_calls(store, from).expect("readable"));
        },
    ),
    ("what became of calls, and one forgotten", |store, _| {
        let asked = [audited_call(7), audited_call(999_999)];
        let fates = tables::audited::fates(store, &asked);
        assert_eq!(fates.expect("readable")[1].fate, CallFate::Unknown);
        let AuditedCall { pbx, ids, .. } = audited_call(7);
        write(store, vec![Op::Forget { pbx, ids }]);
    }),
    ("a lead given and taken, and an act", |store, rows| {
        let phone = Phone::from_digits(998_930_000_001).expect("a number");
        let given = LeadByHand {
            phone: phone.clone(),
            lead_id: LeadId::new(9).expect("positive"),
            at: time_at(0).floor_seconds(),
            who: "ana".to_owned(),
        };
        let action = crate::Action {
            at: time_at(0),
            who: "ana".to_owned(),
            action: "lead give 9".to_owned(),
        };
        let row = rows.at(SUBMITTED, 3);
        write(store, vec![Op::Give(given), Op::Action { row, action }]);
        assert_eq!(
            tables::letters::actions(store, row)
                .expect("readable")
                .len(),
            1
        );
        assert!(
            tables::given::assigned_lead(store, &phone)
                .expect("readable")
                .is_some()
        );
        drop(tables::given::given_leads(store, None, 5).expect("readable"));
        write(store, vec![Op::Take(phone)]);
    }),
    ("calls that moved", |store, _| {
        let seen = store.moves_so_far() - 1;
        let (moved, _) = crate::tables::listed::moved_since(store, seen, 5)
            .expect("readable")
            .expect("remembered");
        assert_eq!(moved.len(), 1);
    }),
    ("a call between extensions, and their list", |store, _| {
        let call = finished_call(900_000, Outcome::Internal, None);
        write(store, vec![Op::Finish(Box::new(call))]);
        let last = tables::listed::newest_internal(store).expect("readable");
        let (calls, _) = tables::listed::internal_since(store, last - 1).expect("readable");
        assert_eq!(calls.len(), 1);
        let all = CallFilter::default();
        tables::listed::list_internal(store, &all, all.beginning()).expect("readable");
    }),
];
