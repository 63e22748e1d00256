//! Tests that calls stored together by PostgreSQL give the same result as calls stored one by one
//! by SQLite.

use super::call::{finished_call, time_at};
use super::place::Engine;
use crate::transfer::dump;
use crate::{
    BranchRequest, Done, Error, Finished, NewBranch, Op, Settings, Silence, SilenceReason, Store,
    tables,
};
use callbridge_call::{Direction, EpochSeconds, EventTime, GivenIds, UniqueId};
use callbridge_model::{CallUuid, Outcome, Phone, Reason};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use std::time::Duration;

const PBXS: [&str; 2] = ["pbx1", "pbx2"];
/// Number of IDs shared among the calls.
const IDS: u32 = 8;
/// Number of customers shared among the calls.
const CUSTOMERS: u64 = 3;

/// A verdict: the outcome, the reason, and whether `unanswered=no` keeps the call out.
const VERDICTS: [(Outcome, Option<Reason>, bool); 9] = [
    (Outcome::Journal, None, false),
    (Outcome::Journal, None, false),
    (Outcome::DeadLetter, Some(Reason::Incomplete), false),
    (Outcome::DeadLetter, Some(Reason::NoLead), false),
    (Outcome::DeadLetter, Some(Reason::AmbiguousLead), false),
    (Outcome::DeadLetter, Some(Reason::InvalidEpoch), false),
    (Outcome::Internal, None, false),
    (Outcome::Skipped, None, false),
    (Outcome::Skipped, None, true),
];

fn directions() -> impl Strategy<Value = Direction> {
    prop_oneof![
        4 => Just(Direction::Inbound),
        2 => Just(Direction::Outbound),
        1 => Just(Direction::Internal),
        1 => Just(Direction::Unknown),
    ]
}

prop_compose! {
    /// Generates a call that shares its IDs, start time, and customer with others.
    fn call()(
        pbx in 0..PBXS.len(),
        n in 0..IDS,
        verdict in 0..VERDICTS.len(),
        direction in directions(),
        answered in any::<bool>(),
        shift in prop_oneof![3 => Just(0_i64), 1 => -40..40_i64],
        duration in 1..60_u32,
        customer in prop::option::weighted(0.9, 0..CUSTOMERS),
        aliases in prop::collection::vec(0..IDS, 0..2),
        of_branch in any::<bool>(),
        is_message in any::<bool>(),
    ) -> Finished {
        let (outcome, reason, kept_out) = VERDICTS[verdict];
        let mut new = finished_call(n, outcome, reason);
        let record = &mut new.judged.record;
        let id = format!("{}.{n}", super::call::T0);
        record.pbx = PBXS[pbx].to_owned();
        record.linkedid.clone_from(&id);
        if outcome.is_kept() {
            record.uuid = Some(CallUuid(uuid::Uuid::from_u128(pbx as u128 * 100 + u128::from(n))));
        }
        record.direction = direction;
        record.answered = answered;
        record.duration_sec = duration;
        let number = customer.map(|customer| format!("99890{customer:07}"));
        record.client_phone = number
            .as_ref()
            .and_then(|number| Phone::from_e164(&format!("+{number}")));
        let start = time_at(shift + i64::from(n) * 10);
        record.started_at = start.floor_seconds();
        new.call.started = start;
        new.call.ended = start.plus(Duration::from_secs(u64::from(duration)));
        new.call.answered = answered;
        new.call.given = is_message.then(GivenIds::default);
        match (&mut new.call.number, number) {
            (Some(raw), Some(number)) => raw.text = number,
            (raw, _) => *raw = None,
        }
        let aliases = aliases.iter().map(|n| format!("{}.{n}", super::call::T0));
        let ids = aliases.chain([id.clone()]);
        new.call.also_known_as = ids.filter_map(UniqueId::new).collect();
        new.call.linkedid = UniqueId::new(id).expect("not empty");
        new.judged.kept_out_unanswered = kept_out && !answered && direction == Direction::Inbound;
        new.judged.judged_at = time_at(1_000);
        new.branch = of_branch.then(|| "branch".to_owned());
        new
    }
}

/// Generates operations like those that call sources request.
fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => call().prop_map(|new| Op::Finish(Box::new(new))),
        1 => Just(Op::count("clamped", 1)),
        1 => prop::bool::weighted(0.8).prop_map(|is_known| {
            let branch = if is_known { "branch" } else { "nobody" };
            request(branch)
        }),
    ]
}

fn request(branch: &str) -> Op {
    Op::BranchRequest(Box::new(BranchRequest {
        branch: branch.to_owned(),
        sender: None,
        seen: None,
        next_incarnation: "next".to_owned(),
        silence: Silence {
            boot_id: "boot".to_owned(),
            until: Duration::from_secs(105),
            why: SilenceReason::LostCommits,
        },
        calls: 1,
        refused: 0,
        refusal: None,
        report: None,
        at: time_at(1_000),
    }))
}

fn groups() -> impl Strategy<Value = Vec<Vec<Vec<Op>>>> {
    let request = prop::collection::vec(op(), 1..8);
    let group = prop::collection::vec(request, 1..4);
    prop::collection::vec(group, 1..5)
}

fn settings(notices: bool) -> Settings {
    Settings {
        notices,
        waiting_notices: notices,
        ..Settings::default()
    }
}

