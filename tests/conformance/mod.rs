//! Compares the table of the document's rules (`rules.tsv`) with the tests that show them on the
//! sandbox, and the table of the client's duties (`duties.tsv`) with the tests of callbridge.
//!
//! ```text
//! section TAB place TAB the rule, shortened TAB how
//! how      one or more of these with " + " between, or `not shown`, or `explained: why`, or
//!          `duty`: it binds the client, and is in duties.tsv at the same place
//!   row: TEXT          a row of the tables in crates/sandbox/src/tests/rules_of_*.rs
//!   http: TEST         a test of tests/service/sandbox.rs
//!   deliveries: TEST   a test of tests/service/deliveries/mod.rs
//!   FILE: TEST         a test of crates/sandbox/src/tests/FILE.rs
//! ```
//! `place` is a numbered rule (`3`), a row of a table (`row 3`), an item of a list, or a paragraph.
//! If one place has several rules, a letter after it distinguishes them. Every numbered rule and
//! every row is in the table, and each named test exists. A duty names its tests as `PATH: TEST`.

mod table;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use table::{How, Row, places};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("tests/conformance/rules.tsv")).expect("the table");
    let (rows, faults) = table::parse(&text);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    rows
}

fn duties() -> Vec<Row> {
    let text = fs::read_to_string(root().join("tests/conformance/duties.tsv")).expect("the table");
    let (rows, faults) = table::parse(&text);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    rows
}

/// Returns the error of a test that a duty names, if any.
fn fault_of_duty(path: &str, test: &str) -> Option<String> {
    let Ok(text) = fs::read_to_string(root().join(path)) else {
        return Some(format!("there is no {path}"));
    };
    (!table::tests_of(&text).contains(test)).then(|| format!("{path} has no test {test}"))
}

/// The tests of the sandbox that a rule can name.
struct SandboxTests {
    /// The texts of `crates/sandbox/src/tests/rules_of_*.rs`.
    tables: String,
}

impl SandboxTests {
    fn new() -> Self {
        let folder = root().join("crates/sandbox/src/tests");
        let mut tables = String::new();
        for file in fs::read_dir(&folder).expect("the tests of the sandbox") {
            let file = file.expect("a file");
            if file.file_name().to_string_lossy().starts_with("rules_of_") {
                tables += &fs::read_to_string(file.path()).expect("text");
            }
        }
        Self { tables }
    }

    /// Returns the error of a test that a rule names, if any.
    fn fault(&self, file: &str, test: &str) -> Option<String> {
        match file {
            "row" if self.tables.contains(&format!("\"{test}\"")) => {
                self.fault("rules", RULES_TEST)
            }
            "row" => Some(format!("no table has the row `{test}`")),
            "http" => fault_in("tests/service", "sandbox.rs", test),
            "deliveries" => fault_in("tests/service", "deliveries/mod.rs", test),
            _ => fault_in("crates/sandbox/src/tests", &format!("{file}.rs"), test),
        }
    }
}

/// The test that checks the tables of the rules.
const RULES_TEST: &str = "every_documented_rule_gets_its_documented_answer";

/// Returns the error of a test in a file below a folder of tests, if any. A file that no `mod`
/// names is not compiled.
fn fault_in(folder: &str, file: &str, test: &str) -> Option<String> {
    let module = file.trim_end_matches("/mod.rs").trim_end_matches(".rs");
    let (parent, name) = match module.rsplit_once('/') {
        Some((parent, name)) => (format!("{folder}/{parent}/mod.rs"), name),
        None => (format!("{folder}/mod.rs"), module),
    };
    let text = fs::read_to_string(root().join(&parent)).unwrap_or_default();
    if !text
        .lines()
        .any(|line| line.trim() == format!("mod {name};"))
    {
        return Some(format!("{parent} does not name {name}"));
    }
    fault_of_duty(&format!("{folder}/{file}"), test)
}

