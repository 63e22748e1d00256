//! Tests of the spool's operations and queries that the sender uses.

use super::call::{ask, finished_call, journal, time_at};
use crate::{
    ATTEMPTS_MAX, Binding, Done, Error, FIRST_POLL, Finished, IfAbsent, Op, QueueQuery, RowId,
    Settings, State, Step, Store, UnreadableBytes, tables,
};
use callbridge_model::{ExitCode as _, Outcome, Reason, TokenFingerprint};
use callbridge_testkit::Wait as _;

fn store() -> Store {
    super::store(Settings::default())
}

fn backlog(n: u32) -> Finished {
    let mut call = journal(n);
    call.judged.live = false;
    call
}

fn store_with(calls: impl IntoIterator<Item = Finished>) -> Store {
    let mut store = store();
    let ops = calls.into_iter().map(|call| Op::Finish(Box::new(call)));
    store.write(ops.collect()).expect("stored");
    store
}

fn step(store: &mut Store, row: i64, step: Step, seconds: i64) {
    let op = Op::Step {
        row: RowId(row),
        step,
        at: time_at(seconds),
    };
    store.write(vec![op]).expect("a step that exists");
}

fn submit(store: &mut Store, row: i64, seconds: i64) {
    step(store, row, Step::Send, seconds);
    let accepted = Step::Accepted {
        request_id: format!("r-{row}"),
        token: TokenFingerprint::of("token"),
    };
    step(store, row, accepted, seconds);
}

#[test]
fn queue_head_has_the_newest_live_and_newest_backlog_call() {
    let mut store = store_with([backlog(1), backlog(2), journal(3), journal(4)]);
    let head = tables::work_queue::head(&store, &ask(time_at(10))).expect("a head");
    assert_eq!(head.backlog.map(|due| due.row), Some(RowId(2)));
    assert_eq!(head.live.map(|due| due.row), Some(RowId(4)));
    assert_eq!((head.ready, head.sending, head.submitted), (4, 0, 0));
    step(&mut store, 4, Step::Send, 10);
    step(&mut store, 2, Step::Send, 10);
    let head = tables::work_queue::head(&store, &ask(time_at(10))).expect("a head");
    assert_eq!(head.backlog.map(|due| due.row), Some(RowId(1)));
    assert_eq!(head.live.map(|due| due.row), Some(RowId(3)));
    let sending: Vec<_> = tables::calls::sending(&store)
        .expect("rows")
        .iter()
        .map(|row| row.id.0)
        .collect();
    assert_eq!(sending, [2, 4]);
}

#[test]
fn live_call_is_backlog_after_five_minutes() {
    let store = store_with([backlog(1), journal(2)]);
    let head = tables::work_queue::head(&store, &ask(time_at(0))).expect("a head");
    let last = head.live.expect("live").since.plus(crate::LIVE_FOR);
    let in_time = tables::work_queue::head(&store, &ask(last)).expect("a head");
    assert_eq!(in_time.live.map(|due| due.row), Some(RowId(2)));
    let later = last.plus(std::time::Duration::from_secs(1));
    let late = tables::work_queue::head(&store, &ask(later)).expect("a head");
    assert_eq!(late.live, None);
    assert_eq!(late.backlog.map(|due| due.row), Some(RowId(2)));
}

#[test]
fn returned_call_waits_and_yields_to_untried_calls() {
    let mut store = store_with([journal(1), journal(2)]);
    step(&mut store, 2, Step::Send, 10);
    let returned = Step::Returned {
        not_before: time_at(30),
        why: "503 Service Unavailable".into(),
        failures: 1,
    };
    step(&mut store, 2, returned, 11);
    let head = tables::work_queue::head(&store, &ask(time_at(29))).expect("a head");
    assert_eq!(head.live.map(|due| due.row), Some(RowId(1)));
    assert_eq!(head.next_not_before, Some(time_at(30)));
    let head = tables::work_queue::head(&store, &ask(time_at(30))).expect("a head");
    assert_eq!(
        head.live.map(|due| due.row),
        Some(RowId(2)),
        "the newer one"
    );
    assert_eq!(head.next_not_before, None);
    let untried = QueueQuery {
        untried_first: true,
        ..ask(time_at(30))
    };
    let head = tables::work_queue::head(&store, &untried).expect("a head");
    assert_eq!(
        head.live.map(|due| due.row),
        Some(RowId(1)),
        "the untried one"
    );
    let row = tables::calls::row(&store, RowId(2))
        .expect("readable")
        .expect("a row");
    assert_eq!(row.attempts.len(), 1);
    assert_eq!(row.attempts[0].message, "503 Service Unavailable");
    assert_eq!(row.not_before, time_at(30).micros());
}

