//! Why a source is down: what, where, and what to do. None of these ends a source; it tries again.

use crate::url::TcpEndpoint;
use callbridge_asterisk::login::LoginError;
use callbridge_freeswitch::dialogue::SocketRefusal;
use std::path::PathBuf;
use std::time::Duration;

/// Whose hand mends an error; `check` makes its exit code of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// The other side, or the way there: it may pass by itself (sysexits 69).
    Remote,
    /// A secret or a right (77).
    Secret,
    /// Flags or files of ours (78).
    Settings,
}

/// A line that cannot be had or was lost.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection.
    #[error("{endpoint}: {words}")]
    Connect {
        /// Where to.
        endpoint: TcpEndpoint,
        /// What went wrong and what to do.
        words: String,
    },
    /// The connection, the TLS greeting or the login took too long.
    #[error("{endpoint}: no answer within {}; is a firewall between?", seconds(*.within))]
    TimedOut {
        /// Where to.
        endpoint: TcpEndpoint,
        /// How long was waited.
        within: Duration,
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
    /// The PBX does not let us in.
    #[error("{endpoint}: {error}")]
    Ami {
        /// Where to.
        endpoint: TcpEndpoint,
        /// Why not.
        error: LoginError,
    },
    /// The switch does not let us in.
    #[error("{endpoint}: {refusal}")]
    Esl {
        /// Where to.
        endpoint: TcpEndpoint,
        /// Why not.
        refusal: SocketRefusal,
    },
    /// The broker does not let us in.
    #[error("{endpoint}: login refused ({said}); check the user in the URL and its secret")]
    Login {
        /// Where to.
        endpoint: TcpEndpoint,
        /// Its words.
        said: String,
    },
    /// What answers there is something else.
    #[error("{endpoint}: {words}")]
    NotThat {
        /// Where to.
        endpoint: TcpEndpoint,
        /// What it said instead, and what to do.
        words: String,
    },
    /// No byte came for too long.
    #[error("{endpoint}: no byte for {}; the line is opened again", seconds(*.quiet))]
    Silent {
        /// Where to.
        endpoint: TcpEndpoint,
        /// How long.
        quiet: Duration,
    },
    /// The line is let in, and no event comes through its filter.
    #[error(
        "{endpoint}: no event comes through the filter that the PBX took; the line is opened \
         again without one"
    )]
    Deaf {
        /// Where to.
        endpoint: TcpEndpoint,
    },
    /// The other side closed the line.
    #[error("{endpoint}: the line was closed ({words})")]
    Closed {
        /// Where to.
        endpoint: TcpEndpoint,
        /// The last words.
        words: String,
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
            Self::Connect { .. }
            | Self::TimedOut { .. }
            | Self::NotThat { .. }
            | Self::Silent { .. }
            | Self::Deaf { .. }
            | Self::Closed { .. }
            | Self::Queue(_)
            | Self::File { .. }
            | Self::Paused
            | Self::Gone(_) => Fix::Remote,
            Self::Tls(refusal) => refusal.fix(),
            Self::Ami { error, .. } => match error {
                LoginError::Refused { .. } | LoginError::BadCredentials => Fix::Secret,
                LoginError::PlainNotAllowed { .. } => Fix::Settings,
                LoginError::PeerIsNotAmi { .. } | LoginError::FilterTorn { .. } => Fix::Remote,
            },
            Self::Esl { refusal, .. } => match refusal {
                SocketRefusal::Password | SocketRefusal::Address | SocketRefusal::BadSecret => {
                    Fix::Secret
                }
                SocketRefusal::Subscription { .. } | SocketRefusal::NotEventSocket { .. } => {
                    Fix::Remote
                }
            },
            Self::NoSecret { .. }
            | Self::SecretFile { .. }
            | Self::Login { .. }
            | Self::Right(_) => Fix::Secret,
        }
    }
}
