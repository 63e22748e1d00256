//! `connect` and `disconnect` by root in the folder of the service's user.

use crate::consent::Stage;
use crate::recordings;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::time::Duration;

/// The service's user and group: of nobody else's.
const UID: u32 = 61_236;
const GID: u32 = 61_237;

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

/// Every file of the folder is its owner's.
fn are_the_owners(folder: &Path, wanted: &[&str]) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let about = entry.metadata().expect("there");
        assert_eq!((about.uid(), about.gid()), (UID, GID), "{entry:?}");
    }
    for name in wanted {
        assert!(folder.join(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn what_root_connects_is_its_owners_and_the_daemon_goes_on_with_it() {
    if !rustix::process::geteuid().is_root() {
        let line = b"\nnot run: connect by root in the folder of another (needs root)\n";
        let said = std::io::Write::write_all(&mut std::io::stderr(), line);
        return said.expect("stderr");
    }
    let stage = Stage::new(Duration::from_secs(3600)).await;
    let state = stage.place.at("state");
    std::fs::create_dir(&state).expect("made");
    chown(&state, Some(UID), Some(GID)).expect("given");
    set_mode(&state, 0o700);
    // of root's alone, as step 2 of deploy/ has it
    set_mode(&stage.place.at("client.secret"), 0o600);
    set_mode(&stage.place.at(""), 0o755);
    stage.connected().await;
    are_the_owners(&state, &["connection.json", "spool.db"]);
    assert!(stage.stored().is_some());
    let call = recordings::one("inbound_answered");
    stage.place.append("recorded", &call.ami);
    set_mode(&stage.place.at("recorded"), 0o644);
    let program = stage.place.at("callbridge");
    // By a process of its own: whatever another test starts while we write it holds it open, too.
    let mut cp = std::process::Command::new("cp");
    cp.arg(env!("CARGO_BIN_EXE_callbridge")).arg(&program);
    assert!(cp.status().expect("cp").success());
    set_mode(&program, 0o755);
    let flags = stage.flags(&["--until-idle"]);
    let output = tokio::process::Command::new(&program)
        .args(&flags)
        .env_clear()
        .current_dir("/")
        .uid(UID)
        .gid(GID)
        .kill_on_drop(true)
        .output();
    let output = crate::wait::soon("the end of run", output).await;
    let output = output.expect("it runs");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(stage.crm.journal().len(), 1);
    let state = stage.place.path("state");
    let output = stage
        .place
        .command(&["disconnect", "--state", &state])
        .await;
    assert!(output.status.success(), "{output:?}");
    are_the_owners(Path::new(&state), &["connection.lock", "spool.db"]);
    assert!(stage.stored().is_none());
    stage.judge();
}
