//! The service's own folder: root's commands work in it, and leave nothing that is not its user's.

use super::stage::{GID, Stage, UID, as_the_user, is_root, is_the_users, own, set_mode};
use crate::sidecar::{json_lines, until};
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
    // as an earlier version, run by root, has left it
    let lock = state.join("spool.lock");
    std::os::unix::fs::chown(&lock, Some(0), Some(0)).expect("taken");
    let state = format!("--state={}", state.display());
    let said = stage.place.say(&["status", &state]).await;
    let fix = format!("chown -h {UID}:{GID} {}", lock.display());
    assert!(said.code == 73 && said.err.contains(&fix), "{said:?}");
}

/// A free port that only root may listen at.
fn port_of_root() -> u16 {
    let mut ports = 600..1_000;
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.find(free).expect("a free port")
}

/// No thread of this process has root's user, group or any capability.
fn has_no_rights_of_root(process: u32) {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).expect("it runs");
    let mut threads = 0;
    for task in tasks {
        let path = task.expect("a thread").path().join("status");
        let Ok(status) = std::fs::read_to_string(path) else {
            continue; // it has ended meanwhile
        };
        threads += 1;
        let line = |name: &str| {
            let mut lines = status.lines();
            let found = lines.find_map(|line| line.strip_prefix(name));
            let words = found.expect("a line").split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(line("Uid:"), [(); 4].map(|()| UID.to_string()));
        assert_eq!(line("Gid:"), [(); 4].map(|()| GID.to_string()));
        assert_eq!(line("Groups:"), [GID.to_string()]);
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            assert_eq!(line(set), ["0000000000000000"], "{set}");
        }
    }
    assert!(threads > 1, "a runtime of several threads");
}

/// `explain --picture` into a folder that is closed to the state's owner.
async fn draws_where_root_alone_can_write(stage: &Stage, state: &Path) {
    let state = format!("--state={}", state.display());
    let said = stage.place.say(&["calls", "--json", &state]).await;
    let call = json_lines(&said.out).remove(0);
    let uuid = call["uuid"].as_str().expect("a uuid");
    let closed = stage.place.path("closed");
    std::fs::create_dir(&closed).expect("made");
    set_mode(&closed, 0o700);
    let picture = closed.join("call.svg").display().to_string();
    let command = ["explain", "--call", uuid, "--picture", &picture, &state];
    let said = stage.place.say(&command).await;
    assert_eq!(said.code, 0, "{said:?}");
    let drawn = std::fs::read_to_string(&picture).expect("drawn");
    assert!(drawn.contains("<svg"), "{drawn}");
}

#[tokio::test]
async fn a_folder_that_its_owner_cannot_reach_is_refused_untouched_with_what_to_do() {
    if !is_root("the folder of a DynamicUser") {
        return;
    }
    let stage = Stage::new().await;
    // as systemd lays it out
    let folder = stage.folder("lib/private/callbridge/pbx1");
    let private = stage.place.path("lib/private");
    set_mode(&private, 0o700);
    std::fs::create_dir(stage.place.path("lib/callbridge")).expect("made");
    let state = stage.place.path("lib/callbridge/pbx1");
    symlink("../private/callbridge/pbx1", &state).expect("a link");
    own(&folder);
    let status = format!("--state={}", state.display());
    for command in [
        until_idle(stage.token_flags(&state)),
        vec!["status".to_owned(), status],
    ] {
        let said = stage.place.say(&command).await;
        assert_eq!(said.code, 78, "{said:?}");
        let closed = format!("to whom {} is closed", private.display());
        for words in [&*closed, "User=callbridge"] {
            assert!(said.err.contains(words), "{words}: {}", said.err);
        }
    }
    let left = std::fs::read_dir(&folder).expect("a folder").count();
    assert_eq!((left, stage.crm.journal().len()), (0, 0));
}

#[tokio::test]
async fn the_services_folder_serves_roots_commands_as_its_owner() {
    if !is_root("root in the service's folder") {
        return;
    }
    let stage = Stage::new().await;
    let folder = stage.folder("lib/callbridge/pbx1");
    // through a link that root alone can follow
    let closed = stage.place.path("lib/closed");
    std::fs::create_dir(&closed).expect("made");
    set_mode(&closed, 0o700);
    let state = closed.join("pbx1");
    symlink("../callbridge/pbx1", &state).expect("a link");
    let said = stage
        .place
        .say(&until_idle(stage.token_flags(&state)))
        .await;
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
    draws_where_root_alone_can_write(&stage, &state).await;
    let daemon = ["run".to_owned()].into_iter();
    let mut daemon: Vec<String> = daemon.chain(stage.token_flags(&state)).collect();
    let port = port_of_root();
    daemon.push(format!("--listen=127.0.0.1:{port}"));
    let daemon = stage.place.start_as("daemon", &daemon);
    until("a daemon that answers", async || {
        let shown = status(&stage, &state).await;
        (shown["pause"]["reason"] != "no daemon runs").then_some(())
    })
    .await;
    let health = tokio::net::TcpStream::connect(("127.0.0.1", port)).await;
    health.expect("root has listened at its port");
    has_no_rights_of_root(daemon.id());
    daemon.stop().await;
    is_the_users(&folder);
}
