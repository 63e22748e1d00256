//! The shape of the house: how often a type's name is used, over how many files its methods are
//! spread, and how many fields it has. What is past a limit stands in `exceptions.tsv`, with its
//! count: the list may only shrink.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A name may stand for so many types of the workspace.
const SAME_NAME_MAX: usize = 2;
/// These may stand in every crate: which one is meant says the path.
const EVERYWHERE: [&str; 4] = ["Error", "Settings", "Config", "State"];
/// The methods of one type stand in at most so many files.
const IMPL_FILES_MAX: usize = 3;
/// Fields of a struct that mirrors no row and no wire format.
const FIELDS_MAX: usize = 12;
/// Derived by what mirrors JSON or flags.
const FORMATS: [&str; 4] = ["Serialize", "Deserialize", "Args", "Parser"];
/// Mirrors of something else: of a row, or of flags that are checked.
const ROWS: [&str; 11] = [
    "call::Cdr",
    "callbridge::Config",
    "oauth::Connection",
    "page::LetterView",
    "sandbox::Settings",
    "spool::CallColumns",
    "spool::FinishRow",
    "spool::Letter",
    "spool::Row",
    "spool::Unconfirmed",
    "spool::WorkQueue",
];

/// What is found in the sources, by rule and key.
#[derive(Debug, Default)]
struct Found {
    names: BTreeMap<String, usize>,
    impls: BTreeMap<String, BTreeSet<PathBuf>>,
    fields: BTreeMap<String, usize>,
}

impl Found {
    /// Takes a file's text, without its unit tests.
    fn take(&mut self, krate: &str, path: &Path, text: &str) {
        let (mut fields, mut mirrors) = (None, false);
        for line in text.lines() {
            if line.starts_with("#[derive(") {
                mirrors = FORMATS.iter().any(|format| line.contains(format));
            }
            if let Some((name, open)) = defined(line) {
                if !EVERYWHERE.contains(&name) {
                    *self.names.entry(name.to_owned()).or_default() += 1;
                }
                let counted = open && !std::mem::take(&mut mirrors);
                let key = format!("{krate}::{name}");
                let counted = counted && !ROWS.contains(&key.as_str());
                fields = counted.then_some((key, 0));
            }
            if let Some(name) = implemented(line) {
                let files = self.impls.entry(format!("{krate}::{name}")).or_default();
                files.insert(path.to_owned());
            }
            match (&mut fields, line) {
                (Some((name, count)), "}") => {
                    let most = self.fields.entry(std::mem::take(name)).or_default();
                    *most = (*most).max(*count);
                    fields = None;
                }
                (Some((_, count)), line) if is_field(line) => *count += 1,
                _ => {}
            }
        }
    }

    /// What is past its limit: rule, key and count.
    fn excesses(&self) -> BTreeMap<(String, String), usize> {
        let names = self
            .names
            .iter()
            .map(|(name, count)| ("name", name, *count, SAME_NAME_MAX));
        let impls = self.impls.iter();
        let impls = impls.map(|(name, files)| ("impl", name, files.len(), IMPL_FILES_MAX));
        let fields = self
            .fields
            .iter()
            .map(|(name, count)| ("fields", name, *count, FIELDS_MAX));
        let all = names.chain(impls).chain(fields);
        all.filter(|(_, _, count, most)| count > most)
            .map(|(rule, key, count, _)| ((rule.to_owned(), key.clone()), count))
            .collect()
    }
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// The name of a type that begins here, and whether it is a struct with fields.
fn defined(line: &str) -> Option<(&str, bool)> {
    let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
    let line = line.strip_prefix("pub(super) ").unwrap_or(line);
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let (kind, rest) = line.split_once(' ')?;
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "type");
    let name = word(rest);
    (is_type && !name.is_empty()).then(|| (name, kind == "struct" && line.ends_with('{')))
}

/// The type whose own methods begin here.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generic) => generic.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    (!rest.contains(" for ")).then(|| word(rest))
}

fn is_field(line: &str) -> bool {
    let Some(line) = line.strip_prefix("    ") else {
        return false;
    };
    let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
    let line = line.strip_prefix("pub(super) ").unwrap_or(line);
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let name = word(line);
    !name.is_empty() && line[name.len()..].starts_with(": ")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.expect("a readable entry").path();
        let name = path
            .file_name()
            .and_then(|it| it.to_str())
            .unwrap_or_default();
        if path.is_dir() && !matches!(name, "tests" | "golden") {
            sources(&path, found);
        } else if name.ends_with(".rs") && !name.ends_with("tests.rs") {
            found.push(path);
        }
    }
}

