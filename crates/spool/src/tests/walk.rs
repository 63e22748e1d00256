//! Tests ten thousand random steps. After each of them, every column of every row in SQL is
//! compared with the pure transitions and with a simple model of a row.

use super::call::{T0, finished_call, time_at};
use super::stored::{Stored, columns};
use crate::{
    ATTEMPTS_MAX, Attempt, Done, FIRST_POLL, IfAbsent, Op, OutcomeSource, RowId, Settings, State,
    Step, Store, next, tables,
};
use callbridge_call::EventTime;
use callbridge_leads::lead_request::failed::RerouteHistory;
use callbridge_model::status::Books;
use callbridge_model::{Outcome, Reason, TokenFingerprint};
use std::collections::BTreeMap;
use std::time::Duration;

const STEPS: u32 = 10_000;
/// Maximum number of rows that haven't reached a final state. No calls are added beyond this.
const ROWS_MAX: usize = 24;
const RETENTION: Duration = Duration::from_secs(3_600);

/// Numbers that look random but are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn throw(&mut self, sides: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 >> 33).expect("31 bits") % sides
    }
}

/// The simplest possible model of the spool.
#[derive(Clone, Default)]
struct Model {
    rows: BTreeMap<RowId, (u32, Stored)>,
    books: Books,
}

impl Model {
    fn book_of(&mut self, state: State) -> &mut u64 {
        let books = &mut self.books;
        match state {
            State::Ready => &mut books.ready,
            State::Sending => &mut books.sending,
            State::Submitted => &mut books.submitted,
            State::Journaled => &mut books.journaled,
            State::Dead => &mut books.dead,
            State::Waiting => &mut books.waiting,
            State::Discarded => &mut books.discarded,
            State::Forwarded => &mut books.forwarded,
        }
    }

    fn add_row(&mut self, id: RowId, n: u32, reason: Option<Reason>, live: bool) {
        let state = match reason {
            None => State::Ready,
            Some(reason) if reason.is_waiting() => State::Waiting,
            Some(_) => State::Dead,
        };
        let row = Stored {
            state,
            live,
            since: time_at(i64::from(n) + 6).micros(),
            started: T0 + i64::from(n),
            times_dead: u32::from(reason.is_some()),
            reason: reason.map(|reason| reason.word().to_owned()),
            message: reason.map_or_else(String::new, |reason| format!("because of {reason}")),
            attempts: "[]".into(),
            ..Stored::default()
        };
        self.rows.insert(id, (n, row));
        self.books.finished += 1;
        *self.book_of(state) += 1;
    }

    /// Applies a step, returning `false` if there's no such step.
    fn step(&mut self, id: RowId, step: &Step, at: EventTime) -> bool {
        let Some((_, row)) = self.rows.get_mut(&id) else {
            return false;
        };
        let from = row.state;
        let settled = matches!(from, State::Journaled | State::Discarded);
        if settled && row.settled_externally && step.is_answer() {
            return true;
        }
        let Ok(to) = next(from, step) else {
            return false;
        };
        apply_changes(row, step, at);
        if from != to {
            (row.state, row.since) = (to, at.micros());
            *self.book_of(from) -= 1;
            *self.book_of(to) += 1;
        }
        true
    }

    fn purge(&mut self, now: EventTime) {
        let before = now.minus(RETENTION).micros();
        self.rows.retain(|_, (_, row)| {
            let over = matches!(row.state, State::Journaled | State::Discarded);
            !(over && row.since < before)
        });
    }
}

/// Applies a step's changes to all columns except `state` and `since`.
fn apply_changes(row: &mut Stored, step: &Step, at: EventTime) {
    let now = at.micros();
    match step {
        Step::Send => {
            row.not_before = 0;
            row.first_sent = row.first_sent.or(Some(now));
        }
        Step::Journaled(OutcomeSource::Confirmation) | Step::Discard | Step::Forwarded => {}
        Step::Journaled(OutcomeSource::Webhook) => settle_by_webhook(row),
        Step::SendAgain { why } => {
            add_attempt(row, at, why);
            row.reason = None;
            reset_for_sending(row);
            (row.settled_externally, row.request_id, row.token) = (false, None, None);
        }
        Step::Reopened { why } => {
            add_attempt(row, at, why);
            reset_for_sending(row);
        }
        Step::Expire => row.times_dead += 1,
        Step::Rejudged { reason, message } => rejudge(row, *reason, message),
        Step::Accepted { request_id, token } => {
            row.request_id = Some(request_id.clone());
            row.token = Some(token.as_str().to_owned());
            row.submitted_at = Some(now);
            row.next_poll = Some(at.plus(FIRST_POLL).micros());
            (row.polls, row.absent, row.failures) = (0, 0, 0);
            (row.absent_at, row.if_absent) = (None, None);
        }
        Step::Returned {
            not_before,
            why,
            failures,
        } => {
            add_attempt(row, at, why);
            (row.not_before, row.failures) = (not_before.micros(), *failures);
        }
        Step::NotYet {
            next_check: next_poll,
            absent: None,
        } => {
            row.polls += 1;
            row.next_poll = Some(next_poll.micros());
        }
        Step::NotYet {
            next_check,
            absent: Some(times),
        } => {
            if row.absent != *times {
                row.absent_at = Some(now);
            }
            (row.absent, row.next_poll) = (*times, Some(next_check.micros()));
        }
        Step::Unresolved {
            next_check,
            if_absent,
            why,
        } => {
            add_attempt(row, at, why);
            mark_unresolved(row, *next_check, *if_absent, why);
        }
        Step::Resubmit { why } => {
            add_attempt(row, at, why);
            row.resubmits += u32::from(row.if_absent.as_deref() != Some("interrupted"));
            (row.next_poll, row.if_absent, row.not_before) = (None, None, 0);
            row.message.clear();
        }
        Step::Died {
            reason,
            message,
            errors,
        } => {
            add_attempt(row, at, message);
            row.errors = (!errors.is_null()).then(|| errors.to_string());
            let taken =
                row.request_id.is_some() && row.resubmits + row.absent + row.times_dead == 0;
            let alone = *reason == Reason::Unconfirmed && taken;
            set_reason(row, *reason, message, !alone);
        }
        Step::Retry { .. } => reset_for_sending(row),
        Step::Moved { why, .. } => move_row(row, at, why),
        Step::Recheck { before, .. } => {
            reset_for_sending(row);
            mark_unresolved(row, at, IfAbsent::Changed, before);
        }
    }
}

