//! What root alone may do, done before it becomes another: secrets that it named are read,
//! addresses that are root's are listened at, and the command's own file is opened.

use super::way::is_roots;
use crate::config::checked::Config;
use crate::config::command::Command;
use callbridge_model::plain_file;
use callbridge_model::secret::Secret;
use callbridge_model::secret_source as secrets;
use callbridge_model::secret_source::SecretPlace;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Addresses of these ports are root's.
const PORTS_OF_ROOT: std::ops::Range<u16> = 1..1024;

/// Listened at by root, and not yet taken.
static LISTENERS: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());

/// The command's one file (`explain --picture`, `state export` and `import`), where root has opened
/// it.
static FILE: Mutex<Option<File>> = Mutex::new(None);

/// Secrets that root has read, in the order of [`places`].
#[derive(Debug)]
pub(super) struct ReadSecrets(Vec<Option<Secret>>);

impl ReadSecrets {
    /// Reads the secrets that only root can have put where they are: what another could have
    /// linked there is left for the folder's owner to read, by his own right.
    pub(super) fn of(command: &mut Command) -> Self {
        let read = |place: &mut SecretPlace| match place {
            SecretPlace::File(path) if is_roots(path) => {
                secrets::text_of(path).ok().map(Secret::from)
            }
            SecretPlace::File(_) | SecretPlace::Held(..) | SecretPlace::Variable(_) => None,
        };
        Self(places(command).into_iter().map(read).collect())
    }

    /// After the descent: those that cannot be read any more stay as they were read.
    pub(super) fn give(self, command: &mut Command) {
        for (place, text) in places(command).into_iter().zip(self.0) {
            let (SecretPlace::File(path), Some(text)) = (&*place, text) else {
                continue;
            };
            if !is_readable(path) {
                *place = SecretPlace::Held(path.clone(), text);
            }
        }
    }
}

/// A file that can be read whenever it is needed; what is no regular one was read to its end.
fn is_readable(path: &Path) -> bool {
    let regular = path.metadata().is_ok_and(|about| about.is_file());
    regular && File::open(path).is_ok()
}

fn places(command: &mut Command) -> Vec<&mut SecretPlace> {
    match command {
        Command::Run(config) => config.places_mut(),
        Command::Check(check) => check.config.places_mut(),
        Command::Connect(connect) => vec![&mut connect.secret],
        _ => Vec::new(),
    }
}

/// Listens where the command will, at ports that are root's. What cannot be had is for the command
/// to say.
pub(super) fn listen(command: &Command) {
    let of_config = |config: &Config| -> Vec<SocketAddr> {
        let webhooks = config.webhooks.as_ref().map(|webhooks| webhooks.listen);
        let page = config.page.as_ref().map(|page| page.listen);
        let others = webhooks.into_iter().chain(page);
        config.listen.into_iter().chain(others).collect()
    };
    let addresses: Vec<SocketAddr> = match command {
        Command::Run(config) => of_config(config),
        Command::Check(check) => of_config(&check.config),
        Command::Connect(connect) => connect.redirect.listen().into_iter().flatten().collect(),
        _ => Vec::new(),
    };
    let roots = |address: &SocketAddr| PORTS_OF_ROOT.contains(&address.port());
    let bound = addresses.into_iter().filter(roots);
    let bound = bound.filter_map(|address| TcpListener::bind(address).ok());
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.extend(bound);
}

/// Opens the command's own file: one that is read where it is root's, one that is written in a
/// folder where only root can have put it.
pub(super) fn open_file(command: &Command) {
    let (path, is_read) = match command {
        Command::Explain(explain) => (explain.picture.as_deref(), false),
        Command::State(state) => (Some(&*state.file), state.import),
        _ => return,
    };
    let Some(Ok(path)) = path.map(std::path::absolute) else {
        return;
    };
    let place = if is_read { Some(&*path) } else { path.parent() };
    if !place.is_some_and(is_roots) {
        return;
    }
    let opened = match command {
        Command::State(state) => archive_options(state.import).open(&path),
        _ => {
            let mut how = OpenOptions::new();
            plain_file::open(&path, how.create(true).truncate(false).write(true))
        }
    };
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = opened.ok();
}

fn take_file() -> Option<File> {
    FILE.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// To read one, or to make a new one for its owner alone.
fn archive_options(import: bool) -> OpenOptions {
    let mut how = OpenOptions::new();
    match import {
        true => how.read(true),
        false => how.write(true).create_new(true).mode(0o600),
    };
    how
}

/// The file of an exported state, which root may have opened.
///
/// # Errors
/// The system's.
pub(crate) fn archive(path: &Path, import: bool) -> io::Result<File> {
    take_file().map_or_else(|| archive_options(import).open(path), Ok)
}

/// Writes a picture into its file, which root may have opened.
///
/// # Errors
/// The system's.
pub(crate) fn write(path: &Path, picture: &str) -> io::Result<()> {
    let refused = match std::fs::write(path, picture) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => error,
        ended => return ended,
    };
    let mut file = take_file().ok_or(refused)?;
    file.set_len(0)?;
    file.write_all(picture.as_bytes())
}

/// Listens at this address, which root may have done already.
///
/// # Errors
/// The system's.
pub(crate) async fn listener(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    let refused = match tokio::net::TcpListener::bind(address).await {
        Ok(listener) => return Ok(listener),
        Err(error) => error,
    };
    if !matches!(
        refused.kind(),
        ErrorKind::AddrInUse | ErrorKind::PermissionDenied
    ) {
        return Err(refused);
    }
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    let is = |held: &TcpListener| held.local_addr().is_ok_and(|at| at == address);
    let Some(at) = listeners.iter().position(is) else {
        return Err(refused);
    };
    let listener = listeners.swap_remove(at);
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
