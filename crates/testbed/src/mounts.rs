//! Disks of a test's own: the test runs again in a namespace of mounts, where it may mount small
//! ones that nobody else sees and that are gone with it.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

/// Set for a test that runs inside.
const INSIDE: &str = "CALLBRIDGE_TEST_MOUNTS";

/// Runs `work` of the test `name` where it can mount. Where nobody may, it says so, and the test
/// run lists it as not run.
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
        // Past the harness, which keeps what a good test prints to itself.
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
    // A name that no test has would pass as well.
    assert!(
        said.status.success() && words.contains("1 passed"),
        "{words}"
    );
}

/// Arguments of `unshare` with which mounting works: as root, or as root of a namespace of users.
fn namespace() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["-m"], &["-rm"]];
    let works = |how: &&&[&str]| {
        let folder = tempfile::tempdir().expect("a folder");
        let tried = Command::new("unshare")
            .args(**how)
            .args(["mount", "-t", "tmpfs", "tmpfs"])
            .arg(folder.path())
            .output();
        tried.is_ok_and(|tried| tried.status.success())
    };
    ways.iter().find(works).copied()
}

/// A disk of so many KiB, mounted at a folder that is made.
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

    /// Lets other users enter it, such as the one of a server.
    pub fn open_to_all(&self) {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&self.at, mode).expect("its owner");
    }

    /// Makes it read-only.
    pub fn make_read_only(&self) {
        self.run(Command::new("mount").args(["-o", "remount,ro"]));
    }

    /// Fills it, but for `kib`.
    pub fn fill_but(&self, kib: u32) {
        let stat = rustix::fs::statvfs(&self.at).expect("a disk");
        let bytes = stat.f_bavail * stat.f_frsize - u64::from(kib) * 1024;
        let ballast = std::fs::File::create(self.ballast()).expect("a file");
        let reserve = rustix::fs::FallocateFlags::empty();
        rustix::fs::fallocate(&ballast, reserve, 0, bytes).expect("room");
    }

    /// Takes what [`Self::fill_but`] left of it.
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
        // Lets the folder below be deleted.
        let unmounted = Command::new("umount").arg("-l").arg(&self.at).status();
        unmounted.ok();
    }
}
