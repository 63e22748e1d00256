//! Tests that PostgreSQL finds each statement's index, whatever its table statistics say.
//!
//! A session plans each statement only once, possibly while the tables are still empty.

use super::place;
use super::postgres::suite::acts::{ACTS, Rows, filled_store, token};
use super::postgres::suite::acts_hub::HUB;
use super::postgres::suite::acts_lead_requests::LEAD_ACTS;
use super::postgres::suite::acts_listed::LISTED;
use super::postgres::suite::acts_queue::ask;
use crate::postgres::{Access, Session};
use crate::tables::schema::MIGRATIONS;
use crate::{Op, Store, tables};
use callbridge_call::EpochSeconds;
use callbridge_leads::directory::{ChangeKind, FirstPhone, LeadNews};
use callbridge_model::{LeadId, Phone, TokenFingerprint};
use callbridge_testbed::postgres::Postgres;
use std::collections::BTreeSet;

/// How many copies are made of each row.
const COPIES: u32 = 1_000;
/// Tables that grow as calls or leads accumulate.
const LARGE: [&str; 7] = [
    "calls",
    "seen_calls",
    "unreadable",
    "notices",
    "directory_phones",
    "directory_leads",
    "internal_calls",
];

fn script(store: &Store, text: &str) {
    let session = store.session().expect("PostgreSQL");
    session.long_script(text).expect("a script");
}

/// Updates the statistics for PostgreSQL's planner. Without a list of tables, `ANALYZE` would also
/// read the tables of other tests, and fail if one of them was dropped in the meantime.
fn analyze(store: &Store) {
    let session = store.session().expect("PostgreSQL");
    let tables = "SELECT oid::regclass::text FROM pg_class
         WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r'";
    let tables: Vec<String> = session.rows(tables, &(), 1_000).expect("the tables");
    assert!(tables.len() > LARGE.len(), "{tables:?}");
    script(store, &format!("ANALYZE {}", tables.join(", ")));
}

/// Creates a store with few rows that has run every statement.
fn small_store() -> (Store, Rows) {
    let (mut store, rows) = filled_store(8);
    for (_, act) in ACTS.iter().chain(LEAD_ACTS).chain(LISTED).chain(HUB) {
        act(&mut store, &rows);
    }
    (store, rows)
}

/// Copies each call along with its related rows.
fn grow(store: &Store) {
    let text = format!(
        "INSERT INTO calls SELECT (copy).* FROM (
             SELECT jsonb_populate_record(calls, jsonb_build_object(
                 'id', id + 1000000 * n, 'linkedid', linkedid || '/' || n,
                 'uuid', CASE WHEN uuid IS NOT NULL THEN '\\x' || md5(id || '/' || n) END
             )) AS copy FROM calls, generate_series(1, {COPIES}) AS n OFFSET 0) AS copies;
         INSERT INTO seen_calls SELECT pbx, id || '/' || n, uuid, is_linkedid, started, at
             FROM seen_calls, generate_series(1, {COPIES}) AS n"
    );
    script(store, &text);
}

/// Returns PostgreSQL's plan for arbitrary values, as a list of lines.
fn plan(store: &Store, text: &str) -> Vec<String> {
    let values = (1..100).take_while(|n| text.contains(&format!("?{n}")));
    let mut nulls = vec!["NULL"; values.count()].join(", ");
    if !nulls.is_empty() {
        nulls = format!("({nulls})");
    }
    script(
        store,
        &format!("PREPARE planned AS {}", text.replace('?', "$")),
    );
    let session = store.session().expect("PostgreSQL");
    let plan = session.rows(&format!("EXPLAIN EXECUTE planned{nulls}"), &(), 1_000);
    script(store, "DEALLOCATE planned");
    plan.expect("a plan")
}

/// Returns the lines of the plan that sort, or that read a large table without an index to limit
/// it.
fn plan_faults(plan: &[String]) -> Vec<&String> {
    let mut faults = Vec::new();
    for (at, line) in plan.iter().enumerate() {
        let reads_large = LARGE.iter().any(|table| {
            line.contains(&format!(" on {table} ")) && !line.contains("Bitmap Index Scan")
        });
        // A plan node is followed by its conditions.
        let conditions = plan[at + 1..]
            .iter()
            .take_while(|line| !line.contains("->"));
        let conditions: Vec<&String> = conditions.collect();
        let is_bounded = conditions.iter().any(|line| line.contains("Cond:"));
        let is_filtered = conditions
            .iter()
            .any(|line| line.trim_start().starts_with("Filter:"));
        let walks = reads_large && is_filtered && !is_bounded;
        if walks || (reads_large && line.contains("Seq Scan")) || line.contains("Sort  (cost") {
            faults.push(line);
        }
    }
    faults
}

/// Statements that read a whole table, or that sort the few rows they found through an index.
const EXCEPTIONS: [&str; 7] = [
    "GROUP BY state",
    "sum(length(bytes))",
    "HAVING",
    "FROM branch_pbxs ORDER BY branch",
    "is_linkedid DESC",
    "retried = 1",
    "reason = 'ambiguous_lead' AND phone = ?1 ORDER BY id",
];

