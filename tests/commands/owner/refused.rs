//! Tests the error for root: the command that the error names works, and root can use its own
//! state.

use super::stage::{
    SUDO, Stage, UID, assert_user_owns, give_to_user, is_root, run_as_user, set_mode,
};
use crate::commands::sidecar::json_lines;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

/// The user `nobody` of every Linux system.
const NOBODY: u32 = 65_534;

fn run_until_idle(flags: Vec<String>) -> Vec<String> {
    let verb = ["run".to_owned(), "--until-idle".to_owned()];
    verb.into_iter().chain(flags).collect()
}

fn status_command(state: &Path) -> Vec<String> {
    let state = format!("--state={}", state.display());
    ["status", "--json", &state].map(str::to_owned).to_vec()
}

/// Returns the arguments of the command in the error for root, as a shell splits them.
fn suggested_arguments(error: &str) -> Vec<String> {
    let start = format!("Run: {SUDO} callbridge ");
    let (_, rest) = error.split_once(&start).expect("a command");
    let line = rest.lines().next().unwrap_or_default();
    let script = format!("printf '%s\\n' {line}");
    let output = Command::new("sh").args(["-c", &script]).output();
    let words = String::from_utf8(output.expect("sh").stdout).expect("UTF-8");
    words.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn suggested_command_works_as_the_owner_of_the_state() {
    if !is_root("the command that the error for root names") {
        return;
    }
    let stage = Stage::new().await;
    let state = stage.folder("state");
    set_mode(&stage.place.path("token"), 0o644);
    let run = run_until_idle(stage.token_flags(&state));
    for command in [&run, &status_command(&state)] {
        let refusal = stage.place.run_command(command).await;
        assert_eq!(refusal.code, 78, "{refusal:?}");
        let owner = format!("{} belongs to uid {UID}", state.display());
        assert!(refusal.err.contains(&owner), "{refusal:?}");
        let suggested = suggested_arguments(&refusal.err);
        assert_eq!(suggested, *command);
        let output = run_as_user(&stage.place, &suggested).await;
        assert!(output.status.success(), "{output:?}");
        assert_user_owns(&state);
    }
    assert_eq!(stage.crm.journal().len(), 1);
}

#[tokio::test]
async fn error_for_root_has_the_owners_name_and_all_arguments() {
    if !is_root("the user's name in the error for root") {
        return;
    }
    let stage = Stage::new().await;
    let state = stage.folder("a state");
    chown(&state, Some(NOBODY), Some(NOBODY)).expect("given");
    let flag = format!("--state={}", state.display());
    let output = stage
        .place
        .run_command(&["dead", "list", "--json", &flag])
        .await;
    assert_eq!((output.code, output.out.as_str()), (78, ""), "{output:?}");
    let words = format!(
        "{} belongs to user nobody, and root does not open another user's state. Run: sudo -u \
         nobody callbridge dead list --json '{flag}'\n",
        state.display()
    );
    assert!(output.err.ends_with(&words), "{output:?}");
}

#[tokio::test]
async fn roots_link_to_another_users_folder_is_refused() {
    if !is_root("root's link to the folder of a DynamicUser") {
        return;
    }
    let stage = Stage::new().await;
    // The layout of systemd's DynamicUser=.
    let folder = stage.folder("lib/private/callbridge/pbx1");
    set_mode(&stage.place.path("lib/private"), 0o700);
    std::fs::create_dir(stage.place.path("lib/callbridge")).expect("made");
    let state = stage.place.path("lib/callbridge/pbx1");
    symlink("../private/callbridge/pbx1", &state).expect("a link");
    for command in [
        run_until_idle(stage.token_flags(&state)),
        status_command(&state),
    ] {
        let output = stage.place.run_command(&command).await;
        assert!(output.code == 78 && output.err.contains(SUDO), "{output:?}");
    }
    let file_count = std::fs::read_dir(&folder).expect("a folder").count();
    assert_eq!((file_count, stage.crm.journal().len()), (0, 0));
}

#[tokio::test]
async fn state_of_root_is_usable_directly_and_through_a_link() {
    if !is_root("root in its own state folder") {
        return;
    }
    let stage = Stage::new().await;
    let state = stage.place.path("state");
    let link = stage.place.path("link");
    symlink(&state, &link).expect("a link");
    let run = run_until_idle(stage.token_flags(&state));
    let output = stage.place.run_command(&run).await;
    assert_eq!(output.code, 0, "{output:?}");
    for state in [&state, &link] {
        let output = stage.place.run_command(&status_command(state)).await;
        assert_eq!(output.code, 0, "{output:?}");
        assert_eq!(json_lines(&output.out)[0]["books"]["journaled"], 1);
    }
}

#[tokio::test]
async fn commands_without_a_state_run_in_another_users_home() {
    if !is_root("explain in the home of another user") {
        return;
    }
    let stage = Stage::new().await;
    // The default state folder would be below this home.
    give_to_user(&stage.place.path(""));
    let calls = stage.place.path("calls.ami").display().to_string();
    let output = stage
        .place
        .run_command(&["explain", &calls, "--format=ami"])
        .await;
    assert_eq!(output.code, 0, "{output:?}");
    let output = stage.place.run_command(&["status"]).await;
    assert!(output.code == 78 && output.err.contains(SUDO), "{output:?}");
}
