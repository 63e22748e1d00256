//! Cases from the field, in which a PBX in use reported calls in a way that used to be assembled
//! incorrectly.
//!
//! Each directory in `tests/recordings/field` holds one case, which consists of the input,
//! `run.txt` (whose first line is the command), and `expected.json`. The test runs the command in
//! this process and compares what `explain --json` prints with the expected calls. The keys are
//! described in `tests/recordings/README.md`.

use callbridge::{Command, read};
use callbridge_model::Environment;
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

const COMPARED: [&str; 8] = [
    "direction",
    "answered",
    "clientPhone",
    "employee",
    "employeesInOrder",
    "startedAt",
    "durationSec",
    "talkTimeSec",
];
/// Values that may differ by one second. If the expected value is `null`, they may be anything.
const MEASURED: [&str; 3] = ["startedAt", "durationSec", "talkTimeSec"];

#[test]
fn field_cases_match_their_expected_calls() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/field");
    let entries = fs::read_dir(&root).expect("the field cases");
    let mut folders: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a readable entry").path())
        .collect();
    folders.sort();
    assert!(!folders.is_empty(), "no case in {}", root.display());
    let mut wrong = String::new();
    for folder in folders {
        let name = folder.file_name().expect("a name").to_string_lossy();
        let expected = json(&folder.join("expected.json"));
        let differences = match explain(&folder) {
            Ok(calls) => differences(&expected, calls),
            Err(error) => vec![error],
        };
        for difference in differences {
            wrong += &format!("{name}: {difference}\n");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).expect("a readable file");
    serde_json::from_str(&text).expect("JSON")
}

/// Runs a case's command and returns the calls it prints.
fn explain(folder: &Path) -> Result<Vec<Value>, String> {
    let text = fs::read_to_string(folder.join("run.txt")).expect("run.txt");
    let line = text.lines().next().expect("a command");
    let words = words(line).into_iter().map(|word| {
        let path = folder.join(&word);
        if path.exists() {
            path.into_os_string()
        } else {
            OsString::from(word)
        }
    });
    let environment = Environment::default();
    let command = read(words, &environment).map_err(|error| format!("{error:?}"))?;
    let Command::Explain(explain) = command else {
        return Err(format!("not the command explain: {line}"));
    };
    let mut out = Vec::new();
    let mut notes = Vec::new();
    callbridge::run_explain(&explain, &environment, &mut out, &mut notes)
        .map_err(|failure| format!("{failure:?}"))?;
    let lines = String::from_utf8(out).expect("UTF-8");
    let calls = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    Ok(calls.collect())
}

/// Splits a command line like a shell would, except that only single quotes are special.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    for character in line.chars() {
        if character == '\'' {
            is_quoted = !is_quoted;
        } else if character == ' ' && !is_quoted {
            words.push(std::mem::take(&mut word));
        } else {
            word.push(character);
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn is_internal(call: &Value) -> bool {
    call["direction"] == "INTERNAL"
}

fn differences(expected: &Value, mut calls: Vec<Value>) -> Vec<String> {
    let internal = calls.iter().filter(|call| is_internal(call)).count() as u64;
    if let Some(wanted) = expected["internal"].as_u64()
        && wanted != internal
    {
        return vec![format!("{internal} internal calls instead of {wanted}")];
    }
    let mut expected = expected["calls"].as_array().expect("calls").clone();
    if !expected.iter().any(is_internal) {
        calls.retain(|call| !is_internal(call));
    }
    if calls.len() != expected.len() {
        return vec![format!(
            "{} calls instead of {}",
            calls.len(),
            expected.len()
        )];
    }
    calls.sort_by_key(order);
    expected.sort_by_key(order);
    let pairs = calls.iter().zip(&expected);
    pairs
        .flat_map(|(call, expected)| call_differences(call, expected))
        .collect()
}

fn order(call: &Value) -> (i64, String) {
    let started = call["startedAt"].as_i64().unwrap_or_default();
    (started, call["clientPhone"].to_string())
}

fn call_differences(call: &Value, expected: &Value) -> Vec<String> {
    let is_incomplete = call["incomplete"] == true;
    if expected["incomplete_ok"] == true && is_incomplete {
        return Vec::new();
    }
    let mut differences = Vec::new();
    for key in COMPARED {
        let Some(wanted) = expected.get(key) else {
            continue;
        };
        let is_open = wanted.is_null() && MEASURED.contains(&key);
        if !is_open && !is_same(key, &call[key], wanted) {
            differences.push(format!("{key} {} instead of {wanted}", call[key]));
        }
    }
    let duration = expected.get("durationSec");
    let is_unknown = expected["incomplete"] == true || duration.is_some_and(Value::is_null);
    if is_incomplete && !is_unknown {
        differences.push("incomplete".to_owned());
    }
    if is_unknown && !is_incomplete {
        differences.push("not marked incomplete".to_owned());
    }
    differences
}

/// Compares one value. The expected value may be a choice, such as `101 or null`.
fn is_same(key: &str, value: &Value, wanted: &Value) -> bool {
    if let Value::String(text) = wanted
        && text.contains(" or ")
    {
        return text.split(" or ").any(|choice| match choice {
            "null" => value.is_null(),
            choice => is_same(key, value, &Value::from(choice)),
        });
    }
    if MEASURED.contains(&key)
        && let (Some(value), Some(wanted)) = (value.as_f64(), wanted.as_f64())
    {
        return (value - wanted).abs() <= 1.0;
    }
    // A choice is a string, whatever the value is.
    if let Value::String(text) = wanted
        && (value.is_boolean() || value.is_number())
    {
        let shown = value.to_string();
        return shown == *text;
    }
    value == wanted
}
