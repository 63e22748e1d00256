//! Tests links, FIFOs, and sockets that the folder's owner has planted.

use super::stage::{GID, SUDO, Stage, UID, is_root, own, own_file, set_mode};
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

/// An object that is planted under each of these names.
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

/// Owner, mode, size, and the times of the last changes, by path.
type Snapshot = BTreeMap<PathBuf, (u32, u32, u32, u64, [i64; 4])>;

/// Returns the metadata of this folder and of everything in it.
fn snapshot(folder: &Path) -> Snapshot {
    let mut all = Snapshot::new();
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
        let of = (found.uid(), found.gid(), found.mode(), found.len(), times);
        all.insert(path, of);
    }
    all
}

/// Root's folder with files that an attacker wants to read, write, empty, or own.
struct Roots(PathBuf);

impl Roots {
    fn new(path: PathBuf) -> Self {
        std::fs::create_dir_all(path.join("empty")).expect("made");
        std::fs::write(path.join("victim"), "kept").expect("written");
        set_mode(&path.join("victim"), 0o640);
        set_mode(&path.join("empty"), 0o755);
        Self(path)
    }

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
        own(place);
    }
}

/// Creates a state that belongs to the user and has a connection.
async fn good_folder(stage: &Stage) -> PathBuf {
    let begun = stage.place.path("begun");
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.token_flags(&begun));
    let said = stage.place.say(&run).await;
    assert_eq!(said.code, 0, "{}", said.err);
    let connect = ConnectionChange {
        from: None,
        to: Some(stage.connection()),
    };
    let connected = ConnectionStore::new(&begun).change(&connect);
    assert_eq!(connected, Ok(true));
    begun
}

fn copy_of(good: &Path, stage: &Stage, name: &str) -> PathBuf {
    let folder = stage.folder(name);
    let file = folder.join("spool.db");
    std::fs::copy(good.join("spool.db"), &file).expect("copied");
    own_file(&file);
    folder
}

fn words(text: &str, state: &Path) -> Vec<String> {
    let state = format!("--state={}", state.display());
    let words = text.split(' ').map(str::to_owned);
    words.chain([state]).collect()
}

/// Returns one command of each kind that uses a state.
fn commands(stage: &Stage, state: &Path) -> Vec<Vec<String>> {
    let mut all = vec![stage.connect(state)];
    for verb in ["check", "run", "run --until-idle"] {
        let verb = verb.split(' ').map(str::to_owned);
        all.push(verb.chain(stage.token_flags(state)).collect());
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
        all.push(words(text, state));
    }
    all
}

/// Runs every command on this state as root. Each must be refused, and nothing may change.
async fn all_are_refused(stage: &Stage, state: &Path, watched: &[&Path], what: &str) {
    let before: Vec<Snapshot> = watched.iter().map(|path| snapshot(path)).collect();
    for command in commands(stage, state) {
        let said = stage.place.say(&command).await;
        let what = format!("{what}, {command:?}: {said:?}");
        assert_eq!(said.code, 78, "{what}");
        let line = format!("Run: {SUDO} callbridge {}", command[0]);
        assert!(said.err.contains(&line), "{what}");
        let now: Vec<Snapshot> = watched.iter().map(|path| snapshot(path)).collect();
        assert_eq!(now, before, "{what}");
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
    let good = good_folder(&stage).await;
    let roots = Roots::new(stage.place.path("roots"));
    for plant in PLANTS {
        let folder = copy_of(&good, &stage, &format!("{plant:?}"));
        for name in NAMES {
            roots.plant(plant, &folder.join(name));
        }
        all_are_refused(&stage, &folder, &[&folder, &roots.0], &format!("{plant:?}")).await;
        let about = folder.metadata().expect("there");
        let about = (about.uid(), about.gid(), about.mode() & 0o7777);
        assert_eq!(about, (UID, GID, 0o700), "{plant:?}");
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
    let good = good_folder(&stage).await;
    let folder = copy_of(&good, &stage, "sockets");
    // A socket that does not answer: a command that connects would wait.
    let socket = UnixListener::bind(folder.join("control.sock")).expect("listens");
    socket.set_nonblocking(true).expect("set");
    own(&folder.join("control.sock"));
    all_are_refused(&stage, &folder, &[&folder], "a socket").await;
    std::fs::remove_file(folder.join("control.sock")).expect("removed");
    let elsewhere = stage.place.path("deaf.sock");
    let deaf = UnixListener::bind(&elsewhere).expect("listens");
    deaf.set_nonblocking(true).expect("set");
    set_mode(&elsewhere, 0o777);
    symlink(&elsewhere, folder.join("control.sock")).expect("a link");
    own(&folder.join("control.sock"));
    all_are_refused(&stage, &folder, &[&folder], "a link to a socket").await;
    for listener in [socket, deaf] {
        let error = listener.accept().expect_err("no connection");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

#[tokio::test]
async fn plants_in_place_of_the_folder_are_not_followed() {
    if !is_root("a link in the place of the state folder") {
        return;
    }
    let stage = Stage::new().await;
    let roots = Roots::new(stage.place.path("roots"));
    let home = stage.folder("home");
    let state = home.join("state");
    for plant in PLANTS {
        roots.plant(plant, &state);
        if matches!(plant, Plant::HardLink) {
            // This name is a file of root, so each command reports that it is not a folder.
            let before = snapshot(&roots.0);
            let said = stage.place.say(&words("status", &state)).await;
            assert_ne!(said.code, 0, "{said:?}");
            assert_eq!(snapshot(&roots.0), before);
            continue;
        }
        all_are_refused(&stage, &state, &[&home, &roots.0], &format!("{plant:?}")).await;
    }
}

#[tokio::test]
async fn paths_through_another_users_place_are_refused() {
    if !is_root("a path through the folder of another user") {
        return;
    }
    let stage = Stage::new().await;
    let roots = Roots::new(stage.place.path("roots"));
    let home = stage.folder("home");
    let watched: [&Path; 2] = [&home, &roots.0];
    // The state does not exist, and would be created in the other user's folder.
    all_are_refused(&stage, &home.join("deep/state"), &watched, "a new state").await;
    // The folder is root's, and only another user's link points to it.
    roots.plant(Plant::FolderLink, &home.join("link"));
    for state in ["link", "link/deep"] {
        all_are_refused(&stage, &home.join(state), &watched, state).await;
    }
    std::fs::create_dir(roots.0.join("empty/deep")).expect("made");
    all_are_refused(&stage, &home.join("link/deep"), &watched, "root's folder").await;
}
