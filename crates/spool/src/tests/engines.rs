//! Tests that both engines run the same tests.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Tests that run on only one engine, and why.
const EXCEPTIONS: [(&str, &str); 16] = [
    ("archive", "a state folder as a tar file"),
    ("connection", "the mode of the file"),
    ("disk", "SQLite's file finds no room"),
    ("durability", "the file, its lock, and its check"),
    ("flood", "SQLite counts its steps"),
    ("plans", "SQLite counts its steps and shows its plans"),
    ("restored", "a copy of the file"),
    ("size", "bytes of the file"),
    ("versions", "scripts on a file"),
    ("transfer", "from one engine to the other"),
    ("intake", "compares the engines"),
    ("postgres_plans", "PostgreSQL shows its plans"),
    ("reading", "a reader of a database"),
    ("server_faults", "the server fails"),
    ("history", "the history of a server"),
    ("lead", "the lock of a session, which only PostgreSQL has"),
];

/// Returns the names of this program's tests that start with `prefix`.
fn tests_below(prefix: &str) -> BTreeSet<String> {
    let program = std::env::current_exe().expect("a path");
    let listed = Command::new(program)
        .arg("--list")
        .output()
        .expect("it runs");
    let text = String::from_utf8(listed.stdout).expect("text");
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    names
        .filter_map(|name| name.strip_prefix(prefix))
        .map(str::to_owned)
        .collect()
}

#[test]
fn both_engines_run_the_same_tests_apart_from_exceptions() {
    let sqlite = tests_below("tests::sqlite::suite::");
    let postgres = tests_below("tests::postgres::suite::");
    assert_eq!(sqlite, postgres);
    assert!(sqlite.len() > 130, "{} tests", sqlite.len());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests");
    let mut other = BTreeSet::new();
    for name in tests_below("tests::") {
        let module = name.split("::").next().unwrap_or_default().to_owned();
        if !["sqlite", "postgres", "engines", "table"].contains(&module.as_str()) {
            assert!(folder.join(format!("{module}.rs")).exists(), "{module}");
            other.insert(module);
        }
    }
    let named = EXCEPTIONS.map(|(module, _)| module.to_owned());
    assert_eq!(other, BTreeSet::from(named));
}
