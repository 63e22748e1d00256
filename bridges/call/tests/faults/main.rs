//! Tests that the model finds faults. When a fault is planted in a copy of this crate,
//! `tests/model` must fail within a thousand stories.
//!
//! Planting takes minutes, so it only happens with `CALLBRIDGE_PLANT_FAULTS`, which is set by
//! `tests/run faults`. By default, the list of faults is merely checked against the source.

mod list;

use list::{FAULTS, Fault};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Maximum number of stories to run before a fault must be found.
const STORIES_MAX: &str = "1000";

fn source_file(fault: &Fault) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    source.join(fault.file)
}

#[test]
fn planted_fault_text_occurs_once_in_its_source() {
    for fault in &FAULTS {
        let text = fs::read_to_string(source_file(fault)).expect("a file of the crate");
        let places = text.matches(fault.old).count();
        assert_eq!(places, 1, "{}: {} in {}", fault.name, fault.old, fault.file);
    }
}

#[test]
fn every_planted_fault_is_found_by_the_model() {
    if std::env::var_os("CALLBRIDGE_PLANT_FAULTS").is_none() {
        println!("not run: tests/run faults (plants faults for the model to find)");
        return;
    }
    let workspace = FaultWorkspace::new();
    let unchanged = workspace.run();
    assert!(
        unchanged.is_ok(),
        "without a fault: {}",
        unchanged.unwrap_err()
    );
    let mut unfound = Vec::new();
    println!("found by story  fault");
    for fault in &FAULTS {
        let file = workspace.plant(fault);
        match workspace.run() {
            Ok(()) => {
                println!("         never  {}", fault.name);
                unfound.push(fault.name);
            }
            Err(output) => println!("{:>14}  {}", failed_story(&output), fault.name),
        }
        fs::copy(source_file(fault), file).expect("the fault is taken out again");
    }
    assert!(unfound.is_empty(), "not found: {unfound:?}");
}

/// Returns the number of the story that failed, given the model's output.
fn failed_story(output: &str) -> &str {
    let story = output.split("failed at story ").nth(1);
    let number = story.and_then(|rest| rest.split_whitespace().next());
    number
        .map(|n| n.trim_end_matches(':'))
        .unwrap_or_else(|| panic!("the model failed for another reason:\n{output}"))
}

/// A workspace that contains only a copy of this crate.
struct FaultWorkspace {
    folder: PathBuf,
}

impl FaultWorkspace {
    fn new() -> Self {
        let krate = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = krate.join("../..");
        let folder = root.join("target/faults");
        let _ = fs::remove_dir_all(folder.join("bridges"));
        copy(krate, &folder.join("bridges/call"));
        let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("the manifest");
        let workspace = manifest.split("\n[package]").next().unwrap_or_default();
        let members = "members = [\"bridges/*\", \"crates/*\", \"fuzz\"]";
        assert!(
            workspace.contains(members),
            "the workspace has other members"
        );
        let alone = workspace.replace(members, "members = [\"bridges/call\"]");
        fs::write(folder.join("Cargo.toml"), alone).expect("a manifest");
        // Other tests in this crate use the testkit, which isn't part of the workspace.
        let own = folder.join("bridges/call/Cargo.toml");
        let manifest = fs::read_to_string(&own).expect("a manifest");
        let without = manifest.replace("callbridge-testkit.workspace = true\n", "");
        fs::write(own, without).expect("a manifest");
        fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock")).expect("a lock file");
        Self { folder }
    }

    /// Plants the fault, and returns the file that was changed.
    fn plant(&self, fault: &Fault) -> PathBuf {
        let file = self.folder.join("bridges/call/src").join(fault.file);
        let text = fs::read_to_string(&file).expect("a file of the copy");
        fs::write(&file, text.replace(fault.old, fault.new)).expect("the fault is planted");
        file
    }

    /// Runs the model, returning its output as an error if it fails.
    fn run(&self) -> Result<(), String> {
        let output = Command::new(env!("CARGO"))
            .args(["test", "--offline", "--quiet", "--test", "model"])
            .current_dir(&self.folder)
            .env("CARGO_TARGET_DIR", self.folder.join("target"))
            .env("PROPTEST_CASES", STORIES_MAX)
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .output()
            .expect("cargo runs");
        let bytes = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() {
            Ok(())
        } else {
            Err(text)
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name");
        if path.is_dir() {
            copy(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).expect("a copy");
        }
    }
}