fn make_hub(store: &mut Store) {
    let begin = Op::BeginHub {
        incarnation: "first".to_owned(),
        at: time_at(1),
    };
    let branch = Op::AddBranch(NewBranch {
        name: "branch".to_owned(),
        token: "hash".to_owned(),
        pbxs: vec!["pbx1".to_owned()],
        at: EpochSeconds::new(1),
    });
    store.write(vec![begin, branch]).expect("stored");
}

fn hub(notices: bool) -> Store {
    let mut store = Engine::Postgres.store(settings(notices));
    make_hub(&mut store);
    store
}

/// Returns the results, with errors as text because they contain different places.
fn answers(store: &mut Store, group: &[Vec<Op>]) -> Vec<Result<Vec<Done>, String>> {
    let mut prepared = Vec::new();
    for request in group {
        prepared.push(crate::dispatch::prepare(request.clone()).expect("storable"));
    }
    let answers = store.write_group(&prepared).into_iter();
    answers
        .map(|answer| answer.map_err(|error| error.to_string()))
        .collect()
}

/// Returns all rows, without the IDs that PostgreSQL assigns, since rolled-back transactions leave
/// gaps in them.
fn rows(store: &Store) -> Vec<String> {
    let dump = dump(store).expect("readable");
    let mut rows = Vec::new();
    for row in dump.lines() {
        let given = ["notices [", "internal_calls [", "left_out_calls ["];
        let rest = row
            .split_once(", ")
            .filter(|(id, _)| given.iter().any(|table| id.starts_with(table)));
        rows.push(rest.map_or(row, |(_, rest)| rest).to_owned());
    }
    rows
}

/// Deletes all rows, and then reloads the store.
fn empty(store: &mut Store) {
    let session = store.session().expect("PostgreSQL");
    let text = "SELECT string_agg(relname, ', ') FROM pg_class
         WHERE relkind = 'r' AND relnamespace = pg_my_temp_schema()
             AND relname <> 'callbridge_schema'";
    let tables: String = session.one(text, &()).expect("tables");
    let text = format!("TRUNCATE {tables} RESTART IDENTITY");
    session.script(&text).expect("emptied");
    store.reload().expect("readable");
}

fn compare(
    together: &mut Store,
    groups: &[Vec<Vec<Op>>],
    notices: bool,
) -> Result<(), TestCaseError> {
    let mut alone = Engine::Sqlite.store(settings(notices));
    empty(together);
    together.settings = settings(notices);
    make_hub(together);
    make_hub(&mut alone);
    let before = (together.moves_so_far(), together.letters_so_far());
    for group in groups {
        prop_assert_eq!(answers(together, group), answers(&mut alone, group));
        prop_assert_eq!(together.books(), alone.books());
    }
    prop_assert_eq!(together.moves_so_far() - before.0, alone.moves_so_far());
    prop_assert_eq!(together.letters_so_far() - before.1, alone.letters_so_far());
    prop_assert_eq!(rows(together), rows(&alone));
    prop_assert_eq!(tables::books::recount(together).expect("a recount"), []);
    Ok(())
}

#[test]
fn group_write_matches_the_same_calls_written_one_by_one() {
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(120)
    };
    let together = RefCell::new(Engine::Postgres.store(Settings::default()));
    let cases = (groups(), any::<bool>());
    let ran = TestRunner::new(config).run(&cases, |(groups, notices)| {
        compare(&mut together.borrow_mut(), &groups, notices)
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn request_of_500_calls_needs_at_most_four_round_trips() {
    let mut store = hub(true);
    let mut trips = Vec::new();
    for round in 0..4 {
        let mut ops = vec![request("branch")];
        for n in 0..500 {
            // Each customer calls ten times. The last round repeats the one before it.
            let mut new = finished_call(round.min(2) * 1_000 + n, Outcome::Journal, None);
            let number = format!("+99890{:07}", n / 10);
            new.judged.record.client_phone = Phone::from_e164(&number);
            new.judged.record.answered = n % 10 > 4;
            new.judged.judged_at = EventTime::from_micros(new.call.ended.micros());
            ops.push(Op::Finish(Box::new(new)));
        }
        let before = store.session().expect("PostgreSQL").round_trips();
        store.write(ops).expect("stored");
        trips.push(store.session().expect("PostgreSQL").round_trips() - before);
    }
    // The first rounds also have to prepare statements.
    assert!(trips[2] <= 4 && trips[3] <= 4, "{trips:?}");
}

#[test]
fn failed_request_does_not_affect_the_rest_of_its_group() {
    let mut store = hub(false);
    let calls = [1, 2, 3].map(|n| Op::Finish(Box::new(finished_call(n, Outcome::Journal, None))));
    let [first, second, third] = calls;
    let group = [
        vec![request("branch"), first],
        vec![request("nobody"), second],
        vec![request("branch"), third],
    ];
    let mut prepared = Vec::new();
    for request in group {
        prepared.push(crate::dispatch::prepare(request).expect("storable"));
    }
    let answers = store.write_group(&prepared);
    assert!(matches!(&answers[0], Ok(done) if matches!(done[1], Done::New(_))));
    assert_eq!(answers[1], Err(Error::NoBranch("nobody".to_owned())));
    assert!(matches!(&answers[2], Ok(done) if matches!(done[1], Done::New(_))));
    assert_eq!(store.books().ready, 2);
    assert_eq!(tables::books::recount(&store).expect("a recount"), []);
}
