//! Checks the direction of dependencies: a crate uses only the crates before it. The same holds for
//! the modules of the root and of `bridges/call`. A wrong dependency fails here, or does not
//! compile.

use super::circles::{self, Modules};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The crates. Each uses only those before it.
const CRATES: [&str; 26] = [
    "callbridge-call",
    "callbridge-asterisk",
    "callbridge-freeswitch",
    "callbridge-formats",
    "callbridge-source",
    "callbridge-model",
    "callbridge-listener",
    "callbridge-setup",
    "callbridge-sandbox",
    "callbridge-crm",
    "callbridge-mapping",
    "callbridge-leads",
    "callbridge-lookup",
    "callbridge-spool",
    "callbridge-sender",
    "callbridge-oauth",
    "callbridge-webhook",
    "callbridge-hub",
    "callbridge-broker",
    "callbridge-intake",
    "callbridge-admin",
    "callbridge-page",
    "callbridge-ops",
    "callbridge-testkit",
    "callbridge-testbed",
    "callbridge",
];

/// The modules of the root. Each uses only those before it.
const MODULES: [&str; 9] = [
    "build_time",
    "values",
    "failure",
    "terminal",
    "state_owner",
    "config",
    "daemon",
    "commands",
    "start",
];

/// The modules of `bridges/call`. Each uses only those before it.
const CALL_MODULES: [&str; 23] = [
    "units",
    "age",
    "event",
    "json",
    "redact",
    "peer_text",
    "framing",
    "timeline",
    "call",
    "decoded",
    "trunk",
    "talk",
    "unmatched",
    "reception",
    "settings",
    "shell",
    "snapshots",
    "facts",
    "resolve",
    "connection_clock",
    "assemble",
    "records",
    "reconcile",
];

fn place(all: &[&str], name: &str) -> Option<usize> {
    all.iter().position(|known| *known == name)
}

/// Returns the wrong dependencies of `name`, one line each. A name that is missing in the order is
/// an error too.
fn faults<'a>(all: &[&str], name: &str, used: impl Iterator<Item = &'a str>) -> Vec<String> {
    let Some(own) = place(all, name) else {
        return vec![format!("{name} stands in no order: give it a place")];
    };
    let wrong = used.filter(|used| *used != name);
    let wrong = wrong.filter(|used| place(all, used).is_none_or(|at| at > own));
    wrong
        .map(|used| format!("{name} uses {used}, which comes later"))
        .collect()
}

fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    cargo
}

/// Returns the packages of the workspace, as cargo describes them.
fn packages() -> Vec<Value> {
    let mut metadata = cargo();
    metadata.args([
        "metadata",
        "--no-deps",
        "--offline",
        "--format-version",
        "1",
    ]);
    let output = metadata.output().expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("the crates as JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// Returns each crate and the callbridge crates that it uses. Dependencies of tests are not part of
/// the program.
fn crates() -> Vec<(String, Vec<String>)> {
    let mut crates: Vec<(String, Vec<String>)> = Vec::new();
    for package in packages() {
        let all = package["dependencies"].as_array().expect("dependencies");
        let used = all.iter().filter(|dependency| dependency["kind"].is_null());
        let names = used.filter_map(|dependency| dependency["name"].as_str());
        let ours = names.filter(|name| name.starts_with("callbridge"));
        let name = package["name"].as_str().expect("a name");
        crates.push((name.to_owned(), ours.map(str::to_owned).collect()));
    }
    // No crate uses the fuzz targets.
    crates.retain(|(name, _)| name != "callbridge-fuzz");
    crates
}

#[test]
fn crates_of_this_project_have_no_features() {
    for package in packages() {
        let features = package["features"].as_object().expect("features");
        // Without features, the program in the tests is the program that users build.
        assert!(features.is_empty(), "{} has {features:?}", package["name"]);
    }
}

/// Returns the crates that `cargo tree` lists with these arguments, each with its version and
/// features.
fn crates_with_features(arguments: &[&str]) -> BTreeSet<String> {
    let mut tree = cargo();
    tree.arg("tree").args(arguments);
    tree.args(["--offline", "--prefix", "none", "--format", "{p} {f}"]);
    let output = tree.output().expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let lines = text.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.map(str::to_owned).collect()
}

#[test]
fn tests_enable_no_features_of_the_programs_crates() {
    let program = crates_with_features(&["--package=callbridge", "--edges=no-dev"]);
    let tests = crates_with_features(&["--workspace", "--exclude=callbridge-fuzz"]);
    let other: Vec<_> = program.difference(&tests).collect();
    // A crate with another feature, and every crate that depends on it, is also compiled twice.
    assert!(
        other.is_empty(),
        "the tests have other features: {other:#?}"
    );
    assert!(program.len() > 200, "{} crates", program.len());
}

#[test]
fn crates_use_only_crates_before_them() {
    let crates = crates();
    let mut all = Vec::new();
    for (name, used) in &crates {
        all.extend(faults(&CRATES, name, used.iter().map(String::as_str)));
    }
    assert_eq!(crates.len(), CRATES.len(), "a crate is gone, or new");
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
}

/// Returns the rows of the table of crates in ARCHITECTURE.md: each crate and the crates that it
/// uses.
fn table_rows(page: &str) -> BTreeMap<&str, &str> {
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let (_, name) = cells.next()?.strip_suffix('`')?.split_once('/')?;
        let used = cells.nth(1)?.strip_suffix(" |")?;
        Some((name, used))
    });
    rows.collect()
}

