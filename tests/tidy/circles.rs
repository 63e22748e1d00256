//! Checks that no file of a crate uses another file that uses it, directly or through other files.
//! Shared code belongs in one of the two files or in a third one. A module and the files inside it
//! are exempt.

use super::rust_files;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The modules of a crate and their code, by path (`page::shell`, empty for the root).
pub(crate) type Modules = BTreeMap<String, String>;

pub(crate) fn modules(src: &Path) -> Modules {
    let mut files = Vec::new();
    rust_files(src, &mut files);
    let mut found = Modules::new();
    for file in files {
        let name = file.strip_prefix(src).expect("inside").with_extension("");
        let parts: Vec<&str> = name.iter().filter_map(|part| part.to_str()).collect();
        if parts
            .iter()
            .any(|part| *part == "tests" || part.ends_with("_tests"))
        {
            continue;
        }
        let path = parts.join("::");
        let path = path.strip_suffix("::mod").unwrap_or(&path);
        let path = if path == "lib" { "" } else { path };
        let text = fs::read_to_string(&file).expect("a readable file");
        let own = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let code = own
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default());
        found.insert(path.to_owned(), code.collect::<Vec<_>>().join("\n"));
    }
    found
}

/// Returns the paths of a `use`. `a::{b, c::{d, e}}` has three.
fn paths(tree: &str) -> Vec<String> {
    let Some((stem, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default();
        return vec![path.trim().to_owned()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut all, mut begun, mut depth) = (Vec::new(), 0, 0);
    let ends = inner.char_indices().chain([(inner.len(), ',')]);
    for (at, c) in ends {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let each = paths(&inner[begun..at]).into_iter();
                let each = each.filter(|path| !path.is_empty());
                all.extend(each.map(|path| format!("{}{path}", stem.trim())));
                begun = at + 1;
            }
            _ => {}
        }
    }
    all
}

/// Returns every path in a module's code.
fn used_paths(code: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut rest = String::new();
    for (i, part) in code.split("use ").enumerate() {
        match part.split_once(';') {
            Some((tree, behind)) if i > 0 => {
                all.extend(paths(&tree.replace('\n', " ")));
                rest.push_str(behind);
            }
            _ => rest.push_str(part),
        }
    }
    let words = rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    all.extend(words.filter(|word| word.contains("::")).map(str::to_owned));
    all
}

/// Returns the module of this crate to which a path in `source` leads, if any.
fn target(
    all: &Modules,
    given: &BTreeMap<String, String>,
    source: &str,
    path: &str,
) -> Option<String> {
    let parent = source.rsplit_once("::").map_or("", |(parent, _)| parent);
    let mut full = match path.split_once("::")? {
        ("crate", rest) => rest.to_owned(),
        ("super", rest) => join(parent, rest),
        ("self", rest) => join(source, rest),
        (first, _) if all.contains_key(&join(source, first)) => join(source, path),
        _ => return None,
    };
    let first = full.split("::").next().unwrap_or_default();
    if let Some(module) = given.get(first) {
        full = module.clone();
    }
    while !all.contains_key(&full) {
        full = full.rsplit_once("::")?.0.to_owned();
    }
    (full != source).then_some(full)
}

/// Returns the full path of `path` inside `module`. The root's own path is empty.
fn join(module: &str, path: &str) -> String {
    if module.is_empty() {
        path.to_owned()
    } else {
        format!("{module}::{path}")
    }
}

/// Returns the modules that each module of a crate uses.
pub(crate) fn uses(all: &Modules) -> BTreeMap<&str, BTreeSet<String>> {
    // Names that the root re-exports, as in `pub use page::Page`.
    let root = all.get("").map_or("", String::as_str);
    let given: BTreeMap<String, String> = used_paths(root)
        .into_iter()
        .filter_map(|path| {
            let (module, name) = path.rsplit_once("::")?;
            let module = module
                .trim_start_matches("self::")
                .trim_start_matches("crate::");
            Some((name.to_owned(), module.to_owned()))
        })
        .filter(|(name, module)| all.contains_key(module) && !all.contains_key(name))
        .collect();
    let mut uses: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (source, code) in all.iter().filter(|(source, _)| !source.is_empty()) {
        let used = used_paths(code).into_iter();
        let used = used.filter_map(|path| target(all, &given, source, &path));
        // A module is visible to the modules inside it.
        let used = used.filter(|used| !source.starts_with(&format!("{used}::")));
        uses.insert(source, used.collect());
    }
    uses
}

/// Returns the modules of a crate that are in a cycle.
fn circular_modules(all: &Modules) -> BTreeSet<String> {
    let uses = uses(all);
    let all = uses
        .keys()
        .filter(|module| reached(&uses, module).contains(**module));
    all.map(|module| (*module).to_owned()).collect()
}

/// Returns the modules that the module `from` uses directly or through others.
fn reached(uses: &BTreeMap<&str, BTreeSet<String>>, from: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(module) = open.pop() {
        for used in uses.get(module.as_str()).into_iter().flatten() {
            if seen.insert(used.clone()) {
                open.push(used.clone());
            }
        }
    }
    seen
}

#[test]
fn files_have_no_circular_dependencies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let inside = ["bridges", "crates"].into_iter().flat_map(|folder| {
        let entries = fs::read_dir(root.join(folder)).expect("a readable folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names.map(move |name| format!("{folder}/{}", name.to_string_lossy()))
    });
    let mut faults = Vec::new();
    for name in inside.chain([".".to_owned()]) {
        let found = circular_modules(&modules(&root.join(&name).join("src")));
        if !found.is_empty() {
            faults.push(format!("{name}: {found:?}"));
        }
    }
    assert!(
        faults.is_empty(),
        "files in circles:\n{}",
        faults.join("\n")
    );
}

/// Returns the modules in a cycle of a crate with these modules and their code.
fn circles(modules: [(&str, &str); 4]) -> Vec<String> {
    let all = modules.map(|(path, code)| (path.to_owned(), code.to_owned()));
    circular_modules(&all.into()).into_iter().collect()
}

#[test]
fn circular_dependency_is_found_through_braces_and_reexports() {
    let root = ("", "mod a;\nmod b;\npub use a::Given;");
    let (a, below) = (("a", "use crate::b::{self, c::{X, Y}};"), ("b::c", ""));
    assert_eq!(
        circles([root, a, ("b", "use super::Given;"), below]),
        ["a", "b"]
    );
    assert!(circles([root, a, ("b", ""), below]).is_empty());
    // A module and the modules inside it can use each other.
    let inside = ("b::c", "use super::Z;");
    assert!(circles([root, ("a", ""), ("b", "mod c;\nuse c::X;"), inside]).is_empty());
}
