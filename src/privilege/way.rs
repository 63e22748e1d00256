//! The way to a folder, walked name by name: every folder on it is held open, and every link is
//! followed knowingly, with whose it is.

use rustix::fs::{CWD, Mode, OFlags, openat, readlinkat};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::{collections::VecDeque, os::unix::ffi::OsStringExt as _, os::unix::fs::MetadataExt as _};

/// More links are a loop, as for the system.
const LINKS_MAX: usize = 40;

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Owner {
    /// May go through this folder, as its mode says it.
    fn may_pass(self, folder: &Metadata) -> bool {
        let bit = match (folder.uid() == self.uid, folder.gid() == self.gid) {
            (true, _) => 0o100,
            (false, true) => 0o010,
            (false, false) => 0o001,
        };
        folder.mode() & bit != 0
    }
}

/// The folders and links that a path leads through, with its end.
#[derive(Debug)]
pub(crate) struct ResolvedPath {
    /// The path of the end, without links.
    pub path: PathBuf,
    /// Nothing is missing: else the end is the last folder that is there.
    pub whole: bool,
    /// The user ids that own the links on the way.
    pub links: Vec<u32>,
    /// From the root to the end.
    folders: Vec<File>,
}

/// Walks to `path`, or as far as there is something.
///
/// # Errors
/// The system's; [`ErrorKind::NotADirectory`] where something else stands there.
pub(crate) fn walk(path: &Path) -> io::Result<ResolvedPath> {
    let path = std::path::absolute(path)?;
    let mut way = ResolvedPath {
        path: PathBuf::from("/"),
        whole: true,
        links: Vec::new(),
        folders: vec![open(CWD, OsStr::new("/"))?],
    };
    let mut rest = names(&path);
    while let Some(name) = rest.pop_front() {
        if name == ".." {
            way.path.pop();
            let left = way.folders.len().saturating_sub(1).max(1);
            way.folders.truncate(left);
            continue;
        }
        let Some(last) = way.folders.last() else {
            break;
        };
        let found = match open(last, &name) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                way.whole = false;
                break;
            }
            found => found?,
        };
        let about = found.metadata()?;
        if about.is_symlink() {
            way.links.push(about.uid());
            if way.links.len() > LINKS_MAX {
                return Err(rustix::io::Errno::LOOP.into());
            }
            let target = readlinkat(&found, "", Vec::new())?.into_bytes();
            let target = PathBuf::from(OsString::from_vec(target));
            if target.is_absolute() {
                way.path = PathBuf::from("/");
                way.folders.truncate(1);
            }
            let mut further = names(&target);
            further.append(&mut rest);
            rest = further;
        } else if about.is_dir() {
            way.path.push(&name);
            way.folders.push(found);
        } else {
            return Err(ErrorKind::NotADirectory.into());
        }
    }
    Ok(way)
}

impl ResolvedPath {
    /// Returns the metadata of the end.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn about(&self) -> io::Result<Metadata> {
        self.folders.last().ok_or(ErrorKind::NotFound)?.metadata()
    }

    /// Returns `true` when this path leads to the end, too: device and inode are the same.
    pub(crate) fn is_at(&self, path: &Path) -> bool {
        let place = |about: Metadata| (about.dev(), about.ino());
        let found = std::path::absolute(path).and_then(|path| path.metadata());
        let found = found.map(place).ok();
        found.is_some() && found == self.about().map(place).ok()
    }

    /// The first folder on the way that is closed to this user and group.
    pub(crate) fn closed_to(&self, owner: Owner) -> Option<PathBuf> {
        let above: Vec<&Path> = self.path.ancestors().collect();
        let mut folders = above.iter().rev().zip(&self.folders);
        let passes = |folder: &File| folder.metadata().is_ok_and(|it| owner.may_pass(&it));
        let (closed, _) = folders.find(|(_, folder)| !passes(folder))?;
        Some(closed.to_path_buf())
    }
}

fn open(folder: impl std::os::fd::AsFd, name: &OsStr) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(folder, name, flags, Mode::empty())?))
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().filter_map(name).collect()
}

/// Every user of this machine can read this file: its mode says so, and no folder above it is
/// closed to them.
pub(crate) fn is_open_to_all(file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else {
        return false;
    };
    let has = |path: &Path, bit: u32| path.metadata().is_ok_and(|it| it.mode() & bit != 0);
    has(&file, 0o004) && file.ancestors().skip(1).all(|above| has(above, 0o001))
}

/// Nobody but root can have put this file in its place, or a link on the way to it.
pub(crate) fn is_roots(file: &Path) -> bool {
    let ways = || {
        let path = std::path::absolute(file).ok()?;
        let straight = path.parent()?.canonicalize().ok()?.join(path.file_name()?);
        // a pipe (`/dev/fd/63`) leads to no path at all
        let end = path.canonicalize().unwrap_or_else(|_| straight.clone());
        Some([path, straight, end])
    };
    let is_own = |about: Metadata| {
        let shared = about.is_dir() && callbridge_model::plain_file::is_shared(&about);
        about.uid() == 0 && !shared
    };
    let own = |path: &Path| path.symlink_metadata().is_ok_and(is_own);
    ways().is_some_and(|ways| ways.iter().flat_map(|it| it.ancestors()).all(own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn links_are_followed_and_told_and_what_is_missing_ends_the_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().canonicalize().expect("there");
        std::fs::create_dir_all(top.join("private/pbx1")).expect("made");
        std::fs::create_dir(top.join("public")).expect("made");
        symlink("../private/pbx1", top.join("public/pbx1")).expect("a link");
        let way = walk(&top.join("public/./pbx1/")).expect("a way");
        assert!(way.whole && way.is_at(&top.join("private/pbx1")));
        assert_eq!(way.path, top.join("private/pbx1"));
        assert_eq!(way.links, [rustix::process::geteuid().as_raw()]);
        let missing = walk(&top.join("public/not/there")).expect("a way");
        assert!(!missing.whole && missing.links.is_empty());
        assert_eq!(missing.path, top.join("public"));
        assert!(walk(&top.join("public/../../..")).is_ok());
        symlink("loop", top.join("loop")).expect("a link");
        assert!(walk(&top.join("loop")).is_err());
        std::fs::write(top.join("file"), "").expect("written");
        let error = walk(&top.join("file")).expect_err("no folder");
        assert_eq!(error.kind(), ErrorKind::NotADirectory);
    }

    #[test]
    fn the_first_closed_folder_is_named_and_what_lies_in_it_is_open_to_nobody() {
        let folder = tempfile::tempdir().expect("a folder");
        let top = folder.path().canonicalize().expect("there");
        let mode = |path: &Path, mode: u32| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, mode).expect("set");
        };
        mode(&top, 0o755);
        let private = top.join("private");
        std::fs::create_dir_all(private.join("pbx1")).expect("made");
        let file = private.join("token");
        std::fs::write(&file, "t").expect("written");
        mode(&file, 0o644);
        let about = top.metadata().expect("there");
        let (own, other) = (
            Owner {
                uid: about.uid(),
                gid: about.gid(),
            },
            Owner {
                uid: about.uid() + 1,
                gid: about.gid() + 1,
            },
        );
        for (closed, bits) in [(true, 0o700), (false, 0o711)] {
            mode(&private, bits);
            let way = walk(&private.join("pbx1")).expect("a way");
            assert_eq!(way.closed_to(own), None);
            assert_eq!(way.closed_to(other), closed.then(|| private.clone()));
            assert_eq!(is_open_to_all(&file), !closed);
        }
        mode(&file, 0o640);
        assert!(!is_open_to_all(&file));
    }
}
