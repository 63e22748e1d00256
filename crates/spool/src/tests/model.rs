//! Tests that the store agrees with the pure function for any sequence of operations.

use super::call::{ask, finished_call, time_at};
use super::table::steps;
use crate::dispatch::prepare;
use crate::{
    Done, Error, Finished, LetterFilter, Op, RowId, Settings, State, Step, Store, next, tables,
};
use callbridge_model::status::Books;
use callbridge_model::{Outcome, Reason};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// One operation.
#[derive(Clone, Debug)]
enum Act {
    /// The nth call ends in the kth way.
    Finish(u32, usize),
    /// The nth row so far takes the kth step.
    Step(usize, usize),
    /// A step on a row that doesn't exist.
    Nobody,
}

const WAYS: [(Outcome, Option<Reason>); 5] = [
    (Outcome::Journal, None),
    (Outcome::DeadLetter, Some(Reason::AmbiguousLead)),
    (Outcome::DeadLetter, Some(Reason::NoLead)),
    (Outcome::Internal, None),
    (Outcome::Skipped, None),
];

/// The simplest possible model of the spool.
#[derive(Clone, Debug, Default)]
struct Model {
    rows: BTreeMap<RowId, (u32, State)>,
    seen: BTreeSet<u32>,
    internal: u64,
    skipped: u64,
    repeats: u64,
    /// Calls that a webhook has confirmed, so that later responses don't change anything.
    settled_externally: BTreeSet<RowId>,
}

impl Model {
    fn count_in(&self, wanted: State) -> u64 {
        let found = self.rows.values().filter(|(_, state)| *state == wanted);
        found.count() as u64
    }

    fn books(&self) -> Books {
        Books {
            finished: self.rows.len() as u64,
            ready: self.count_in(State::Ready),
            sending: self.count_in(State::Sending),
            submitted: self.count_in(State::Submitted),
            journaled: self.count_in(State::Journaled),
            dead: self.count_in(State::Dead),
            waiting: self.count_in(State::Waiting),
            discarded: self.count_in(State::Discarded),
            forwarded: self.count_in(State::Forwarded),
            internal: self.internal,
            skipped: self.skipped,
            unreadable: 0,
        }
    }

    /// Compares an operation's result with the expected one. Row IDs are taken from the result.
    fn apply(&mut self, act: &Act, op: &Op, done: Option<&Done>) -> bool {
        match (act, op) {
            (Act::Finish(n, way), _) => {
                let (outcome, reason) = WAYS[*way];
                if !self.seen.insert(*n) {
                    self.repeats += 1;
                    return done.is_none_or(|done| matches!(done, Done::Repeat(_)));
                }
                let state = match outcome {
                    Outcome::Journal => State::Ready,
                    Outcome::DeadLetter if reason == Some(Reason::NoLead) => State::Waiting,
                    Outcome::DeadLetter => State::Dead,
                    Outcome::Internal => {
                        self.internal += 1;
                        return done.is_none_or(|done| *done == Done::Counted);
                    }
                    Outcome::Skipped => {
                        self.skipped += 1;
                        return done.is_none_or(|done| *done == Done::Counted);
                    }
                };
                match done {
                    Some(Done::New(id)) => self.rows.insert(*id, (*n, state)).is_none(),
                    Some(_) => false,
                    None => true,
                }
            }
            (Act::Step(..), Op::Step { row, step, .. }) => {
                let Some((_, state)) = self.rows.get_mut(row) else {
                    return false;
                };
                if self.settled_externally.contains(row) && step.is_answer() {
                    return done.is_none_or(|done| *done == Done::Stepped(State::Journaled));
                }
                if *step == Step::Journaled(crate::OutcomeSource::Webhook)
                    && next(*state, step).is_ok()
                {
                    self.settled_externally.insert(*row);
                }
                match next(*state, step) {
                    Ok(to) => {
                        *state = to;
                        done.is_none_or(|done| *done == Done::Stepped(to))
                    }
                    Err(_) => false,
                }
            }
            (Act::Step(..) | Act::Nobody, _) => false,
        }
    }
}

fn step_of_missing_row() -> Op {
    Op::Step {
        row: RowId(1_000_000),
        step: Step::Send,
        at: time_at(0),
    }
}

