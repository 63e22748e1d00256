//! Tests which values lead fields show about calls.

use super::call::{T0, ask, journal, time_at};
use crate::{Handle, Op, RowId, Settings, Step, Store, tables};
use callbridge_call::{Direction, EpochSeconds};
use callbridge_leads::lead_field;
use callbridge_leads::lead_field::{Catalog, CrmField, FieldId, Refusal, RefusedPart};
use callbridge_leads::lead_request::LeadChange;
use callbridge_leads::lead_request::due::{DueRequests, FieldPoll, LeadRequest, Urgency};
use callbridge_leads::lead_request::{LeadOutcome, RequestKind};
use callbridge_model::{CallRecord, EmployeeId, LeadId, Phone, TokenFingerprint};
use callbridge_testkit::Wait as _;
use serde_json::{Value, json};
use std::sync::Arc;

fn settings(fields: &str) -> Settings {
    let shows = lead_field::Settings {
        fields: lead_field::parse(fields).expect("fields"),
        zone: jiff::tz::TimeZone::UTC,
        wrapper: Some("fields".to_owned()),
    };
    Settings {
        look_up: true,
        shows: Some(Arc::new(shows)),
        ..Settings::default()
    }
}

fn store() -> Store {
    let mut store = super::store(settings("last_call=11,last_employee=13"));
    learn_catalog(&mut store, &[(11, "LED"), (13, "LED")], 0);
    store
}

fn lead() -> LeadId {
    LeadId::new(4_001).expect("a lead")
}

fn has_request(lead_requests: &DueRequests, lead_request: &LeadRequest) -> bool {
    lead_requests
        .due
        .iter()
        .any(|job| job.lead_request == *lead_request)
}

fn report_outcome(store: &mut Store, outcome: LeadOutcome, seconds: i64) {
    let (outcome, at) = (Box::new(outcome), time_at(seconds));
    store
        .write(vec![Op::Lead(LeadChange::Request { outcome, at })])
        .expect("stored");
}

fn learn_catalog(store: &mut Store, kinds: &[(i64, &str)], seconds: i64) {
    let fields = kinds.iter().map(|(id, kind)| CrmField {
        id: FieldId::new(*id).expect("an id"),
        info_type: Some((*kind).to_owned()),
        name: None,
    });
    let read = Catalog::read(fields.collect(), true, time_at(seconds));
    report_outcome(store, LeadOutcome::Catalog(read), seconds);
}

/// Stores the nth call, which started at second `started` and is journaled at second `seconds`.
fn store_journaled(store: &mut Store, n: u32, started: i64, seconds: i64) {
    store_journaled_with(store, n, started, seconds, |_| {});
}

fn store_journaled_with(
    store: &mut Store,
    n: u32,
    started: i64,
    seconds: i64,
    change: fn(&mut CallRecord),
) {
    let mut call = journal(n);
    call.judged.record.started_at = EpochSeconds::new(T0 + started);
    call.call.started = time_at(started);
    call.judged.record.employee_id = EmployeeId::new(500 + i64::from(n));
    change(&mut call.judged.record);
    let done = store.write(vec![Op::Finish(Box::new(call))]);
    let row = match done.expect("stored")[..] {
        [crate::Done::New(row)] => row,
        ref other => panic!("{other:?}"),
    };
    let steps = [
        Step::Send,
        Step::Accepted {
            request_id: format!("r-{n}"),
            token: TokenFingerprint::of("token"),
        },
        Step::Journaled(crate::OutcomeSource::Confirmation),
    ];
    for step in steps {
        let at = time_at(seconds);
        store
            .write(vec![Op::Step { row, step, at }])
            .expect("stored");
    }
    let _: RowId = row;
}

fn body(store: &Store) -> String {
    body_at(store, 500)
}

fn body_at(store: &Store, seconds: i64) -> String {
    let write = tables::shows::field_write(store, lead(), time_at(seconds)).expect("readable");
    write.map_or_else(String::new, |write| write.body.to_string())
}

/// Returns the values that a request made at this second would write.
fn values_to_write(store: &Store, seconds: i64) -> LeadOutcome {
    let write = tables::shows::field_write(store, lead(), time_at(seconds)).expect("readable");
    LeadOutcome::Writes(lead(), write.expect("shows"))
}

fn write(store: &mut Store, seconds: i64) {
    assert!(!is_idle(store, seconds));
    let sent = values_to_write(store, seconds);
    report_outcome(store, sent, seconds);
    let accepted = LeadOutcome::Accepted(lead(), "f-1".into(), TokenFingerprint::of("token"));
    report_outcome(store, accepted, seconds);
    report_outcome(store, LeadOutcome::Written(lead()), seconds + 2);
}