#[test]
fn architecture_table_lists_the_dependencies_of_each_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("readable text");
    let table = page.split("## The crates").nth(1).expect("the table");
    let table = table_rows(table.split("\n## ").next().unwrap_or(table));
    let mut wrong = Vec::new();
    for (name, used) in crates() {
        // The program uses all crates, so its row is not compared.
        let Some(name) = name.strip_prefix("callbridge-") else {
            continue;
        };
        let used = used
            .iter()
            .filter_map(|dependency| dependency.strip_prefix("callbridge-"));
        let mut used: Vec<&str> = used.collect();
        used.sort_by_key(|dependency| place(&CRATES, &format!("callbridge-{dependency}")));
        let mut named = used.clone();
        named.retain(|dependency| !matches!(*dependency, "call" | "model"));
        let right = match (used.is_empty(), named.is_empty()) {
            (true, _) => "nothing".to_owned(),
            (false, true) => "–".to_owned(),
            (false, false) => named.join(", "),
        };
        let shown = table.get(name).copied().unwrap_or("no row");
        if shown != right {
            wrong.push(format!("{name}: it says {shown}; write {right}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "\nARCHITECTURE.md\n{}\n",
        wrong.join("\n")
    );
}

/// Returns the first part of a module's path.
fn first_part(path: &str) -> String {
    path.split("::").next().unwrap_or_default().to_owned()
}

/// Returns the places where a module uses a module that comes after it in `order`. The modules in
/// `outside` can use all modules.
fn upstream(modules: &Modules, order: &[&str], outside: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    for (of, used) in circles::uses(modules) {
        let module = first_part(of);
        if !outside.contains(&module.as_str()) {
            let used: Vec<String> = used.iter().map(|used| first_part(used)).collect();
            let found = faults(order, &module, used.iter().map(String::as_str));
            all.extend(found.iter().map(|fault| format!("{of}: {fault}")));
        }
    }
    all
}

#[test]
fn root_modules_use_only_modules_before_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let all = upstream(
        &circles::modules(&root),
        &MODULES,
        &["lib", "main", "golden"],
    );
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
}

#[test]
fn call_modules_use_only_modules_before_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("bridges/call/src");
    let all = upstream(&circles::modules(&root), &CALL_MODULES, &["lib"]);
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
}

/// Returns the wrong uses in a crate whose module `config::flags` has this code.
fn errors(code: &str) -> Vec<String> {
    let root = (
        String::new(),
        "mod config;\npub use daemon::Daemon;".to_owned(),
    );
    let others = ["daemon", "failure", "drawer"].map(|name| (name.to_owned(), String::new()));
    let module = ("config::flags".to_owned(), code.to_owned());
    let all = others.into_iter().chain([root, module]).collect();
    upstream(&all, &MODULES, &["drawer"])
}

#[test]
fn upstream_use_and_unordered_module_are_found() {
    let wrong = ["config::flags: config uses daemon, which comes later"];
    assert_eq!(
        errors("use crate::{daemon::open, failure::{self, Failure}};"),
        wrong
    );
    assert_eq!(errors("use crate::{\n    failure, Daemon\n};"), wrong);
    assert_eq!(errors("fn open() { crate::daemon::open(1) }"), wrong);
    assert_eq!(errors("use crate::failure::Failure;"), [] as [String; 0]);
    assert_eq!(errors("use crate::drawer;").len(), 1);
    let one = [("drawer".to_owned(), String::new())].into();
    let nowhere = ["drawer: drawer stands in no order: give it a place"];
    assert_eq!(upstream(&one, &MODULES, &[]), nowhere);
}
