//! Tests of calls that FAILED, and of requests about their leads.

use super::call::{T0, ask, failure_op, journal, time_at};
use crate::{Done, LetterFilter, Op, Row, RowId, Settings, State, Step, Store, tables};
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::{ChangeKind, FirstPhone, LeadNews};
use callbridge_leads::lead_request::LeadChange;
use callbridge_leads::lead_request::due::{DueRequests, LeadRequest};
use callbridge_leads::lead_request::{Finding, LeadOutcome, RequestKind};
use callbridge_model::{EmployeeId, LeadId, Phone, TokenFingerprint};

fn store(drop_employee: bool) -> Store {
    let settings = Settings {
        notices: true,
        waiting_notices: true,
        look_up: true,
        drop_employee,
        ..Settings::default()
    };
    super::store(settings)
}

fn lead(id: i64) -> LeadId {
    LeadId::new(id).expect("a lead")
}

fn write_op(store: &mut Store, op: Op) -> Done {
    store.write(vec![op]).expect("stored").remove(0)
}

fn due_lookups(lead_requests: &DueRequests) -> Vec<LeadId> {
    let due = lead_requests.due.iter().map(|job| match job.lead_request {
        LeadRequest::LookUp(lead) => lead,
        ref other => panic!("{other:?}"),
    });
    due.collect()
}

fn step(store: &mut Store, row: RowId, step: Step, seconds: i64) -> Done {
    let at = time_at(seconds);
    write_op(store, Op::Step { row, step, at })
}

fn report_outcome(store: &mut Store, outcome: LeadOutcome, seconds: i64) -> Done {
    let (outcome, at) = (Box::new(outcome), time_at(seconds));
    write_op(store, Op::Lead(LeadChange::Request { outcome, at }))
}

/// Stores the nth call, with the lead `id` and an employee, and takes it through its steps until
/// the CRM has accepted it.
fn submit_call(store: &mut Store, n: u32, id: i64) -> RowId {
    let mut call = journal(n);
    call.judged.record.lead_id = Some(lead(id));
    call.judged.record.employee_id = EmployeeId::new(501);
    let row = match write_op(store, Op::Finish(Box::new(call))) {
        Done::New(row) => row,
        other => panic!("{other:?}"),
    };
    accept_call(store, row);
    row
}

fn accept_call(store: &mut Store, row: RowId) {
    step(store, row, Step::Send, 100);
    let accepted = Step::Accepted {
        request_id: "r".into(),
        token: TokenFingerprint::of("token"),
    };
    step(store, row, accepted, 100);
}

fn fail_call(store: &mut Store, row: RowId, seconds: i64) -> Done {
    let failed = failure_op(row, time_at(seconds));
    write_op(store, failed)
}

fn row(store: &Store, row: RowId) -> Row {
    tables::calls::row(store, row)
        .expect("readable")
        .expect("a row")
}

fn assert_books_balance(store: &Store) {
    assert!(store.books().balance());
    assert_eq!(tables::books::recount(store).expect("a recount"), []);
}

#[test]
fn failed_calls_of_one_lead_share_one_lookup_and_message() {
    let mut store = store(false);
    let rows: Vec<RowId> = (0..200)
        .map(|n| submit_call(&mut store, n, 4_999))
        .collect();
    for row in &rows[..150] {
        assert_eq!(fail_call(&mut store, *row, 110), Done::Stepped(State::Dead));
    }
    assert_eq!(
        tables::lead_requests::lead_requests_waiting(&store, time_at(0)),
        Ok((1, 0))
    );
    let due = tables::lead_requests::lead_requests(&store, &ask(time_at(110))).expect("errands");
    assert_eq!(due_lookups(&due), [lead(4_999)]);
    let look_up = LeadRequest::LookUp(lead(4_999));
    report_outcome(&mut store, LeadOutcome::Sent(look_up), 111);
    let due = tables::lead_requests::lead_requests(&store, &ask(time_at(112))).expect("errands");
    assert_eq!(
        (due.due, due.next),
        (vec![], Some(time_at(231))),
        "under way"
    );
    let done = report_outcome(
        &mut store,
        LeadOutcome::LookedUp(lead(4_999), Finding::LeadMissing),
        113,
    );
    assert_eq!(
        done,
        Done::LookupDone {
            updated: 150,
            left: 0
        }
    );
    for row in &rows[150..] {
        fail_call(&mut store, *row, 700);
    }
    assert_eq!(
        tables::lead_requests::lead_requests_waiting(&store, time_at(0)),
        Ok((0, 0)),
        "none for those after it"
    );
    let letters = tables::letters::letters(&store, &LetterFilter::default()).expect("letters");
    assert_eq!(letters.len(), 200);
    for letter in letters {
        let message = "lead 4999 does not exist (deleted or another company's)";
        assert!(letter.message.starts_with(message), "{}", letter.message);
        let json = letter.to_json();
        let fix = json["fix"].as_str().unwrap_or_default();
        assert!(fix.contains("--lead LEAD"), "{fix}");
        assert!(!fix.contains("--employee"), "{fix}");
    }
    assert_books_balance(&store);
    // A finding doesn't stay valid forever.
    let again = submit_call(&mut store, 900, 4_999);
    fail_call(&mut store, again, 113 + 601);
    assert_eq!(
        tables::lead_requests::lead_requests_waiting(&store, time_at(0)),
        Ok((1, 0))
    );
}

