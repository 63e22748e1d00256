//! Keeps root out of state folders that belong to another user.
//!
//! The owner of a folder can plant links, FIFOs, and sockets in it. A command that runs as root
//! would follow them with root's rights. So root gets an error that names the user to run the
//! command as, before anything in the folder is opened. Only metadata is read to find the owner.

use crate::Failure;
use callbridge_admin::user;
use callbridge_call::shell::quoted;
use callbridge_model::Code;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Refuses to run as root on another user's state. `arguments` are the arguments of this process,
/// with the program's name first. The error repeats them as a `sudo` command.
///
/// # Errors
/// 78 if the state belongs to another user. The message has the command to run instead.
pub(crate) fn refuse_other_users_state(
    state: &Path,
    arguments: impl Iterator<Item = OsString>,
) -> Result<(), Failure> {
    let Some(uid) = other_owner(state) else {
        return Ok(());
    };
    let mut command = format!("sudo -u {} callbridge", sudo_user(uid));
    for argument in arguments.skip(1) {
        command.push(' ');
        command.push_str(&quoted(&argument.to_string_lossy()));
    }
    let message = format!(
        "{} belongs to {}, and root does not open another user's state. Run: {command}",
        state.display(),
        owner_name(uid),
    );
    Err(Failure::new(Code::Configuration, message))
}

/// Returns the user id of the other user who owns this state, if this process runs as root.
///
/// The state belongs to another user if the folder does, if it does not exist yet and the folder
/// above it does, or if the path leads through that user's symbolic link.
pub(crate) fn other_owner(state: &Path) -> Option<u32> {
    if !geteuid().is_root() {
        return None;
    }
    let state = std::path::absolute(state).ok()?;
    for place in state.ancestors() {
        let found = place.symlink_metadata();
        if let Ok(link) = found
            && link.is_symlink()
            && link.uid() != 0
        {
            return Some(link.uid());
        }
    }
    let mut places = state.ancestors();
    let nearest = places.find_map(|place| place.metadata().ok())?;
    if nearest.uid() == 0 {
        return None;
    }
    Some(nearest.uid())
}

/// Formats a user id for messages: `user callbridge`, or `uid 1001` if the user has no name.
pub(crate) fn owner_name(uid: u32) -> String {
    match user::find_name(uid) {
        Some(name) => format!("user {name}"),
        None => format!("uid {uid}"),
    }
}

/// Formats a user id as the argument of `sudo -u`: a quoted name, or `#1001`.
pub(crate) fn sudo_user(uid: u32) -> String {
    let name = user::find_name(uid).unwrap_or_else(|| format!("#{uid}"));
    quoted(&name)
}