#[test]
fn submitted_calls_are_due_for_polls_in_order() {
    let mut store = store_with((1..=12).map(journal));
    for row in 1..=12 {
        submit(&mut store, row, 100 + row);
    }
    let first = time_at(101).plus(FIRST_POLL);
    let head = tables::work_queue::head(&store, &ask(time_at(101))).expect("a head");
    assert_eq!((head.polls.len(), head.next_poll), (0, Some(first)));
    let head = tables::work_queue::head(&store, &ask(first)).expect("a head");
    assert_eq!(head.polls.len(), 1);
    assert_eq!(head.polls[0].request_id.as_deref(), Some("r-1"));
    assert_eq!(head.polls[0].submitted_at, time_at(101));
    step(
        &mut store,
        1,
        Step::NotYet {
            next_check: time_at(400),
            absent: None,
        },
        104,
    );
    let head = tables::work_queue::head(&store, &ask(time_at(300))).expect("a head");
    let rows: Vec<_> = head.polls.iter().map(|poll| poll.row.0).collect();
    assert_eq!(rows, [2, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(head.next_poll, Some(time_at(400)));
    assert_eq!(
        head.oldest_submitted.first().map(|oldest| oldest.row),
        Some(RowId(1))
    );
    let row = tables::calls::row(&store, RowId(1))
        .expect("readable")
        .expect("a row");
    assert_eq!((row.polls, row.next_poll), (1, Some(time_at(400))));
    step(
        &mut store,
        1,
        Step::Journaled(crate::OutcomeSource::Confirmation),
        401,
    );
    let head = tables::work_queue::head(&store, &ask(time_at(500))).expect("a head");
    assert_eq!(
        head.oldest_submitted.first().map(|oldest| oldest.row),
        Some(RowId(2))
    );
    assert_eq!(
        tables::work_queue::to_reconcile(&store, &ask(time_at(500)))
            .expect("rows")
            .len(),
        11
    );
}

#[test]
fn calls_near_their_end_are_due_in_order_of_acceptance() {
    let mut store = store_with((1..=4).map(journal));
    for row in [2, 1, 3, 4] {
        submit(&mut store, row, 100 + row);
    }
    let query = QueueQuery {
        ending_before: time_at(103),
        ..ask(time_at(200))
    };
    let not_yet = Step::NotYet {
        next_check: time_at(400),
        absent: None,
    };
    for wanted in [[1, 2, 3].as_slice(), &[2, 3]] {
        let head = tables::work_queue::head(&store, &query).expect("a head");
        let rows: Vec<_> = head.ending.iter().map(|call| call.row.0).collect();
        assert_eq!(rows, wanted);
        step(&mut store, wanted[0], not_yet.clone(), 200);
    }
}

#[test]
fn resubmission_clears_the_poll_and_is_counted() {
    let mut store = store_with([journal(1)]);
    submit(&mut store, 1, 100);
    step(&mut store, 1, Step::Resubmit { why: "404".into() }, 200);
    let row = tables::calls::row(&store, RowId(1))
        .expect("readable")
        .expect("a row");
    assert_eq!((row.resubmits, row.attempts.len()), (1, 1));
    assert_eq!((row.not_before, row.next_poll), (0, None));
    let uuid = journal(1).judged.record.uuid.expect("a uuid");
    assert_eq!(tables::calls::row_of(&store, uuid), Ok(Some(RowId(1))));
    submit(&mut store, 1, 300);
    let row = tables::calls::row(&store, RowId(1))
        .expect("readable")
        .expect("a row");
    assert_eq!((row.polls, row.submitted_at), (0, Some(time_at(300))));
}

#[test]
fn manual_retry_resets_the_resubmission_count() {
    let mut store = store_with([journal(1)]);
    for n in 1..=3 {
        submit(&mut store, 1, n * 100);
        let why = "404".to_owned();
        step(&mut store, 1, Step::Resubmit { why }, n * 100 + 50);
    }
    let died = Step::Died {
        reason: Reason::Unconfirmed,
        message: "sent 4 times".to_owned(),
        errors: serde_json::Value::Null,
    };
    let retry = Step::Retry {
        record: journal(1).judged.record,
        by_itself: false,
    };
    for (one, resubmits) in [(Step::Send, 3), (died, 3), (retry, 0)] {
        step(&mut store, 1, one, 400);
        let row = tables::calls::row(&store, RowId(1)).expect("readable");
        assert_eq!(row.expect("a row").resubmits, resubmits);
    }
}

#[test]
fn attempts_keep_the_first_and_the_newest_at_the_limit() {
    let mut store = store_with([journal(1)]);
    for n in 0..70 {
        step(&mut store, 1, Step::Send, n);
        let not_before = time_at(n);
        let why = n.to_string();
        step(
            &mut store,
            1,
            Step::Returned {
                not_before,
                why,
                failures: 0,
            },
            n,
        );
    }
    let row = tables::calls::row(&store, RowId(1))
        .expect("readable")
        .expect("a row");
    let messages: Vec<_> = row
        .attempts
        .iter()
        .map(|attempt| attempt.message.as_str())
        .collect();
    assert_eq!(messages.len(), ATTEMPTS_MAX);
    assert_eq!(
        (messages[0], messages[1], messages[ATTEMPTS_MAX - 1]),
        ("0", "21", "69")
    );
}

fn bind_address(address: &str, rebind: bool) -> Op {
    Op::BindAddress {
        address: address.into(),
        rebind,
    }
}

fn bind_company(company: &str) -> Op {
    Op::BindCompany {
        company: company.into(),
        application: "PBX".into(),
    }
}

#[test]
fn state_belongs_to_one_address_until_it_is_rebound() {
    let mut store = store();
    store
        .write(vec![bind_address("https://a.example/", false)])
        .expect("first use");
    store
        .write(vec![bind_address("https://a.example", false)])
        .expect("the same");
    let error = store
        .write(vec![bind_address("https://b.example", false)])
        .expect_err("another");
    assert_eq!(error.exit_code().number(), 78);
    assert!(error.to_string().contains("--rebind"), "{error}");
    let first = store.write(vec![bind_company("Alpha")]);
    assert_eq!(first, Ok(vec![Done::Stored]));
    let bound = Binding {
        address: Some("https://a.example".into()),
        company: Some("Alpha".into()),
        application: Some("PBX".into()),
    };
    assert_eq!(
        store.write(vec![bind_company("Beta")]),
        Ok(vec![Done::WrongCompany(bound.clone())])
    );
    assert_eq!(tables::meta::binding(&store), Ok(bound));
    store
        .write(vec![bind_address("https://b.example", true)])
        .expect("--rebind");
    let rebound = store.write(vec![bind_company("Beta")]);
    assert_eq!(rebound, Ok(vec![Done::Stored]));
}

/// Purges at this second, and returns how many calls and seen calls were forgotten.
fn purge(store: &mut Store, seconds: i64) -> (u64, u64) {
    let done = store
        .write(vec![Op::Purge(time_at(seconds))])
        .expect("purged");
    match done[..] {
        [Done::PurgeCounts(purged)] => (purged.calls, purged.seen_calls),
        _ => panic!("{done:?}"),
    }
}

#[test]
fn purged_calls_are_still_counted_in_the_books() {
    let mut store = store_with([
        journal(1),
        journal(2),
        finished_call(3, Outcome::Internal, None),
    ]);
    let reason = Some(Reason::Failed);
    let letter = finished_call(4, Outcome::DeadLetter, reason);
    store
        .write(vec![Op::Finish(Box::new(letter))])
        .expect("stored");
    submit(&mut store, 1, 10);
    step(
        &mut store,
        1,
        Step::Journaled(crate::OutcomeSource::Confirmation),
        20,
    );
    step(&mut store, 3, Step::Discard, 20);
    let before = store.books();
    let month = 30 * 24 * 3600;
    assert_eq!(purge(&mut store, month), (0, 0));
    assert_eq!(purge(&mut store, month + 21), (2, 8));
    assert_eq!(store.books(), before);
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
    assert_eq!(tables::calls::row(&store, RowId(1)), Ok(None));
    assert_eq!(
        tables::seen_calls::seen_call(&store, "pbx1", journal(1).call.linkedid.as_str()),
        Ok(None)
    );
    let done = store.write(vec![Op::Finish(Box::new(journal(2)))]);
    assert_eq!(
        done,
        Ok(vec![Done::Repeat(Some(RowId(2)))]),
        "its row is still there"
    );
}

#[test]
fn row_id_is_never_reused() {
    let place = super::place();
    let (handle, guard) = place.open(Settings::default());
    let bytes = Op::Unreadable(UnreadableBytes {
        source: "s".into(),
        pbx: "p".into(),
        bytes: vec![1],
        cut_from: None,
        file: None,
        why: "why".into(),
        at: time_at(0),
        content_type: None,
    });
    let done = handle.write(vec![bytes.clone()]).wait();
    assert_eq!(done, Ok(vec![Done::Unreadable(Some(RowId(1)))]));
    let discard = Op::Step {
        row: RowId(1),
        step: Step::Discard,
        at: time_at(1),
    };
    handle.write(vec![discard]).wait().expect("forgotten");
    guard.close();
    let (handle, _guard) = place.open(Settings::default());
    let done = handle.write(vec![bytes]).wait();
    assert_eq!(done, Ok(vec![Done::Unreadable(Some(RowId(2)))]));
    let error = handle
        .write(vec![Op::Step {
            row: RowId(1),
            step: Step::Discard,
            at: time_at(1),
        }])
        .wait();
    assert_eq!(error, Err(Error::NoRow(RowId(1))));
}

fn count_to_reconcile(store: &Store, token: &str) -> usize {
    let query = QueueQuery {
        tokens: vec![TokenFingerprint::of(token)],
        ..ask(time_at(500))
    };
    tables::work_queue::to_reconcile(store, &query)
        .expect("rows")
        .len()
}

#[test]
fn orphaned_call_is_reconciled_despite_earlier_misses() {
    let mut store = store_with([journal(1), journal(2)]);
    submit(&mut store, 1, 100);
    submit(&mut store, 2, 100);
    let missed = Step::NotYet {
        next_check: time_at(110),
        absent: Some(2),
    };
    step(&mut store, 1, missed.clone(), 110);
    step(&mut store, 2, missed, 110);
    assert_eq!(count_to_reconcile(&store, "token"), 0);
    assert_eq!(count_to_reconcile(&store, "another"), 2);
}

#[test]
fn interrupted_call_is_resent_without_counting() {
    for (if_absent, counted) in [(IfAbsent::Interrupted, 0), (IfAbsent::Resubmit, 1)] {
        let mut store = store_with([journal(1)]);
        step(&mut store, 1, Step::Send, 10);
        let why = "ended".to_owned();
        let next_check = time_at(20);
        let unresolved = Step::Unresolved {
            next_check,
            if_absent,
            why,
        };
        step(&mut store, 1, unresolved, 11);
        step(
            &mut store,
            1,
            Step::Resubmit {
                why: "again".into(),
            },
            20,
        );
        let row = tables::calls::row(&store, RowId(1)).expect("readable");
        assert_eq!(row.expect("a row").resubmits, counted, "{if_absent:?}");
    }
}

fn retried_row(store: &Store) -> Option<RowId> {
    let head = tables::work_queue::head(store, &ask(time_at(10))).expect("a head");
    head.retried.map(|due| due.row)
}

#[test]
fn manually_retried_call_is_returned_until_accepted() {
    let mut store = store_with([journal(1), journal(2)]);
    let record = journal(1).judged.record;
    let refused = Step::Died {
        reason: Reason::Rejected,
        message: "422".to_owned(),
        errors: serde_json::Value::Null,
    };
    let by_person = Step::Retry {
        record,
        by_itself: false,
    };
    step(&mut store, 1, refused.clone(), 1);
    assert_eq!(retried_row(&store), None);
    step(&mut store, 1, by_person.clone(), 2);
    assert_eq!(retried_row(&store), Some(RowId(1)));
    step(&mut store, 1, refused.clone(), 3);
    let why = "the others were refused too".to_owned();
    step(&mut store, 1, Step::Reopened { why }, 4);
    assert_eq!(retried_row(&store), None, "no person reopened it");
    step(&mut store, 1, refused, 5);
    step(&mut store, 1, by_person, 6);
    submit(&mut store, 1, 7);
    let why = "it is not in the journal".to_owned();
    step(&mut store, 1, Step::Resubmit { why }, 8);
    assert_eq!(retried_row(&store), None, "it was accepted");
}

#[test]
fn reopened_rejected_call_is_ready_again() {
    let mut store = store_with([journal(1)]);
    step(&mut store, 1, Step::Send, 10);
    let died = Step::Died {
        reason: Reason::Rejected,
        message: "422".into(),
        errors: serde_json::Value::Null,
    };
    step(&mut store, 1, died, 11);
    let reopened = Step::Reopened {
        why: "again".into(),
    };
    step(&mut store, 1, reopened.clone(), 20);
    let row = tables::calls::row(&store, RowId(1))
        .expect("readable")
        .expect("a row");
    assert_eq!(
        (row.state, row.reason, row.live),
        (State::Ready, None, false)
    );
    assert_eq!(
        row.attempts.last().map(|attempt| attempt.message.as_str()),
        Some("again")
    );
    assert_eq!((store.books().ready, store.books().dead), (1, 0));
    step(&mut store, 1, reopened, 21);
    let again = tables::calls::row(&store, RowId(1))
        .expect("readable")
        .expect("a row");
    assert_eq!(again, row, "it is no longer dead");
}