fn settle_by_webhook(row: &mut Stored) {
    row.settled_externally = true;
    (row.reason, row.errors) = (None, None);
    row.message.clear();
}

fn set_reason(row: &mut Stored, reason: Reason, message: &str, appears: bool) {
    row.reason = Some(reason.word().to_owned());
    row.message = message.to_owned();
    row.times_dead += u32::from(appears);
}

fn add_attempt(row: &mut Stored, at: EventTime, message: &str) {
    let mut attempts: Vec<Attempt> = serde_json::from_str(&row.attempts).expect("attempts");
    if attempts.len() == ATTEMPTS_MAX {
        attempts.remove(1);
    }
    let message = message.to_owned();
    attempts.push(Attempt { at, message });
    row.attempts = serde_json::to_string(&attempts).expect("JSON");
}

fn mark_unresolved(row: &mut Stored, next: EventTime, if_absent: IfAbsent, why: &str) {
    if row.state != State::Submitted {
        row.submitted_at = Some(row.first_sent.unwrap_or(row.started * 1_000_000));
    }
    (row.request_id, row.token) = (None, Some(String::new()));
    (row.polls, row.absent, row.absent_at) = (0, 0, None);
    (row.next_poll, row.if_absent) = (Some(next.micros()), Some(if_absent.word().to_owned()));
    row.message = why.to_owned();
}

fn rejudge(row: &mut Stored, reason: Reason, message: &str) {
    let stays = reason.is_waiting() == (row.state == State::Waiting);
    set_reason(row, reason, message, !stays);
}

fn move_row(row: &mut Stored, at: EventTime, why: &str) {
    add_attempt(row, at, why);
    let live = row.live && row.state != State::Dead;
    row.reason = None;
    reset_for_sending(row);
    (row.live, row.first_sent) = (live, None);
}

fn reset_for_sending(row: &mut Stored) {
    let perhaps_written = ["server_error", "unconfirmed"];
    let reason = row.reason.take().unwrap_or_default();
    if !perhaps_written.contains(&reason.as_str()) {
        row.first_sent = None;
    }
    (row.live, row.not_before, row.resubmits, row.failures) = (false, 0, 0, 0);
    (row.errors, row.next_poll, row.if_absent) = (None, None, None);
    row.message.clear();
}

/// Returns a step of any kind, with values of its own.
fn any_step(dice: &mut Dice, n: u32, now: i64) -> Step {
    let later = time_at(now + i64::from(dice.throw(600)));
    let why = format!("words {}", dice.throw(1_000));
    let reasons = Reason::ALL;
    let record = finished_call(n, Outcome::Journal, None).judged.record;
    match dice.throw(25) {
        // Only a few journaled calls are resent.
        24 if dice.throw(8) == 0 => Step::SendAgain { why },
        24 => Step::Send,
        0..3 => Step::Send,
        3..6 => Step::Accepted {
            request_id: format!("r-{}", dice.throw(1_000_000)),
            token: TokenFingerprint::of(["one", "two"][dice.throw(2) as usize]),
        },
        6 => Step::Returned {
            not_before: later,
            why,
            failures: dice.throw(5),
        },
        8 => Step::Journaled(OutcomeSource::Confirmation),
        9 | 10 => Step::NotYet {
            next_check: later,
            absent: None,
        },
        11 => Step::NotYet {
            next_check: later,
            absent: Some(dice.throw(3)),
        },
        12 => Step::Unresolved {
            next_check: later,
            if_absent: IfAbsent::ALL[dice.throw(4) as usize],
            why,
        },
        13 => Step::Resubmit { why },
        14 | 15 => Step::Died {
            reason: reasons[dice.throw(13) as usize],
            message: why,
            errors: match dice.throw(2) {
                0 => serde_json::Value::Null,
                _ => serde_json::json!([{"field": "leadId", "n": dice.throw(9)}]),
            },
        },
        16 => Step::Retry {
            by_itself: true,
            record,
        },
        17 => Step::Retry {
            by_itself: false,
            record,
        },
        20 => Step::Journaled(OutcomeSource::Webhook),
        22 => Step::Moved {
            record: Box::new(record),
            reroute_history: RerouteHistory::default(),
            why,
        },
        18 => Step::Recheck {
            record,
            before: why,
        },
        21 => Step::Rejudged {
            reason: reasons[dice.throw(13) as usize],
            message: why,
        },
        _ => match dice.throw(4) {
            0 => Step::Discard,
            _ => Step::Expire,
        },
    }
}

