//! Why a source is down: what, where, and what to do. None of these ends a source; it tries again.

use crate::url::TcpEndpoint;
use callbridge_asterisk::login::LoginError;
use callbridge_freeswitch::dialogue::SocketRefusal;
use std::time::Duration;

/// The party that can mend an error; `check` makes its exit code of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// The other side, or the way there: it may pass by itself (sysexits 69).
    Remote,
    /// A secret or a right (77).
    Secret,
    /// Flags or files of ours (78).
    Settings,
}

/// A fault of a line over the network.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// No connection: why, and what to do.
    #[error("{0}")]
    Connect(String),
    /// The connection, the TLS greeting or the login took longer than this.
    #[error("no answer within {}; is a firewall between?", seconds(*.0))]
    TimedOut(Duration),
    /// The PBX does not let us in.
    #[error("{0}")]
    Ami(LoginError),
    /// The switch does not let us in.
    #[error("{0}")]
    Esl(SocketRefusal),
    /// The broker does not let us in, or its user lacks a right: what it said, and what to do.
    #[error("{0}")]
    Right(String),
    /// The other side answers, but not as the URL asks (no such queue, no WebSocket, another
    /// consumer): its words, and what to do.
    #[error("{0}")]
    NotThat(String),
    /// No byte came for this long.
    #[error("no byte for {}; callbridge connects again", seconds(*.0))]
    Silent(Duration),
    /// The line is let in, and no event comes through its filter.
    #[error(
        "no event comes through the filter that the PBX took; it is connected again without one"
    )]
    Deaf,
    /// The other side closed the line, with these words.
    #[error("the other side closed the connection ({0})")]
    Closed(String),
}

/// A line that cannot be had or was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// On a line over the network: the node that it leads, or was to lead, to, and the fault.
    #[error("{0}: {1}")]
    Line(TcpEndpoint, LineError),
    /// Anything else, in words that name the fault and its fix.
    #[error("{words}")]
    Fault {
        /// The fault and its fix, in one sentence; never a secret.
        words: String,
        /// The party that can mend the fault.
        fix: Fix,
    },
    /// Consumption is held back by the intake.
    #[error("paused: there is no room to keep what would be read")]
    Paused,
    /// The intake has ended: the source ends, too.
    #[error(transparent)]
    Gone(#[from] crate::ring::Gone),
}

fn seconds(time: Duration) -> String {
    let tenths = (time.as_secs_f64() * 10.0).round() / 10.0;
    format!("{tenths} s")
}

impl Error {
    pub(crate) fn fault(fix: Fix, words: impl Into<String>) -> Self {
        let words = words.into();
        Self::Fault { words, fix }
    }

    /// Returns the party that can mend the error; the other side where nothing says otherwise.
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
