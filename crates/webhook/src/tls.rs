//! A listener's TLS certificate, whether it's the webhook receiver's, the page's, or the hub's.
//! It's read at startup and whenever its files change, so renewing it doesn't require a restart.

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Interval between reads of the files.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Maximum length in bytes of a certificate file or key file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The file that contains the certificate and its chain, in PEM.
    pub chain: PathBuf,
    /// The file that contains the private key, in PEM without a password.
    pub key: PathBuf,
}

/// The contents of the two files, for detecting changes.
#[derive(Clone, Default, PartialEq, Eq)]
struct Files {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(certificate: &Certificate) -> Result<Self, String> {
        Ok(Self {
            chain: read_file(&certificate.chain)?,
            key: read_file(&certificate.key)?,
        })
    }

    fn chain(&self, certificate: &Certificate) -> Result<Vec<CertificateDer<'static>>, String> {
        match CertificateDer::pem_slice_iter(&self.chain).collect::<Result<Vec<_>, _>>() {
            Ok(chain) if !chain.is_empty() => Ok(chain),
            Ok(_) | Err(_) => {
                let path = certificate.chain.display();
                Err(format!(
                    "{path} contains no certificate: a PEM file is expected, with the certificate \
                     first, then its chain"
                ))
            }
        }
    }

    fn server(&self, certificate: &Certificate) -> Result<Arc<ServerConfig>, String> {
        let chain = self.chain(certificate)?;
        let path = certificate.key.display();
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|_| {
            format!("{path} contains no private key: a PEM file without a password is expected")
        })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .map_err(|error| {
                let chain = certificate.chain.display();
                format!(
                    "the certificate {chain} and the key {path} cannot be used together: {error}"
                )
            })?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(server))
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let name = path.display();
    let metadata = std::fs::metadata(path).map_err(|error| format!("{name}: {error}"))?;
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("{name}: larger than 1 MB"));
    }
    std::fs::read(path).map_err(|error| format!("{name}: {error}"))
}

/// Checks that the certificate and the key belong together, and returns the chain, with the
/// server's own certificate first.
///
/// # Errors
/// Returns a message that says why they can't be used.
pub fn check(certificate: &Certificate) -> Result<Vec<CertificateDer<'static>>, String> {
    let files = Files::read(certificate)?;
    files.server(certificate)?;
    files.chain(certificate)
}

/// Returns why the first certificate in a chain would be rejected at the time `at`. No root is
/// trusted here, but validity periods are checked before the issuer.
pub fn refusal_at(chain: &[CertificateDer<'_>], at: UnixTime) -> Option<CertificateError> {
    let (own, above) = chain.split_first()?;
    let read = ParsedCertificate::try_from(own).ok()?;
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let roots = RootCertStore::empty();
    let verified =
        verify_server_cert_signed_by_trust_anchor(&read, &roots, above, at, algorithms.all);
    match verified {
        Err(Error::InvalidCertificate(error)) => Some(error),
        Ok(()) | Err(_) => None,
    }
}

/// Returns when the first certificate in a chain expires, or `None` if that can't be read.
pub fn expiry(chain: &[CertificateDer<'_>]) -> Option<UnixTime> {
    // The last second of the year 9999, by which every certificate has expired.
    let never = UnixTime::since_unix_epoch(Duration::from_secs(253_402_300_799));
    match refusal_at(chain, never)? {
        CertificateError::ExpiredContext { not_after, .. } => Some(not_after),
        _ => None,
    }
}

/// A listener's current certificate.
#[derive(Clone, Debug)]
pub struct CurrentCertificate {
    pub server: watch::Receiver<Arc<ServerConfig>>,
    /// When the certificate expires, or `None` if that can't be read.
    pub expiry: watch::Receiver<Option<UnixTime>>,
}

/// Returns the current TLS settings, along with a future that reloads the files every second until
/// it's dropped. `owner` says whose certificate it is in the log, such as `hub`.
///
/// # Errors
/// Returns an error if the files aren't usable at startup. If they become unusable later, the last
/// usable settings stay in effect.
pub fn keep(
    owner: &'static str,
    certificate: Certificate,
) -> Result<(CurrentCertificate, impl Future<Output = ()>), String> {
    let mut used = Files::read(&certificate)?;
    let (current, server) = watch::channel(used.server(&certificate)?);
    let (expires, expiry) = watch::channel(expiry(&used.chain(&certificate)?));
    let keeping = async move {
        let mut ticks = tokio::time::interval(CHECK_EVERY);
        let mut reported = None;
        loop {
            ticks.tick().await;
            let path = certificate.clone();
            let reading = tokio::task::spawn_blocking(move || Files::read(&path));
            let Ok(read) = reading.await else {
                continue;
            };
            // If only one of the two files has been replaced so far, they don't match. The next
            // check will find both.
            let renewed = read.and_then(|files| {
                if files == used {
                    return Ok(None);
                }
                let expiry = self::expiry(&files.chain(&certificate)?);
                Ok(Some((files.server(&certificate)?, expiry, files)))
            });
            match renewed {
                Ok(None) => reported = None,
                Ok(Some((server, expiry, files))) => {
                    tracing::info!(owner, "reloaded the certificate");
                    current.send_replace(server);
                    expires.send_replace(expiry);
                    used = files;
                    reported = None;
                }
                Err(error) => {
                    if reported.as_ref() != Some(&error) {
                        tracing::warn!(owner, %error, "cannot use the new certificate; the \
                            previous one stays in use");
                    }
                    reported = Some(error);
                }
            }
        }
    };
    Ok((CurrentCertificate { server, expiry }, keeping))
}
