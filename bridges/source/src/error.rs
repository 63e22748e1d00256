//! Errors of a source: what happened, where, and what to do. Only [`Error::Gone`] ends a source.
//! After any other error, the source tries again.

use crate::url::TcpEndpoint;
use callbridge_asterisk::login::LoginError;
use callbridge_freeswitch::dialogue::SocketRefusal;
use std::time::Duration;

/// Where an error must be fixed. `check` derives its exit code from this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// The other side, or the network. The error may disappear without a change (exit code 69).
    Remote,
    /// A secret or a right (exit code 77).
    Secret,
    /// Our flags or files (exit code 78).
    Settings,
}

/// An error of a connection over the network.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// There is no connection. Contains the reason, and what to do.
    #[error("{0}")]
    Connect(String),
    /// The connection, the TLS handshake, or the login took longer than this.
    #[error("no answer within {}; check for a firewall between this machine and the other \
             side", seconds(*.0))]
    TimedOut(Duration),
    /// The PBX refused the login.
    #[error("{0}")]
    Ami(LoginError),
    /// The switch refused the login.
    #[error("{0}")]
    Esl(SocketRefusal),
    /// The broker refused the login, or its user lacks a right. Contains the broker's text, and
    /// what to do.
    #[error("{0}")]
    Right(String),
    /// The other side answers, but not as the URL asks (no such queue, no WebSocket, another
    /// consumer). Contains the other side's text, and what to do.
    #[error("{0}")]
    NotThat(String),
    /// No byte arrived for this long.
    #[error("no byte for {}; callbridge connects again", seconds(*.0))]
    Silent(Duration),
    /// The login was accepted, but no event passes its filter.
    #[error(
        "no event passes the filter that the PBX accepted; callbridge connects again without a \
         filter"
    )]
    Deaf,
    /// The other side closed the connection, with this reason.
    #[error("the other side closed the connection ({0})")]
    Closed(String),
}

/// An error of a source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An error of a connection over the network, with the node.
    #[error("{0}: {1}")]
    Line(TcpEndpoint, LineError),
    /// Any other problem, with its fix.
    #[error("{message}")]
    Fault {
        /// The problem and its fix, in one sentence. It never contains a secret.
        message: String,
        /// Where the problem must be fixed.
        fix: Fix,
    },
    /// The intake has paused consumption.
    #[error("paused: there is no room to store more events")]
    Paused,
    /// The intake has ended, so the source ends, too.
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

    /// Returns where the error must be fixed. This is [`Fix::Remote`] unless the kind of error
    /// shows otherwise.
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
