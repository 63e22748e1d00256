//! Tests `state export`, `state import`, and `state move`. A state moves with its calls, and
//! no existing file or state is overwritten.

use crate::commands::check::findings::replace_flag;
use crate::commands::sidecar::{CommandOutput, Place, json_lines, poll_until, start_crm};
use callbridge_testbed::postgres::Postgres;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

/// Runs the system's `tar` in the folder of the test, and returns the stdout of `tar`.
fn tar(place: &Place, arguments: &[&str]) -> String {
    let output = Command::new("tar")
        .current_dir(place.path(""))
        .args(arguments)
        .output()
        .expect("tar");
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A finished call, as the manager reported it.
const CALLS: &str = include_str!("../recordings/deployed_inbound/ami.raw");

/// Promise: An exported state continues on another machine with all its calls.
#[tokio::test]
async fn state_exported_from_running_daemon_imports_with_its_calls() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", CALLS);
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/journaled", 1).await;
    let books = place.status().await.expect("a status")["books"].clone();
    let file = place.path("exported").display().to_string();
    let output = place.run_on_state(&format!("state export {file}")).await;
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.starts_with("exported: spool.db "), "{output:?}");
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
    // An existing file is not overwritten.
    assert_eq!(
        place
            .run_on_state(&format!("state export {file}"))
            .await
            .code,
        73
    );
    // An import into a folder that is in use or not empty is refused.
    assert_eq!(
        place
            .run_on_state(&format!("state import {file}"))
            .await
            .code,
        75
    );
    daemon.stop().await;
    let output = place.run_on_state(&format!("state import {file}")).await;
    assert_eq!(output.code, 78, "{output:?}");
    assert!(output.err.contains("is not empty"), "{output:?}");
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
    let packed_again = place.path("again").display().to_string();
    let output = place
        .run_on_state(&format!("state import {packed_again}"))
        .await;
    assert_eq!(output.code, 0, "{output:?}");
    let daemon = place.start_daemon(&flags).await;
    let now = place.status().await.expect("a status")["books"].clone();
    assert_eq!(now, books, "the books have the same calls");
    daemon.stop().await;
    let journal = crm.journal().len();
    assert_eq!(journal, 1, "no call was sent twice");
}

#[tokio::test]
async fn import_refuses_invalid_state_and_missing_one_exits_66() {
    let place = Place::new();
    let file = place.write("torn", "not a tar file\n");
    let output = place
        .run_on_state(&format!("state import {}", file.display()))
        .await;
    assert_eq!(output.code, 65, "{output:?}");
    assert!(output.err.contains("nothing was imported"), "{output:?}");
    let manifest =
        r#"{"program":"9.0.0","schema":999,"exportedAt":1795151317,"secrets":"none","files":[]}"#;
    place.write("manifest.json", manifest);
    tar(&place, &["-cf", "newer", "manifest.json"]);
    let newer = place.path("newer");
    let output = place
        .run_on_state(&format!("state import {}", newer.display()))
        .await;
    assert_eq!(output.code, 78, "{output:?}");
    assert!(output.err.contains("a newer callbridge"), "{output:?}");
    let output = place.run_on_state("state import /nowhere/state").await;
    assert_eq!(output.code, 66, "{output:?}");
    assert!(!place.path("state").exists());
    let target = place.path("exported");
    let output = place
        .run_on_state(&format!("state export {}", target.display()))
        .await;
    assert_eq!(output.code, 69, "no state: {output:?}");
    assert!(!target.exists());
}

/// Runs `state move` between two folders or database URLs.
async fn state_move(place: &Place, from: &str, to: &str) -> CommandOutput {
    place
        .run_command(&["state", "move", "--state", from, "--to", to])
        .await
}

/// Returns the books of the state in a folder or database, or `None` if `status` fails.
async fn books(place: &Place, state: &str) -> Option<Value> {
    let output = place
        .run_command(&["status", "--json", "--state", state])
        .await;
    (output.code == 0).then(|| json_lines(&output.out).remove(0)["books"].clone())
}

