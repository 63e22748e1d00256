//! The service's own folder: root's commands work in it, and leave nothing that is not its user's.

use crate::sidecar::{json_lines, until};
use crate::stage::{Stage, as_the_user, is_root, is_the_users, own, set_mode};
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::path::Path;

fn until_idle(flags: Vec<String>) -> Vec<String> {
    let verb = ["run".to_owned(), "--until-idle".to_owned()];
    verb.into_iter().chain(flags).collect()
}

async fn status(stage: &Stage, state: &Path) -> Value {
    let state = format!("--state={}", state.display());
    let said = stage.place.say(&["status", "--json", &state]).await;
    assert_eq!(said.code, 0, "{said:?}");
    json_lines(&said.out).remove(0)
}

#[tokio::test]
async fn root_and_the_services_user_work_in_one_folder_in_turn() {
    if !is_root("root and the service's user in one folder") {
        return;
    }
    let stage = Stage::new().await;
    let state = stage.folder("state");
    set_mode(&stage.place.path("token"), 0o644);
    let connect = stage.place.say(&stage.connect(&state)).await;
    assert_eq!(connect.code, 77, "nobody consents: {connect:?}");
    is_the_users(&state);
    let run = until_idle(stage.token_flags(&state));
    let output = as_the_user(&stage.place, &run).await;
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "locked out: {log}");
    assert!(!log.contains("root has become"), "{log}");
    assert_eq!(status(&stage, &state).await["books"]["journaled"], 1);
    is_the_users(&state);
    let output = as_the_user(&stage.place, &run).await;
    assert!(output.status.success(), "locked out: {output:?}");
}

#[tokio::test]
async fn a_folder_that_root_alone_can_reach_serves_roots_commands_as_its_owner() {
    const WHAT: &str = "the folder of a DynamicUser";
    if !is_root(WHAT) {
        return;
    }
    let stage = Stage::new().await;
    // as systemd lays it out
    let folder = stage.folder("lib/private/callbridge/pbx1");
    set_mode(&stage.place.path("lib/private"), 0o700);
    std::fs::create_dir(stage.place.path("lib/callbridge")).expect("made");
    let state = stage.place.path("lib/callbridge/pbx1");
    symlink("../private/callbridge/pbx1", &state).expect("a link");
    own(&folder);
    let said = stage
        .place
        .say(&until_idle(stage.token_flags(&state)))
        .await;
    if said.err.contains("cannot make a way") {
        return crate::stage::not_run(WHAT, "root cannot mount here");
    }
    assert_eq!(said.code, 0, "{said:?}");
    for words in ["root has become the owner", "was read by root"] {
        assert!(said.err.contains(words), "{words}: {}", said.err);
    }
    assert_eq!(stage.crm.journal().len(), 1);
    is_the_users(&folder);
    let shown = status(&stage, &state).await;
    assert_eq!(shown["books"]["journaled"], 1);
    for words in ["dead list", "calls", "lead missing", "check"] {
        let mut command: Vec<String> = words.split(' ').map(str::to_owned).collect();
        match words {
            "check" => command.extend(stage.token_flags(&state)),
            _ => command.push(format!("--state={}", state.display())),
        }
        let said = stage.place.say(&command).await;
        assert_eq!(said.code, 0, "{words}: {said:?}");
    }
    let daemon = ["run".to_owned()].into_iter();
    let daemon: Vec<String> = daemon.chain(stage.token_flags(&state)).collect();
    let daemon = stage.place.start_as("daemon", &daemon);
    until("a daemon that answers", async || {
        let shown = status(&stage, &state).await;
        (shown["pause"]["reason"] != "no daemon runs").then_some(())
    })
    .await;
    daemon.stop().await;
    is_the_users(&folder);
    // nothing of it is seen by anybody else
    let beside = stage.place.path("lib/private");
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&beside.metadata().expect("there").permissions());
    assert_eq!(mode & 0o777, 0o700);
}
