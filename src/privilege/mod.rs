//! Root in a state folder of another's: before anything in the folder is touched, and before a
//! thread is started, it becomes the folder's owner for good.
//!
//! Whoever owns a folder can plant links and FIFOs in it, and root that opens, makes or chowns a
//! file there works for him. So every command that is given a state folder begins with this:
//!
//! ```text
//! walk to the folder ─▶ read secrets, listen (held) ─▶ become its owner
//! ```
//!
//! | whose the folder is | what root does |
//! |---|---|
//! | root's | goes on, unless others may write there |
//! | another's | becomes that user, with the folder's group alone and no capability |
//! | not there yet | the same by the folder in which it will be made |
//! | where its owner cannot go | refuses, and names the folder that is closed to him |
//!
//! | module | what lives there |
//! |---|---|
//! | [`way`] | walking there, and who may |
//! | `held` | what root does while it is root |

mod held;
pub(crate) mod way;

use crate::Failure;
use callbridge_call::shell::quoted_path;
use callbridge_model::{Code, SecretPlace};
use callbridge_ops::log::say;
use callbridge_spool as spool;
pub(crate) use held::{Held, Needs, OwnFile};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use std::{fs::DirEntry, io, os::unix::fs::MetadataExt as _, path::Path};
use way::walk;
pub(crate) use way::{Owner, is_open_to_all};

/// The group of nobody (`nogroup`): that of root has rights to root's files.
const GROUP_OF_NOBODY: u32 = 65_534;

/// Root becomes the owner of the command's state folder. No thread may have been started.
///
/// # Errors
/// 78 where root must not work in the folder, or cannot become its owner.
pub(crate) fn step_down(needs: Needs<'_>) -> Result<(), Failure> {
    let Some(state) = needs.state.filter(|_| geteuid().is_root()) else {
        return Ok(());
    };
    // What is no folder, or cannot be reached, the command itself refuses in its words.
    let Ok((about, way)) = walk(state).and_then(|way| Ok((way.about()?, way))) else {
        return Ok(());
    };
    let (uid, gid) = (about.uid(), Some(about.gid()).filter(|gid| *gid != 0));
    let gid = gid.unwrap_or(GROUP_OF_NOBODY);
    let owner = Owner { uid, gid };
    if let Some(other) = way.links.iter().find(|uid| ![0, owner.uid].contains(uid)) {
        let (given, path) = (state.display(), way.path.display());
        return Err(refused(format!(
            "{given} leads to {path} through a link of user {other}, who is neither root nor its \
             owner: give --state {path}, if that is the folder"
        )));
    }
    if owner.uid == 0 {
        // `check` names it among all else
        if needs.judges_folder {
            return Ok(());
        }
        return Ok(spool::refuse_shared(state)?);
    }
    if let Some(closed) = way.closed_to(owner) {
        return Err(refused(format!(
            "{} is user {}'s, to whom {} is closed: open that folder (chmod o+x), or, where it is \
             systemd's for DynamicUser=, give the unit the fixed user of callbridge's own \
             (User=callbridge)",
            way.path.display(),
            owner.uid,
            closed.display()
        )));
    }
    let read: Vec<_> = needs.secrets.into_iter().filter_map(held::read).collect();
    let by_root = Held::by_root(owner, &needs.listen, needs.file);
    become_owner(owner).map_err(|error| {
        refused(format!(
            "{} is user {}'s, and root cannot become that user here ({error}): run the command as \
             that user",
            state.display(),
            owner.uid
        ))
    })?;
    if !way.is_at(state) && way.whole {
        // a link that only root can follow leads there
        state.clone_from(&way.path);
    }
    // what cannot be read any more stays as it was read
    for (place, path, text) in read {
        if !held::is_readable(&path) {
            *place = SecretPlace::Held(path, text);
        }
    }
    name_left_files(state, owner);
    if let Some(held) = needs.held {
        *held = by_root;
    }
    Ok(())
}

fn refused(words: String) -> Failure {
    Failure::new(Code::Configuration, words)
}

/// User, group and capabilities, for good: whatever comes later, it is done as the owner.
fn become_owner(owner: Owner) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(owner.uid), Gid::from_raw(owner.gid));
    set_thread_groups(&[gid])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    let none = CapabilitySet::empty();
    let sets = CapabilitySets {
        effective: none,
        permitted: none,
        inheritable: none,
    };
    set_capabilities(None, sets)?;
    match set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT) {
        Err(_) => Ok(()),
        Ok(()) => Err(io::Error::other("it could become root again")),
    }
}

/// The beginnings of the names of our files; others are left alone.
const OURS: [&str; 4] = ["spool.", "connection.", "shown-once.json", "control.sock"];

/// Names them with what gives them to the owner; root's rights to do it are gone by now.
pub(super) fn name_left_files(folder: &Path, owner: Owner) {
    let is_roots = |entry: &DirEntry| {
        let (name, about) = (entry.file_name(), entry.metadata());
        let ours = OURS.iter().any(|it| name.to_string_lossy().starts_with(it));
        ours && about.is_ok_and(|about| about.uid() == 0 && !about.is_symlink())
    };
    let entries = folder.read_dir().into_iter().flatten();
    let left = entries.flatten().filter(is_roots);
    let mut left: Vec<String> = left.map(|file| quoted_path(&file.path())).collect();
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
