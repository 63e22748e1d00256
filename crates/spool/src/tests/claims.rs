//! Tests which leads are looked up when several of them claim a number, and how often.

use super::call::{ask, finished_call, time_at};
use crate::{Op, Settings, Store, tables};
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::{ChangeKind, FirstPhone, LeadNews};
use callbridge_leads::lead_request::due::{DueRequest, LeadRequest, Urgency};
use callbridge_leads::lead_request::{Finding, LeadChange, LeadOutcome};
use callbridge_model::{LeadId, Outcome, Phone, Reason};

const DAY: i64 = 86_400;

fn lead(id: i64) -> LeadId {
    LeadId::new(id).expect("a lead")
}

fn write(store: &mut Store, op: Op) {
    store.write(vec![op]).expect("stored");
}

/// Stores a dead letter for a number that belongs to leads 1 and 2 according to pages of leads.
fn store_with_ambiguous_number() -> (Store, Phone) {
    let settings = Settings {
        look_up: true,
        ..Settings::default()
    };
    let mut store = super::store(settings);
    let letter = finished_call(7, Outcome::DeadLetter, Some(Reason::AmbiguousLead));
    let phone = letter.judged.record.client_phone.clone().expect("a number");
    for id in [1, 2] {
        let second = EpochSeconds::new(time_at(-60).floor_seconds().get());
        let first = FirstPhone::Is(phone.clone());
        let news = LeadNews::new(lead(id), second, ChangeKind::Filter, first);
        write(&mut store, Op::Learn(Box::new(news)));
    }
    write(&mut store, Op::Finish(Box::new(letter)));
    (store, phone)
}

fn purge(store: &mut Store, seconds: i64) {
    write(store, Op::Purge(time_at(seconds)));
}

/// Returns the lead that is due to be looked up, provided nothing else is due.
fn due_lookup(store: &Store, seconds: i64) -> Option<LeadId> {
    let due = tables::lead_requests::lead_requests(store, &ask(time_at(seconds)));
    match &due.expect("lead requests").due[..] {
        [] => None,
        [
            DueRequest {
                urgency: Urgency::Spare,
                lead_request: LeadRequest::LookUp(lead),
            },
        ] => Some(*lead),
        other => panic!("{other:?}"),
    }
}

fn report_outcome(store: &mut Store, outcome: LeadOutcome, seconds: i64) {
    let (outcome, at) = (Box::new(outcome), time_at(seconds));
    write(store, Op::Lead(LeadChange::Request { outcome, at }));
}

fn leads_of_phone(store: &Store, phone: &Phone) -> Vec<LeadId> {
    tables::directory::holders(store, phone)
        .expect("readable")
        .leads()
}

#[test]
fn ambiguous_leads_are_looked_up_daily_and_missing_dropped() {
    let (mut store, phone) = store_with_ambiguous_number();
    assert_eq!(due_lookup(&store, 50), None);
    for day in [0, DAY] {
        purge(&mut store, day + 60);
        for id in [1, 2] {
            assert_eq!(due_lookup(&store, day + 61), Some(lead(id)));
            report_outcome(
                &mut store,
                LeadOutcome::Sent(LeadRequest::LookUp(lead(id))),
                day + 61,
            );
            let finding = match (day, id) {
                (DAY, 2) => Finding::LeadMissing,
                _ => Finding::LeadExists,
            };
            report_outcome(
                &mut store,
                LeadOutcome::LookedUp(lead(id), finding),
                day + 62,
            );
        }
        purge(&mut store, day + 120);
        assert_eq!(due_lookup(&store, day + 121), None, "once a day");
    }
    assert_eq!(leads_of_phone(&store, &phone), [lead(1)]);
    assert_eq!(
        store.take_awaited(),
        Some(vec![phone]),
        "its calls may leave"
    );
}

#[test]
fn claim_of_a_merged_lead_moves_to_the_surviving_lead() {
    let (mut store, phone) = store_with_ambiguous_number();
    purge(&mut store, 60);
    report_outcome(&mut store, LeadOutcome::MergedInto(lead(1), lead(2)), 62);
    assert_eq!(leads_of_phone(&store, &phone), [lead(2)]);
    assert_eq!(due_lookup(&store, 63), Some(lead(2)));
    let why = "500".to_owned();
    report_outcome(
        &mut store,
        LeadOutcome::Again(LeadRequest::LookUp(lead(2)), why),
        64,
    );
    assert_eq!(due_lookup(&store, 65), None, "tomorrow");
}
