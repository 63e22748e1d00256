//! Opens files of the state folder so that nothing in their place leads elsewhere or blocks a
//! command.
//!
//! | what is in the place | what happens |
//! |---|---|
//! | a regular file with one name | it is opened |
//! | a symbolic link | refused, because it would lead to another file |
//! | a file with a second name (a hard link) | refused, because it also belongs to another place |
//! | a FIFO, a device, a socket, a folder | refused without waiting |

use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Opens a file of the state folder. If `how` has `create`, a missing file is created. Do not use
/// `truncate`, because it would empty the file before the check.
///
/// # Errors
/// Errors of the system. [`ErrorKind::InvalidInput`] for anything that is not a plain file.
pub fn open(path: &Path, how: &mut OpenOptions) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = match how.custom_flags(flags.bits().cast_signed()).open(path) {
        Ok(file) => file,
        // The system reports a link, a FIFO, and a folder differently.
        Err(error) => return Err(check(path).err().unwrap_or(error)),
    };
    check_metadata(&file.metadata()?)?;
    Ok(file)
}

/// Opens a file that an administrator has named and that others write. Links are followed, but only
/// a regular file is opened. Opening never blocks.
///
/// # Errors
/// Errors of the system. [`ErrorKind::InvalidInput`] for anything that is not a regular file.
pub fn open_named(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(io::Error::new(
        ErrorKind::InvalidInput,
        "it is not a regular file",
    ))
}

/// Reads the beginning of a file of the state folder.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let file = open(path, OpenOptions::new().read(true))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads the metadata of the file at the path, without following a link. `None` if the file does
/// not exist. Call it before the path is passed on, for example to SQLite.
///
/// # Errors
/// As [`open`].
pub fn check(path: &Path) -> io::Result<Option<Metadata>> {
    match path.symlink_metadata() {
        Ok(found) => check_metadata(&found).map(|()| Some(found)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a folder. If the path is not a folder, fails without blocking.
///
/// # Errors
/// Errors of the system.
pub fn folder(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NONBLOCK).bits().cast_signed();
    let mut how = OpenOptions::new();
    how.read(true).custom_flags(flags).open(path)
}

/// Returns `true` if others than its owner can create, remove and rename files in this folder.
/// Root's sticky folders (`/tmp`) do not count, because there others cannot do so with our files.
pub fn is_shared(folder: &Metadata) -> bool {
    let sticky = folder.mode() & 0o1000 != 0 && folder.uid() == 0;
    folder.mode() & 0o022 != 0 && !sticky
}

/// Returns `true` if every user of this machine can read this file: by the modes of the file and of
/// all folders above it.
pub fn is_open_to_all(file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else {
        return false;
    };
    has_mode(&file, 0o004) && file.ancestors().skip(1).all(|above| has_mode(above, 0o001))
}

fn has_mode(path: &Path, bit: u32) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.mode() & bit != 0)
}

fn check_metadata(found: &Metadata) -> io::Result<()> {
    let what = if found.is_symlink() {
        "it is a symbolic link"
    } else if !found.is_file() {
        "it is not a regular file"
    } else if found.nlink() > 1 {
        "it is a hard link: the same file has another name"
    } else {
        return Ok(());
    };
    let message = format!("{what}, and callbridge did not make it: move it away");
    Err(io::Error::new(ErrorKind::InvalidInput, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, Mode, mkfifoat};
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    #[test]
    fn non_plain_file_is_refused_unchanged_without_blocking() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        std::fs::write(dir.join("victim"), "kept").expect("written");
        symlink(dir.join("victim"), dir.join("link")).expect("a link");
        symlink(dir.join("nowhere"), dir.join("dangling")).expect("a link");
        std::fs::hard_link(dir.join("victim"), dir.join("second")).expect("a link");
        std::fs::create_dir(dir.join("folder")).expect("a folder");
        mkfifoat(CWD, dir.join("fifo"), Mode::from(0o600)).expect("a FIFO");
        let hows: [fn() -> OpenOptions; 3] = [
            || OpenOptions::new().read(true).clone(),
            || OpenOptions::new().create(true).append(true).clone(),
            || OpenOptions::new().read(true).write(true).clone(),
        ];
        for name in ["link", "dangling", "second", "folder", "fifo"] {
            for how in hows {
                let error = open(&dir.join(name), &mut how()).expect_err(name);
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name}: {error}");
            }
            assert!(check(&dir.join(name)).is_err(), "{name}");
        }
        assert!(!dir.join("nowhere").exists());
        assert!(open_named(&dir.join("link")).is_ok());
        for name in ["dangling", "folder", "fifo"] {
            assert!(open_named(&dir.join(name)).is_err(), "{name}");
        }
        std::fs::remove_file(dir.join("second")).expect("removed");
        assert_eq!(read(&dir.join("victim"), 3).expect("plain"), b"kep");
        assert!(check(&dir.join("nowhere")).expect("nothing").is_none());
        assert!(super::folder(&dir.join("fifo")).is_err());
        assert!(super::folder(&dir.join("folder")).is_ok());
    }

    fn set_mode(path: &Path, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(path, mode).expect("set");
    }

    #[test]
    fn file_in_a_closed_folder_is_not_open_to_all() {
        // The folders above the file count, too, and TMPDIR can be below a closed folder.
        let folder = tempfile::tempdir_in("/tmp").expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "t").expect("written");
        for (folder_mode, file_mode, open) in [
            (0o700, 0o644, false),
            (0o711, 0o644, true),
            (0o711, 0o640, false),
        ] {
            set_mode(folder.path(), folder_mode);
            set_mode(&file, file_mode);
            assert_eq!(is_open_to_all(&file), open, "{folder_mode:o} {file_mode:o}");
        }
    }

    #[test]
    fn folder_writable_by_others_is_shared_unless_root_sticky() {
        let folder = tempfile::tempdir().expect("a folder");
        for (mode, shared) in [(0o700, false), (0o755, false), (0o770, true), (0o707, true)] {
            set_mode(folder.path(), mode);
            let metadata = folder.path().metadata().expect("there");
            assert_eq!(is_shared(&metadata), shared, "{mode:o}");
        }
        // In a user's sticky folder, that user can still remove and rename our files.
        set_mode(folder.path(), 0o1777);
        if folder.path().metadata().expect("there").uid() == 0 {
            chown(folder.path(), Some(1), None).expect("given to another user");
        }
        assert!(is_shared(&folder.path().metadata().expect("there")));
        let sticky = Path::new("/tmp").metadata().expect("there");
        assert_eq!((sticky.uid(), sticky.mode() & 0o7777), (0, 0o1777), "/tmp");
        assert!(!is_shared(&sticky));
    }
}
