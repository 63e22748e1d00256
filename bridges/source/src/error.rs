//! Why a source is down: what, where, and what to do. None of these ends a source; it tries again.

use crate::fix::Fix;
use crate::url::TcpEndpoint;
use callbridge_asterisk::login::LoginError;
use callbridge_freeswitch::dialogue::SocketRefusal;
use std::path::PathBuf;
use std::time::Duration;

/// What goes wrong on a line over the network.
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
    /// The broker does not let us in, in its words.
    #[error("login refused ({0}); check the user in the URL and its secret")]
    Login(String),
    /// What answers there is something else: what it said, and what to do.
    #[error("{0}")]
    NotThat(String),
    /// No byte came for this long.
    #[error("no byte for {}; it is connected again", seconds(*.0))]
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
    /// On a line over the network.
    #[error("{endpoint}: {error}")]
    Line {
        /// Where to.
        endpoint: TcpEndpoint,
        /// What went wrong and what to do.
        error: LineError,
    },
    /// The TLS greeting was refused, by us or by the other side.
    #[error(transparent)]
    Tls(#[from] crate::tls::TlsRefusal),
    /// No secret is known.
    #[error("no secret: give secret-file=PATH in the URL or the variable {variable}")]
    NoSecret {
        /// The environment variable for this kind of source.
        variable: &'static str,
    },
    /// The secret's file cannot be read.
    #[error("secret-file={}: {why}", path.display())]
    SecretFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// A queue that cannot be consumed.
    #[error("{0}")]
    Queue(String),
    /// A right that the broker's user lacks.
    #[error("{0}")]
    Right(String),
    /// A file that cannot be read.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not, and what to do.
        why: String,
    },
    /// Consumption is held back by the intake.
    #[error("paused: there is no room to keep what would be read")]
    Paused,
    /// The intake has ended.
    #[error(transparent)]
    Gone(#[from] crate::ring::Gone),
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

impl Error {
    /// Whose hand mends it.
    pub const fn fix(&self) -> Fix {
        match self {
            Self::Line { error, .. } => error.fix(),
            Self::Queue(_) | Self::File { .. } | Self::Paused | Self::Gone(_) => Fix::Remote,
            Self::Tls(refusal) => refusal.fix(),
            Self::NoSecret { .. } | Self::SecretFile { .. } | Self::Right(_) => Fix::Secret,
        }
    }
}

impl LineError {
    const fn fix(&self) -> Fix {
        match self {
            Self::Ami(LoginError::Refused { .. } | LoginError::BadCredentials) => Fix::Secret,
            Self::Ami(LoginError::PlainNotAllowed { .. }) => Fix::Settings,
            Self::Esl(
                SocketRefusal::Password | SocketRefusal::Address | SocketRefusal::BadSecret,
            )
            | Self::Login(_) => Fix::Secret,
            _ => Fix::Remote,
        }
    }
}