#[test]
fn dead_letter_of_existing_lead_names_the_unknown_employee() {
    let mut store = store(false);
    let row = submit_call(&mut store, 1, 4_001);
    fail_call(&mut store, row, 110);
    report_outcome(
        &mut store,
        LeadOutcome::LookedUp(lead(4_001), Finding::LeadExists),
        111,
    );
    let letter = tables::letters::letter(&store, row)
        .expect("readable")
        .expect("a letter");
    let message = "the lead exists: employee 501 is not known; the CRM answered \"FAILED\"";
    assert_eq!(letter.message, message);
    let attempts: Vec<_> = letter
        .attempts
        .iter()
        .map(|attempt| attempt.message.as_str())
        .collect();
    assert_eq!(attempts, ["FAILED", message]);
    let fix = letter.to_json()["fix"].to_string();
    assert!(fix.contains("--employee EMPLOYEE"), "{fix}");
    assert!(fix.contains("--failed-employee drop"), "{fix}");
}

#[test]
fn unknown_employee_is_dropped_once_and_counted() {
    let mut store = store(true);
    let first = submit_call(&mut store, 1, 4_001);
    let uuid = row(&store, first).uuid;
    assert_eq!(
        fail_call(&mut store, first, 110),
        Done::Stepped(State::Dead)
    );
    let done = report_outcome(
        &mut store,
        LeadOutcome::LookedUp(lead(4_001), Finding::LeadExists),
        111,
    );
    assert_eq!(
        done,
        Done::LookupDone {
            updated: 0,
            left: 1
        }
    );
    let sent = row(&store, first);
    assert_eq!((sent.state, sent.record.employee_id), (State::Ready, None));
    assert_eq!(sent.record.lead_id, Some(lead(4_001)));
    assert_eq!(sent.uuid, uuid);
    let message = &sent.attempts.last().expect("one").message;
    assert!(
        message.contains("employee 501 is not known, and left out"),
        "{message}"
    );
    // If the finding is already known, there's neither a dead letter nor a notification.
    let notices = tables::outbox::notices(&store, 10).expect("notices").len();
    let second = submit_call(&mut store, 2, 4_001);
    assert_eq!(
        fail_call(&mut store, second, 112),
        Done::Stepped(State::Ready)
    );
    assert_eq!(
        tables::outbox::notices(&store, 10).expect("notices").len(),
        notices
    );
    assert_eq!(store.counters().get("employees_dropped"), Some(&2));
    // If the employee wasn't the cause, the call stays a dead letter.
    accept_call(&mut store, second);
    assert_eq!(
        fail_call(&mut store, second, 120),
        Done::Stepped(State::Dead)
    );
    let letter = tables::letters::letter(&store, second)
        .expect("readable")
        .expect("a letter");
    assert!(
        letter.message.contains("no employee was named"),
        "{}",
        letter.message
    );
    assert_books_balance(&store);
}

#[test]
fn dead_letter_with_unclear_lookup_ignores_later_lookup() {
    let mut store = store(true);
    let old = submit_call(&mut store, 1, 4_001);
    fail_call(&mut store, old, 110);
    report_outcome(
        &mut store,
        LeadOutcome::LookedUp(lead(4_001), Finding::Unclear),
        111,
    );
    let new = submit_call(&mut store, 2, 4_001);
    fail_call(&mut store, new, 2_000);
    report_outcome(
        &mut store,
        LeadOutcome::LookedUp(lead(4_001), Finding::LeadExists),
        2_001,
    );
    assert_eq!(row(&store, old).state, State::Dead);
    assert_eq!(row(&store, new).state, State::Ready);
}

fn is_lookup_paused(store: &Store) -> bool {
    let memory = tables::meta::memory(store).expect("readable");
    memory
        .current_pause(RequestKind::LookUps, time_at(200))
        .is_some()
}

