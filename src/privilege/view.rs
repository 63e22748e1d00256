//! A way to the folder for its owner, where root alone can go: systemd keeps the folders of a
//! `DynamicUser` under `/var/lib/private` (0700), and SQLite opens its files by their whole path.
//!
//! In a mount namespace of this process alone an empty file system covers the folder that is
//! closed, and the state folder is mounted in it at its own path. Nobody else sees any of it, and
//! it is gone with the process.

use super::way::{ResolvedPath, walk};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::thread::UnshareFlags;
use std::fs::Permissions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// Opens the way to its end through `closed`, a folder above it. No other thread may run yet.
///
/// # Errors
/// Where this root may not mount, as in most containers.
pub(super) fn open_through(closed: &Path, way: &ResolvedPath) -> io::Result<()> {
    // Only the shared table of descriptors would make this unsafe; mounts alone are left here.
    #[expect(deprecated, reason = "its safe form serves for a namespace of mounts")]
    rustix::thread::unshare(UnshareFlags::NEWNS)?;
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )?;
    // walked anew: what was opened before belongs to the namespace before
    let inside = walk(&way.path)?;
    let (before, now) = (way.about()?, inside.about()?);
    if (before.dev(), before.ino()) != (now.dev(), now.ino()) {
        return Err(io::Error::other("it was moved meanwhile"));
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("callbridge", closed, "tmpfs", flags, c"mode=0711,size=64k")?;
    let below = way.path.strip_prefix(closed).map_err(io::Error::other)?;
    let mut place = closed.to_path_buf();
    for name in below {
        place.push(name);
        match std::fs::create_dir(&place) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // whatever the umask
        std::fs::set_permissions(&place, Permissions::from_mode(0o711))?;
    }
    mount_bind(inside.by_descriptor(), &place)?;
    Ok(())
}
