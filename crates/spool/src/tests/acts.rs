//! Runs every operation and every query in the spool, one after another, with a given number of
//! rows of each kind.

use super::acts_queue::{ask, asked_lead, head, suspended_head};
use super::call::{finished_call, journal, time_at};
use super::deliveries::{report_foreign_call, signature};
use super::record_files::{self, unreadable_op};
use crate::{
    Book, Delivery, Done, Finished, IfAbsent, LetterFilter, Op, RowId, Settings, Silence,
    SilenceReason, SlotRow, Step, Store, UNREADABLE_BYTES_ALL, WebhookEvent, tables,
};
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::{ChangeKind, FirstPhone, LeadNews};
use callbridge_leads::lead_field;
use callbridge_model::{LeadId, Outcome, Phone, Reason, TokenFingerprint};
use std::sync::Arc;
use std::time::Duration;

const MONTH: i64 = 30 * 24 * 3600;
const PAGE: usize = 5;

/// Rows by kind, in the order in which they were created.
pub struct Rows([Vec<RowId>; KINDS.len()]);

/// How a row of each kind is created, and the steps it then takes.
const KINDS: [(Outcome, Option<Reason>, &[&str]); 12] = [
    (Outcome::Journal, None, &[]),
    (Outcome::Journal, None, &["send", "return"]),
    (Outcome::Journal, None, &["send", "accept"]),
    (Outcome::Journal, None, &["send", "accept", "absent"]),
    (Outcome::Journal, None, &["send", "orphan"]),
    (Outcome::Journal, None, &["send", "accept", "confirm"]),
    (
        Outcome::DeadLetter,
        Some(Reason::AmbiguousLead),
        &["discard"],
    ),
    (Outcome::DeadLetter, Some(Reason::TalkExceedsDuration), &[]),
    (Outcome::DeadLetter, Some(Reason::Incomplete), &[]),
    (Outcome::DeadLetter, Some(Reason::NoLead), &[]),
    (Outcome::DeadLetter, Some(Reason::NoEmployee), &[]),
    (Outcome::DeadLetter, Some(Reason::InvalidEpoch), &[]),
];
const READY: usize = 0;
const HELD: usize = 1;
pub const SUBMITTED: usize = 2;
const DEAD: usize = 7;
const INCOMPLETE: usize = 8;
const WAITING: usize = 9;

pub fn token() -> TokenFingerprint {
    TokenFingerprint::of("token")
}

fn step_named(name: &str, n: u32) -> Step {
    let later = time_at(1_000 + i64::from(n));
    match name {
        "send" => Step::Send,
        "return" => Step::Returned {
            not_before: later,
            why: "503".into(),
            failures: 1,
        },
        "accept" => Step::Accepted {
            request_id: format!("r-{n}"),
            token: token(),
        },
        "absent" => Step::NotYet {
            next_check: later,
            absent: Some(2),
        },
        "orphan" => Step::Unresolved {
            next_check: later,
            if_absent: IfAbsent::Resubmit,
            why: "killed".into(),
        },
        "confirm" => Step::Journaled(crate::OutcomeSource::Confirmation),
        "discard" => Step::Discard,
        other => panic!("{other}"),
    }
}

/// Creates the nth call of a kind.
fn call(kind: usize, n: u32) -> Finished {
    let (outcome, reason, _) = KINDS[kind];
    let mut call = finished_call(
        u32::try_from(kind).expect("small") * 1_000_000 + n,
        outcome,
        reason,
    );
    call.judged.live = n.is_multiple_of(2);
    call
}

pub fn write(store: &mut Store, ops: Vec<Op>) -> Vec<Done> {
    store.write(ops).expect("stored")
}

/// Returns the operation that stores an open call, or deletes it if there's no snapshot.
fn open_op(snapshot: Option<Vec<u8>>) -> Op {
    Op::Open {
        pbx: "pbx1".into(),
        key: 7,
        snapshot,
    }
}

fn finish(store: &mut Store, call: Finished) {
    write(store, vec![Op::Finish(Box::new(call))]);
}

pub fn step(store: &mut Store, row: RowId, step: Step) {
    let at = time_at(2_000);
    write(store, vec![Op::Step { row, step, at }]);
}

