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
    /// A file cannot be read, made or written.
    #[error("{what} {}: {source}; name another with --{flag}", path.display())]
    File {
        /// What is kept in it: `token file`.
        what: &'static str,
        /// The flag that names it.
        flag: &'static str,
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
        "state file {}, line {line}: {words}; correct it, or name another file with --state",
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
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Flags(_) => 64,
            Self::Listen { .. } | Self::Http(_) => 69,
            Self::File { flag: "state", .. } => 73,
            Self::StateHeld { .. } => 75,
            Self::File { .. } | Self::StateDamaged { .. } => 78,
        }
    }
}