fn is_due(store: &Store, lead_request: &LeadRequest, seconds: i64) -> bool {
    let due = tables::lead_requests::lead_requests(store, &ask(time_at(seconds)))
        .expect("lead requests")
        .due;
    due.iter().any(|job| job.lead_request == *lead_request)
}

fn is_idle(store: &Store, seconds: i64) -> bool {
    !is_due(store, &LeadRequest::FieldWrite(lead()), seconds)
}

#[test]
fn field_write_uses_the_newest_of_calls_out_of_order() {
    let mut store = store();
    store_journaled(&mut store, 2, 200, 300);
    store_journaled(&mut store, 3, 290, 301);
    store_journaled(&mut store, 1, 100, 302);
    assert_eq!(
        body(&store),
        r#"{"fields":[{"id":11,"value":"2026-11-20T05:13:27+00:00"},{"id":13,"value":"503"}]}"#
    );
    write(&mut store, 303);
    assert!(is_idle(&store, 400));
    store_journaled(&mut store, 4, 250, 410);
    assert!(is_idle(&store, 500), "an old one from the backlog");
    store_journaled(&mut store, 5, 405, 420);
    assert!(!is_idle(&store, 500));
    assert!(body(&store).contains("05:15:22"), "{}", body(&store));
    assert_eq!(store.counters().get("lead_fields_written"), Some(&2));
}

fn make_missed(call: &mut CallRecord) {
    call.client_phone = Phone::from_e164("+998901110001");
    call.answered = false;
}

fn make_outbound_talk(call: &mut CallRecord) {
    call.client_phone = Phone::from_e164("+998901110001");
    call.direction = Direction::Outbound;
}

/// Checks the values of fields 12, 13, and 15 in the next write. The value `"-"` stands for a field
/// that isn't written.
fn assert_written(store: &Store, values: [Value; 3]) {
    let ids = [12, 13, 15].into_iter().zip(values);
    let items = ids.filter(|(_, value)| *value != json!("-"));
    let items = items.map(|(id, value)| json!({ "id": id, "value": value }));
    let wanted = json!({ "fields": items.collect::<Vec<_>>() });
    let written: Value = serde_json::from_str(&body(store)).expect("JSON");
    assert_eq!(written, wanted);
}

#[test]
fn missed_calls_field_counts_until_the_customer_is_reached() {
    let fields = "last_missed=12:number,missed-count=15:number,answered-by=13";
    let mut store = super::store(settings(fields));
    learn_catalog(&mut store, &[(12, "LED"), (13, "LED"), (15, "LED")], 0);
    store_journaled_with(&mut store, 1, 10, 20, make_missed);
    store_journaled_with(&mut store, 2, 30, 40, make_missed);
    assert_written(&store, [json!(T0 + 30), json!("-"), json!(2)]);
    write(&mut store, 41);
    store_journaled_with(&mut store, 3, 50, 60, make_outbound_talk);
    assert_written(&store, [Value::Null, json!("101"), json!(0)]);
    write(&mut store, 61);
    store_journaled_with(&mut store, 4, 70, 80, make_missed);
    assert_written(&store, [json!(T0 + 70), json!("-"), json!(1)]);
}

fn step_op(step: Step) -> Op {
    Op::Step {
        row: RowId(1),
        step,
        at: time_at(100),
    }
}

fn outcome_op(outcome: LeadOutcome) -> Op {
    Op::Lead(LeadChange::Request {
        outcome: Box::new(outcome),
        at: time_at(100),
    })
}

fn is_field_write_due(handle: &Handle, seconds: i64) -> bool {
    let found = handle
        .read(move |store| tables::lead_requests::lead_requests(store, &ask(time_at(seconds))))
        .wait();
    has_request(
        &found.expect("lead requests"),
        &LeadRequest::FieldWrite(lead()),
    )
}

#[test]
fn sent_field_write_survives_restart_and_is_retried() {
    let place = super::place();
    let (handle, guard) = place.open(settings("last_call=11"));
    let field = CrmField {
        id: FieldId::new(11).expect("an id"),
        info_type: Some("LED".into()),
        name: None,
    };
    let call = Op::Finish(Box::new(journal(7)));
    let ops = vec![
        outcome_op(LeadOutcome::Catalog(Catalog::read(
            vec![field],
            true,
            time_at(100),
        ))),
        call,
        step_op(Step::Send),
        step_op(Step::Journaled(crate::OutcomeSource::Webhook)),
    ];
    handle.write(ops).wait().expect("stored");
    let sent = handle.read(|store| Ok(values_to_write(store, 100))).wait();
    let sent = sent.expect("readable");
    handle.write(vec![outcome_op(sent)]).wait().expect("stored");
    guard.close();
    let (handle, _guard) = place.open(settings("last_call=11"));
    assert!(
        !is_field_write_due(&handle, 101),
        "it may still be on its way"
    );
    assert!(
        is_field_write_due(&handle, 100 + 120),
        "no answer ever came"
    );
}

