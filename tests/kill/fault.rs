//! Faults in the program's writes, made by a small library that is loaded before the C library
//! (`fault.c`). The program does not know about the library.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Number of words in the plan, as `fault.c` lists them.
const WORDS: usize = 6;

/// The fault at the n-th operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// No fault. Operations are only counted.
    Nothing,
    /// SIGKILL before a sync. The data can be on the disk, but the program did not report it.
    KillBeforeSync,
    /// SIGKILL after a sync. The data is on the disk, but the program did not report it.
    KillAfterSync,
    /// SIGKILL after half of a write.
    KillInWrite,
    /// Half of a write is done, and the write returns EIO.
    FailWrite,
    /// A sync returns EIO.
    FailSync,
    /// Half of a write is done, and the write returns ENOSPC. A file cannot grow.
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

    /// Returns `true` if the fault kills the program.
    pub const fn is_kill(self) -> bool {
        matches!(
            self,
            Self::KillBeforeSync | Self::KillAfterSync | Self::KillInWrite
        )
    }

    /// Returns `true` if the fault is counted by syncs, and `false` if by writes.
    pub const fn is_counted_by_syncs(self) -> bool {
        matches!(
            self,
            Self::KillBeforeSync | Self::KillAfterSync | Self::FailSync
        )
    }
}

/// An action, and when it takes place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub action: Action,
    /// The number of the write or sync, from 1.
    pub nth: u64,
    /// Whether every later operation gets the fault too, until [`Plan::lift`].
    pub on: bool,
}

/// A plan that the test and the program share. The counts continue over restarts with the same
/// plan.
pub struct Plan {
    path: PathBuf,
    file: File,
}

impl Plan {
    /// Creates a plan at `path`.
    pub fn create(path: &Path, fault: Fault) -> Self {
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

    /// Returns the number of writes so far.
    pub fn writes(&self) -> u64 {
        self.word(0)
    }

    /// Returns the number of syncs so far.
    pub fn syncs(&self) -> u64 {
        self.word(1)
    }

    /// Returns the number of times that the fault took place.
    pub fn times_met(&self) -> u64 {
        self.word(5)
    }

    /// Ends the fault.
    pub fn lift(&self) {
        let nothing = Action::Nothing.number().to_ne_bytes();
        self.file.write_all_at(&nothing, 16).expect("written");
    }

    /// Returns the environment variables that apply the plan to the program's files below `folder`.
    pub fn variables(&self, folder: &Path) -> Vec<(&'static str, String)> {
        vec![
            ("LD_PRELOAD", text(library())),
            ("FAULT_PLAN", text(&self.path)),
            ("FAULT_FOLDER", text(folder)),
        ]
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("UTF-8").to_owned()
}

/// Returns the library that is made of `fault.c`. The file is compiled once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kill/fault.c");
        // Several test processes can compile the library at the same time, so each process renames
        // its own file into place.
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