fn op_of(act: &Act, model: &Model) -> Op {
    match act {
        Act::Finish(n, way) => {
            let (outcome, reason) = WAYS[*way];
            let call: Finished = finished_call(*n, outcome, reason);
            Op::Finish(Box::new(call))
        }
        Act::Step(nth, kind) => {
            let rows: Vec<_> = model.rows.iter().collect();
            let Some((row, (n, _))) = rows.get(nth % rows.len().max(1)) else {
                return step_of_missing_row();
            };
            let mut step = steps()[*kind].clone();
            if let Step::Retry { record, .. } | Step::Recheck { record, .. } = &mut step {
                *record = finished_call(*n, Outcome::Journal, None).judged.record;
            }
            if let Step::Moved { record, .. } = &mut step {
                **record = finished_call(*n, Outcome::Journal, None).judged.record;
            }
            let row = **row;
            let at = time_at(1000);
            Op::Step { row, step, at }
        }
        Act::Nobody => step_of_missing_row(),
    }
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..12_u32, 0..WAYS.len()).prop_map(|(n, way)| Act::Finish(n, way)),
        9 => (0..12_usize, 0..19_usize).prop_map(|(nth, kind)| Act::Step(nth, kind)),
        1 => Just(Act::Nobody),
    ]
}

/// Generates groups of requests, each with several operations.
fn groups() -> impl Strategy<Value = Vec<Vec<Vec<Act>>>> {
    let request = prop::collection::vec(act(), 1..4);
    prop::collection::vec(prop::collection::vec(request, 1..5), 1..20)
}

fn check(store: &Store, model: &Model) {
    assert_eq!(store.books(), model.books());
    assert!(store.books().balance());
    assert_eq!(tables::books::recount(store).expect("a recount"), []);
    assert_eq!(
        store.counters().get("repeats").copied().unwrap_or(0),
        model.repeats
    );
    for (id, (_, state)) in &model.rows {
        let row = tables::calls::row(store, *id)
            .expect("readable")
            .expect("a row");
        assert_eq!(row.state, *state);
        let letter = matches!(state, State::Dead | State::Waiting);
        assert_eq!(
            row.reason.is_some(),
            letter || *state == State::Discarded,
            "{row:?}"
        );
    }
    let letters = tables::letters::letters(store, &LetterFilter::default()).expect("letters");
    let books = store.books();
    assert_eq!(letters.len() as u64, books.dead + books.waiting);
    let head = tables::work_queue::head(store, &ask(time_at(10_000))).expect("a head");
    assert_eq!(
        head.live.is_some() || head.backlog.is_some(),
        books.ready > 0
    );
    let due = head.polls.len() as u64;
    assert!(due == books.submitted.min(8) || due < books.submitted && head.unresolved.is_some());
}

/// Runs groups. Since rows are created within a group, its operations choose from the rows that
/// existed before it.
fn run(groups: &[Vec<Vec<Act>>]) {
    let mut store = super::store(Settings::default());
    let mut model = Model::default();
    for group in groups {
        let ops: Vec<Vec<Op>> = group
            .iter()
            .map(|request| request.iter().map(|act| op_of(act, &model)).collect())
            .collect();
        let works: Result<Vec<_>, Error> = ops.iter().cloned().map(prepare).collect();
        let answers = store.write_group(&works.expect("storable"));
        for ((request, ops), answer) in group.iter().zip(&ops).zip(answers) {
            let mut after = model.clone();
            let done = answer.as_ref().ok();
            let good = request
                .iter()
                .zip(ops)
                .enumerate()
                .all(|(at, (act, op))| after.apply(act, op, done.map(|done| &done[at])));
            assert_eq!(good, answer.is_ok(), "{request:?} was answered {answer:?}");
            if good {
                model = after;
            }
        }
        check(&store, &model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(super::cases(200)))]

    /// Promise: The books of calls balance after each step.
    #[test]
    fn store_matches_the_pure_function_for_any_steps(groups in groups()) {
        run(&groups);
    }
}

#[test]
fn refused_request_does_not_affect_the_rest_of_its_group() {
    let group = vec![
        vec![Act::Finish(1, 0), Act::Finish(2, 0)],
        vec![Act::Finish(3, 0), Act::Nobody],
        vec![Act::Finish(4, 3)],
    ];
    run(&[group]);
}
