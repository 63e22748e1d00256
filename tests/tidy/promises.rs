//! `tests/PROMISES.md`: every promise names the tests that fail when it is broken, and every test
//! that it names exists. A renamed test takes its row along, or is found here.

use callbridge_model::Reason;
use callbridge_spool::State;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// `FILE.rs: TEST` between backticks.
fn named(cell: &str) -> Vec<(&str, &str)> {
    let quoted = cell.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|text| text.split_once(": "))
        .filter(|(file, _)| file.ends_with(".rs"))
        .collect()
}

/// The names of a file's tests: `fn`s that bear the attribute, alone or with others between.
fn tests_of(text: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    let mut is_test = false;
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        let words = line.strip_prefix("async ").unwrap_or(line);
        if let Some(rest) = words.strip_prefix("fn ") {
            if is_test {
                found.extend(rest.split('(').next());
            }
            is_test = false;
        }
    }
    found
}

/// What is wrong with the page, a line each; `read` gives a file of the tree.
fn faults(page: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let (promise, tests) = match cells.as_slice() {
            [promise, tests] => (promise.trim(), named(tests)),
            _ => {
                faults.push(format!("{line}: not two cells"));
                continue;
            }
        };
        if tests.is_empty() && !promise.ends_with("promise") && !promise.ends_with("answer") {
            faults.push(format!("{promise}: no test"));
        }
        for (file, test) in tests {
            match read(file) {
                None => faults.push(format!("{promise}: there is no {file}")),
                Some(text) if !tests_of(&text).contains(test) => {
                    faults.push(format!("{promise}: {file} has no test {test}"));
                }
                Some(_) => {}
            }
        }
    }
    faults
}

#[test]
fn every_test_that_a_promise_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("tests/PROMISES.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| ")).count();
    assert!(rows > 60, "only {rows} rows");
    let faults = faults(&page, |file| fs::read_to_string(root.join(file)).ok());
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn every_state_and_every_reason_of_a_dead_letter_stands_on_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("tests/PROMISES.md")).expect("the page");
    let states = State::ALL.iter().map(|state| state.word());
    let words = Reason::ALL.iter().map(|reason| reason.word()).chain(states);
    let missing: Vec<&str> = words
        .filter(|word| !page.contains(&format!("`{word}`")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_row_without_a_test_and_one_whose_test_was_renamed_are_found() {
    let page = "| promise | test |\n|---|---|\n\
                | kept | `a.rs: one` `a.rs: two` |\n\
                | forgotten | by nobody |\n\
                | renamed | `a.rs: no_test` |\n\
                | moved | `b.rs: one` |\n";
    let text = "#[test]\nfn one() {}\n#[tokio::test(flavor = \"x\")]\n#[y]\nasync fn two() {}\n\
                fn no_test() {}\n";
    let read = |file: &str| (file == "a.rs").then(|| text.to_owned());
    let found = faults(page, read);
    let wanted = [
        "forgotten: no test",
        "renamed: a.rs has no test no_test",
        "moved: there is no b.rs",
    ];
    assert_eq!(found, wanted);
}
