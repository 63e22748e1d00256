//! Does this version read what released versions have stored, and write the same?
//!
//! `tests/golden` of each crate that stores holds one file for each shape that is stored. A file is
//! never changed: a shape that gains something gets another file (`NAME.2.json`), which is written
//! from then on, and all of them are read for ever.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// What to do about a shape that is another one now.
const CURE: &str = "States of released versions hold it so. Keep reading it: a new field takes \
                    #[serde(default)], a field or word with another name keeps a reader for the \
                    old one (#[serde(alias)]), and what means something else gets a new name. \
                    Then put what is written now beside it as the next file (NAME.2.json), and \
                    leave this one as it is.";

/// The files of a shape, oldest first: `NAME.json`, `NAME.2.json`…
fn files(name: &str) -> Vec<PathBuf> {
    // Of the crate that is tested, not of this one: cargo says which at run time.
    let tested = std::env::var_os("CARGO_MANIFEST_DIR").expect("run by cargo test");
    let folder = Path::new(&tested).join("tests/golden");
    let file = |number: u32| match number {
        1 => folder.join(format!("{name}.json")),
        number => folder.join(format!("{name}.{number}.json")),
    };
    let files: Vec<PathBuf> = (1..).map(file).take_while(|it| it.exists()).collect();
    assert!(!files.is_empty(), "{}: there is none", file(1).display());
    files
}

/// Each golden file of this name is read by `again`, which writes what it has read; the newest file
/// is what is written now.
///
/// # Panics
/// When a file is not there, cannot be read any more, or is not what is written now.
pub fn holds(name: &str, again: impl Fn(&str) -> Result<String, String>) {
    let files = files(name);
    for (age, path) in files.iter().rev().enumerate() {
        let (newest, shown) = (age == 0, path.display());
        let golden = fs::read_to_string(path).expect("readable");
        let written = again(&golden).unwrap_or_else(|why| {
            panic!("{shown} cannot be read any more: {why}\n{CURE}");
        });
        let value = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        let (golden, written) = (value(&golden), value(&written));
        let pretty = |value: &Value| serde_json::to_string_pretty(value).expect("JSON");
        assert!(
            !newest || golden == written,
            "{shown} is not what is written now:\n{}\n{CURE}",
            pretty(&written)
        );
    }
}

/// The same of a type that is stored as it serializes.
///
/// # Panics
/// As [`holds`] does.
pub fn keeps<T: Serialize + DeserializeOwned>(name: &str) {
    holds(name, |text| {
        let value: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
        serde_json::to_string(&value).map_err(|error| error.to_string())
    });
}