/// Adds the names of all indexes in a plan.
fn note_indexes(plan: &[String], used: &mut BTreeSet<String>) {
    for line in plan {
        let mut words = line.split_whitespace();
        while let Some(word) = words.next() {
            let is_before_name = ["using", "on", "INDEX"].contains(&word);
            if let (true, Some(name)) = (is_before_name, words.clone().next()) {
                used.insert(name.to_owned());
            }
        }
    }
}

fn check_plans(store: &Store, state: &str, used: &mut BTreeSet<String>) {
    let statements = store.statements();
    assert!(statements.len() > 150, "{} statements", statements.len());
    let mut bad = Vec::new();
    for text in statements {
        if text.contains("SAVEPOINT") {
            continue;
        }
        let plan = plan(store, &text);
        note_indexes(&plan, used);
        let is_exempt = EXCEPTIONS.iter().any(|part| text.contains(part));
        if !is_exempt && !plan_faults(&plan).is_empty() {
            bad.push(format!("{text}\n{}", plan.join("\n")));
        }
    }
    assert!(bad.is_empty(), "{state}:\n{}", bad.join("\n\n"));
}

#[test]
fn statements_use_their_indexes_at_any_table_size() {
    let mut used = BTreeSet::new();
    let (store, _) = small_store();
    check_plans(&store, "few rows, never analyzed", &mut used);
    grow(&store);
    check_plans(&store, "many rows, never analyzed", &mut used);
    analyze(&store);
    check_plans(&store, "many rows, analyzed", &mut used);
    let (store, _) = small_store();
    analyze(&store);
    check_plans(&store, "few rows, analyzed", &mut used);
    assert_indexes_of_calls_serve(&used);
}

/// Every write to a call has to update the indexes for its state, so each of them must be useful.
fn assert_indexes_of_calls_serve(used: &BTreeSet<String>) {
    let lines = MIGRATIONS.iter().flat_map(|script| script.lines());
    let names = lines.filter_map(|line| line.strip_prefix("CREATE INDEX calls_"));
    let names = names.filter_map(|line| line.split_whitespace().next());
    let unused: Vec<String> = names
        .map(|name| format!("calls_{name}"))
        .filter(|name| !used.contains(name))
        .collect();
    assert_eq!(unused, [""; 0], "no statement uses these indexes");
}

#[test]
fn analyze_reads_no_table_of_another_test() {
    let schema = Postgres::new_schema();
    let other = Session::open(&place::url(&schema), Access::Write, "test").expect("a session");
    let table = format!("CREATE SCHEMA {schema}; CREATE TABLE locked (x int)");
    other.script(&table).expect("a table");
    let lock = "BEGIN; LOCK TABLE locked IN ACCESS EXCLUSIVE MODE";
    other.script(lock).expect("a lock");
    let (store, _) = filled_store(8);
    script(&store, "SET lock_timeout = '100ms'");
    analyze(&store);
}

#[test]
fn work_queue_is_read_in_two_round_trips() {
    let (mut store, rows) = filled_store(8);
    let mut most = 0;
    for (_, act) in ACTS.iter().chain(LEAD_ACTS).chain(LISTED).chain(HUB) {
        act(&mut store, &rows);
        for token in [token(), TokenFingerprint::of("another")] {
            let ask = ask(100_000, Some(token));
            // The first run also has to prepare statements.
            for is_prepared in [false, true] {
                let before = store.session().expect("PostgreSQL").round_trips();
                let head = tables::work_queue::head(&store, &ask).expect("a head");
                let trips = store.session().expect("PostgreSQL").round_trips() - before;
                if is_prepared {
                    most = most.max(trips);
                    assert!(trips <= 2, "{trips} round trips for {head:?}");
                }
            }
        }
    }
    assert_eq!(most, 2);
}

#[test]
fn leads_of_500_numbers_are_read_in_two_round_trips() {
    let (mut store, _) = filled_store(8);
    let mut phones = Vec::new();
    for n in 0..500 {
        let phone = Phone::from_digits(998_330_000_000 + n).expect("a number");
        let lead = LeadId::new(9_000 + n).expect("positive");
        let first = FirstPhone::Is(phone.clone());
        let news = LeadNews::new(lead, EpochSeconds::new(1), ChangeKind::Created, first);
        let merged = LeadNews {
            merged: vec![lead],
            ..LeadNews::new(
                LeadId::new(8_000 + n).expect("positive"),
                EpochSeconds::new(2),
                ChangeKind::Merged,
                FirstPhone::None,
            )
        };
        let ops = [news, merged].map(|news| Op::Learn(Box::new(news)));
        store.write(ops.to_vec()).expect("stored");
        phones.push(phone);
    }
    let session = store.session().expect("PostgreSQL");
    let mut trips = 0;
    // The first run also has to prepare statements.
    for _ in 0..2 {
        let before = session.round_trips();
        let found = tables::directory::leads_of_phones(&store, &phones).expect("readable");
        trips = session.round_trips() - before;
        for ((finding, _), n) in found.iter().zip(0..) {
            assert_eq!(finding.leads(), LeadId::new(8_000 + n).as_slice());
        }
    }
    assert_eq!(
        trips, 2,
        "one for the numbers, and one for the merged leads"
    );
}
