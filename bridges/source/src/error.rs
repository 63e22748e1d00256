//! A source's errors, which say what happened, where, and what to do. Only [`Error::Gone`] ends a
//! source, whereas any other error makes it try again.

use crate::url::TcpEndpoint;
use callbridge_asterisk::login::LoginError;
use callbridge_freeswitch::dialogue::SocketRefusal;
use std::time::Duration;

/// Where an error must be fixed, from which `check` derives its exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// On the other side, or in the network. The error may go away on its own (exit status 69).
    Remote,
    /// In a secret or a permission (exit status 77).
    Secret,
    /// In our flags or files (exit status 78).
    Settings,
}

/// An error in a network connection.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// There's no connection. Contains the reason and what to do.
    #[error("{0}")]
    Connect(String),
    /// The connection, the TLS handshake, or the login took longer than this.
    #[error("no answer within {}; check for a firewall between this machine and the other \
             side", seconds(*.0))]
    TimedOut(Duration),
    /// The PBX rejected the login.
    #[error("{0}")]
    Ami(LoginError),
    /// The switch rejected the login.
    #[error("{0}")]
    Esl(SocketRefusal),
    /// The broker rejected the login, or its user lacks a permission. Contains the broker's text
    /// and what to do.
    #[error("{0}")]
    Right(String),
    /// The other side responds, but doesn't provide what the URL asks for (no such queue, no
    /// WebSocket, another consumer). Contains the other side's text and what to do.
    #[error("{0}")]
    NotThat(String),
    /// Nothing has been received for this long.
    #[error("no byte for {}; callbridge connects again", seconds(*.0))]
    Silent(Duration),
    /// The login was accepted, but no event gets through its filter.
    #[error(
        "no event passes the filter that the PBX accepted; callbridge connects again without a \
         filter"
    )]
    Deaf,
    /// The other side closed the connection for this reason.
    #[error("the other side closed the connection ({0})")]
    Closed(String),
}

/// A source's error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error in a network connection, along with the node.
    #[error("{0}: {1}")]
    Line(TcpEndpoint, LineError),
    /// Any other problem, along with its fix.
    #[error("{message}")]
    Fault {
        /// The problem and its fix in a single sentence. Never contains a secret.
        message: String,
        /// Where the problem must be fixed.
        fix: Fix,
    },
    /// The intake has paused consumption.
    #[error("paused: there is no room to store more events")]
    Paused,
    /// The intake has ended, so the source ends too.
    #[error(transparent)]
    Gone(#[from] crate::ring::Gone),
}

fn seconds(time: Duration) -> String {
    let tenths = (time.as_secs_f64() * 10.0).round() / 10.0;
    format!("{tenths} s")
}

impl Error {
    pub(crate) fn fault(fix: Fix, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Fault { message, fix }
    }

    /// Returns where the error must be fixed, which is [`Fix::Remote`] unless the kind of error
    /// says otherwise.
    pub const fn fix(&self) -> Fix {
        match self {
            Self::Line(_, error) => error.fix(),
            Self::Fault { fix, .. } => *fix,
            Self::Paused | Self::Gone(_) => Fix::Remote,
        }
    }
}

impl LineError {
    const fn fix(&self) -> Fix {
        match self {
            Self::Ami(LoginError::Refused(_) | LoginError::BadCredentials) => Fix::Secret,
            Self::Ami(LoginError::PlainNotAllowed(_)) => Fix::Settings,
            Self::Esl(
                SocketRefusal::Password | SocketRefusal::Address | SocketRefusal::BadSecret,
            )
            | Self::Right(_) => Fix::Secret,
            _ => Fix::Remote,
        }
    }
}
