//! `state export` and `state import`: a state moves with its calls, and nothing is written over.

use crate::commands::sidecar::{Place, crm};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// Runs the system's `tar` in the place's folder, and returns its output.
fn tar(place: &Place, arguments: &[&str]) -> String {
    let output = Command::new("tar")
        .current_dir(place.path(""))
        .args(arguments)
        .output()
        .expect("tar");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A finished call, told by the manager.
const CALLS: &str = include_str!("../recordings/deployed_inbound/ami.raw");

/// Promise: An exported state continues on another machine with all its calls.
#[tokio::test]
async fn state_exported_from_running_daemon_imports_with_its_calls() {
    let (place, crm) = (Place::new(), crm(|_| ()).await);
    place.write("calls.ami", CALLS);
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let daemon = place.run(&flags).await;
    place.reaches("/books/journaled", 1).await;
    let books = place.status().await.expect("a status")["books"].clone();
    let file = place.path("exported").display().to_string();
    let said = place.ask(&format!("state export {file}")).await;
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.out.starts_with("exported: spool.db "), "{said:?}");
    let mode = place
        .path("exported")
        .metadata()
        .expect("a file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let entries = tar(&place, &["-tvf", "exported"]);
    let names: Vec<&str> = entries
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(names, ["manifest.json", "spool.db"], "{entries}");
    assert!(
        entries.lines().all(|line| line.starts_with("-rw------- ")),
        "{entries}"
    );
    // A file that is there is not written over.
    assert_eq!(place.ask(&format!("state export {file}")).await.code, 73);
    // A folder in use is not imported into, nor is one that holds something.
    assert_eq!(place.ask(&format!("state import {file}")).await.code, 75);
    daemon.stop().await;
    let said = place.ask(&format!("state import {file}")).await;
    assert_eq!(said.code, 78, "{said:?}");
    assert!(said.err.contains("is not empty"), "{said:?}");
    let state = place.path("state");
    std::fs::rename(&state, place.path("before")).expect("moved away");
    // The files can be unpacked, read, and packed again with the system's tar.
    std::fs::create_dir(place.path("unpacked")).expect("a folder");
    tar(&place, &["-xf", "exported", "-C", "unpacked"]);
    tar(
        &place,
        &[
            "-cf",
            "again",
            "-C",
            "unpacked",
            "manifest.json",
            "spool.db",
        ],
    );
    let again = place.path("again").display().to_string();
    let said = place.ask(&format!("state import {again}")).await;
    assert_eq!(said.code, 0, "{said:?}");
    let daemon = place.run(&flags).await;
    let now = place.status().await.expect("a status")["books"].clone();
    assert_eq!(now, books, "the same calls stand in the books");
    daemon.stop().await;
    let journal = crm.journal().len();
    assert_eq!(journal, 1, "none was sent twice");
}

#[tokio::test]
async fn what_is_no_exported_state_is_refused_and_a_missing_one_is_66() {
    let place = Place::new();
    let file = place.write("torn", "not a tar file\n");
    let said = place.ask(&format!("state import {}", file.display())).await;
    assert_eq!(said.code, 65, "{said:?}");
    assert!(said.err.contains("nothing was taken from it"), "{said:?}");
    let manifest =
        r#"{"program":"9.0.0","schema":999,"exportedAt":1795151317,"secrets":"none","files":[]}"#;
    place.write("manifest.json", manifest);
    tar(&place, &["-cf", "newer", "manifest.json"]);
    let newer = place.path("newer");
    let said = place
        .ask(&format!("state import {}", newer.display()))
        .await;
    assert_eq!(said.code, 78, "{said:?}");
    assert!(said.err.contains("a newer callbridge"), "{said:?}");
    let said = place.ask("state import /nowhere/state").await;
    assert_eq!(said.code, 66, "{said:?}");
    assert!(!place.path("state").exists());
    let target = place.path("exported");
    let said = place
        .ask(&format!("state export {}", target.display()))
        .await;
    assert_eq!(said.code, 69, "no state: {said:?}");
    assert!(!target.exists());
}