#[test]
fn lookup_pauses_an_hour_if_forbidden_and_ends_after_4_tries() {
    let mut store = store(false);
    let letter = submit_call(&mut store, 1, 4_001);
    fail_call(&mut store, letter, 110);
    let look_up = LeadRequest::LookUp(lead(4_001));
    report_outcome(
        &mut store,
        LeadOutcome::Rest(RequestKind::LookUps, look_up.clone(), "403".into()),
        111,
    );
    let due = tables::lead_requests::lead_requests(&store, &ask(time_at(200))).expect("errands");
    assert_eq!((due.due, due.next), (vec![], Some(time_at(111 + 3_600))));
    assert!(is_lookup_paused(&store));
    let due = tables::lead_requests::lead_requests(&store, &ask(time_at(3_711))).expect("errands");
    assert_eq!(due_lookups(&due), [lead(4_001)], "an hour later");
    let mut seconds = 4_000;
    let mut tries = 0;
    while tables::lead_requests::lead_requests_waiting(&store, time_at(5_000)) == Ok((1, 0)) {
        report_outcome(&mut store, LeadOutcome::Sent(look_up.clone()), seconds);
        report_outcome(
            &mut store,
            LeadOutcome::Again(look_up.clone(), "500".into()),
            seconds,
        );
        (seconds, tries) = (seconds + 400, tries + 1);
        assert!(tries < 50, "no end");
    }
    assert_eq!(tries, 4);
    let letter = tables::letters::letter(&store, letter)
        .expect("readable")
        .expect("a letter");
    assert_eq!(letter.message, "FAILED", "nothing was found out");
}

#[test]
fn granted_right_ends_the_pause_of_forbidden_lookups() {
    let mut store = store(false);
    let letter = submit_call(&mut store, 1, 4_001);
    fail_call(&mut store, letter, 110);
    let lead_request = LeadRequest::LookUp(lead(4_001));
    let rest = LeadOutcome::Rest(RequestKind::LookUps, lead_request, "403".into());
    report_outcome(&mut store, rest, 111);
    assert!(is_lookup_paused(&store));
    report_outcome(&mut store, LeadOutcome::Granted, 200);
    assert!(!is_lookup_paused(&store));
    let due = tables::lead_requests::lead_requests(&store, &ask(time_at(201))).expect("errands");
    assert_eq!(due_lookups(&due), [lead(4_001)]);
}

/// Purges after this many days, and returns how many lookups are still waiting.
fn lookups_after_purge(store: &mut Store, days: i64) -> u64 {
    let now = time_at(110 + days * 86_400);
    store.write(vec![Op::Purge(now)]).expect("purged");
    tables::lead_requests::lead_requests_waiting(store, now)
        .expect("readable")
        .0
}

#[test]
fn lookup_is_kept_until_its_dead_letter_is_discarded() {
    let mut store = store(false);
    let letter = submit_call(&mut store, 1, 4_001);
    fail_call(&mut store, letter, 110);
    assert_eq!(lookups_after_purge(&mut store, 8), 1);
    let step = Step::Discard;
    let (row, at) = (letter, time_at(110 + 8 * 86_400));
    store
        .write(vec![Op::Step { row, step, at }])
        .expect("discarded");
    assert_eq!(
        lookups_after_purge(&mut store, 9),
        0,
        "nobody waits for it any more"
    );
}

#[test]
fn lookups_are_not_queued_without_a_sender() {
    let mut store = super::store(Settings::default());
    let row = submit_call(&mut store, 1, 4_001);
    fail_call(&mut store, row, 110);
    assert_eq!(
        tables::lead_requests::lead_requests_waiting(&store, time_at(0)),
        Ok((0, 0))
    );
    assert_eq!(
        tables::lead_requests::lead_requests(&store, &ask(time_at(110))),
        Ok(Default::default())
    );
}

#[test]
fn employee_of_a_manual_retry_can_be_dropped_again() {
    let mut store = store(true);
    let letter = submit_call(&mut store, 1, 4_001);
    fail_call(&mut store, letter, 110);
    report_outcome(
        &mut store,
        LeadOutcome::LookedUp(lead(4_001), Finding::LeadExists),
        111,
    );
    accept_call(&mut store, letter);
    fail_call(&mut store, letter, 120);
    let mut record = row(&store, letter).record;
    record.employee_id = EmployeeId::new(777);
    step(
        &mut store,
        letter,
        Step::Retry {
            by_itself: false,
            record,
        },
        130,
    );
    accept_call(&mut store, letter);
    assert_eq!(
        fail_call(&mut store, letter, 140),
        Done::Stepped(State::Ready),
        "another employee needs another lookup"
    );
}

