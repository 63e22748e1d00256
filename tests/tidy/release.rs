//! Tests that a release cannot be built without its check of advisories.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Creates programs that come first in PATH: `cargo` with these exit codes, and `cargo-deny` if
/// `deny` is set. `cargo build` creates a file `built` there.
fn programs(folder: &Path, deny: bool, fetch: u8, check: u8) {
    let cargo = format!(
        "case \"$*\" in *'fetch db'*) exit {fetch} ;; *'check advisories'*) exit {check} ;;\n\
         *build*) touch \"$(dirname \"$0\")/built\" ;; esac\n"
    );
    write(folder, "cargo", &cargo);
    if deny {
        write(folder, "cargo-deny", "exit 0\n");
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}")).expect("written");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, executable).expect("executable");
}

/// Runs `deploy/build`. Returns its exit code and whether it reached the build.
fn build(deny: bool, fetch: u8, check: u8) -> (Option<i32>, bool) {
    let folder = tempfile::tempdir().expect("a folder");
    programs(folder.path(), deny, fetch, check);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("bash")
        .arg(root.join("deploy/build"))
        .env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()))
        .env("SOURCE_DATE_EPOCH", "0")
        .output()
        .expect("bash");
    (output.status.code(), folder.path().join("built").exists())
}

#[test]
fn release_is_built_only_after_its_advisories_are_checked() {
    assert_eq!(build(false, 0, 0), (Some(2), false), "no cargo-deny");
    assert_eq!(build(true, 1, 0), (Some(2), false), "no database");
    assert_eq!(build(true, 0, 1), (Some(1), false), "an advisory");
    assert_eq!(build(true, 0, 0), (Some(0), true));
}

/// Returns the text of a file of the project.
fn read(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(name)).expect("text")
}

#[test]
fn package_script_checks_the_advisories() {
    let script = read("tests/package/run");
    assert!(script.contains("\nset -euo pipefail\n"), "an error ends it");
    let (_, rest) = script.split_once("\nprepare() {\n").expect("prepare()");
    let (prepare, _) = rest.split_once("\n}\n").expect("the end of prepare()");
    let check = concat!(
        r#"if [ "${CALLBRIDGE_BUILT:-}" = yes ]; then deploy/advisories; "#,
        "else deploy/build --quiet; fi"
    );
    assert!(
        prepare.lines().any(|line| line.trim() == check),
        "{prepare}"
    );
    // Only `package` runs cargo deb, and `prepare` is called before both calls of it.
    let runs_cargo_deb = |line: &&str| line.trim_start().starts_with("cargo deb ");
    assert_eq!(script.lines().filter(runs_cargo_deb).count(), 1);
    assert!(script.contains("  only-build) prepare; "));
    let (_, whole_run) = script.split_once("\nprepare\n").expect("a call");
    assert!(whole_run.contains("\npackage 0."));
    assert!(read("deny.toml").lines().any(|line| line == "[advisories]"));
}
