//! What root alone may do, done before it becomes another: secrets that it named are read, and
//! addresses that are root's are listened at.

use super::way::is_roots;
use crate::cli::command::Command;
use crate::cli::config::Config;
use crate::cli::secrets::{self, Place};
use crate::secret::Secret;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Addresses of these ports are root's.
const PORTS_OF_ROOT: std::ops::Range<u16> = 1..1024;

/// Listened at by root, and not yet taken.
static LISTENERS: Mutex<Vec<TcpListener>> = Mutex::new(Vec::new());

/// Secrets that root has read, in the order of [`places`].
#[derive(Debug)]
pub struct Held(Vec<Option<Secret>>);

impl Held {
    /// Reads the secrets that only root can have put where they are: what another could have
    /// linked there is left for the folder's owner to read, by his own right.
    pub fn of(command: &mut Command) -> Self {
        let read = |place: &mut Place| match place {
            Place::File(path) if is_roots(path) => secrets::text_of(path).ok().map(Secret::from),
            Place::File(_) | Place::Held(..) | Place::Variable(_) => None,
        };
        Self(places(command).into_iter().map(read).collect())
    }

    /// After the descent: those that cannot be read any more stay as they were read.
    pub fn give(self, command: &mut Command) {
        for (place, text) in places(command).into_iter().zip(self.0) {
            let (Place::File(path), Some(text)) = (&*place, text) else {
                continue;
            };
            if !is_readable(path) {
                *place = Place::Held(path.clone(), text);
            }
        }
    }
}

/// A file that can be read whenever it is needed; what is no regular one was read to its end.
fn is_readable(path: &Path) -> bool {
    let regular = path.metadata().is_ok_and(|about| about.is_file());
    regular && std::fs::File::open(path).is_ok()
}

fn places(command: &mut Command) -> Vec<&mut Place> {
    match command {
        Command::Run(config) => config.places_mut(),
        Command::Check(check) => check.config.places_mut(),
        Command::Connect(connect) => vec![&mut connect.secret],
        Command::Demo(_)
        | Command::Explain(_)
        | Command::Status { .. }
        | Command::Calls(..)
        | Command::Dead(..)
        | Command::LeadMissing { .. }
        | Command::LeadList(_)
        | Command::LeadCheck(_)
        | Command::Disconnect(_)
        | Command::LeadSet { .. }
        | Command::Sandbox(_)
        | Command::Completions(_)
        | Command::Man => Vec::new(),
    }
}

/// Listens where the command will, at ports that are root's. What cannot be had is for the command
/// to say.
pub fn listen(command: &Command) {
    let of_config = |config: &Config| -> Vec<SocketAddr> {
        let webhooks = config.webhooks.as_ref().map(|webhooks| webhooks.listen);
        config.listen.into_iter().chain(webhooks).collect()
    };
    let addresses: Vec<SocketAddr> = match command {
        Command::Run(config) => of_config(config),
        Command::Check(check) => of_config(&check.config),
        Command::Connect(connect) => connect.redirect.listen().into_iter().flatten().collect(),
        Command::Demo(_)
        | Command::Explain(_)
        | Command::Status { .. }
        | Command::Calls(..)
        | Command::Dead(..)
        | Command::LeadMissing { .. }
        | Command::LeadList(_)
        | Command::LeadCheck(_)
        | Command::Disconnect(_)
        | Command::LeadSet { .. }
        | Command::Sandbox(_)
        | Command::Completions(_)
        | Command::Man => Vec::new(),
    };
    let roots = |address: &SocketAddr| PORTS_OF_ROOT.contains(&address.port());
    let bound = addresses.into_iter().filter(roots);
    let bound = bound.filter_map(|address| TcpListener::bind(address).ok());
    let mut listeners = LISTENERS.lock().unwrap_or_else(PoisonError::into_inner);
    listeners.extend(bound);
}

/// Listens at this address, which root may have done already.
///
/// # Errors
/// The system's.
pub async fn listener(address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
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
