//! Tests that each operation costs the same no matter how many rows there are.
//!
//! Every operation and every query runs on a small and a large spool, and the number of steps that
//! SQLite takes is compared. The test fails if any line in `tables/` that runs a statement isn't
//! reached, so when you add a statement, also add an act to `acts.rs` that reaches it.

use super::sqlite::suite::acts::{ACTS, filled_store};
use super::sqlite::suite::acts_hub::HUB;
use super::sqlite::suite::acts_lead_requests::LEAD_ACTS;
use super::sqlite::suite::acts_listed::LISTED;
use crate::{Store, tables};
use std::collections::BTreeSet;
use std::path::Path;

const SMALL: u32 = 100;
const LARGE: u32 = 600;
/// A number of rows that's small enough for a purge to reach the end of the seen calls.
const TINY: u32 = 8;

/// Returns how many steps are allowed beyond one and a half times the small spool's count. Queries
/// that return more calls than the small spool has may cost as much as their limit.
fn slack(name: &str) -> i32 {
    match name {
        "what a sweep seeks" => 40_000,
        // This reads all calls waiting to be confirmed, but the budget limits how many there are.
        "the sender's head, all due" => 9_000,
        "the sender's head, none due" => 9_000,
        "the sender's head after the clock was set back" => 9_000,
        // This is the limit of the search for a call to try, with four queries per branch.
        "the sender's head while calls are suspended" => 60_000,
        // A collector makes all the calls it has forwarded ready again.
        "a collector's offers" => 900_000,
        _ => 300,
    }
}

fn steps(store: &Store) -> i32 {
    store.steps_taken().values().sum()
}

#[test]
fn operation_cost_does_not_grow_with_spool_size() {
    let (mut small, few) = filled_store(SMALL);
    let (mut large, many) = filled_store(LARGE);
    let _ = (steps(&small), steps(&large));
    let mut grown = Vec::new();
    for (name, act) in ACTS.iter().chain(LEAD_ACTS).chain(LISTED).chain(HUB) {
        act(&mut small, &few);
        let a = steps(&small);
        act(&mut large, &many);
        let b = large.steps_taken();
        if b.values().sum::<i32>() > a * 3 / 2 + slack(name) {
            grown.push(format!("{name}: {a} steps of few rows, of many {b:#?}"));
        }
    }
    assert!(grown.is_empty(), "{}", grown.join("\n"));
    assert_eq!(tables::books::recount(&large).expect("a recount"), []);
    let (mut tiny, fewer) = filled_store(TINY);
    for (_, act) in ACTS.iter().chain(LEAD_ACTS).chain(LISTED).chain(HUB) {
        act(&mut tiny, &fewer);
    }
    assert_acts_reach_all_statements(&[&large, &tiny]);
    assert_statements_use_indexes(&large);
}

/// Code that runs a statement.
const ASKS: [&str; 9] = [
    ".prepare(",
    ".execute(",
    ".run(",
    ".ask(",
    ".query_one(",
    ".query_first(",
    ".query_all(",
    ".query_known(",
    ".exists(",
];

/// Returns the lines in `tables/` that run a statement.
fn asking_lines() -> BTreeSet<(String, u32)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tables");
    let mut lines = BTreeSet::new();
    for entry in folder.read_dir().expect("readable") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.expect("a name");
        if name.ends_with("_tests.rs") {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or("");
        for (line, number) in code.lines().zip(1..) {
            let asks = ASKS.iter().any(|ask| line.contains(ask));
            let pragma = line.contains("PRAGMA");
            if asks && !pragma && !line.contains("db.") && !["schema.rs"].contains(&name) {
                lines.insert((name.to_owned(), number));
            }
        }
    }
    lines
}

fn assert_acts_reach_all_statements(stores: &[&Store]) {
    let askers = stores.iter().flat_map(|store| store.askers());
    let met: BTreeSet<(String, u32)> = askers
        .filter_map(|(file, line)| Some((file.rsplit_once('/')?.1.to_owned(), line)))
        .collect();
    // Statements in this file are exempt, because they handle failed transactions or write the
    // books.
    let exempt = ["books.rs"];
    let lines = asking_lines();
    let unmet: Vec<_> = lines
        .difference(&met)
        .filter(|(file, _)| !exempt.contains(&file.as_str()))
        .collect();
    assert!(unmet.is_empty(), "no act of acts.rs reaches {unmet:?}");
}

/// Only statements with a LIMIT may scan a table, in which case an index has to provide the order.
fn assert_statements_use_indexes(store: &Store) {
    // `few` are statements that read calls in flight and open calls, and `whole` are those of the
    // recount, which only tests run.
    let few = ["WHERE state = 'sending'", "FROM open_calls"];
    let whole = ["GROUP BY state", "sum(length(bytes))", "HAVING"];
    for text in store.statements() {
        if few.iter().chain(&whole).any(|words| text.contains(words)) {
            continue;
        }
        let plan = store.plan(&text).join("\n");
        let tables = [
            "calls",
            "seen_calls",
            "unreadable",
            "notices",
            "directory_phones",
            "directory_leads",
            "internal_calls",
        ];
        let walks = tables.map(|table| plan.contains(&format!("SCAN {table}")));
        assert!(
            text.contains(" LIMIT ") || !walks.contains(&true),
            "{text}\n{plan}"
        );
        let few_reasons = text.contains("is_linkedid DESC");
        assert!(
            few_reasons || !plan.contains("TEMP B-TREE"),
            "{text}\n{plan}"
        );
    }
}
