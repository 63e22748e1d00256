//! Why a sandbox does not start, or ends.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Each variant says what to change.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Flags that cannot be used, all of them.
    #[error("{}", .0.join("\n"))]
    Flags(Vec<String>),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}; choose another with --listen")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The token file cannot be read or made.
    #[error("token file {}: {source}; name another with --token-file", path.display())]
    TokenFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of the client secret cannot be read or made.
    #[error(
        "client secret file {}: {source}; name another with --client-secret-file",
        path.display()
    )]
    ClientSecretFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The state file cannot be opened or written.
    #[error("state file {}: {source}; name another with --state", path.display())]
    StateFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process holds the state file.
    #[error(
        "state file {} is held by another sandbox; end it, or name another with --state",
        path.display()
    )]
    StateHeld {
        /// The file.
        path: PathBuf,
    },
    /// A line of the state file cannot be read; the file is left as it is.
    #[error(
        "state file {}, line {line}: {words}; mend it, or name another file with --state",
        path.display()
    )]
    StateDamaged {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// Why.
        words: String,
    },
    /// The listener ended.
    #[error("the HTTP listener ended: {0}")]
    Http(io::Error),
}

impl Error {
    /// The exit code of sysexits.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Flags(_) => 64,
            Self::Listen { .. } | Self::Http(_) => 69,
            Self::StateFile { .. } => 73,
            Self::StateHeld { .. } => 75,
            Self::TokenFile { .. } | Self::ClientSecretFile { .. } | Self::StateDamaged { .. } => {
                78
            }
        }
    }
}
