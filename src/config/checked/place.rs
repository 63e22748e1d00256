//! The place of the state: from `--state`, the environment, or the only daemon that runs.

use crate::state_owner::other_owner;
use callbridge_admin::socket;
use callbridge_model::Environment;
use callbridge_spool::{PostgresUrl, StatePlace};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The folder for sockets of services whose state is in a database.
const SOCKETS: &str = "/run/callbridge";
/// The folder with one state folder per service.
pub(crate) const STATES: &str = "/var/lib/callbridge";

/// Returns the state folder that a command uses. This is `usual` if a daemon runs on it. Otherwise
/// it is the only folder in `services` on which a daemon runs, or `usual` if there is no single
/// one.
pub(crate) fn state_of_daemon(usual: PathBuf, services: &Path) -> PathBuf {
    if has_daemon(&usual) {
        return usual;
    }
    let entries = services.read_dir().into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut running = folders
        .map(|entry| entry.path())
        .filter(|folder| has_daemon(folder));
    match (running.next(), running.next()) {
        (Some(only), None) => only,
        (Some(_) | None, _) => usual,
    }
}

/// Returns `true` if a daemon listens on the control socket of this state folder.
fn has_daemon(folder: &Path) -> bool {
    let socket = folder.join(socket::NAME);
    let found = socket.symlink_metadata();
    if !found.is_ok_and(|metadata| metadata.file_type().is_socket()) {
        return false;
    }
    // Do not connect to another user's socket. The command refuses that folder afterward.
    other_owner(folder).is_some() || UnixStream::connect(socket).is_ok()
}

/// Returns the state of `--state`: a folder or a database. Without the flag, it is the folder
/// `$STATE_DIRECTORY`, or else `~/.local/state/callbridge`.
pub(crate) fn state_place(
    flag: Option<&str>,
    environment: &Environment,
) -> Result<StatePlace, String> {
    match flag {
        Some("") => Err("is empty: give a folder or a database".to_owned()),
        Some(flag) if PostgresUrl::is_url(flag) => {
            StatePlace::in_database(flag, &socket_base(environment)?)
        }
        Some(flag) => Ok(StatePlace::Folder(PathBuf::from(flag))),
        None => Ok(StatePlace::Folder(state_folder(environment)?)),
    }
}

/// Returns the folder for sockets of daemons whose state is in a database: systemd's, or else
/// `/run/callbridge`, this user's runtime folder, or a folder in `/tmp`.
fn socket_base(environment: &Environment) -> Result<PathBuf, String> {
    let all = environment.text("RUNTIME_DIRECTORY");
    if let Some(first) = all.and_then(|all| all.split(':').next()) {
        return Ok(PathBuf::from(first));
    }
    let user = rustix::process::geteuid();
    let of_service = Path::new(SOCKETS);
    let found = of_service.metadata();
    if found.is_ok_and(|found| user.is_root() || found.uid() == user.as_raw()) {
        return Ok(of_service.to_path_buf());
    }
    if let Some(own) = environment.path("XDG_RUNTIME_DIR") {
        return Ok(own.join("callbridge"));
    }
    let shared = PathBuf::from(format!("/tmp/callbridge-{}", user.as_raw()));
    let found = shared.symlink_metadata();
    if found.is_ok_and(|found| found.uid() != user.as_raw() || !found.is_dir()) {
        let message = format!("{} belongs to another user: remove it", shared.display());
        return Err(message);
    }
    Ok(shared)
}

fn state_folder(environment: &Environment) -> Result<PathBuf, String> {
    // systemd separates several folders with colons. The first folder is callbridge's.
    let all = environment.text("STATE_DIRECTORY");
    if let Some(first) = all.and_then(|all| all.split(':').next()) {
        return Ok(PathBuf::from(first));
    }
    match environment.path("HOME") {
        Some(home) => Ok(home.join(".local/state/callbridge")),
        None => Err("is missing, and $HOME is not set: give a folder or a database".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn create_folder(path: PathBuf) -> PathBuf {
        std::fs::create_dir_all(&path).expect("made");
        path
    }

    fn listen(folder: &Path) -> UnixListener {
        UnixListener::bind(folder.join(socket::NAME)).expect("listens")
    }

    #[test]
    fn default_state_is_that_of_the_only_running_service() {
        let place = tempfile::tempdir().expect("a folder");
        let services = create_folder(place.path().join("lib"));
        let own = place.path().join("own");
        assert_eq!(state_of_daemon(own.clone(), &services), own, "nothing runs");
        let first = create_folder(services.join("hq"));
        let second = create_folder(services.join("branch"));
        std::fs::write(second.join(socket::NAME), "").expect("written");
        let _hq = listen(&first);
        assert_eq!(state_of_daemon(own.clone(), &services), first);
        std::fs::remove_file(second.join(socket::NAME)).expect("removed");
        let branch = listen(&second);
        assert_eq!(
            state_of_daemon(own.clone(), &services),
            own,
            "two other daemons run"
        );
        // A killed daemon leaves its socket behind.
        drop(branch);
        assert_eq!(state_of_daemon(own.clone(), &services), first);
        let _own = listen(&create_folder(own.clone()));
        assert_eq!(
            state_of_daemon(own.clone(), &services),
            own,
            "the daemon of the default state runs"
        );
    }

    #[test]
    fn socket_of_another_user_is_found_without_connecting() {
        if !rustix::process::geteuid().is_root() {
            let line = b"\nnot run: the socket of another user (needs root)\n";
            let written = std::io::Write::write_all(&mut std::io::stderr(), line);
            return written.expect("stderr");
        }
        let place = tempfile::tempdir().expect("a folder");
        let service = place.path().join("hq");
        std::fs::create_dir(&service).expect("made");
        let socket = UnixListener::bind(service.join(socket::NAME)).expect("listens");
        socket.set_nonblocking(true).expect("set");
        std::os::unix::fs::chown(&service, Some(61_234), Some(61_234)).expect("given");
        let found = state_of_daemon(place.path().join("own"), place.path());
        assert_eq!(found, service);
        let error = socket.accept().expect_err("no connection");
        assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    }
}