fn merge_leads(store: &mut Store, into: i64, from: &[i64], seconds: i64) {
    let (at, what) = (EpochSeconds::new(T0 + seconds), ChangeKind::Merged);
    let news = LeadNews {
        merged: from.iter().copied().map(lead).collect(),
        ..LeadNews::new(lead(into), at, what, FirstPhone::Unchanged)
    };
    write_op(store, Op::Learn(Box::new(news)));
}

#[test]
fn failed_call_of_merged_lead_goes_to_surviving_lead_once() {
    let mut store = store(false);
    let row_id = submit_call(&mut store, 1, 4_001);
    merge_leads(&mut store, 4_002, &[4_001], 50);
    merge_leads(&mut store, 4_003, &[4_002], 60);
    assert_eq!(
        fail_call(&mut store, row_id, 110),
        Done::Stepped(State::Ready)
    );
    let sent = row(&store, row_id);
    assert_eq!(
        sent.record.lead_id,
        Some(lead(4_003)),
        "the end of the chain"
    );
    assert!(sent.live, "it happens now");
    let message = &sent.attempts.last().expect("one").message;
    assert_eq!(
        message,
        "FAILED; lead 4001 was merged into 4003: the call goes to that lead"
    );
    assert_eq!(
        tables::outbox::notices(&store, 10).expect("notices").len(),
        0
    );
    assert_eq!(
        tables::lead_requests::lead_requests_waiting(&store, time_at(0)),
        Ok((0, 0))
    );
    assert_eq!(store.counters().get("calls_to_survivor"), Some(&1));
    // The lead was merged back, but the call isn't sent around in circles.
    merge_leads(&mut store, 4_001, &[4_003], 70);
    accept_call(&mut store, row_id);
    assert_eq!(
        fail_call(&mut store, row_id, 120),
        Done::Stepped(State::Dead)
    );
    assert_books_balance(&store);
}

#[test]
fn merge_between_answer_and_commit_is_not_lost() {
    let mut store = store(false);
    let id = submit_call(&mut store, 1, 4_001);
    let answered = failure_op(id, time_at(110));
    merge_leads(&mut store, 4_002, &[4_001], 50);
    assert_eq!(row(&store, id).state, State::Submitted);
    let done = store.write(vec![answered]).expect("stored");
    assert_eq!(done, [Done::Stepped(State::Ready)]);
    assert_eq!(row(&store, id).record.lead_id, Some(lead(4_002)));
    assert_books_balance(&store);
}

#[test]
fn lead_merge_releases_dead_letter_once_and_keeps_others() {
    let mut store = store(false);
    let (first, other) = (
        submit_call(&mut store, 1, 4_001),
        submit_call(&mut store, 2, 4_009),
    );
    for row in [first, other] {
        fail_call(&mut store, row, 110);
    }
    merge_leads(&mut store, 4_002, &[4_001], 90);
    let sent = row(&store, first);
    assert_eq!(
        (sent.state, sent.record.lead_id),
        (State::Ready, Some(lead(4_002)))
    );
    assert!(!sent.live, "it waited for a person");
    assert_eq!(sent.since, time_at(110), "an event from before its letter");
    assert_eq!(row(&store, other).state, State::Dead);
    merge_leads(&mut store, 4_002, &[4_001], 90);
    assert_eq!(store.counters().get("calls_to_survivor"), Some(&1), "once");
    assert_books_balance(&store);
    // A call that becomes a dead letter for a second time stays one.
    accept_call(&mut store, first);
    assert_eq!(
        fail_call(&mut store, first, 200),
        Done::Stepped(State::Dead)
    );
    merge_leads(&mut store, 4_002, &[4_001], 300);
    assert_eq!(row(&store, first).state, State::Dead);
}

#[test]
fn missing_lead_is_removed_from_its_numbers() {
    let mut store = store(false);
    let phone = Phone::from_e164("+998901110001").expect("a number");
    let at = EpochSeconds::new(T0);
    let created = LeadNews::new(
        lead(4_001),
        at,
        ChangeKind::Created,
        FirstPhone::Is(phone.clone()),
    );
    write_op(&mut store, Op::Learn(Box::new(created)));
    let row = submit_call(&mut store, 1, 4_001);
    fail_call(&mut store, row, 110);
    let held = tables::directory::holders(&store, &phone).expect("readable");
    assert_eq!(held.leads(), [lead(4_001)]);
    report_outcome(
        &mut store,
        LeadOutcome::LookedUp(lead(4_001), Finding::LeadMissing),
        111,
    );
    let left = tables::directory::holders(&store, &phone).expect("readable");
    assert!(left.leads().is_empty(), "{left:?}");
}
