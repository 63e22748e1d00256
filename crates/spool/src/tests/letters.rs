//! Tests of a dead letter's fields, and of what users can do with it.

use super::call::{finished_call, journal, time_at};
use crate::{
    Book, Done, Error, Finished, LISTED_BYTES_MAX, LetterFilter, Op, RowId, Settings, State, Step,
    Store, UNREADABLE_BYTES_ALL, UNREADABLE_BYTES_MAX, UNREADABLE_LETTERS_MAX, UnreadableBytes,
    fix, tables,
};
use callbridge_model::{
    CallRecord, ExitCode as _, LeadId, Outcome, Phone, Reason, TokenFingerprint,
};

pub(super) fn store() -> Store {
    let settings = Settings {
        notices: true,
        waiting_notices: true,
        ..Settings::default()
    };
    super::store(settings)
}

fn finish(store: &mut Store, call: Finished) -> RowId {
    let done = store.write(vec![Op::Finish(Box::new(call))]);
    match done.expect("stored").remove(0) {
        Done::New(id) | Done::Conflict(id) => id,
        other => panic!("{other:?}"),
    }
}

fn dead_letter(n: u32, reason: Reason) -> Finished {
    finished_call(n, Outcome::DeadLetter, Some(reason))
}

fn step(store: &mut Store, row: RowId, step: Step) -> Result<Vec<Done>, Error> {
    let at = time_at(500);
    store.write(vec![Op::Step { row, step, at }])
}

fn unreadable(bytes: Vec<u8>) -> Op {
    Op::Unreadable(UnreadableBytes {
        source: "amqp://pbx/".into(),
        pbx: "pbx1".into(),
        bytes,
        cut_from: None,
        file: None,
        why: "no JSON".into(),
        at: time_at(9),
        content_type: None,
    })
}

fn record_of(store: &Store, row: RowId) -> CallRecord {
    let found = tables::calls::row(store, row).expect("readable");
    found.expect("a row").record
}

#[test]
fn empty_message_is_stored_as_a_dead_letter() {
    let mut store = store();
    store.write(vec![unreadable(Vec::new())]).expect("stored");
    let filter = LetterFilter::default();
    let listed = tables::letters::letters(&store, &filter).expect("readable");
    let shown = tables::letters::letter(&store, listed[0].id).expect("readable");
    for letter in [Some(listed[0].clone()), shown] {
        let bytes = letter.and_then(|found| found.bytes).expect("a message");
        assert_eq!((bytes.bytes, bytes.length), (Vec::new(), 0));
    }
}

/// Stores a dead letter that the CRM refused, along with a user's action.
fn rejected_letter() -> crate::Letter {
    let mut store = store();
    let id = finish(&mut store, journal(1));
    step(&mut store, id, Step::Send).expect("ready");
    let died = Step::Died {
        reason: Reason::Rejected,
        message: "Validation failed".into(),
        errors: serde_json::json!([{"field": "leadId", "message": "unknown"}]),
    };
    step(&mut store, id, died).expect("sending");
    let action = crate::Action {
        at: time_at(300),
        who: "ana".to_owned(),
        action: "retry with lead 4001".to_owned(),
    };
    store
        .write(vec![Op::Action { row: id, action }])
        .expect("stored");
    let letter = tables::letters::letter(&store, id);
    letter.expect("readable").expect("a letter")
}