fn measured(root: &Path) -> Found {
    let mut krates = vec![("callbridge".to_owned(), root.join("src"))];
    for folder in ["bridges", "crates"] {
        for entry in fs::read_dir(root.join(folder)).expect("crates") {
            let path = entry.expect("a crate").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name != "testkit" && name != "testbed" {
                krates.push((name, path.join("src")));
            }
        }
    }
    let mut found = Found::default();
    for (krate, folder) in krates {
        let mut files = Vec::new();
        sources(&folder, &mut files);
        for path in files {
            let text = fs::read_to_string(&path).expect("readable text");
            let code = text
                .split("\n#[cfg(test)]\nmod ")
                .next()
                .unwrap_or_default();
            found.take(&krate, &path, code);
        }
    }
    found
}

/// `rule<TAB>key<TAB>count` a line.
fn listed(text: &str) -> BTreeMap<(String, String), usize> {
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('\t').collect();
        let [rule, key, count] = cells[..] else {
            panic!("{row}: rule, key and count are expected");
        };
        let count = count.parse().expect("a count");
        ((rule.to_owned(), key.to_owned()), count)
    })
    .collect()
}

/// What the list and the sources say differently, a line each.
fn faults(
    excesses: &BTreeMap<(String, String), usize>,
    list: &BTreeMap<(String, String), usize>,
) -> Vec<String> {
    let keys: BTreeSet<&(String, String)> = excesses.keys().chain(list.keys()).collect();
    let mut faults = Vec::new();
    for key in keys {
        let (now, then) = (excesses.get(key), list.get(key));
        let (rule, what) = key;
        match (now, then) {
            (Some(now), None) => faults.push(format!("{rule} {what}: {now}, past the limit")),
            (Some(now), Some(then)) if now > then => {
                faults.push(format!("{rule} {what}: {now}, was {then}"));
            }
            (now, Some(then)) if now != Some(then) => {
                let now = now.copied().unwrap_or_default();
                faults.push(format!(
                    "{rule} {what}: {then} in exceptions.tsv, {now} by now: say so there"
                ));
            }
            _ => {}
        }
    }
    faults
}

#[test]
fn names_methods_and_fields_keep_their_limits_and_the_exceptions_only_shrink() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = measured(root);
    assert!(found.names.len() > 300, "only {} names", found.names.len());
    let excesses = found.excesses();
    if let Some(path) = std::env::var_os("CALLBRIDGE_TIDY_LIST") {
        let rows = excesses.iter();
        let rows = rows.map(|((rule, key), count)| format!("{rule}\t{key}\t{count}\n"));
        fs::write(path, rows.collect::<String>()).expect("written");
    }
    let list = fs::read_to_string(root.join("tests/tidy/exceptions.tsv")).expect("the list");
    let faults = faults(&excesses, &listed(&list));
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn a_name_too_often_methods_too_far_and_a_struct_too_wide_are_found() {
    let mut found = Found::default();
    let wide: String = (0..13).map(|n| format!("    pub a{n}: u8,\n")).collect();
    let text = format!("pub struct Wide {{\n{wide}}}\nimpl<'a> Wide<'a> {{\n}}\n");
    for file in ["a.rs", "b.rs", "c.rs", "d.rs"] {
        found.take("x", Path::new(file), &text);
    }
    let json = text
        .replace("Wide", "Json")
        .replace("impl<'a> Json<'a> {\n}\n", "");
    found.take(
        "x",
        Path::new("e.rs"),
        &format!("#[derive(Serialize)]\n{json}"),
    );
    let excesses = found.excesses();
    let said: Vec<String> = excesses
        .iter()
        .map(|((rule, key), n)| format!("{rule} {key} {n}"))
        .collect();
    assert_eq!(said, ["fields x::Wide 13", "impl x::Wide 4", "name Wide 4"]);
    assert_eq!(faults(&excesses, &excesses), [] as [String; 0]);
    assert_eq!(faults(&excesses, &BTreeMap::new()).len(), 3);
    assert_eq!(
        faults(&BTreeMap::new(), &excesses).len(),
        3,
        "what is mended leaves the list"
    );
}
