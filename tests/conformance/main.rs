//! The table of the document's rules (`rules.tsv`) beside the tests that show them on the sandbox,
//! and that of the client's duties (`duties.tsv`) beside those that show them on ours.
//!
//! ```text
//! section TAB place TAB the rule, shortened TAB how
//! how      one or more of these with " + " between, or `not shown`, or `explained: why`, or
//!          `duty`: it binds the client, and stands in duties.tsv at the same place
//!   row: TEXT          a row of the tables in crates/sandbox/src/tests/rules_of_*.rs
//!   http: TEST         a test of tests/service/sandbox.rs
//!   deliveries: TEST   a test of tests/service/deliveries/mod.rs
//!   FILE: TEST         a test of crates/sandbox/src/tests/FILE.rs
//! ```
//! `place` is a numbered rule (`3`), a row of a table (`row 3`), an item of a list or a paragraph;
//! a letter behind it parts one that says several things. No numbered rule and no row is missing,
//! and each test that is named exists and is run: `tests/run` hands over the list of tests. A duty
//! names its tests as `PATH: TEST`, as `tests/PROMISES.md` does.

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

/// What is wrong with a test that a duty names.
fn fault_of_duty(path: &str, test: &str) -> Option<String> {
    let Ok(text) = fs::read_to_string(root().join(path)) else {
        return Some(format!("there is no {path}"));
    };
    (!table::tests_of(&text).contains(test)).then(|| format!("{path} has no test {test}"))
}

/// What the tree, and the list of tests where there is one, say of a name.
struct Tests {
    /// The texts of `crates/sandbox/src/tests/rules_of_*.rs`.
    tables: String,
    /// `test NAME ... ok` of a run, or `NAME: test` of a list.
    listed: Option<String>,
}

impl Tests {
    fn new() -> Self {
        let folder = root().join("crates/sandbox/src/tests");
        let files = fs::read_dir(&folder).expect("the tests of the sandbox");
        let paths = files.map(|file| file.expect("a file").path());
        let tables = paths.filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("rules_of_")
        });
        let tables = tables.map(|path| fs::read_to_string(path).expect("text"));
        let listed = std::env::var("CALLBRIDGE_TESTS_LISTED").ok();
        Self {
            tables: tables.collect(),
            listed: listed.map(|path| fs::read_to_string(path).expect("the list of tests")),
        }
    }

    /// What is wrong with one of the tests that a rule names.
    fn fault(&self, file: &str, test: &str) -> Option<String> {
        match file {
            "row" if self.tables.contains(&format!("\"{test}\"")) => {
                self.fault("rules", "every_rule_of_the_document_is_answered_as_it_says")
            }
            "row" => Some(format!("no table has the row `{test}`")),
            "http" => self.of_file(
                "tests/service/sandbox.rs",
                test,
                &format!("sandbox::{test}"),
            ),
            "deliveries" => self.of_file(
                "tests/service/deliveries/mod.rs",
                test,
                &format!("deliveries::{test}"),
            ),
            _ => {
                let path = format!("crates/sandbox/src/tests/{file}.rs");
                let full = format!("tests::{}::{test}", file.replace('/', "::"));
                self.undeclared(file)
                    .or_else(|| self.of_file(&path, test, &full))
            }
        }
    }

    fn of_file(&self, path: &str, test: &str, full: &str) -> Option<String> {
        let Ok(text) = fs::read_to_string(root().join(path)) else {
            return Some(format!("there is no {path}"));
        };
        if !table::tests_of(&text).contains(test) {
            return Some(format!("{path} has no test {test}"));
        }
        let listed = self.listed.as_ref()?;
        let run = listed
            .lines()
            .any(|line| line == format!("{full}: test") || line == format!("test {full} ... ok"));
        (!run).then(|| format!("{full} is not run"))
    }

    /// A file that no `mod` names is compiled by nobody.
    fn undeclared(&self, file: &str) -> Option<String> {
        let (parent, name) = match file.rsplit_once('/') {
            Some((folder, name)) => (format!("crates/sandbox/src/tests/{folder}/mod.rs"), name),
            None => ("crates/sandbox/src/tests/mod.rs".to_owned(), file),
        };
        let text = fs::read_to_string(root().join(&parent)).unwrap_or_default();
        let declared = text
            .lines()
            .any(|line| line.trim() == format!("mod {name};"));
        (!declared).then(|| format!("{parent} does not name {name}"))
    }
}

#[test]
fn every_rule_of_the_document_is_shown_by_a_test_or_explained() {
    let (rows, tests) = (rows(), Tests::new());
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
                let of = |duty: &Row| (&duty.section, &duty.place) == (&row.section, &row.place);
                if !duties.iter().any(of) {
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

#[test]
fn every_duty_that_the_document_puts_on_a_client_is_shown_by_a_test_of_ours() {
    let rules = rows();
    let known: BTreeSet<(&str, &str)> = rules.iter().map(Row::whole).collect();
    let (duties, mut faults, mut seen) = (duties(), Vec::new(), BTreeSet::new());
    for duty in &duties {
        let place = format!("{} {}", duty.section, duty.place);
        if !known.contains(&duty.whole()) {
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
    let (path, test) = ("tests/conformance/main.rs", "a_duty_that_nobody_shows");
    assert!(fault_of_duty(path, test).is_some_and(|fault| fault.contains("has no test")));
    assert!(fault_of_duty("tests/none.rs", test).is_some_and(|fault| fault.contains("no tests")));
}

#[test]
fn no_numbered_rule_no_row_and_no_item_of_the_document_is_missing() {
    let rows = rows();
    let there: BTreeSet<(&str, &str)> = rows.iter().map(|row| row.whole()).collect();
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
fn each_place_stands_once_and_each_letter_follows_the_one_before() {
    let rows = rows();
    let mut seen = BTreeSet::new();
    for row in &rows {
        assert!(
            seen.insert((row.section.clone(), row.place.clone())),
            "{row:?} twice"
        );
        let (_, whole) = row.whole();
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
fn a_test_that_was_renamed_or_is_not_run_is_found() {
    let mut tests = Tests::new();
    let (file, test) = ("leads", "a_deleted_lead_is_gone_for_calls_too");
    tests.listed = None;
    assert_eq!(tests.fault(file, test), None);
    assert!(
        tests
            .fault(file, "no_such_test")
            .is_some_and(|f| f.contains("has no test"))
    );
    assert!(
        tests
            .fault("nowhere", test)
            .is_some_and(|f| f.contains("does not name"))
    );
    assert!(tests.fault("row", "no such row").is_some());
    assert_eq!(tests.fault("row", "after 24 hours"), None);
    tests.listed = Some("tests::leads::another: test\n".to_owned());
    assert!(
        tests
            .fault(file, test)
            .is_some_and(|f| f.contains("is not run"))
    );
    tests.listed = Some(format!("test tests::leads::{test} ... ok\n"));
    assert_eq!(tests.fault(file, test), None);
}
