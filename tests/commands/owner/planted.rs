//! Links and FIFOs that the folder's owner has planted.

use super::stage::{GID, Stage, UID, is_root, own, own_file, set_mode};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

/// Every name that a command opens, makes, moves or takes away.
const NAMES: [&str; 13] = [
    "spool.db",
    "spool.db-wal",
    "spool.db-shm",
    "spool.db-journal",
    "spool.db.new",
    "spool.lock",
    "connection.json",
    "connection.json.new",
    "connection.lock",
    "shown-once.json",
    "shown-once.json.new",
    "control.sock",
    ".control",
];

/// What is planted.
#[derive(Clone, Copy, Debug)]
enum Plant {
    Link,
    Dangling,
    FolderLink,
    SecondName,
    Fifo,
}

const PLANTS: [Plant; 5] = [
    Plant::Link,
    Plant::Dangling,
    Plant::FolderLink,
    Plant::SecondName,
    Plant::Fifo,
];

/// A folder of root's with what an attacker would like to have, write, empty or open.
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
            Plant::SecondName => return std::fs::hard_link(&victim, place).expect("a link"),
            Plant::Fifo => mkfifoat(CWD, place, Mode::from(0o600)).expect("a FIFO"),
        }
        own(place);
    }

    /// Nothing was made, written, emptied, given away or opened.
    fn are_untouched(&self, what: &str) {
        let about = |name: &str| {
            let about = self.0.join(name).symlink_metadata().expect(what);
            (about.uid(), about.gid(), about.mode() & 0o7777)
        };
        let kept = std::fs::read(self.0.join("victim")).expect(what);
        assert_eq!(kept, b"kept", "{what}");
        assert_eq!(about("victim"), (0, 0, 0o640), "{what}");
        assert_eq!(about("empty"), (0, 0, 0o755), "{what}");
        assert!(!self.0.join("made").exists(), "{what}");
        let inside = std::fs::read_dir(self.0.join("empty")).expect(what);
        assert_eq!(inside.count(), 0, "{what}");
    }
}

/// The service's folder as it is beside a connection, begun by the service's user.
async fn good_folder(stage: &Stage) -> PathBuf {
    let good = stage.folder("good");
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.token_flags(&good));
    let said = stage.place.say(&run).await;
    assert_eq!(said.code, 0, "{}", said.err);
    std::fs::write(good.join("connection.json"), stage.connection()).expect("written");
    good
}

fn copy_of(good: &Path, stage: &Stage, name: &str) -> PathBuf {
    let folder = stage.folder(name);
    for file in ["spool.db", "connection.json"] {
        std::fs::copy(good.join(file), folder.join(file)).expect("copied");
        own_file(&folder.join(file));
    }
    folder
}

fn words(text: &str, state: &Path) -> Vec<String> {
    let state = format!("--state={}", state.display());
    let words = text.split(' ').map(str::to_owned);
    words.chain([state]).collect()
}

#[tokio::test]
async fn what_is_planted_in_the_place_of_any_file_leads_nowhere_and_hangs_nothing() {
    if !is_root("links and FIFOs planted in a folder of another user's") {
        return;
    }
    let stage = Stage::new().await;
    let good = good_folder(&stage).await;
    let roots = Roots::new(stage.place.path("roots"));
    let each = NAMES.map(|name| all_plants(&stage, &good, &roots, name));
    futures_util::future::join_all(each).await;
}

