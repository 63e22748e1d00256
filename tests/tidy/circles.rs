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
                let full = each.map(|path| format!("{}{path}", stem.trim()));
                // `a::{self}` means `a`.
                all.extend(full.map(|path| path.trim_end_matches("::self").to_owned()));
                begun = at + 1;
            }
            _ => {}
        }
    }
    all
}

/// The paths in a module's code.
#[derive(Default)]
struct UsedPaths {
    /// Those of `use` declarations.
    imported: Vec<String>,
    /// All others.
    inline: Vec<String>,
}

fn used_paths(code: &str) -> UsedPaths {
    let mut used = UsedPaths::default();
    let mut rest = String::new();
    for (i, part) in code.split("use ").enumerate() {
        match part.split_once(';') {
            Some((tree, behind)) if i > 0 => {
                used.imported.extend(paths(&tree.replace('\n', " ")));
                rest.push_str(behind);
            }
            _ => rest.push_str(part),
        }
    }
    let words = rest.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    let words = words.filter(|word| word.contains("::"));
    used.inline.extend(words.map(str::to_owned));
    used
}

/// Returns the full path in the crate of a path in `source`. The path may begin with a name that
/// `source` imports.
fn full_path(source: &str, path: &str) -> String {
    let parent = source.rsplit_once("::").map_or("", |(parent, _)| parent);
    match path.split_once("::") {
        Some(("crate", rest)) => rest.to_owned(),
        Some(("super", rest)) if rest.starts_with("super::") => full_path(parent, rest),
        Some(("super", rest)) => join(parent, rest),
        Some(("self", rest)) => join(source, rest),
        _ => join(source, path),
    }
}

/// Returns the module that defines what a path in `source` names, if it's another one of this
/// crate. `imports` is what [`imports`] returns.
fn target(
    all: &Modules,
    imports: &BTreeMap<String, String>,
    source: &str,
    path: &str,
) -> Option<String> {
    let mut full = full_path(source, path);
    let mut len = full.len();
    while !all.contains_key(&full[..len]) {
        if let Some(origin) = imports.get(&full[..len]) {
            full = format!("{origin}{}", &full[len..]);
            len = full.len();
        } else {
            len = full[..len].rfind("::")?;
        }
    }
    full.truncate(len);
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

/// Returns the names that modules import from others, and where each import leads. Other modules
/// may use these names too, as with `pub use page::Page`.
fn imports(all: &Modules) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for (module, code) in all {
        for path in used_paths(code).imported {
            let name = path.rsplit("::").next().unwrap_or_default();
            let (own, origin) = (join(module, name), full_path(module, &path));
            // A name that begins its own path is a crate's, as in `use uuid::{self, Uuid}`.
            let is_crate = origin.starts_with(&own);
            if name != "*" && !is_crate && !all.contains_key(&own) {
                names.insert(own, origin);
            }
        }
    }
    names
}

/// Returns the modules that each module of a crate uses.
pub(crate) fn uses(all: &Modules) -> BTreeMap<&str, BTreeSet<String>> {
    let imports = imports(all);
    let mut uses: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (source, code) in all.iter().filter(|(source, _)| !source.is_empty()) {
        let UsedPaths { imported, inline } = used_paths(code);
        let used = imported.into_iter().chain(inline);
        let used = used.filter_map(|path| target(all, &imports, source, &path));
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

/// The modules of the root that are known to be in a circle.
const KNOWN: [&str; 15] = [
    "config::arguments",
    "config::checked",
    "config::checked::connect",
    "config::checked::crm",
    "config::checked::hub",
    "config::checked::lookup",
    "config::checked::page",
    "config::checked::sources",
    "config::checked::trunks",
    "config::checked::typed",
    "config::checked::webhooks",
    "config::checking::init",
    "config::command",
    "config::flags",
    "config::options",
];

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
        let mut found = circular_modules(&modules(&root.join(&name).join("src")));
        if name == "." {
            for module in KNOWN {
                assert!(
                    found.remove(module),
                    "{module} is in no circle, so remove it from KNOWN"
                );
            }
        }
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
    // Neither a re-export of a module inside another nor an imported module hides the file.
    let (inner, other) = (("b", "mod c;\npub use c::X;"), ("d", "pub struct Y;"));
    let uses = ("b::c", "use crate::d;\npub struct X(d::Y);");
    assert!(circles([root, inner, uses, other]).is_empty());
    let other = ("d", "use crate::b::X;\npub struct Y;");
    assert_eq!(circles([root, inner, uses, other]), ["b::c", "d"]);
    // A module and the modules inside it can use each other.
    let inside = ("b::c", "use super::Z;");
    assert!(circles([root, ("a", ""), ("b", "mod c;\nuse c::X;"), inside]).is_empty());
}