/// Promise: A state that is moved to a database continues there with all its calls.
#[tokio::test]
async fn state_moved_to_a_database_and_back_continues() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", CALLS);
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    let folder = place.path("state").display().to_string();
    let url = Postgres::shared().url(&Postgres::new_schema());
    let daemon = place.start_daemon(&flags).await;
    place.wait_for_number("/books/journaled", 1).await;
    let used = state_move(&place, &folder, &url).await;
    assert_eq!(used.code, 75, "{used:?}");
    daemon.stop().await;
    let books_before = books(&place, &folder).await.expect("readable");
    let output = state_move(&place, &folder, &url).await.expect_success();
    assert!(output.starts_with("moved: 1 calls, "), "{output}");
    assert!(output.contains(&format!("--state '{url}'")), "{output}");
    assert_eq!(books(&place, &url).await, Some(books_before.clone()));
    let mut arguments = vec!["run".to_owned()];
    arguments.extend(flags.clone());
    let refused = place.run_command(&arguments).await;
    assert_eq!(refused.code, 78, "{refused:?}");
    assert!(refused.err.contains(&url), "{refused:?}");
    let second_move = state_move(&place, &folder, &url).await;
    assert_eq!(second_move.code, 78, "{second_move:?}");

    arguments = vec!["run".to_owned()];
    arguments.extend(replace_flag(flags.clone(), "--state", &url));
    let daemon = place.start_as("run", &arguments);
    poll_until("a daemon that leads", async || {
        let output = place
            .run_command(&["status", "--json", "--state", &url])
            .await;
        (output.code == 0 && output.out.contains("\"role\":\"leader\"")).then_some(())
    })
    .await;
    let used = state_move(&place, &url, &folder).await;
    assert_eq!(used.code, 75, "{used:?}");
    daemon.stop().await;
    state_move(&place, &url, &folder).await.expect_success();
    assert_eq!(books(&place, &folder).await, Some(books_before.clone()));
    let daemon = place.start_daemon(&flags).await;
    assert_eq!(books(&place, &folder).await, Some(books_before));
    daemon.stop().await;
    assert_eq!(crm.journal().len(), 1, "no call was sent twice");
}

/// Promise: A move that is killed is finished by the same command.
#[tokio::test]
async fn move_killed_at_a_statement_is_finished_by_the_same_command() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", CALLS);
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    place.run_until_idle(&flags).await;
    let mut from = place.path("state").display().to_string();
    let mut to = Postgres::shared().url(&Postgres::new_schema());
    let books_before = books(&place, &from).await.expect("readable");
    let mut was_killed = true;
    // After a move has succeeded, its origin and target are swapped.
    for way in 0..2 {
        let mut number = 1;
        while was_killed {
            let killed = tokio::process::Command::new(env!("CARGO_BIN_EXE_callbridge"))
                .args(["state", "move", "--state", &from, "--to", &to])
                .env("FAULT_STATEMENT", format!("{number}:kill"))
                .output()
                .await
                .expect("the program runs");
            was_killed = killed.status.code().is_none();
            let usable = [books(&place, &from).await, books(&place, &to).await];
            let full = usable
                .iter()
                .filter(|books| **books == Some(books_before.clone()));
            assert!(full.count() <= 1, "statement {number}: {usable:?}");
            number += 7;
        }
        assert!(number > 150, "{number} statements are too few");
        assert_eq!(
            books(&place, &to).await,
            Some(books_before.clone()),
            "way {way}"
        );
        (from, to) = (to, from);
        was_killed = true;
    }
}

#[tokio::test]
async fn database_is_exported_and_imported_by_command() {
    let (place, crm) = (Place::new(), start_crm(|_| ()).await);
    place.write("calls.ami", CALLS);
    let flags = place.flags_of_file(&crm.url(), "calls.ami");
    place.run_until_idle(&flags).await;
    let folder = place.path("state").display().to_string();
    let books_before = books(&place, &folder).await.expect("readable");
    let server = Postgres::shared();
    let (first, second) = (
        server.url(&Postgres::new_schema()),
        server.url(&Postgres::new_schema()),
    );
    state_move(&place, &folder, &first).await.expect_success();
    let file = place.path("exported").display().to_string();
    let output = place
        .run_command(&["state", "export", &file, "--state", &first])
        .await;
    assert!(output.expect_success().starts_with("exported: spool.db "));
    let entries = tar(&place, &["-tvf", "exported"]);
    assert_eq!(entries.lines().count(), 2, "{entries}");
    for new in [&second, &place.path("new").display().to_string()] {
        let output = place
            .run_command(&["state", "import", &file, "--state", new])
            .await;
        assert!(output.expect_success().starts_with("imported: spool.db "));
        assert_eq!(books(&place, new).await, Some(books_before.clone()));
        let second_import = place
            .run_command(&["state", "import", &file, "--state", new])
            .await;
        assert_eq!(second_import.code, 78, "{second_import:?}");
    }
    let missing = server.url(&Postgres::new_schema());
    let target = place.path("none").display().to_string();
    let output = place
        .run_command(&["state", "export", &target, "--state", &missing])
        .await;
    assert_eq!(output.code, 69, "{output:?}");
    assert!(!place.path("none").exists());
}
