//! Why reports are not published or read, and how `fleet` ends.

use callbridge_model::{Code, ExitCode};
use callbridge_source::Fix;
use std::{io, net::SocketAddr};

/// An error of the fleet's commands and loops; its text names the place and the cure.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Flags that cannot be used, all of them.
    #[error("{}", .0.join("\n"))]
    Flags(Vec<String>),
    /// The broker cannot be reached or does not let us in.
    #[error(transparent)]
    Broker(#[from] callbridge_source::Error),
    /// The line was lost, or the broker did not answer in time.
    #[error("the connection to the broker was lost ({0})")]
    Lost(String),
    /// There is no such stream, it takes nothing, or the user may not write to it or read it.
    #[error("stream {stream} of status reports: {words}; {cure}")]
    Stream {
        /// The name of the stream of status reports.
        stream: String,
        /// The broker's words, or ours for a message that it routed nowhere.
        words: String,
        /// The action that mends it, with the command to run.
        cure: String,
        /// The stream is there, and the user lacks the right; parts the exit codes.
        is_barred: bool,
    },
    /// A member of the fleet is silent, or the table shows another fault.
    #[error("{0}")]
    Unhealthy(String),
    /// The address cannot be listened on.
    #[error("--listen {addr}: cannot listen: {why}; choose another address")]
    Listen {
        /// The address given with `--listen`.
        addr: SocketAddr,
        /// The system's reason in words, and no source: those are printed with their error.
        why: String,
    },
    /// The output could not be written to stdout.
    #[error("stdout")]
    Print(#[from] io::Error),
}

impl ExitCode for Error {
    fn exit_code(&self) -> Code {
        match self {
            Self::Flags(_) | Self::Listen { .. } => Code::Usage,
            Self::Broker(error) => match error.fix() {
                Fix::Remote => Code::Unreachable,
                Fix::Secret => Code::NoPermission,
                Fix::Settings => Code::Configuration,
            },
            Self::Stream { is_barred, .. } if *is_barred => Code::NoPermission,
            Self::Lost(_) | Self::Stream { .. } => Code::Unreachable,
            Self::Unhealthy(_) | Self::Print(_) => Code::Failed,
        }
    }
}
