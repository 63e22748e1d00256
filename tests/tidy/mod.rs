//! Checks that the code is readable: the length of files and lines, words that do not belong in
//! finished code or in messages, dependencies between crates, and promises.

mod circles;
mod direction;
mod promises;
mod release;

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 600;
const MAIN_LINES_MAX: usize = 120;
const COLUMNS_MAX: usize = 100;
/// Names have the form `subject_condition_expectation`. Longer names are hard to read.
const NAME_MAX: usize = 60;

/// Phrases that readers of messages do not understand at once, each with its replacement.
const RIDDLES: [(&str, &str); 15] = [
    ("all is well", "no problem found"),
    ("are told", "reported"),
    ("is told", "reported"),
    ("it tells", "reports"),
    ("last word", "status report"),
    ("leaves by itself", "is sent by itself"),
    ("mend it", "correct it"),
    ("mend the", "correct the"),
    ("nobody knows", "it is not known"),
    ("not heard", "not received"),
    ("put down to", "with"),
    ("say nothing", "send no reports"),
    ("says nothing", "sends no reports"),
    ("stands beside", "cannot be used with"),
    ("without a word", "silently"),
];

/// Returns the phrases of [`RIDDLES`] in the program's own code, one per line. Comments and tests
/// are left out.
fn riddles(name: &str, text: &str) -> Vec<String> {
    let is_program = name.starts_with("src/") || name.contains("/src/");
    let for_tests = ["tests", "/testbed/", "/golden/"];
    if !is_program || for_tests.iter().any(|part| name.contains(part)) {
        return Vec::new();
    }
    let own = text.split("#[cfg(test)]\nmod tests {").next();
    let lines = own.unwrap_or_default().lines().enumerate();
    let code_lines = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
    code_lines
        .filter_map(|(at, line)| {
            let line = line.split(" // ").next().unwrap_or_default();
            let line = line.split(" -- ").next().unwrap_or_default().to_lowercase();
            let (riddle, plain) = RIDDLES.iter().find(|(riddle, _)| line.contains(riddle))?;
            Some(format!("{name}:{}: `{riddle}`: say `{plain}`", at + 1))
        })
        .collect()
}

/// Finds every `.rs` file below `folder`, except in build folders.
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

/// Returns the name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_item = before
        .split_whitespace()
        .all(|word| word.starts_with("pub") || matches!(word, "async" | "const" | "unsafe"));
    is_item.then(|| rest.split(['(', '<']).next().unwrap_or(rest))
}

/// Returns every error of a file, one per line.
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
    // The words are put together here, so this file does not contain them.
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
        if let Some(name) = function(line).filter(|name| name.len() > NAME_MAX) {
            faults.push(format!(
                "{name}: a function's name has at most {NAME_MAX} characters"
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
fn source_files_keep_the_style_limits() {
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
        let text = fs::read_to_string(&path).expect("readable text");
        all.extend(faults(&name, &text));
        all.extend(riddles(&name, &text));
    }
    assert!(all.is_empty(), "\n{}\n", all.join("\n"));
}

#[test]
fn style_check_finds_long_files_lines_names_and_todo() {
    let body = "x();\n".repeat(FILE_LINES_MAX);
    let unfinished = ["to", "do!()"].concat();
    let (long, name) = ("x".repeat(100), "y".repeat(61));
    let text = format!("{body}// {long}\n{unfinished}\nasync fn {name}() {{}}\n");
    let found = faults("src/a.rs", &text);
    assert_eq!(found.len(), 4, "{found:?}");
}

#[test]
fn riddle_is_found_only_in_program_messages() {
    let text = "// it is not heard\nsay(\"a hang-up was not heard\");\n#[cfg(test)]\nmod tests {\n\
                say(\"all is well\");\n}\n";
    assert_eq!(riddles("src/a.rs", text).len(), 1);
    assert_eq!(riddles("crates/a/src/b_tests.rs", text), [""; 0]);
    assert_eq!(riddles("tests/a.rs", text), [""; 0]);
}

/// A filter that matches no test gives no error.
#[test]
fn nextest_filters_name_existing_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join(".config/nextest.toml")).expect("readable text");
    let mut found = 0;
    for rest in text.split("test(").skip(1) {
        let (name, _) = rest.split_once(')').expect("a bracket");
        let name = name.trim_start_matches("/^").trim_start_matches('=');
        let (module, function) = name.rsplit_once("::").expect("a module");
        let path = format!("tests/{}", module.replace("::", "/"));
        let paths = [format!("{path}.rs"), format!("{path}/mod.rs")].map(|path| root.join(path));
        let path = paths.iter().find(|path| path.is_file());
        let path = path.unwrap_or_else(|| panic!("no module {module}"));
        let code = fs::read_to_string(path).expect("readable text");
        let function = function.trim_end_matches('/');
        let is_there = function.is_empty() || code.contains(&format!("fn {function}"));
        assert!(is_there, "no {function} in {module}");
        found += 1;
    }
    assert!(found > 5, "{found} filters");
}
