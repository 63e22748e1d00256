//! Files that root has left in the folder before it knew to become its owner: he cannot write them.

use super::way::Owner;
use callbridge_ops::log::say;
use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// How our files begin; others are nobody's concern.
const OURS: [&str; 4] = ["spool.", "connection.", "shown-once.json", "control.sock"];

/// Names them with what gives them to the owner; root's rights to do it are gone by now.
pub(super) fn name(folder: &Path, owner: Owner) {
    let Ok(entries) = folder.read_dir() else {
        return;
    };
    let is_roots = |entry: &DirEntry| {
        let name = entry.file_name();
        let ours = OURS.iter().any(|it| name.to_string_lossy().starts_with(it));
        ours && entry
            .metadata()
            .is_ok_and(|about| about.uid() == 0 && !about.is_symlink())
    };
    let left = entries.flatten().filter(is_roots);
    let mut left: Vec<String> = left.map(|it| it.path().display().to_string()).collect();
    if left.is_empty() {
        return;
    }
    left.sort();
    let Owner { uid, gid } = owner;
    say(&format!(
        "root has left files that the folder's owner, user {uid}, cannot use: \
         chown -h {uid}:{gid} {}",
        left.join(" ")
    ));
}