/// Promise: The sandbox follows every rule of the CRM's document.
#[test]
fn every_rule_of_the_document_is_shown_by_a_test_or_explained() {
    let rows = rows();
    let tests = SandboxTests::new();
    let mut faults = Vec::new();
    let (mut shown, mut unpublished, mut explained, mut bind) = (0, 0, 0, 0);
    let duties = duties();
    for row in &rows {
        match &row.how {
            How::Shown(named) => {
                shown += 1;
                for (file, test) in named {
                    if let Some(fault) = tests.fault(file, test) {
                        faults.push(format!("{} {}: {fault}", row.section, row.place));
                    }
                }
            }
            How::NotShown => unpublished += 1,
            How::Explained(_) => explained += 1,
            How::Duty => {
                bind += 1;
                let has_duty = duties
                    .iter()
                    .any(|duty| duty.section == row.section && duty.place == row.place);
                if !has_duty {
                    let place = format!("{} {}", row.section, row.place);
                    faults.push(format!("{place}: duties.tsv does not have it"));
                }
            }
        }
    }
    let (all, none) = (rows.len(), "not shown by the document");
    println!(
        "\n{all} rules: {shown} shown, {unpublished} {none}, {explained} explained, \
         {bind} bind the client"
    );
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Promise: callbridge follows every duty that the CRM's document gives a client.
#[test]
fn every_client_duty_is_shown_by_existing_test() {
    let rules = rows();
    let known: BTreeSet<(&str, &str)> = rules.iter().map(Row::section_and_place).collect();
    let (duties, mut faults, mut seen) = (duties(), Vec::new(), BTreeSet::new());
    for duty in &duties {
        let place = format!("{} {}", duty.section, duty.place);
        if !known.contains(&duty.section_and_place()) {
            faults.push(format!("{place}: rules.tsv has no such place"));
        }
        if !seen.insert(place.clone()) {
            faults.push(format!("{place} stands twice"));
        }
        let How::Shown(named) = &duty.how else {
            faults.push(format!("{place}: no test"));
            continue;
        };
        let wrong = named
            .iter()
            .filter_map(|(path, test)| fault_of_duty(path, test));
        faults.extend(wrong.map(|fault| format!("{place}: {fault}")));
    }
    println!("\n{} duties of the client, each shown", duties.len());
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
    let (path, test) = ("tests/conformance/mod.rs", "a_duty_that_nobody_shows");
    assert!(fault_of_duty(path, test).is_some_and(|fault| fault.contains("has no test")));
    assert!(fault_of_duty("tests/none.rs", test).is_some_and(|fault| fault.contains("no tests")));
}

#[test]
fn rules_table_has_every_numbered_rule_row_and_item() {
    let rows = rows();
    let there: BTreeSet<(&str, &str)> = rows.iter().map(|row| row.section_and_place()).collect();
    let missing: Vec<String> = places()
        .filter(|(section, place)| !there.contains(&(*section, place.as_str())))
        .map(|(section, place)| format!("{section} {place}"))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let known: BTreeSet<String> = places().map(|(s, p)| format!("{s} {p}")).collect();
    let invented: Vec<String> = (there.iter())
        .filter(|(_, place)| !place.starts_with("text "))
        .map(|(section, place)| format!("{section} {place}"))
        .filter(|place| !known.contains(place))
        .collect();
    assert!(invented.is_empty(), "not in the document: {invented:?}");
}

#[test]
fn rule_place_is_unique_and_lettered_parts_are_consecutive() {
    let rows = rows();
    let mut seen = BTreeSet::new();
    for row in &rows {
        assert!(
            seen.insert((row.section.clone(), row.place.clone())),
            "{row:?} twice"
        );
        let (_, whole) = row.section_and_place();
        let letter = &row.place[whole.len()..];
        if let Some(letter) = letter.bytes().next().filter(|letter| *letter > b'a') {
            let before = format!("{whole}{}", char::from(letter - 1));
            assert!(
                seen.contains(&(row.section.clone(), before)),
                "{row:?} without the one before"
            );
        }
    }
}

#[test]
fn renamed_test_and_undeclared_file_are_found() {
    let tests = SandboxTests::new();
    let (file, test) = ("leads", "deleted_lead_is_not_found_and_its_calls_fail");
    assert_eq!(tests.fault(file, test), None);
    let fault = tests.fault(file, "no_such_test").expect("a fault");
    assert!(fault.contains("has no test"), "{fault}");
    let fault = tests.fault("nowhere", test).expect("a fault");
    assert!(fault.contains("does not name"), "{fault}");
    assert!(tests.fault("row", "no such row").is_some());
    assert_eq!(tests.fault("row", "after 24 hours"), None);
}
