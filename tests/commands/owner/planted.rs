//! Tests that root does not follow links, FIFOs, and sockets that the owner of a state folder has
//! planted in the folder.

use super::stage::{GID, SUDO, Stage, UID, give_file_to_user, give_to_user, is_root, set_mode};
use callbridge_spool::{ConnectionChange, ConnectionStore};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Every name that a command opens, creates, moves, or removes.
const NAMES: [&str; 8] = [
    "spool.db",
    "spool.db-wal",
    "spool.db-shm",
    "spool.db-journal",
    "spool.db.new",
    "spool.lock",
    "control.sock",
    ".control",
];

/// An object that is planted under each name in `NAMES`.
#[derive(Clone, Copy, Debug)]
enum Plant {
    Link,
    Dangling,
    FolderLink,
    HardLink,
    Fifo,
}

const PLANTS: [Plant; 5] = [
    Plant::Link,
    Plant::Dangling,
    Plant::FolderLink,
    Plant::HardLink,
    Plant::Fifo,
];

/// Owner, group, mode, size, and the times of the last changes, by path.
type Snapshot = BTreeMap<PathBuf, (u32, u32, u32, u64, [i64; 4])>;

/// Returns the metadata of this folder and of everything in it.
fn snapshot(folder: &Path) -> Snapshot {
    let mut metadata_by_path = Snapshot::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(path) = folders.pop() {
        let found = path.symlink_metadata().expect("there");
        if found.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder");
            folders.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        let times = [
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ];
        let values = (found.uid(), found.gid(), found.mode(), found.len(), times);
        metadata_by_path.insert(path, values);
    }
    metadata_by_path
}

/// A folder of root with files that an attacker wants to read, write, empty, or own.
struct RootFolder(PathBuf);

impl RootFolder {
    fn new(path: PathBuf) -> Self {
        std::fs::create_dir_all(path.join("empty")).expect("made");
        std::fs::write(path.join("victim"), "kept").expect("written");
        set_mode(&path.join("victim"), 0o640);
        set_mode(&path.join("empty"), 0o755);
        Self(path)
    }

    /// Replaces the file at `place` by a planted object.
    fn plant(&self, plant: Plant, place: &Path) {
        std::fs::remove_file(place).ok();
        let victim = self.0.join("victim");
        match plant {
            Plant::Link => symlink(&victim, place).expect("a link"),
            Plant::Dangling => symlink(self.0.join("made"), place).expect("a link"),
            Plant::FolderLink => symlink(self.0.join("empty"), place).expect("a link"),
            Plant::HardLink => return std::fs::hard_link(&victim, place).expect("a link"),
            Plant::Fifo => mkfifoat(CWD, place, Mode::from(0o600)).expect("a FIFO"),
        }
        give_to_user(place);
    }
}

/// Creates a state folder that has a stored connection.
async fn create_state_folder(stage: &Stage) -> PathBuf {
    let folder = stage.place.path("begun");
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.token_flags(&folder));
    let output = stage.place.run_command(&run).await;
    assert_eq!(output.code, 0, "{}", output.err);
    let connect = ConnectionChange {
        from: None,
        to: Some(stage.connection()),
    };
    let connected = ConnectionStore::new(&folder).change(&connect);
    assert_eq!(connected, Ok(true));
    folder
}

/// Copies a state into a new folder of the other user.
fn copy_state(good: &Path, stage: &Stage, name: &str) -> PathBuf {
    let folder = stage.folder(name);
    let file = folder.join("spool.db");
    std::fs::copy(good.join("spool.db"), &file).expect("copied");
    give_file_to_user(&file);
    folder
}

/// Splits a command line, and appends the flag of the state.
fn arguments_for(text: &str, state: &Path) -> Vec<String> {
    let state = format!("--state={}", state.display());
    let words = text.split(' ').map(str::to_owned);
    words.chain([state]).collect()
}

/// Returns one command of each kind that uses a state.
fn commands(stage: &Stage, state: &Path) -> Vec<Vec<String>> {
    let mut command_lines = vec![stage.connect_arguments(state)];
    for verb in ["check", "run", "run --until-idle"] {
        let verb = verb.split(' ').map(str::to_owned);
        command_lines.push(verb.chain(stage.token_flags(state)).collect());
    }
    let calls = stage.place.path("calls.csv").display().to_string();
    let audit = format!("audit --cdr {calls} --crm-url {}", stage.crm.url());
    let archive = stage.place.path("archive").display().to_string();
    for text in [
        "status",
        "dead list",
        "calls --today",
        "lead missing",
        "explain --call 1.1",
        "page",
        "disconnect",
        &audit,
        &format!("state export {archive}"),
        &format!("state import {archive}"),
    ] {
        command_lines.push(arguments_for(text, state));
    }
    command_lines
}