/// Returns an operation that learns of a lead with a number of its own, as reported at this second.
fn learn_op(n: u32, at: i64) -> Op {
    let lead = LeadId::new(i64::from(n) + 1).expect("positive");
    let phone = FirstPhone::Is(number(n));
    let at = EpochSeconds::new(at);
    Op::Learn(Box::new(LeadNews::new(
        lead,
        at,
        ChangeKind::Created,
        phone,
    )))
}

fn number(n: u32) -> Phone {
    Phone::from_digits(998_930_000_000 + i64::from(n)).expect("a number")
}

/// Returns settings that let every operation have an effect.
pub fn settings() -> Settings {
    Settings {
        notices: true,
        waiting_notices: true,
        look_up: true,
        shows: Some(Arc::new(lead_field::Settings {
            fields: lead_field::parse(
                "last_call=11,last_missed=12,last_employee=13,missed_count=14",
            )
            .expect("fields"),
            zone: jiff::tz::TimeZone::UTC,
            wrapper: None,
        })),
        ..Settings::default()
    }
}

/// Fills a spool with `n` rows of each kind, plus as many unreadable dead letters and
/// notifications.
pub fn filled_store(n: u32) -> (Store, Rows) {
    let mut store = super::store(settings());
    store.remember_statements();
    let rows = fill(&mut store, n);
    (store, rows)
}

/// Fills a new spool.
pub fn fill(store: &mut Store, n: u32) -> Rows {
    let rows = std::array::from_fn(|kind| {
        let calls = (0..n).map(|n| Op::Finish(Box::new(call(kind, n))));
        let done = write(store, calls.collect());
        let ids: Vec<RowId> = done.iter().map(row_id_of).collect();
        for name in KINDS[kind].2 {
            let steps = ids.iter().zip(0..n).map(|(row, n)| Op::Step {
                row: *row,
                step: step_named(name, n),
                at: time_at(i64::from(n)),
            });
            write(store, steps.collect());
        }
        ids
    });
    write(store, (0..n).map(unreadable_op).collect());
    write(store, (0..n).map(|n| learn_op(n, 1)).collect());
    Rows(rows)
}

fn row_id_of(done: &Done) -> RowId {
    match done {
        Done::New(row) | Done::Conflict(row) | Done::Unreadable(Some(row)) => *row,
        other => panic!("{other:?}"),
    }
}

impl Rows {
    /// Returns the kth row from the middle of a kind.
    pub fn at(&self, kind: usize, k: usize) -> RowId {
        let rows = &self.0[kind];
        rows[(rows.len() / 2 + k) % rows.len()]
    }

    fn middle(&self) -> u32 {
        u32::try_from(self.0[0].len() / 2).expect("small")
    }
}