#[test]
fn dead_letter_json_has_the_documented_shape() {
    let mut line = rejected_letter().to_json();
    let fix = fix(Reason::Rejected).replace(" ID", " 1");
    let fix = format!("{fix} It was sent with lead 4001.");
    assert_eq!(line["fix"].take(), fix);
    let text = serde_json::to_string_pretty(&line).expect("JSON");
    insta::assert_snapshot!(text, @r#"
    {
      "actions": [
        {
          "action": "retry with lead 4001",
          "at": 1795151617,
          "who": "ana"
        }
      ],
      "attempts": [
        {
          "at": 1795151817,
          "message": "Validation failed"
        }
      ],
      "call": {
        "answered": true,
        "clientPhone": "+998900000001",
        "direction": "INBOUND",
        "durationSec": 5,
        "employee": "101",
        "employeeId": null,
        "employeesInOrder": [
          "101"
        ],
        "estimate": false,
        "incomplete": false,
        "leadId": 4001,
        "linkedid": "1795151317.2",
        "outcome": "dead_letter",
        "pbx": "pbx1",
        "reason": "rejected",
        "startedAt": 1795151318,
        "talkTimeSec": 4,
        "trunk": "city",
        "uuid": "00000000-0000-0000-0000-000000000002"
      },
      "errors": [
        {
          "field": "leadId",
          "message": "unknown"
        }
      ],
      "fix": null,
      "id": 1,
      "linkedid": "1795151317.2",
      "message": "Validation failed",
      "reason": "rejected",
      "since": 1795151817,
      "state": "dead",
      "uuid": "00000000-0000-0000-0000-000000000002"
    }
    "#);
}

#[test]
fn retried_dead_letter_sends_corrections_under_same_uuid() {
    let mut store = store();
    let id = finish(&mut store, dead_letter(1, Reason::NoLead));
    let mut record = record_of(&store, id);
    record.lead_id = LeadId::new(4002);
    let retry = Step::Retry {
        by_itself: false,
        record: record.clone(),
    };
    let done = step(&mut store, id, retry).expect("waiting");
    assert_eq!(done, [Done::Stepped(State::Ready)]);
    let row = tables::calls::row(&store, id)
        .expect("readable")
        .expect("a row");
    assert_eq!(row.record, record);
    assert_eq!(
        (row.reason, row.message.as_str(), row.live),
        (None, "", false)
    );
    assert_eq!(
        tables::letters::letters(&store, &LetterFilter::default()).expect("letters"),
        []
    );
    let other = Step::Retry {
        by_itself: false,
        record: journal(2).judged.record,
    };
    let id = finish(&mut store, dead_letter(3, Reason::Failed));
    let error = step(&mut store, id, other).expect_err("another call's uuid");
    assert!(matches!(error, Error::UuidTaken { .. }), "{error:?}");
}

#[test]
fn uuid_conflict_retry_under_same_uuid_is_refused() {
    let mut store = store();
    finish(&mut store, journal(1));
    let mut other = journal(1);
    other.call.started = time_at(3600);
    let letter = finish(&mut store, other.clone());
    let retry = Step::Retry {
        by_itself: false,
        record: other.judged.record,
    };
    let error = step(&mut store, letter, retry).expect_err("it would be taken for the other");
    assert_eq!(error.exit_code().number(), 65);
    assert!(error.to_string().contains("pbx="), "{error}");
    step(&mut store, letter, Step::Discard).expect("it can be discarded");
}

fn listed_ids(store: &Store, filter: &LetterFilter) -> Vec<i64> {
    let letters = tables::letters::letters(store, filter).expect("letters");
    letters.iter().map(|letter| letter.id.0).collect()
}

fn with_reason(reason: Reason) -> LetterFilter {
    LetterFilter {
        reason: Some(reason),
        ..LetterFilter::default()
    }
}

fn in_state(state: State) -> LetterFilter {
    LetterFilter {
        state: Some(state),
        ..LetterFilter::default()
    }
}

#[test]
fn dead_letter_filter_selects_by_id_reason_state_and_page() {
    let mut store = store();
    for n in 0..6 {
        let reason = if n % 2 == 0 {
            Reason::NoLead
        } else {
            Reason::Failed
        };
        finish(&mut store, dead_letter(n, reason));
    }
    store
        .write(vec![unreadable(b"?".to_vec())])
        .expect("stored");
    let all = LetterFilter::default();
    assert_eq!(listed_ids(&store, &all), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(listed_ids(&store, &with_reason(Reason::Failed)), [2, 4, 6]);
    assert_eq!(listed_ids(&store, &with_reason(Reason::Unreadable)), [7]);
    let page = LetterFilter {
        after: Some(RowId(5)),
        limit: 2,
        ..all.clone()
    };
    assert_eq!(listed_ids(&store, &page), [6, 7]);
    let newest = LetterFilter {
        before: Some(RowId(i64::MAX)),
        limit: 3,
        ..all.clone()
    };
    assert_eq!(listed_ids(&store, &newest), [7, 6, 5]);
    let before = Some(RowId(5));
    let older = LetterFilter { before, ..newest };
    assert_eq!(listed_ids(&store, &older), [4, 3, 2]);
    let chosen = LetterFilter {
        ids: Some(vec![RowId(7), RowId(2), RowId(99)]),
        ..all
    };
    assert_eq!(listed_ids(&store, &chosen), [2, 7]);
    assert_eq!(listed_ids(&store, &in_state(State::Dead)), [2, 4, 6, 7]);
    assert_eq!(listed_ids(&store, &in_state(State::Waiting)), [1, 3, 5]);
    let dead = tables::letters::dead_by_reason(&store).expect("counts");
    let counts: Vec<_> = dead.into_iter().collect();
    assert_eq!(counts, [(Reason::Failed, 3), (Reason::Unreadable, 1)]);
    let waiting = tables::letters::waiting_by_reason(&store).expect("counts");
    assert_eq!(Vec::from_iter(waiting), [(Reason::NoLead, 3)]);
}

#[test]
fn unreadable_messages_are_limited_but_all_are_counted() {
    let mut store = store();
    let big = vec![0xff; UNREADABLE_BYTES_MAX + 10];
    let done = store.write(vec![unreadable(big)]).expect("stored");
    assert_eq!(done, [Done::Unreadable(Some(RowId(1)))]);
    let letter = tables::letters::letter(&store, RowId(1))
        .expect("readable")
        .expect("a letter");
    let kept = letter.bytes.expect("bytes");
    assert_eq!(kept.bytes.len(), UNREADABLE_BYTES_MAX);
    assert_eq!(kept.length, UNREADABLE_BYTES_MAX as u64 + 10);
    let listed = tables::letters::letters(&store, &LetterFilter::default())
        .expect("letters")
        .remove(0);
    assert_eq!(listed.bytes.expect("bytes").bytes.len(), LISTED_BYTES_MAX);
    let rest = (1..UNREADABLE_LETTERS_MAX).map(|_| unreadable(vec![b'?']));
    store.write(rest.collect()).expect("stored");
    let done = store.write(vec![unreadable(vec![b'?'])]).expect("counted");
    assert_eq!(done, [Done::Unreadable(None)]);
    assert_eq!(store.books().unreadable, UNREADABLE_LETTERS_MAX + 1);
    step(&mut store, RowId(1), Step::Discard).expect("forgotten");
    let done = store
        .write(vec![unreadable(vec![b'?'])])
        .expect("room again");
    assert!(matches!(done[..], [Done::Unreadable(Some(_))]));
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
}

#[test]
fn unreadable_message_keeps_its_content_type_and_bytes() {
    let mut store = store();
    let bytes = vec![b'?'; LISTED_BYTES_MAX + 1];
    let mut op = unreadable(bytes.clone());
    if let Op::Unreadable(unread) = &mut op {
        unread.content_type = Some("application/json".to_owned());
    }
    store.write(vec![op]).expect("stored");
    let letter = tables::letters::letter(&store, RowId(1)).expect("readable");
    let message = letter.expect("a letter").bytes.expect("bytes");
    assert_eq!(message.content_type.as_deref(), Some("application/json"));
    assert_eq!(message.bytes, bytes, "all that are kept");
}

/// Writes `number` unreadable messages with these bytes, and returns how many are kept.
fn count_kept(store: &mut Store, number: u64, bytes: &[u8]) -> u64 {
    let ops = (0..number).map(|_| unreadable(bytes.to_vec())).collect();
    let done = store.write(ops).expect("stored").into_iter();
    let kept = done.filter(|answer| matches!(answer, Done::Unreadable(Some(_))));
    kept.count() as u64
}

#[test]
fn unreadable_messages_over_the_count_limit_are_not_kept() {
    let mut store = store();
    let most = UNREADABLE_LETTERS_MAX;
    assert_eq!(count_kept(&mut store, most + 300, b"?"), most);
    assert_eq!(store.counters()["unreadable_not_kept"], 300);
    assert_eq!(store.books().unreadable, most + 300);
    step(&mut store, RowId(1), Step::Discard).expect("forgotten");
    assert_eq!(count_kept(&mut store, 2, b"?"), 1);
}

#[test]
fn unreadable_messages_over_the_byte_limit_are_not_kept() {
    let mut store = store();
    let long = vec![0xff; UNREADABLE_BYTES_MAX];
    assert_eq!(count_kept(&mut store, 1, &long), 1);
    // Pretend there were earlier messages, since their total size decides which ones are kept.
    let before = UNREADABLE_BYTES_ALL - (3 << 20);
    store.tally.add(Book::UnreadableBytes, before.cast_signed());
    assert_eq!(count_kept(&mut store, 3, &long), 2);
}

#[test]
fn unreadable_message_can_be_retried_but_not_sent() {
    let mut store = store();
    store
        .write(vec![unreadable(b"?".to_vec())])
        .expect("stored");
    let error = step(&mut store, RowId(1), Step::Send).expect_err("no call");
    assert!(matches!(error, Error::Refused { .. }));
    let error = step(&mut store, RowId(2), Step::Discard).expect_err("nobody");
    assert_eq!(error, Error::NoRow(RowId(2)));
    let record = dead_letter(1, Reason::Failed).judged.record;
    step(
        &mut store,
        RowId(1),
        Step::Retry {
            by_itself: false,
            record,
        },
    )
    .expect("read again");
    let left = tables::letters::letter(&store, RowId(1)).expect("readable");
    assert!(left.is_none());
}

#[test]
fn repeated_dead_letter_queues_one_notice_each_time() {
    let mut store = store();
    let id = finish(&mut store, dead_letter(1, Reason::Failed));
    let record = record_of(&store, id);
    step(
        &mut store,
        id,
        Step::Retry {
            by_itself: false,
            record,
        },
    )
    .expect("dead");
    let died = Step::Died {
        reason: Reason::Conflict,
        message: "again".into(),
        errors: serde_json::Value::Null,
    };
    step(&mut store, id, died).expect("ready");
    let notices = tables::outbox::notices(&store, 10).expect("notices");
    let ids: Vec<_> = notices
        .iter()
        .map(|notice| notice.message_id.as_str())
        .collect();
    assert_eq!(ids, ["1:1", "1:1:retried", "1:2"]);
    assert_eq!(notices[2].reason, Some(Reason::Conflict));
    assert_eq!(notices[2].trunk.as_deref(), Some("city"));
    let body: serde_json::Value = serde_json::from_str(&notices[0].body).expect("JSON");
    assert_eq!(body["reason"], "failed", "the reason at that time");
    let sent = Op::NoticeSent(notices[0].notice);
    store.write(vec![sent]).expect("stored");
    assert_eq!(
        tables::outbox::notices(&store, 10).expect("notices"),
        notices[1..]
    );
}

/// Returns `MESSAGE-ID STATE at SECOND` for each notification, after checking that its body agrees.
fn notice_lines(store: &Store) -> Vec<String> {
    let mut lines = Vec::new();
    for notice in tables::outbox::notices(store, 100).expect("notices") {
        let body: serde_json::Value = serde_json::from_str(&notice.body).expect("JSON");
        assert_eq!(body["state"], notice.state.as_str(), "{body}");
        let id = body["id"].as_i64().expect("an id");
        assert!(notice.message_id.starts_with(&format!("{id}:")), "{body}");
        let seconds = notice.at.map(|at| at.floor_seconds().get());
        assert_eq!(body["since"].as_i64(), seconds);
        lines.push(format!("{} {}", notice.message_id, notice.state));
    }
    lines
}

#[test]
fn waiting_call_notices_are_queued_only_if_enabled() {
    let mut store = store();
    store.settings.waiting_notices = false;
    let released = finish(&mut store, dead_letter(1, Reason::NoLead));
    let expired = finish(&mut store, dead_letter(2, Reason::NoEmployee));
    finish(&mut store, dead_letter(3, Reason::Failed));
    assert_eq!(notice_lines(&store), ["3:1 dead"]);
    let release = Step::Retry {
        by_itself: true,
        record: record_of(&store, released),
    };
    let journaled = Step::Journaled(crate::OutcomeSource::Webhook);
    for (id, one) in [(released, release), (released, journaled.clone())] {
        step(&mut store, id, one).expect("a step that exists");
    }
    assert_eq!(
        notice_lines(&store),
        ["3:1 dead"],
        "nothing of a call that was never published"
    );
    step(&mut store, expired, Step::Expire).expect("30 days are over");
    step(&mut store, expired, Step::Discard).expect("by a person");
    assert_eq!(
        notice_lines(&store),
        ["3:1 dead", "2:2 dead", "2:2:discarded discarded"]
    );
}

#[test]
fn closed_dead_letter_queues_a_notice_with_its_outcome() {
    let mut store = store();
    let retried = finish(&mut store, dead_letter(1, Reason::Failed));
    let released = finish(&mut store, dead_letter(2, Reason::NoLead));
    let hooked = finish(&mut store, dead_letter(3, Reason::Unconfirmed));
    let discarded = finish(&mut store, dead_letter(4, Reason::Rejected));
    let expired = finish(&mut store, dead_letter(5, Reason::NoEmployee));
    let bytes = store.write(vec![unreadable(b"?".to_vec())]);
    bytes.expect("stored");
    let came = [
        "1:1 dead",
        "2:1 waiting",
        "3:1 dead",
        "4:1 dead",
        "5:1 waiting",
        "6:1 dead",
    ];
    assert_eq!(notice_lines(&store), came);
    let steps = [
        (
            retried,
            Step::Retry {
                by_itself: false,
                record: record_of(&store, retried),
            },
        ),
        (
            released,
            Step::Retry {
                by_itself: true,
                record: record_of(&store, released),
            },
        ),
        (hooked, Step::Journaled(crate::OutcomeSource::Webhook)),
        (discarded, Step::Discard),
        (RowId(6), Step::Discard),
        (expired, Step::Expire),
        (retried, Step::Journaled(crate::OutcomeSource::Webhook)),
    ];
    for (id, one) in steps {
        step(&mut store, id, one).expect("a letter, or ready");
    }
    let left = [
        "1:1:retried retried",
        "2:1:released released",
        "3:1:journaled journaled",
        "4:1:discarded discarded",
        "6:1:discarded discarded",
        "5:2 dead",
        "1:1:journaled journaled",
    ];
    assert_eq!(notice_lines(&store)[came.len()..], left);
    let notices = tables::outbox::notices(&store, 100).expect("notices");
    assert_eq!(notices[6].reason, Some(Reason::Failed), "as the letter was");
    assert_eq!(notices[12].reason, None, "it was no letter any more");
    // A call that was never a dead letter doesn't get a notification.
    let other = finish(&mut store, journal(7));
    step(
        &mut store,
        other,
        Step::Journaled(crate::OutcomeSource::Webhook),
    )
    .expect("ready");
    assert_eq!(notice_lines(&store).len(), came.len() + left.len());
}

fn count_notices(store: &Store) -> usize {
    tables::outbox::notices(store, 9).expect("readable").len()
}

#[test]
fn unconfirmed_call_sent_once_is_listed_without_notice() {
    let mut store = store();
    let accepted = Step::Accepted {
        request_id: "r".to_owned(),
        token: TokenFingerprint::of("token"),
    };
    let again = Step::Resubmit {
        why: "lost".to_owned(),
    };
    let died = Step::Died {
        reason: Reason::Unconfirmed,
        message: "nothing could show".to_owned(),
        errors: serde_json::Value::Null,
    };
    let once = vec![Step::Send, accepted.clone(), died.clone()];
    let twice = vec![
        Step::Send,
        accepted.clone(),
        again,
        Step::Send,
        accepted,
        died,
    ];
    for (n, way, expected) in [(1, once, 0), (2, twice, 1)] {
        let id = finish(&mut store, journal(n));
        for one in way {
            step(&mut store, id, one).expect("a step");
        }
        assert_eq!(count_notices(&store), expected, "call {n}");
    }
    let letters = tables::letters::letters(&store, &LetterFilter::default());
    assert_eq!(letters.expect("readable").len(), 2, "both are listed");
    step(&mut store, RowId(1), Step::Discard).expect("a letter");
    assert_eq!(count_notices(&store), 1, "discarding sends no notice");
}

#[test]
fn notices_are_not_stored_without_a_queue() {
    let mut store = super::store(Settings::default());
    finish(&mut store, dead_letter(1, Reason::Failed));
    assert_eq!(tables::outbox::notices(&store, 10).expect("notices"), []);
}

/// Promise: A call waits for a lead for at most 30 days, then it is a dead letter.
#[test]
fn waiting_calls_are_found_by_number_and_expire() {
    let mut store = store();
    for n in [1, 2, 3] {
        let mut call = dead_letter(n, Reason::NoLead);
        if n == 3 {
            call.judged.record.client_phone = Phone::from_e164("+998900000001");
        }
        finish(&mut store, call);
    }
    let phones = tables::waiting::waiting_phones(&store, None, 10).expect("phones");
    let seen: Vec<_> = phones
        .iter()
        .map(|phone| (phone.phone.as_str(), phone.calls))
        .collect();
    assert_eq!(seen, [("+998900000001", 2), ("+998900000002", 1)]);
    assert_eq!(phones[0].last, journal(3).judged.record.started_at);
    let rest = tables::waiting::waiting_phones(&store, Some(&phones[0].phone), 10).expect("phones");
    assert_eq!(rest, phones[1..]);
    let rows = tables::waiting::waiting_by_phone(&store, &phones[0].phone).expect("rows");
    assert_eq!(rows, [RowId(1), RowId(3)]);
    let old = tables::waiting::waiting_before(&store, time_at(8), 10).expect("rows");
    assert_eq!(old, [RowId(1)]);
    step(&mut store, RowId(1), Step::Expire).expect("waiting");
    assert_eq!(
        tables::waiting::waiting_by_phone(&store, &phones[0].phone).expect("rows"),
        [RowId(3)]
    );
    let letter = tables::letters::letter(&store, RowId(1))
        .expect("readable")
        .expect("still a letter");
    assert!(!letter.waiting);
    assert_eq!(letter.reason, Reason::NoLead);
}