/// Every plant in the place of one name, and every command on each.
async fn all_plants(stage: &Stage, good: &Path, roots: &Roots, name: &str) {
    for plant in PLANTS {
        let what = format!("{plant:?} as {name}");
        let folder = copy_of(good, stage, &format!("{name}-{plant:?}"));
        roots.plant(plant, &folder.join(name));
        let mut check = vec!["check".to_owned()];
        check.extend(stage.flags(&folder));
        let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
        run.extend(stage.flags(&folder));
        let commands = [
            words("status", &folder),
            words("dead list", &folder),
            words("calls --today", &folder),
            check,
            run,
            stage.connect(&folder),
            words("disconnect", &folder),
        ];
        for command in commands {
            let said = stage.place.say(&command).await;
            let what = format!("{what}, {}: {}", command[0], said.err);
            assert!(said.code >= 0 && !said.err.contains("panicked"), "{what}");
            roots.are_untouched(&what);
        }
        let about = folder.metadata().expect("there");
        let about = (about.uid(), about.gid(), about.mode() & 0o7777);
        assert_eq!(about, (UID, GID, 0o700), "{what}");
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}

#[tokio::test]
async fn what_stands_in_the_place_of_the_state_is_named() {
    if !is_root("a planted state that is named") {
        return;
    }
    let stage = Stage::new().await;
    let good = good_folder(&stage).await;
    let roots = Roots::new(stage.place.path("roots"));
    for (plant, kind) in [
        (Plant::Link, "a symbolic link"),
        (Plant::SecondName, "a hard link"),
        (Plant::Fifo, "not a regular file"),
    ] {
        for name in ["spool.db", "spool.db-wal", "spool.lock"] {
            let folder = copy_of(&good, &stage, "named");
            roots.plant(plant, &folder.join(name));
            let said = stage.place.say(&words("status", &folder)).await;
            assert_eq!(said.code, 78, "{said:?}");
            let path = folder.join(name).display().to_string();
            let named = said.err.contains(&path) && said.err.contains(kind);
            assert!(named && said.err.contains("move it away"), "{said:?}");
            std::fs::remove_dir_all(&folder).expect("removed");
        }
    }
}

#[tokio::test]
async fn a_link_to_a_socket_that_never_answers_is_not_asked() {
    if !is_root("a link in the place of the daemon's socket") {
        return;
    }
    let stage = Stage::new().await;
    let good = good_folder(&stage).await;
    let deaf = stage.place.path("deaf.sock");
    // in its backlog every connection stands for ever
    let _listens = std::os::unix::net::UnixListener::bind(&deaf).expect("listens");
    set_mode(&deaf, 0o777);
    let folder = copy_of(&good, &stage, "deaf");
    let place = folder.join("control.sock");
    symlink(&deaf, &place).expect("a link");
    own(&place);
    let said = stage.place.say(&words("status", &folder)).await;
    assert_eq!(said.code, 69, "{said:?}");
    let named = said.err.contains("control.sock is not a socket");
    assert!(named && said.err.contains("move it away"), "{said:?}");
    // the daemon puts its own in the place
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.flags(&folder));
    let said = stage.place.say(&run).await;
    assert_eq!(said.code, 0, "{said:?}");
}

#[tokio::test]
async fn a_link_of_anothers_in_place_of_the_folder_is_not_followed() {
    if !is_root("a link in the place of the state folder") {
        return;
    }
    let stage = Stage::new().await;
    let roots = Roots::new(stage.place.path("roots"));
    let home = stage.folder("home");
    let state = home.join("state");
    symlink(stage.place.path("roots/empty"), &state).expect("a link");
    own(&state);
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.token_flags(&state));
    for command in [words("status", &state), run, stage.connect(&state)] {
        let said = stage.place.say(&command).await;
        assert_eq!(said.code, 78, "{said:?}");
        let words = format!("a link of user {UID}");
        assert!(said.err.contains(&words), "{said:?}");
        roots.are_untouched("the folder itself");
    }
    // a FIFO, and a folder that is not there yet
    std::fs::remove_file(&state).expect("removed");
    roots.plant(Plant::Fifo, &state);
    let said = stage.place.say(&words("status", &state)).await;
    assert_eq!(said.code, 69, "{said:?}");
    std::fs::remove_file(&state).expect("removed");
    let mut run = vec!["run".to_owned(), "--until-idle".to_owned()];
    run.extend(stage.token_flags(&state.join("deep")));
    let said = stage.place.say(&run).await;
    assert_eq!(said.code, 0, "{said:?}");
    super::stage::is_the_users(&state.join("deep"));
    super::stage::is_the_users(&state);
}
