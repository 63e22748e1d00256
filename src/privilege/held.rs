//! What root alone may do, done before it becomes another: secrets that it named are read,
//! addresses that are root's are listened at, and the command's own file is opened.

use super::way::{Owner, is_roots};
use crate::{Failure, OrFail as _};
use callbridge_model::{Code, Secret, SecretPlace, plain_file, secret_source as secrets};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Addresses of these ports are root's.
const PORTS_OF_ROOT: std::ops::Range<u16> = 1..1024;

/// The things that a command works with, for the descent from root.
#[derive(Debug, Default)]
pub(crate) struct Needs<'a> {
    /// The state folder that it works in.
    pub state: Option<&'a mut PathBuf>,
    /// The command itself reports faults of that folder.
    pub judges_folder: bool,
    /// The places of the secrets that the command uses.
    pub secrets: Vec<&'a mut SecretPlace>,
    /// The addresses at which the command listens.
    pub listen: Vec<SocketAddr>,
    /// The one file of its own.
    pub file: Option<OwnFile<'a>>,
    /// The place for the things that root has opened.
    pub held: Option<&'a mut Held>,
    /// The command reads secrets of the PBX or the CRM: nobody may read its memory.
    pub holds_secrets: bool,
    /// A signal is an order to stop in order, and not the end at once.
    pub stops_in_order: bool,
}

/// A command's own file, by what it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OwnFile<'a> {
    /// The SVG that `explain --picture` writes.
    Picture(&'a Path),
    /// The archive that `state import` reads.
    Import(&'a Path),
    /// The archive that `state export` makes.
    Export(&'a Path),
}

impl OwnFile<'_> {
    /// Opens one that is read where it is root's, and one that is written in a folder where only
    /// root can have put it.
    fn open(self) -> Option<File> {
        let (Self::Picture(path) | Self::Import(path) | Self::Export(path)) = self;
        let path = std::path::absolute(path).ok()?;
        let import = matches!(self, Self::Import(_));
        if !is_roots(if import { &path } else { path.parent()? }) {
            return None;
        }
        let mut how = OpenOptions::new();
        let opened = match self {
            Self::Picture(_) => plain_file::open(&path, how.create(true).write(true)),
            Self::Import(_) | Self::Export(_) => archive_options(import).open(&path),
        };
        opened.ok()
    }
}

/// To read one, or to make a new one for its owner alone.
fn archive_options(import: bool) -> OpenOptions {
    let mut how = OpenOptions::new();
    how.read(import).write(!import);
    how.create_new(!import).mode(0o600);
    how
}

/// Reads a secret that only root can have put where it is: what another could have linked there is
/// left for the folder's owner to read, by his own right.
pub(super) fn read(place: &mut SecretPlace) -> Option<(&mut SecretPlace, PathBuf, Secret)> {
    let path = place.file().filter(|path| is_roots(path))?.to_path_buf();
    let text = secrets::text_of(&path).ok()?;
    Some((place, path, Secret::from(text)))
}

/// A file that can be read whenever it is needed; what is no regular one was read to its end.
pub(super) fn is_readable(path: &Path) -> bool {
    let regular = path.metadata().is_ok_and(|about| about.is_file());
    regular && File::open(path).is_ok()
}

/// The things that root has opened for a command before it became another user.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The user that root has become; `None` where it did not.
    pub owner: Option<Owner>,
    /// Listened at by root, and not yet taken.
    listeners: Mutex<Vec<TcpListener>>,
    file: Option<File>,
}

impl Held {
    /// Listens at those of these addresses whose ports are root's, and opens the file. What cannot
    /// be had is for the command to say.
    pub(super) fn by_root(
        owner: Owner,
        addresses: &[SocketAddr],
        file: Option<OwnFile<'_>>,
    ) -> Self {
        let roots = |address: &&SocketAddr| PORTS_OF_ROOT.contains(&address.port());
        let bound = addresses.iter().filter(roots);
        let bound = bound.filter_map(|address| TcpListener::bind(address).ok());
        Self {
            owner: Some(owner),
            listeners: Mutex::new(bound.collect()),
            file: file.and_then(OwnFile::open),
        }
    }

    /// The file of an exported state, which root may have opened.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn archive(&self, path: &Path, import: bool) -> io::Result<File> {
        let own = self.file.as_ref();
        own.map_or_else(|| archive_options(import).open(path), File::try_clone)
    }

    /// Writes a picture into its file, which root may have opened.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn write(&self, path: &Path, picture: &str) -> io::Result<()> {
        let refused = match std::fs::write(path, picture) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => error,
            ended => return ended,
        };
        let mut file = self.file.as_ref().ok_or(refused)?;
        file.set_len(0)?;
        file.write_all(picture.as_bytes())
    }

    /// Listens at the address of this flag; with the address that came of it.
    pub(crate) async fn listen(
        &self,
        flag: &str,
        address: SocketAddr,
    ) -> Result<(tokio::net::TcpListener, SocketAddr), Failure> {
        let what = format_args!("{flag} {address}: cannot listen");
        let listener = self.listener(address).await;
        let listener = listener.or_fail_at(Code::Usage, what)?;
        let address = listener.local_addr().unwrap_or(address);
        Ok((listener, address))
    }

    /// Listens at this address, which root may have done already.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn listener(
        &self,
        address: SocketAddr,
    ) -> io::Result<tokio::net::TcpListener> {
        let refused = match tokio::net::TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) => error,
        };
        if ![ErrorKind::AddrInUse, ErrorKind::PermissionDenied].contains(&refused.kind()) {
            return Err(refused);
        }
        let listeners = self.listeners.lock();
        let mut listeners = listeners.unwrap_or_else(PoisonError::into_inner);
        let is = |held: &TcpListener| held.local_addr().is_ok_and(|at| at == address);
        let at = listeners.iter().position(is).ok_or(refused)?;
        let listener = listeners.swap_remove(at);
        listener.set_nonblocking(true)?;
        tokio::net::TcpListener::from_std(listener)
    }
}
