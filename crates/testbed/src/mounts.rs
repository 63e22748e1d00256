//! Disks for one test. The test runs again in a mount namespace, where it can mount small disks.
//! They are visible only there, and are gone when the namespace ends.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Set for a test that runs in such a namespace.
const INSIDE: &str = "CALLBRIDGE_TEST_MOUNTS";

/// Runs `work` of the test `name` where it can mount disks. If this user cannot mount, prints that,
/// and the test run lists the test as skipped.
pub fn inside(name: &str, work: impl Future<Output = ()>) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        return runtime.block_on(work);
    }
    let Some(how) = namespace() else {
        let line = format!(
            "\nnot run: {name} (no small disk can be mounted here: run tests/run as root, or where \
             users may make namespaces)\n"
        );
        // Written past the test harness, which hides the output of a test that succeeds.
        return std::io::stderr()
            .write_all(line.as_bytes())
            .expect("stderr");
    };
    let said = Command::new("unshare")
        .args(how)
        .arg(std::env::current_exe().expect("this binary"))
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(INSIDE, "yes")
        .output()
        .expect("unshare");
    let words = [said.stdout, said.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    // A run without any matching test would succeed as well.
    assert!(
        said.status.success() && words.contains("1 passed"),
        "{words}"
    );
}

/// Returns the arguments of `unshare` with which mounting works: as root, or as root of a user
/// namespace.
fn namespace() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["-m"], &["-rm"]];
    ways.into_iter().find(|how| can_mount(how))
}

fn can_mount(how: &[&str]) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let tried = Command::new("unshare")
        .args(how)
        .args(["mount", "-t", "tmpfs", "tmpfs"])
        .arg(folder.path())
        .output();
    tried.is_ok_and(|tried| tried.status.success())
}

/// A disk of this many KiB, mounted at a new folder.
pub struct SmallDisk {
    at: PathBuf,
}

impl SmallDisk {
    pub fn at(at: PathBuf, kib: u32) -> Self {
        std::fs::create_dir_all(&at).expect("a folder");
        let disk = Self { at };
        let size = format!("size={kib}k,mode=700");
        disk.run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]));
        disk
    }

    /// Lets other users enter it, such as the user of a server.
    pub fn open_to_all(&self) {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&self.at, mode).expect("its owner");
    }

    /// Makes it read-only.
    pub fn make_read_only(&self) {
        self.run(Command::new("mount").args(["-o", "remount,ro"]));
    }

    /// Fills it, except for `kib` KiB.
    pub fn fill_but(&self, kib: u32) {
        let stat = rustix::fs::statvfs(&self.at).expect("a disk");
        let bytes = stat.f_bavail * stat.f_frsize - u64::from(kib) * 1024;
        let ballast = std::fs::File::create(self.ballast()).expect("a file");
        let reserve = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&ballast, reserve, 0, bytes).expect("room");
    }

    /// Fills the space that [`Self::fill_but`] left.
    pub fn fill(&self) {
        let options = std::fs::OpenOptions::new()
            .append(true)
            .open(self.ballast());
        let mut ballast = options.expect("a file");
        while ballast.write_all(&[0; 4096]).is_ok() {}
    }

    /// Deletes the file that fills it.
    pub fn make_room(&self) {
        std::fs::remove_file(self.ballast()).expect("deleted");
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    fn run(&self, command: &mut Command) {
        let said = command.arg(&self.at).output().expect("it runs");
        let words = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{command:?}: {words}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // The folder below can then be deleted.
        let unmounted = Command::new("umount").arg("-l").arg(&self.at).status();
        unmounted.ok();
    }
}