/// Runs every command on this state as root. Each command must be refused, and the
/// watched folders must not change. `what` names the case in a failure.
async fn assert_all_refused(stage: &Stage, state: &Path, watched: &[&Path], what: &str) {
    let snapshots_before: Vec<Snapshot> = watched.iter().map(|path| snapshot(path)).collect();
    for command in commands(stage, state) {
        let output = stage.place.run_command(&command).await;
        let what = format!("{what}, {command:?}: {output:?}");
        assert_eq!(output.code, 78, "{what}");
        let line = format!("Run: {SUDO} callbridge {}", command[0]);
        assert!(output.err.contains(&line), "{what}");
        let now: Vec<Snapshot> = watched.iter().map(|path| snapshot(path)).collect();
        assert_eq!(now, snapshots_before, "{what}");
    }
    assert!(!stage.place.path("archive").exists(), "{what}");
}

/// Promise: Root never opens files in another user's state.
#[tokio::test]
async fn planted_files_are_never_opened_by_root() {
    if !is_root("links and FIFOs planted in a folder of another user") {
        return;
    }
    let stage = Stage::new().await;
    let good = create_state_folder(&stage).await;
    let root_folder = RootFolder::new(stage.place.path("roots"));
    for plant in PLANTS {
        let folder = copy_state(&good, &stage, &format!("{plant:?}"));
        for name in NAMES {
            root_folder.plant(plant, &folder.join(name));
        }
        assert_all_refused(
            &stage,
            &folder,
            &[&folder, &root_folder.0],
            &format!("{plant:?}"),
        )
        .await;
        let metadata = folder.metadata().expect("there");
        let owner_and_mode = (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777);
        assert_eq!(owner_and_mode, (UID, GID, 0o700), "{plant:?}");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
    assert_eq!(stage.crm.journal().len(), 1, "the call of the good folder");
}

#[tokio::test]
async fn planted_sockets_are_never_connected_to_by_root() {
    if !is_root("a socket planted in a folder of another user") {
        return;
    }
    let stage = Stage::new().await;
    let good = create_state_folder(&stage).await;
    let folder = copy_state(&good, &stage, "sockets");
    // The socket does not answer, so a command that connects would wait.
    let socket = UnixListener::bind(folder.join("control.sock")).expect("listens");
    socket.set_nonblocking(true).expect("set");
    give_to_user(&folder.join("control.sock"));
    assert_all_refused(&stage, &folder, &[&folder], "a socket").await;
    std::fs::remove_file(folder.join("control.sock")).expect("removed");
    let elsewhere = stage.place.path("deaf.sock");
    let linked_socket = UnixListener::bind(&elsewhere).expect("listens");
    linked_socket.set_nonblocking(true).expect("set");
    set_mode(&elsewhere, 0o777);
    symlink(&elsewhere, folder.join("control.sock")).expect("a link");
    give_to_user(&folder.join("control.sock"));
    assert_all_refused(&stage, &folder, &[&folder], "a link to a socket").await;
    for listener in [socket, linked_socket] {
        let error = listener.accept().expect_err("no connection");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

#[tokio::test]
async fn planted_entries_in_place_of_state_folder_are_not_followed() {
    if !is_root("a link in the place of the state folder") {
        return;
    }
    let stage = Stage::new().await;
    let root_folder = RootFolder::new(stage.place.path("roots"));
    let home = stage.folder("home");
    let state = home.join("state");
    for plant in PLANTS {
        root_folder.plant(plant, &state);
        if matches!(plant, Plant::HardLink) {
            // The name is a hard link to a file of root, so each command reports that the
            // state is not a folder.
            let snapshot_before = snapshot(&root_folder.0);
            let output = stage
                .place
                .run_command(&arguments_for("status", &state))
                .await;
            assert_ne!(output.code, 0, "{output:?}");
            assert_eq!(snapshot(&root_folder.0), snapshot_before);
            continue;
        }
        assert_all_refused(
            &stage,
            &state,
            &[&home, &root_folder.0],
            &format!("{plant:?}"),
        )
        .await;
    }
}

#[tokio::test]
async fn paths_through_another_users_folder_are_refused() {
    if !is_root("a path through the folder of another user") {
        return;
    }
    let stage = Stage::new().await;
    let root_folder = RootFolder::new(stage.place.path("roots"));
    let home = stage.folder("home");
    let watched: [&Path; 2] = [&home, &root_folder.0];
    // The state does not exist, and would be created in the other user's folder.
    assert_all_refused(&stage, &home.join("deep/state"), &watched, "a new state").await;
    // The folder is root's, and only another user's link points to it.
    root_folder.plant(Plant::FolderLink, &home.join("link"));
    for state in ["link", "link/deep"] {
        assert_all_refused(&stage, &home.join(state), &watched, state).await;
    }
    std::fs::create_dir(root_folder.0.join("empty/deep")).expect("made");
    assert_all_refused(&stage, &home.join("link/deep"), &watched, "root's folder").await;
}
