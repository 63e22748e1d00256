//! Opens TCP connections, with or without TLS, and describes why one couldn't be opened. TLS uses
//! rustls with ring, and trusts either the system's root certificates or those in `ca-file=`.
//! There's no setting that skips any of TLS's checks.

use crate::{Error, Fix, LineError, TcpEndpoint};
use callbridge_call::redact::Redactor;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore, pki_types::pem::PemObject};
use std::path::{Path, PathBuf};
use std::{fmt::Display, io::ErrorKind, sync::Arc, time::Duration};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// The reason to show if the other side closed the connection without giving one.
pub(crate) const NO_REASON: &str = "no reason was given";

/// A bidirectional byte stream.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

pub(crate) type Stream = Box<dyn Duplex>;

/// A connection's endpoint, the root certificates trusted for it, and the timeout for opening it.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub endpoint: TcpEndpoint,
    pub ca_file: Option<PathBuf>,
    pub within: Duration,
    /// The secrets to remove from texts sent by the other side.
    pub redactor: Redactor,
}

impl Target {
    pub(crate) fn error(&self, error: LineError) -> Error {
        Error::Line(self.endpoint.clone(), error)
    }

    pub(crate) fn not_that_error(&self, message: String) -> Error {
        self.error(LineError::NotThat(message))
    }

    pub(crate) fn right_error(&self, message: String) -> Error {
        self.error(LineError::Right(message))
    }

    pub(crate) fn closed_error(&self, message: impl Into<String>) -> Error {
        self.error(LineError::Closed(message.into()))
    }

    /// Awaits `answer`, failing with `LineError::TimedOut` after `within`.
    pub(crate) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let answered = tokio::time::timeout(self.within, answer).await;
        answered.unwrap_or_else(|_| Err(self.error(LineError::TimedOut(self.within))))
    }

    /// Describes why a connection that's open or being opened failed, including the cause of any
    /// TLS failure.
    pub(crate) fn io_error(&self, error: &std::io::Error) -> Error {
        let refusal = refusal(&self.endpoint.host, error);
        refusal.unwrap_or_else(|| self.error(LineError::Connect(connect_message(error))))
    }

    /// Opens the connection within the timeout.
    pub(crate) async fn open(&self) -> Result<Stream, Error> {
        self.in_time(async {
            let address = (self.endpoint.host.as_str(), self.endpoint.port);
            let tcp = TcpStream::connect(address)
                .await
                .map_err(|error| self.io_error(&error))?;
            // callbridge writes short, individual actions, none of which should wait for another.
            let _ = tcp.set_nodelay(true);
            if !self.endpoint.tls {
                return Ok(Box::new(tcp) as Stream);
            }
            // Root certificates are read from files, and a live connection's thread mustn't wait
            // for the disk.
            let ca_file = self.ca_file.clone();
            let read = tokio::task::spawn_blocking(move || client(ca_file.as_deref()));
            let config = read.await.unwrap_or_else(|why| Err(tls_error("", why)))?;
            let host = &self.endpoint.host;
            let name = ServerName::try_from(host.clone()).map_err(|why| tls_error(host, why))?;
            let connector = tokio_rustls::TlsConnector::from(config);
            let stream = connector
                .connect(name, tcp)
                .await
                .map_err(|error| self.io_error(&error))?;
            Ok(Box::new(stream) as Stream)
        })
        .await
    }
}

fn connect_message(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            "connection refused; check that the server runs and listens on this port".to_owned()
        }
        ErrorKind::UnexpectedEof => {
            "the other side closed the connection during the greeting".to_owned()
        }
        ErrorKind::ConnectionReset => "connection reset".to_owned(),
        ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable => {
            format!("{error}; check the network between this machine and the other side")
        }
        _ if error.to_string().contains("failed to lookup") => {
            format!("unknown host ({error}); check the name in the URL")
        }
        _ => error.to_string(),
    }
}

/// Creates an error about this host. `message` describes the problem and its fix.
fn host_error(host: &str, message: impl Display) -> Error {
    Error::fault(Fix::Remote, format!("{host}: {message}"))
}

/// Describes any other TLS failure using the library's text.
fn tls_error(host: &str, why: impl Display) -> Error {
    host_error(host, format!("TLS failed: {why}"))
}

/// Describes the TLS failure contained in an I/O error, or returns `None` if the error isn't about
/// TLS.
fn refusal(host: &str, error: &std::io::Error) -> Option<Error> {
    use CertificateError as C;
    let certificate = match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::InvalidMessage(_) => {
            let message = "the server there does not use TLS; use the scheme without TLS, or the \
                           TLS port";
            return Some(host_error(host, message));
        }
        other => return Some(tls_error(host, other)),
    };
    let is_untrusted = match certificate {
        // A bad signature means that the trusted root has the issuer's name but a different key,
        // for example because the CA was created anew.
        C::UnknownIssuer | C::BadSignature => true,
        // A self-signed certificate marked as a CA's (`openssl req -x509`) can only be recognized
        // by webpki's text.
        C::Other(other) => other.to_string().contains("CaUsedAsEndEntity"),
        _ => false,
    };
    if is_untrusted {
        let message = format!(
            "{host}: its certificate is self-signed, or its issuer is not trusted here; give the \
             issuer's certificate with ca-file=PATH"
        );
        return Some(Error::fault(Fix::Settings, message));
    }
    let message = match certificate {
        C::NotValidForName => other_name(host, "not given"),
        C::NotValidForNameContext { presented, .. } => match &presented.join(", ")[..] {
            "" => other_name(host, "it names none"),
            names => other_name(host, names),
        },
        C::Expired => expired(""),
        C::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            expired(&format!(" {days} d ago"))
        }
        C::NotValidYet | C::NotValidYetContext { .. } => {
            "its certificate is not valid yet; check the clocks of both machines".to_owned()
        }
        other => return Some(tls_error(host, other)),
    };
    Some(host_error(host, message))
}

fn other_name(host: &str, names: &str) -> String {
    format!(
        "its certificate is for another name ({names}); write that name in the URL, or give \
         the server a certificate for {host}"
    )
}

fn expired(since: &str) -> String {
    format!("its certificate has expired{since}; renew it on the server")
}

/// Creates the settings for a TLS client. Since this reads files, it mustn't be called on a live
/// connection's thread.
///
/// # Errors
/// Returns an error if the `ca-file` can't be read or doesn't contain a certificate, or if the
/// machine has no root certificates.
fn client(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|why| ca_file_fault(path, why))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|why| ca_file_fault(path, why))?;
                roots
                    .add(certificate)
                    .map_err(|why| ca_file_fault(path, why))?;
            }
            if roots.is_empty() {
                return Err(ca_file_fault(path, "the file has no PEM certificate"));
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            // Unreadable root certificates are skipped, which can only reduce the number of trusted
            // servers.
            roots.add_parsable_certificates(system.certs);
            if roots.is_empty() {
                let why = match system.errors.first() {
                    Some(error) => error.to_string(),
                    None => "none found".to_owned(),
                };
                let message = format!(
                    "this machine has no CA certificates ({why}); install the package \
                     ca-certificates or give ca-file=PATH"
                );
                return Err(Error::fault(Fix::Settings, message));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|why| tls_error("", why))?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

fn ca_file_fault(path: &Path, why: impl Display) -> Error {
    Error::fault(Fix::Settings, format!("ca-file={}: {why}", path.display()))
}
