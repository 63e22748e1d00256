//! `tests/PROMISES.md` lists what callbridge promises, each with the tests that fail when the
//! promise is broken. The page is generated from the lines `/// Promise: …` above tests.

use super::rust_files;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const PAGE: &str = "tests/PROMISES.md";
/// The page must fit on two screens.
const LINES_MAX: usize = 100;
const HEAD: &str = "# Promises and their tests

Generated from the lines `/// Promise: …` above tests. To write this page again:
`CALLBRIDGE_WRITE_PROMISES=1 cargo test --test models promises`

| promise | tests |
|---|---|
";

/// Each promise with its tests, in the order of the tests' files.
#[derive(Default)]
struct Promises {
    tests: BTreeMap<String, Vec<String>>,
    order: Vec<String>,
}

impl Promises {
    /// Adds the promises of one file.
    fn read(&mut self, file: &str, text: &str) {
        let mut open = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(promise) = line.strip_prefix("/// Promise: ") {
                open.push(promise.to_owned());
            }
            let Some(name) = super::function(line) else {
                continue;
            };
            for promise in open.drain(..) {
                if !self.tests.contains_key(&promise) {
                    self.order.push(promise.clone());
                }
                let tests = self.tests.entry(promise).or_default();
                tests.push(format!("`{file}: {name}`"));
            }
        }
    }

    fn page(&self) -> String {
        let mut page = HEAD.to_owned();
        for promise in &self.order {
            let tests = self.tests[promise].join("<br>");
            page += &format!("| {promise} | {tests} |\n");
        }
        page
    }
}

#[test]
fn promises_page_is_generated_from_the_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(root, &mut files);
    files.sort();
    let mut promises = Promises::default();
    for path in files {
        let name = path.strip_prefix(root).expect("below the root");
        if name != Path::new(file!()) {
            let text = fs::read_to_string(&path).expect("readable text");
            promises.read(&name.display().to_string(), &text);
        }
    }
    let page = promises.page();
    assert!(
        promises.order.len() > 50,
        "{} promises",
        promises.order.len()
    );
    let lines = page.lines().count();
    assert!(
        lines <= LINES_MAX,
        "{lines} lines do not fit on two screens"
    );
    if std::env::var_os("CALLBRIDGE_WRITE_PROMISES").is_some() {
        fs::write(root.join(PAGE), &page).expect("written");
    }
    let written = fs::read_to_string(root.join(PAGE)).expect("the page");
    assert!(
        written == page,
        "{PAGE} is not up to date: its head says how to write it again"
    );
}

#[test]
fn promise_with_two_tests_is_one_row() {
    let mut promises = Promises::default();
    promises.read(
        "a.rs",
        "/// Promise: A.\n#[test]\nfn one() {}\nfn two() {}\n",
    );
    promises.read(
        "b.rs",
        "/// Promise: A.\n/// Promise: B.\nasync fn three() {}\n",
    );
    let rows = promises.page().replace(HEAD, "");
    assert_eq!(
        rows,
        "| A. | `a.rs: one`<br>`b.rs: three` |\n| B. | `b.rs: three` |\n"
    );
}
