//! The acts that deal with leads rather than calls: lookups, merges, and lead fields.

use super::acts::{Act, SUBMITTED, step, token, write};
use super::acts_queue::ask;
use super::call::{failure_op, time_at};
use crate::{Op, RowId, Step, Store, tables};
use callbridge_leads::lead_field::Catalog;
use callbridge_leads::lead_request::LeadChange;
use callbridge_leads::lead_request::due::LeadRequest;
use callbridge_leads::lead_request::{Finding, LeadOutcome, RequestKind};
use callbridge_model::LeadId;

fn report_outcome(store: &mut Store, outcome: LeadOutcome, seconds: i64) {
    let (outcome, at) = (Box::new(outcome), time_at(seconds));
    write(store, vec![Op::Lead(LeadChange::Request { outcome, at })]);
}

fn lead() -> LeadId {
    LeadId::new(4_001).expect("a lead")
}

fn fail_call(store: &mut Store, row: RowId) {
    let failed = failure_op(row, time_at(2_000));
    write(store, vec![failed]);
}

/// The acts that deal with leads. They run after [`super::acts::ACTS`].
pub const LEAD_ACTS: &[Act] = &[
    ("fail, look up, fail again", |store, rows| {
        let lead_request = LeadRequest::LookUp(lead());
        fail_call(store, rows.at(SUBMITTED, 4));
        tables::lead_requests::lead_requests(store, &ask(2_001, Some(token()))).expect("readable");
        report_outcome(store, LeadOutcome::Sent(lead_request.clone()), 2_001);
        report_outcome(store, LeadOutcome::Back(lead_request.clone()), 2_002);
        report_outcome(store, LeadOutcome::Again(lead_request, "500".into()), 2_003);
        report_outcome(
            store,
            LeadOutcome::LookedUp(lead(), Finding::LeadMissing),
            2_004,
        );
        fail_call(store, rows.at(SUBMITTED, 5));
    }),
    ("a kind of errand rests", |store, _| {
        let lead_request = LeadRequest::LookUp(lead());
        report_outcome(
            store,
            LeadOutcome::Rest(RequestKind::LookUps, lead_request, "403".into()),
            2_005,
        );
        tables::meta::memory(store).expect("readable");
        tables::lead_requests::lead_requests_waiting(store, time_at(0)).expect("readable");
        report_outcome(store, LeadOutcome::Granted, 2_007);
    }),
    ("a call goes on to another lead", |store, rows| {
        let row = rows.at(SUBMITTED, 4);
        let record = tables::calls::row(store, row)
            .expect("readable")
            .expect("a row")
            .record;
        let moved = Step::Moved {
            record: Box::new(record),
            reroute_history: Default::default(),
            why: "merged".into(),
        };
        tables::look_ups::find_reroute(store, row).expect("readable");
        step(store, row, moved);
    }),
    ("an employee turns out to be known", |store, rows| {
        let key = "employees.unknown".to_owned();
        let value = r#"{"999":{"extension":"101","calls":1,"since":1}}"#.to_owned();
        write(store, vec![Op::Meta { key, value }]);
        assert_eq!(
            tables::unknown_employees::unknown_employees(store)
                .expect("readable")
                .len(),
            1
        );
        step(
            store,
            rows.at(SUBMITTED, 6),
            Step::Journaled(crate::OutcomeSource::Confirmation),
        );
    }),
    ("a lead shows its calls", |store, _| {
        report_outcome(
            store,
            LeadOutcome::Catalog(Catalog::unread("403".into(), time_at(1))),
            2_010,
        );
        let write = tables::shows::field_write(store, lead(), time_at(2_011))
            .expect("readable")
            .expect("shows");
        report_outcome(store, LeadOutcome::Writes(lead(), write), 2_011);
        report_outcome(
            store,
            LeadOutcome::Accepted(lead(), "r".into(), token()),
            2_012,
        );
        tables::lead_requests::lead_requests(store, &ask(2_020, Some(token()))).expect("readable");
        report_outcome(store, LeadOutcome::Written(lead()), 2_021);
    }),
];