fn is_catalog_due(store: &Store, seconds: i64) -> bool {
    is_due(store, &LeadRequest::Catalog, seconds)
}

#[test]
fn field_catalog_is_read_before_first_write_and_daily() {
    let mut store = super::store(settings("last_call=11"));
    store_journaled(&mut store, 1, 10, 20);
    assert!(is_catalog_due(&store, 21) && is_idle(&store, 21));
    let day = 24 * 3600;
    learn_catalog(&mut store, &[(11, "LED")], 22);
    assert!(!is_catalog_due(&store, 23) && !is_idle(&store, 23));
    assert!(is_catalog_due(&store, 22 + day));
    report_outcome(
        &mut store,
        LeadOutcome::Sent(LeadRequest::Catalog),
        22 + day,
    );
    assert!(!is_catalog_due(&store, 23 + day), "under way");
    report_outcome(
        &mut store,
        LeadOutcome::Again(LeadRequest::Catalog, "500".into()),
        24 + day,
    );
    assert!(!is_catalog_due(&store, 25 + day) && is_catalog_due(&store, 39 + day));
}

#[test]
fn non_lead_fields_are_left_out_and_counted() {
    let mut store = super::store(settings("last_call=11,last_employee=13"));
    learn_catalog(&mut store, &[(11, "CONTACT"), (13, "LED")], 0);
    store_journaled(&mut store, 1, 10, 20);
    assert_eq!(body(&store), r#"{"fields":[{"id":13,"value":"501"}]}"#);
    write(&mut store, 21);
    assert!(is_idle(&store, 100));
    assert_eq!(store.counters().get("lead_fields_left_out"), Some(&1));
    learn_catalog(&mut store, &[], 200);
    store_journaled(&mut store, 2, 190, 201);
    let nothing = values_to_write(&store, 202);
    report_outcome(&mut store, nothing, 202);
    assert!(is_idle(&store, 1_000), "nothing is left to send");
}

fn is_field_write_paused(store: &Store) -> bool {
    let memory = tables::meta::memory(store).expect("readable");
    memory
        .current_pause(RequestKind::Fields, time_at(23))
        .is_some()
}

/// Reports that the CRM refused the values written at this second.
fn refuse_values(store: &mut Store, seconds: i64) {
    let sent = values_to_write(store, seconds);
    report_outcome(store, sent, seconds);
    let why = Refusal::new("400".into(), &Value::Null, RefusedPart::SomeItem);
    report_outcome(store, LeadOutcome::Refused(lead(), why), seconds);
}

#[test]
fn field_writes_pause_an_hour_after_repeated_refusals() {
    let mut store = store();
    store_journaled(&mut store, 1, 1, 20);
    for given_up in [None, Some(&1), Some(&2)] {
        assert!(!is_idle(&store, 22) && !is_field_write_paused(&store));
        refuse_values(&mut store, 22);
        assert_eq!(store.counters().get("lead_fields_given_up"), given_up);
    }
    assert!(is_idle(&store, 30), "given up");
    assert!(is_field_write_paused(&store));
    store_journaled(&mut store, 4, 24, 24);
    assert!(is_idle(&store, 25));
    assert!(!is_idle(&store, 22 + 3_600), "an hour later");
}

/// Returns each field's name, and whether it's a lead field or has a problem.
fn field_fits(store: &Store) -> String {
    let fields = tables::shows::lead_fields(store, time_at(23)).expect("readable");
    let fields = fields.expect("fields").fields.into_iter();
    let fits = fields.map(|(name, _, fit)| format!("{name}: {}", fit.expect("read")));
    fits.collect::<Vec<_>>().join("; ")
}

#[test]
fn refused_field_is_reported_and_other_fields_are_written() {
    let mut store = store();
    store_journaled(&mut store, 1, 10, 20);
    refuse_values(&mut store, 21);
    assert_eq!(
        body(&store),
        r#"{"fields":[{"id":11,"value":"2026-11-20T05:08:47+00:00"}]}"#,
        "nothing says which of the two"
    );
    write(&mut store, 22);
    assert_eq!(body(&store), r#"{"fields":[{"id":13,"value":"501"}]}"#);
    refuse_values(&mut store, 25);
    assert!(is_idle(&store, 30), "given up");
    let item = r#"the CRM did not accept {"id":13,"value":"501"} of lead 4001: 400"#;
    let wrong = format!("last_call: a field of leads; last_employee: {item}");
    assert_eq!(field_fits(&store), wrong);
    store_journaled(&mut store, 2, 30, 40);
    assert!(!body(&store).contains("13"), "it rests: {}", body(&store));
    write(&mut store, 41);
    let later = 25 + 3_600;
    store_journaled(&mut store, 3, later, later + 10);
    for (id, seconds) in [(11, later + 20), (13, later + 30)] {
        let body = body_at(&store, seconds);
        let one = format!("[{{\"id\":{id},");
        assert!(
            body.contains(&one) && body.matches("id").count() == 1,
            "{body}"
        );
        write(&mut store, seconds);
    }
    assert_eq!(
        field_fits(&store),
        "last_call: a field of leads; last_employee: a field of leads"
    );
}

#[test]
fn field_write_without_a_grant_waits_an_hour() {
    let mut store = store();
    store_journaled(&mut store, 1, 10, 20);
    let lead_request = LeadRequest::FieldWrite(lead());
    let sent = values_to_write(&store, 21);
    report_outcome(&mut store, sent, 21);
    report_outcome(
        &mut store,
        LeadOutcome::Rest(RequestKind::Fields, lead_request, "403".into()),
        22,
    );
    let due =
        tables::lead_requests::lead_requests(&store, &ask(time_at(23))).expect("lead requests");
    assert_eq!((due.due, due.next), (vec![], Some(time_at(22 + 3_600))));
    let fields = tables::shows::lead_fields(&store, time_at(23)).expect("readable");
    let pause = fields.expect("fields").rests.expect("a pause");
    assert_eq!(pause.reason, "403");
    assert!(!is_idle(&store, 22 + 3_600));
}

#[test]
fn purged_field_state_is_not_replaced_by_older_call() {
    let mut store = store();
    let old = 500 * 24 * 3600;
    store_journaled(&mut store, 1, -old, 20);
    assert!(
        tables::shows::field_state(&store, lead())
            .expect("readable")
            .is_none(),
        "too old to know"
    );
    store_journaled(&mut store, 2, 10, 20);
    write(&mut store, 21);
    store.write(vec![Op::Purge(time_at(old))]).expect("purged");
    assert!(
        tables::shows::field_state(&store, lead())
            .expect("readable")
            .is_none()
    );
    store_journaled(&mut store, 3, 5, 30);
    assert!(
        tables::shows::field_state(&store, lead())
            .expect("readable")
            .is_none(),
        "{:?}",
        tables::shows::field_state(&store, lead())
    );
    store_journaled(&mut store, 4, 11, 30);
    assert!(
        tables::shows::field_state(&store, lead())
            .expect("readable")
            .is_some()
    );
}

/// Returns the requests that a sender with these tokens could make at second 30.
fn due_for_tokens(store: &Store, tokens: &[&str]) -> Vec<(Urgency, LeadRequest)> {
    let mut query = ask(time_at(30));
    query.tokens = tokens
        .iter()
        .map(|token| TokenFingerprint::of(token))
        .collect();
    let due = tables::lead_requests::lead_requests(store, &query)
        .expect("lead requests")
        .due;
    due.into_iter()
        .map(|job| (job.urgency, job.lead_request))
        .collect()
}

#[test]
fn field_write_is_polled_if_token_is_known_else_repeated() {
    let mut store = store();
    store_journaled(&mut store, 1, 10, 20);
    let sent = values_to_write(&store, 21);
    report_outcome(&mut store, sent, 21);
    let accepted = LeadOutcome::Accepted(lead(), "f-1".into(), TokenFingerprint::of("token"));
    report_outcome(&mut store, accepted, 21);
    let poll = LeadRequest::FieldPoll(FieldPoll {
        lead: lead(),
        request_id: "f-1".into(),
        token: TokenFingerprint::of("token"),
    });
    let known = due_for_tokens(&store, &["token"]);
    assert_eq!(known, [(Urgency::Spare, poll.clone())]);
    let known_before = due_for_tokens(&store, &["new", "token"]);
    assert_eq!(known_before, [(Urgency::Ending, poll)]);
    let unknown = due_for_tokens(&store, &["new", "newer"]);
    let next_write = LeadRequest::FieldWrite(lead());
    assert_eq!(unknown, [(Urgency::Spare, next_write)]);
    let text = body(&store);
    assert!(text.contains("501"), "the same values: {text}");
}