/// Returns a step, usually one that the row can take.
fn likely_step(dice: &mut Dice, (n, row): &(u32, Stored), now: i64) -> Step {
    let mut step = any_step(dice, *n, now);
    for _ in 0..dice.throw(12) {
        if next(row.state, &step).is_err() {
            step = any_step(dice, *n, now);
        }
    }
    step
}

fn compare(store: &Store, model: &Model, step: u32) {
    let stored = columns(store);
    let rows: BTreeMap<RowId, Stored> = stored.into_iter().collect();
    for (id, (_, row)) in &model.rows {
        assert_eq!(rows.get(id), Some(row), "step {step}, row {id}");
    }
    assert_eq!(rows.len(), model.rows.len(), "step {step}");
    assert_eq!(store.books(), model.books, "step {step}");
    assert!(store.books().balance(), "step {step}");
    if step.is_multiple_of(250) {
        assert_eq!(
            tables::books::recount(store).expect("a recount"),
            [],
            "step {step}"
        );
    }
}

/// Ends the nth call in one of several ways.
fn finish(store: &mut Store, model: &mut Model, dice: &mut Dice, n: u32) {
    let reason = [
        None,
        None,
        Some(Reason::NoLead),
        Some(Reason::AmbiguousLead),
    ];
    let reason = reason[dice.throw(4) as usize];
    let outcome = reason.map_or(Outcome::Journal, |_| Outcome::DeadLetter);
    let mut call = finished_call(n, outcome, reason);
    call.judged.live = dice.throw(2) == 0;
    let live = call.judged.live;
    let done = store.write(vec![Op::Finish(Box::new(call))]);
    let Ok([Done::New(id)]) = done.as_deref() else {
        panic!("{done:?}");
    };
    model.add_row(*id, n, reason, live);
}

#[test]
fn ten_thousand_random_steps_match_pure_transitions() {
    let settings = Settings {
        retention: RETENTION,
        ..Settings::default()
    };
    let mut store = super::store(settings);
    let (mut model, mut dice, mut calls) = (Model::default(), Dice(88_172_645_463_325_252), 0);
    let (mut taken, mut refused, mut purged) = (BTreeMap::<&str, u32>::new(), 0, 0);
    for step in 0..STEPS {
        let now = i64::from(step) * 10;
        let open = model
            .rows
            .values()
            .filter(|(_, row)| !matches!(row.state, State::Journaled | State::Discarded));
        if open.count() < ROWS_MAX && dice.throw(3) == 0 {
            calls += 1;
            finish(&mut store, &mut model, &mut dice, calls);
        } else if step.is_multiple_of(100) {
            let before = model.rows.len();
            model.purge(time_at(now));
            purged += before - model.rows.len();
            store.write(vec![Op::Purge(time_at(now))]).expect("purged");
        } else {
            // One row, or two in a single request, in which case either both steps are possible or
            // neither is taken.
            let mut after = model.clone();
            let mut ops = Vec::new();
            let mut exist = true;
            let ids: Vec<RowId> = model.rows.keys().copied().collect();
            for _ in 0..1 + dice.throw(8) / 7 {
                let nth = dice.throw(u32::try_from(ids.len().max(1)).expect("few")) as usize;
                let Some(row) = ids.get(nth).copied() else {
                    continue;
                };
                let way = likely_step(&mut dice, &model.rows[&row], now);
                exist &= after.step(row, &way, time_at(now));
                *taken.entry(way.name()).or_default() += u32::from(exist);
                ops.push(Op::Step {
                    row,
                    step: way,
                    at: time_at(now),
                });
            }
            let done = store.write(ops);
            assert_eq!(done.is_ok(), exist, "step {step}: {done:?}");
            if exist { model = after } else { refused += 1 }
        }
        compare(&store, &model, step);
    }
    // Steps of every kind were taken, and some steps weren't possible.
    assert!(
        taken.len() == 18 && taken.values().all(|n| *n > 20),
        "{taken:?}"
    );
    assert!(refused > 500 && purged > 50, "{refused} {purged}");
}