/// The name of an act, and the function that performs it.
pub type Act = (&'static str, fn(&mut Store, &Rows));

/// All acts. Their order matters, because some of them create a row that a later one needs.
pub const ACTS: &[Act] = &[
    ("a new call", |store, _| finish(store, journal(900_001))),
    ("the same call", |store, rows| {
        finish(store, call(READY, rows.middle()))
    }),
    ("another call with its uuid", |store, _| {
        let mut conflicting_uuid = journal(900_001);
        conflicting_uuid.call.started = time_at(90_000);
        conflicting_uuid.call.ended = time_at(90_005);
        for _ in 0..2 {
            finish(store, conflicting_uuid.clone());
        }
    }),
    ("an incomplete call told whole", |store, rows| {
        let n = u32::try_from(INCOMPLETE).expect("small") * 1_000_000 + rows.middle();
        finish(store, finished_call(n, Outcome::Journal, None));
    }),
    (
        "a call that an incomplete one was a part of",
        |store, rows| {
            let mut whole = journal(900_002);
            let part = call(INCOMPLETE, (rows.middle() + 1) % (2 * rows.middle().max(1)));
            whole.call.also_known_as.push(part.call.linkedid);
            finish(store, whole);
        },
    ),
    ("an internal call", |store, _| {
        finish(store, finished_call(900_003, Outcome::Internal, None))
    }),
    ("a new letter", |store, _| {
        let reason = Some(Reason::NoLead);
        finish(store, finished_call(900_004, Outcome::DeadLetter, reason));
    }),
    ("an open call", |store, _| {
        write(store, vec![open_op(Some(vec![1]))]);
        tables::resume::all_open_calls(store).expect("readable");
        write(store, vec![open_op(None)]);
    }),
    ("a position", |store, _| {
        let source = "file:///cel".to_owned();
        let position = serde_json::json!({"offset": 1});
        write(store, vec![Op::Position { source, position }]);
        tables::resume::position(store, "file:///cel").expect("readable");
    }),
    ("bytes nobody reads", |store, _| {
        let row = row_id_of(&write(store, vec![unreadable_op(1)])[0]);
        let kept = tables::letters::letter(store, row).expect("readable");
        let kept = kept.expect("a letter").bytes;
        assert_eq!(kept.expect("a message").length, 100);
        let refused = Op::Step {
            row,
            step: Step::Expire,
            at: time_at(1),
        };
        store
            .write(vec![refused])
            .expect_err("discard alone exists");
        step(store, row, Step::Discard);
    }),
    ("a file that is unreadable at first", |store, _| {
        record_files::make_readable(store);
    }),
    ("unreadable bytes that find no room", |store, _| {
        let op = unreadable_op(1);
        let row = row_id_of(&write(store, vec![op.clone()])[0]);
        let all = UNREADABLE_BYTES_ALL.cast_signed();
        store.tally.add(Book::UnreadableBytes, all);
        assert_eq!(write(store, vec![op]), [Done::Unreadable(None)]);
        store.tally.add(Book::UnreadableBytes, -all);
        step(store, row, Step::Discard);
    }),
    ("send", |store, rows| {
        step(store, rows.at(READY, 0), Step::Send)
    }),
    ("rows under way", |store, _| {
        drop(tables::calls::sending(store).expect("readable"))
    }),
    ("return", |store, rows| {
        step(store, rows.at(READY, 0), step_named("return", 7));
    }),
    ("send and return", |store, rows| {
        step(store, rows.at(READY, 0), Step::Send);
        step(store, rows.at(READY, 0), step_named("return", 7));
    }),
    ("send a held one", |store, rows| {
        step(store, rows.at(HELD, 0), Step::Send)
    }),
    ("accept", |store, rows| {
        step(store, rows.at(HELD, 0), step_named("accept", 7))
    }),
    ("poll", |store, rows| {
        let next_poll = time_at(9_000);
        let (next_check, absent) = (next_poll, None);
        step(
            store,
            rows.at(SUBMITTED, 0),
            Step::NotYet { next_check, absent },
        );
    }),
    ("miss", |store, rows| {
        step(store, rows.at(SUBMITTED, 0), step_named("absent", 7))
    }),
    ("confirm", |store, rows| {
        let journaled = Step::Journaled(crate::OutcomeSource::Confirmation);
        step(store, rows.at(SUBMITTED, 0), journaled)
    }),
    ("lose the way", |store, rows| {
        step(store, rows.at(SUBMITTED, 1), step_named("orphan", 7));
    }),
    ("send once more", |store, rows| {
        let why = "not in the journal".into();
        step(store, rows.at(SUBMITTED, 1), Step::Resubmit { why });
    }),
    ("die", |store, rows| {
        let died = Step::Died {
            reason: Reason::Failed,
            message: "no such lead".into(),
            errors: serde_json::json!([1]),
        };
        step(store, rows.at(SUBMITTED, 2), died);
    }),
    ("check again", |store, rows| {
        let mut record = call(DEAD, rows.middle()).judged.record;
        record.lead_id = LeadId::new(4_002);
        let before = "lead 4001".into();
        step(store, rows.at(DEAD, 0), Step::Recheck { record, before });
    }),
    ("retry", |store, rows| {
        let record = tables::calls::row(store, rows.at(DEAD, 1))
            .expect("readable")
            .expect("a row")
            .record;
        let by_itself = false;
        step(store, rows.at(DEAD, 1), Step::Retry { record, by_itself });
    }),
    ("release", |store, rows| {
        let record = tables::calls::row(store, rows.at(WAITING, 0))
            .expect("readable")
            .expect("a row")
            .record;
        let by_itself = true;
        step(
            store,
            rows.at(WAITING, 0),
            Step::Retry { record, by_itself },
        );
    }),
    ("judge otherwise", |store, rows| {
        for reason in [Reason::AmbiguousLead, Reason::NoLead] {
            let message = "the directory has two leads".into();
            step(
                store,
                rows.at(WAITING, 3),
                Step::Rejudged { reason, message },
            );
        }
    }),
    ("expire", |store, rows| {
        step(store, rows.at(WAITING, 1), Step::Expire)
    }),
    ("discard", |store, rows| {
        let discard = Step::Discard;
        step(store, rows.at(WAITING, 2), discard)
    }),
    ("a slot", |store, _| {
        let slot = SlotRow {
            slot: 1,
            token: token(),
            boot_id: "boot".into(),
            sent: Duration::ZERO,
            answered: None,
            wall_sent: time_at(1),
        };
        let silence = Op::Silence(Silence::to_begin(SilenceReason::Copied));
        write(store, vec![silence, Op::Slot(slot)]);
        tables::slots::slots(store).expect("readable");
        write(store, vec![Op::SlotGone(1)]);
    }),
    ("a setting", |store, _| {
        let (key, value) = ("k".to_owned(), "v".to_owned());
        write(
            store,
            vec![
                Op::Meta {
                    key: key.clone(),
                    value,
                },
                Op::MetaGone(key),
            ],
        );
    }),
    ("a binding", |store, _| {
        let address = "https://crm".to_owned();
        let company = Op::BindCompany {
            company: "c".into(),
            application: "a".into(),
        };
        let rebind = true;
        write(store, vec![Op::BindAddress { address, rebind }, company]);
    }),
    ("a count", |store, _| {
        let counter = "clamped".to_owned();
        write(store, vec![Op::Count { counter, by: 1 }]);
    }),
    ("the outbox", |store, _| {
        let notices = tables::outbox::notices(store, PAGE).expect("readable");
        let notice = notices[0].notice;
        write(store, vec![Op::NoticeSent(notice)]);
    }),
    ("deliveries", |store, rows| {
        let sent = time_at(3_000);
        step(store, rows.at(READY, 3), Step::Send);
        let learn = WebhookEvent::Learn(Box::new(LeadNews::new(
            LeadId::new(9_001).expect("an id"),
            sent.floor_seconds(),
            ChangeKind::Created,
            FirstPhone::None,
        )));
        write(
            store,
            vec![Op::Delivery(Box::new(Delivery {
                installation: "9".into(),
                event: "a lead".into(),
                signature: signature("a lead"),
                company: "c".into(),
                at: sent,
                news: learn,
            }))],
        );
        for (kind, k) in [(READY, 3), (SUBMITTED, 3), (DEAD, 3)] {
            let row = tables::calls::row(store, rows.at(kind, k))
                .expect("readable")
                .expect("a row");
            let event = format!("event {}", row.id);
            let delivery = Op::Delivery(Box::new(Delivery {
                installation: "9".into(),
                signature: signature(&event),
                event,
                company: "c".into(),
                at: sent,
                news: WebhookEvent::Completed {
                    uuid: row.uuid,
                    leads: Vec::new(),
                    shown: Box::default(),
                },
            }));
            write(store, vec![delivery.clone(), delivery]);
            write(store, vec![report_foreign_call("c", "ONLINE_PBX", 0)]);
        }
    }),
    ("purge what is due", |store, _| {
        write(store, vec![Op::Purge(time_at(MONTH + 2))]);
    }),
    ("the sender's head, all due", |store, _| {
        head(store, 100_000);
    }),
    ("the sender's head, none due", |store, _| {
        head(store, 500);
    }),
    (
        "the sender's head after the clock was set back",
        |store, _| {
            head(store, -100_000);
        },
    ),
    (
        "the sender's head while calls are suspended",
        suspended_head,
    ),
    ("what assigning a lead asks", asked_lead),
    ("what a sweep seeks", |store, _| {
        for token in [token(), TokenFingerprint::of("another")] {
            tables::work_queue::to_reconcile(store, &ask(1, Some(token))).expect("readable");
        }
    }),
    ("a call by its ids", |store, rows| {
        let call = call(READY, rows.middle());
        let uuid = call.judged.record.uuid.expect("one");
        tables::calls::row_of(store, uuid)
            .expect("readable")
            .expect("a row");
        tables::calls::find_call(store, call.call.linkedid.as_str()).expect("readable");
        tables::seen_calls::seen_call(store, "pbx1", call.call.linkedid.as_str())
            .expect("readable");
    }),
    ("a call by its uuid's beginning", |store, rows| {
        let uuid = call(READY, rows.middle()).judged.record.uuid.expect("one");
        tables::calls::search_call(store, &uuid.to_string()[..34]).expect("readable");
    }),
    ("no call at all", |store, _| {
        drop(tables::calls::search_call(store, "1.2").expect("readable"))
    }),
    ("the oldest calls", |store, _| {
        drop(tables::calls::oldest(store, PAGE).expect("readable"))
    }),
    ("a page of letters", |store, _| {
        letters(store, LetterFilter::default())
    }),
    ("a later page of letters", |store, rows| {
        let after = Some(rows.at(INCOMPLETE, 0));
        letters(
            store,
            LetterFilter {
                after,
                ..LetterFilter::default()
            },
        );
    }),
    ("letters of a reason", |store, rows| {
        let (reason, after) = (Some(Reason::NoEmployee), Some(rows.at(DEAD, 0)));
        letters(
            store,
            LetterFilter {
                reason,
                after,
                ..LetterFilter::default()
            },
        );
    }),
    ("letters by id", |store, rows| {
        let ids = Some(vec![rows.at(DEAD, 5), rows.at(WAITING, 5)]);
        letters(
            store,
            LetterFilter {
                ids,
                ..LetterFilter::default()
            },
        );
    }),
    ("letters by reason", |store, _| {
        drop(tables::letters::dead_by_reason(store).expect("readable"));
        drop(tables::letters::waiting_by_reason(store).expect("readable"));
    }),
    ("numbers without a lead", |store, _| {
        drop(tables::waiting::waiting_phones(store, None, PAGE).expect("readable"));
    }),
    ("waiting calls of a number", |store, _| {
        let phone = Phone::from_e164("+998909000050").expect("a number");
        tables::waiting::waiting_by_phone(store, &phone).expect("readable");
        tables::waiting::ambiguous_after(store, None, PAGE).expect("readable");
    }),
    ("waiting calls", |store, _| {
        let page = tables::waiting::waiting_after(store, None, PAGE).expect("readable");
        tables::waiting::waiting_after(store, page.last().copied(), PAGE).expect("readable");
    }),
    ("waiting calls that have waited", |store, _| {
        tables::waiting::waiting_before(store, time_at(1_000_000_000), PAGE).expect("readable");
    }),
    ("a lead with another number", |store, rows| {
        let mut news = LeadNews::new(
            LeadId::new(i64::from(rows.middle())).expect("positive"),
            EpochSeconds::new(2),
            ChangeKind::Created,
            FirstPhone::Is(number(999_999)),
        );
        write(store, vec![Op::Learn(Box::new(news.clone()))]);
        news.what = ChangeKind::Merged;
        news.merged = vec![LeadId::new(1).expect("positive")];
        write(store, vec![Op::Learn(Box::new(news))]);
        store.take_awaited();
    }),
    ("a number of the directory", |store, rows| {
        drop(tables::directory::holders(store, &number(rows.middle())).expect("readable"));
        let lead = LeadId::new(1).expect("positive");
        tables::directory::survivor(store, lead)
            .expect("readable")
            .expect("merged");
    }),
    ("a page of the directory", |store, _| {
        drop(tables::directory::directory(store, None, PAGE).expect("readable"));
        tables::directory::directory_size(store).expect("readable");
    }),
    ("the books", |store, _| {
        drop((
            store.books(),
            tables::meta::binding(store).expect("readable"),
        ))
    }),
];

fn letters(store: &Store, filter: LetterFilter) {
    let limit = PAGE;
    tables::letters::letters(store, &LetterFilter { limit, ..filter }).expect("readable");
}
