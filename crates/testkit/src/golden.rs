//! Compares stored types with their golden files.
//!
//! `tests/golden` of each crate that stores data has one file for each stored type.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::path::Path;

/// Advice for a stored type that has changed.
const ADVICE: &str = "States hold this shape. If the change is intended, add a migration that \
                      rewrites the stored values, and put what is written now into the golden \
                      file.";

/// Checks that `read_and_write` reads the golden file of this name, and writes the same JSON again.
///
/// # Panics
/// If the file is missing, cannot be read, or differs from the written JSON.
pub fn holds(name: &str, read_and_write: impl Fn(&str) -> Result<String, String>) {
    // The crate that is tested, not this one, because cargo sets the variable at run time.
    let tested = std::env::var_os("CARGO_MANIFEST_DIR").expect("run by cargo test");
    let path = Path::new(&tested).join(format!("tests/golden/{name}.json"));
    let shown = path.display();
    let golden = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{shown}: {error}"));
    let written = read_and_write(&golden)
        .unwrap_or_else(|error| panic!("{shown} cannot be read: {error}\n{ADVICE}"));
    let golden: Value = serde_json::from_str(&golden).expect("JSON");
    let written: Value = serde_json::from_str(&written).expect("JSON");
    assert!(
        golden == written,
        "{shown} differs from what is written now:\n{written:#}\n{ADVICE}"
    );
}

/// Checks, as [`holds`] does, a type that is stored in its serialized form.
///
/// # Panics
/// As [`holds`] does.
pub fn keeps<T: Serialize + DeserializeOwned>(name: &str) {
    holds(name, |text| {
        let value: T = serde_json::from_str(text).map_err(|error| error.to_string())?;
        serde_json::to_string(&value).map_err(|error| error.to_string())
    });
}
