//! The limits of the house, as a test: length of files, functions and lines, and words that do
//! not belong into finished code.

mod direction;
mod promises;
mod shape;

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 600;
const MAIN_LINES_MAX: usize = 120;
const FUNCTION_LINES_MAX: usize = 70;
/// Of a function that is one match or one table: its arms are read one by one.
const MATCH_LINES_MAX: usize = 100;
const COLUMNS_MAX: usize = 100;

/// Every file below `folder` whose name ends in `.rs`, build folders left out.
fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            rust_files(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Is this the first line of a function, as rustfmt writes it?
fn begins_function(line: &str) -> bool {
    let words = line.trim_start();
    let words = words.strip_prefix("pub(crate) ").unwrap_or(words);
    let words = words.strip_prefix("pub(super) ").unwrap_or(words);
    let words = words.strip_prefix("pub ").unwrap_or(words);
    let words = words.strip_prefix("const ").unwrap_or(words);
    words
        .strip_prefix("async ")
        .unwrap_or(words)
        .starts_with("fn ")
}

/// `(first line, lines)` of each function that is longer than allowed.
fn long_functions(lines: &[&str]) -> Vec<(usize, usize)> {
    let mut long = Vec::new();
    for (start, line) in lines
        .iter()
        .enumerate()
        .filter(|(_, line)| begins_function(line))
    {
        let closing = format!("{}}}", " ".repeat(indent(line)));
        let one_line = line.trim_end().ends_with(['}', ';']);
        let length = if one_line {
            1
        } else {
            lines[start..]
                .iter()
                .position(|line| *line == closing)
                .map_or(1, |end| end + 1)
        };
        let most = match is_one_block(&lines[start..(start + length).min(lines.len())]) {
            true => MATCH_LINES_MAX,
            false => FUNCTION_LINES_MAX,
        };
        if length > most {
            long.push((start + 1, length));
        }
    }
    long
}

/// Three quarters of the function are one match, or one table.
fn is_one_block(function: &[&str]) -> bool {
    let own = function[0].len() - function[0].trim_start().len() + 4;
    let at_own = |line: &&str| line.len() - line.trim_start().len() == own;
    let ends = |open: usize| {
        let rest = function[open + 1..].iter();
        rest.clone().position(at_own).map_or(0, |length| length + 2)
    };
    (0..function.len()).any(|at| {
        let opens = at_own(&function[at])
            && (function[at].contains("match ") && function[at].ends_with('{')
                || function[at].ends_with('['));
        opens && ends(at) * 4 >= function.len() * 3
    })
}

/// Every fault of one file, a line each.
fn faults(name: &str, text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut faults = Vec::new();
    let lines_max = if name == "src/main.rs" {
        MAIN_LINES_MAX
    } else {
        FILE_LINES_MAX
    };
    if lines.len() > lines_max {
        faults.push(format!(
            "{name}: {} lines, {lines_max} at most: split it",
            lines.len()
        ));
    }
    for (start, length) in long_functions(&lines) {
        faults.push(format!(
            "{name}:{start}: a function of {length} lines, {FUNCTION_LINES_MAX} at most"
        ));
    }
    // Put together here so that this file does not find itself.
    let banned = [
        ["to", "do!("].concat(),
        ["unimple", "mented!("].concat(),
        ["FIX", "ME"].concat(),
        ["#[ig", "nore"].concat(),
    ];
    for (at, line) in lines.iter().enumerate() {
        if line.chars().count() > COLUMNS_MAX {
            faults.push(format!(
                "{name}:{}: longer than {COLUMNS_MAX} columns",
                at + 1
            ));
        }
        if let Some(word) = banned.iter().find(|word| line.contains(word.as_str())) {
            faults.push(format!("{name}:{}: `{word}` is not finished code", at + 1));
        }
        let in_tests = name.starts_with("tests/") || name.contains("/tests/");
        if in_tests
            && (line.contains(["thread::", "sleep("].concat().as_str())
                || line.contains(["time::", "sleep("].concat().as_str()))
        {
            faults.push(format!(
                "{name}:{}: wait for the event, not for time",
                at + 1
            ));
        }
    }
    faults
}

#[test]
fn every_file_keeps_the_limits_of_the_house() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(root, &mut files);
    assert!(
        files.len() > 10,
        "only {} files found below {}",
        files.len(),
        root.display()
    );
    let mut all = Vec::new();
    for path in files {
        let name = path
            .strip_prefix(root)
            .expect("below the root")
            .display()
            .to_string();
        all.extend(faults(
            &name,
            &fs::read_to_string(&path).expect("readable text"),
        ));
    }
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
}

#[test]
fn a_long_function_a_long_line_and_an_unfinished_one_are_found() {
    let body = "    x();\n".repeat(80);
    let unfinished = ["to", "do!()"].concat();
    let text = format!(
        "fn a() {{\n{body}}}\n// {}\n{unfinished}\n",
        "x".repeat(100)
    );
    assert_eq!(
        faults("src/a.rs", &text).len(),
        3,
        "{:?}",
        faults("src/a.rs", &text)
    );
}

#[test]
fn a_function_that_is_one_match_may_have_a_hundred_lines_and_no_more() {
    let matching = |arms: usize| {
        let arms = "        _ => x(),\n".repeat(arms);
        format!("fn a() {{\n    let y = x();\n    match y {{\n{arms}    }}\n}}\n")
    };
    assert_eq!(faults("src/a.rs", &matching(90)), [""; 0]);
    assert_eq!(faults("src/a.rs", &matching(100)).len(), 1);
    let beside = matching(40).replace("let y = x();", &"x();\n    ".repeat(40));
    assert_eq!(
        faults("src/a.rs", &beside).len(),
        1,
        "a match is not most of it"
    );
}
