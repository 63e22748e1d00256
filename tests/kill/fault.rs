//! What is done to the program's writes, by a small library loaded before the C library
//! (`fault.c`). The program itself knows nothing of it.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Numbers of the plan, as `fault.c` lists them.
const WORDS: usize = 6;

/// What is to happen at the n-th operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: operations are counted alone.
    Nothing,
    /// SIGKILL where a sync was asked for: what was written may be found, and nobody was told.
    KillBeforeSync,
    /// SIGKILL after the sync: it is on the disk, and nobody was told.
    KillAfterSync,
    /// SIGKILL with half of a write done.
    KillInWrite,
    /// A write is done by half and says EIO.
    FailWrite,
    /// A sync says EIO.
    FailSync,
    /// A write is done by half and says ENOSPC; a file does not grow.
    NoRoom,
}

impl Action {
    const fn number(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::KillBeforeSync => 1,
            Self::KillAfterSync => 2,
            Self::KillInWrite => 3,
            Self::FailWrite => 4,
            Self::FailSync => 5,
            Self::NoRoom => 6,
        }
    }

    /// The program ends by it.
    pub const fn kills(self) -> bool {
        matches!(
            self,
            Self::KillBeforeSync | Self::KillAfterSync | Self::KillInWrite
        )
    }

    /// It is counted by syncs; else by writes.
    pub const fn is_of_syncs(self) -> bool {
        matches!(
            self,
            Self::KillBeforeSync | Self::KillAfterSync | Self::FailSync
        )
    }
}

/// An action and its moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What happens.
    pub action: Action,
    /// At which write or sync, from 1.
    pub nth: u64,
    /// From then on, until it is lifted.
    pub on: bool,
}

/// A plan that the test and the program share; counts go on over restarts under the same plan.
pub struct Plan {
    path: PathBuf,
    file: File,
}

impl Plan {
    /// A new one at `path`.
    pub fn at(path: &Path, fault: Fault) -> Self {
        let mut how = OpenOptions::new();
        how.read(true).write(true).create(true).truncate(true);
        let file = how.open(path).expect("a file");
        let words = [0, 0, fault.action.number(), fault.nth, fault.on.into(), 0];
        let bytes = words.map(u64::to_ne_bytes).concat();
        file.write_all_at(&bytes, 0).expect("written");
        let path = path.to_path_buf();
        Self { path, file }
    }

    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8 * WORDS];
        self.file.read_exact_at(&mut bytes, 0).expect("readable");
        let (words, _) = bytes.as_chunks::<8>();
        u64::from_ne_bytes(words[at])
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.word(0)
    }

    /// Syncs so far.
    pub fn syncs(&self) -> u64 {
        self.word(1)
    }

    /// How often the fault took place.
    pub fn done(&self) -> u64 {
        self.word(5)
    }

    /// From here on all is well.
    pub fn lift(&self) {
        let nothing = Action::Nothing.number().to_ne_bytes();
        self.file.write_all_at(&nothing, 16).expect("written");
    }

    /// What the program's environment has to hold so that files below `folder` are concerned.
    pub fn variables(&self, folder: &Path) -> Vec<(&'static str, String)> {
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        vec![
            ("LD_PRELOAD", text(library())),
            ("FAULT_PLAN", text(&self.path)),
            ("FAULT_FOLDER", text(folder)),
        ]
    }
}

/// `fault.c`, compiled once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kill/fault.c");
        // Several test processes may come here at once: made aside, then put in its place.
        let made = folder.join(format!("fault-{}.so", std::process::id()));
        let compiled = Command::new("cc")
            .args([
                "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o",
            ])
            .args([&made, &source])
            .output()
            .expect("cc is there: tests/setup installs it");
        let words = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{words}");
        let library = folder.join("fault.so");
        std::fs::rename(&made, &library).expect("renamed");
        library
    })
}
