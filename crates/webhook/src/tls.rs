//! The receiver's own certificate: read at the start, and again when its files change, so that a
//! renewal needs no restart.

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Between two looks at the files.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// Bytes of a certificate's or a key's file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The files of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The certificate and its chain.
    pub chain: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why there is no certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A file that cannot be read.
    #[error("{path}: {why}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// No certificate in it.
    #[error("{0} holds no certificate: PEM is expected, the certificate first, then its chain")]
    NoCertificate(PathBuf),
    /// No key in it.
    #[error("{0} holds no private key: PEM is expected, without a password")]
    NoKey(PathBuf),
    /// They are no pair, or of a kind that TLS does not take.
    #[error("{chain} and {key} do not serve: {why}")]
    Unfit {
        /// The certificate's file.
        chain: PathBuf,
        /// The key's.
        key: PathBuf,
        /// rustls's words.
        why: String,
    },
}

/// What the two files hold.
#[derive(Clone, Default, PartialEq, Eq)]
struct Files {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl Files {
    fn read(certificate: &Certificate) -> Result<Self, Error> {
        let read = |path: &PathBuf| {
            let unreadable = |why: String| Error::Unreadable {
                path: path.clone(),
                why,
            };
            let about = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
            if about.len() > FILE_BYTES_MAX {
                return Err(unreadable("larger than 1 MB".to_owned()));
            }
            std::fs::read(path).map_err(|error| unreadable(error.to_string()))
        };
        Ok(Self {
            chain: read(&certificate.chain)?,
            key: read(&certificate.key)?,
        })
    }

    fn chain(&self, certificate: &Certificate) -> Result<Vec<CertificateDer<'static>>, Error> {
        let chain = CertificateDer::pem_slice_iter(&self.chain).collect::<Result<Vec<_>, _>>();
        let chain = chain.ok().filter(|chain| !chain.is_empty());
        chain.ok_or_else(|| Error::NoCertificate(certificate.chain.clone()))
    }

    fn server(&self, certificate: &Certificate) -> Result<Arc<ServerConfig>, Error> {
        let chain = self.chain(certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|_| Error::NoKey(certificate.key.clone()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key));
        let mut server = server.map_err(|error| Error::Unfit {
            chain: certificate.chain.clone(),
            key: certificate.key.clone(),
            why: error.to_string(),
        })?;
        server.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(server))
    }
}

/// The certificates of the chain, the server's own first, after a look whether they and the key
/// serve.
///
/// # Errors
/// As [`Error`] says.
pub fn check(certificate: &Certificate) -> Result<Vec<CertificateDer<'static>>, Error> {
    let files = Files::read(certificate)?;
    files.server(certificate)?;
    files.chain(certificate)
}

/// The TLS settings in force, and what keeps them so until it is dropped.
///
/// # Errors
/// When the files do not serve at the start. Later they are tried again each second, and those
/// that served last stay in use.
pub fn keep(
    certificate: Certificate,
) -> Result<(watch::Receiver<Arc<ServerConfig>>, impl Future<Output = ()>), Error> {
    let mut used = Files::read(&certificate)?;
    let (current, shown) = watch::channel(used.server(&certificate)?);
    let keeping = async move {
        let mut look = tokio::time::interval(CHECK_EVERY);
        let mut reported = None;
        loop {
            look.tick().await;
            let path = certificate.clone();
            let reading = tokio::task::spawn_blocking(move || Files::read(&path));
            let Ok(read) = reading.await else {
                continue;
            };
            // Of a pair that is being written only one may be new: it does not fit, and the next
            // look finds both.
            let anew = read.and_then(|files| match files == used {
                true => Ok(None),
                false => Ok(Some((files.server(&certificate)?, files))),
            });
            match anew {
                Ok(None) => reported = None,
                Ok(Some((server, files))) => {
                    tracing::info!("the webhook certificate is read anew");
                    current.send_replace(server);
                    (used, reported) = (files, None);
                }
                Err(error) => {
                    if reported.as_ref() != Some(&error) {
                        tracing::warn!(%error, "the webhook certificate stays the one before");
                    }
                    reported = Some(error);
                }
            }
        }
    };
    Ok((shown, keeping))
}
