//! Opens a TCP line, plain or TLS, and says in words why it could not.

use crate::error::{Error, LineError};
use crate::tls;
use crate::url::TcpEndpoint;
use rustls::pki_types::ServerName;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// Words for the other side's reason when it has closed the connection without one.
pub(crate) const NO_REASON: &str = "no reason was given";

/// Anything that bytes go through both ways.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(crate) type Stream = Box<dyn Duplex>;

/// The endpoint of a line, the roots that TLS trusts there, and the time allowed for opening it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub endpoint: TcpEndpoint,
    pub ca_file: Option<PathBuf>,
    pub within: Duration,
}

impl Target {
    pub(crate) fn error(&self, error: LineError) -> Error {
        let endpoint = self.endpoint.clone();
        Error::Line { endpoint, error }
    }

    pub(crate) fn not_that(&self, words: String) -> Error {
        self.error(LineError::NotThat(words))
    }

    pub(crate) fn no_right(&self, words: String) -> Error {
        self.error(LineError::Right(words))
    }

    pub(crate) fn closed(&self, words: impl Into<String>) -> Error {
        self.error(LineError::Closed(words.into()))
    }

    /// Awaits `answer` for `within` at most; past that fails with `LineError::TimedOut`.
    pub(crate) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let answered = tokio::time::timeout(self.within, answer).await;
        answered.unwrap_or_else(|_| Err(self.error(LineError::TimedOut(self.within))))
    }

    /// Awaits `sending` for `within` at most; past that the line counts as lost
    /// (`LineError::Silent`).
    pub(crate) async fn or_silent(
        &self,
        within: Duration,
        sending: impl Future<Output = Result<(), Error>>,
    ) -> Result<(), Error> {
        let sent = tokio::time::timeout(within, sending).await;
        sent.unwrap_or_else(|_| Err(self.error(LineError::Silent(within))))
    }

    /// A failure of an open or opening line in words; a TLS refusal by its name.
    pub(crate) fn failed(&self, error: &std::io::Error) -> Error {
        let refusal = tls::refusal(&self.endpoint.host, error);
        refusal.unwrap_or_else(|| self.error(LineError::Connect(words(error))))
    }

    /// Opens the line, within the time allowed.
    pub(crate) async fn open(&self) -> Result<Stream, Error> {
        self.in_time(async {
            let address = (self.endpoint.host.as_str(), self.endpoint.port);
            let tcp = TcpStream::connect(address).await;
            let tcp = tcp.map_err(|error| self.failed(&error))?;
            // What we write are single short actions; none of them is to wait for another.
            let _ = tcp.set_nodelay(true);
            if !self.endpoint.tls {
                return Ok(Box::new(tcp) as Stream);
            }
            // Roots are files, and a live line's thread is not to wait for them.
            let ca_file = self.ca_file.clone();
            let read = tokio::task::spawn_blocking(move || tls::client(ca_file.as_deref()));
            let config = read.await.unwrap_or_else(|why| Err(tls::failed("", why)))?;
            let host = &self.endpoint.host;
            let name = ServerName::try_from(host.clone()).map_err(|why| tls::failed(host, why))?;
            let connector = tokio_rustls::TlsConnector::from(config);
            match connector.connect(name, tcp).await {
                Ok(stream) => Ok(Box::new(stream) as Stream),
                Err(error) => Err(self.failed(&error)),
            }
        })
        .await
    }
}

fn words(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            "connection refused; is it running, and listening on this port?".to_owned()
        }
        ErrorKind::UnexpectedEof => "closed in the middle of the greeting".to_owned(),
        ErrorKind::ConnectionReset => "connection reset".to_owned(),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
            format!("{error}; check the network between")
        }
        _ if error.to_string().contains("failed to lookup") => {
            format!("unknown host ({error}); check the name in the URL")
        }
        _ => error.to_string(),
    }
}
