//! TLS as every source speaks it: rustls with ring, the system's roots or those of `ca-file=`.
//! Nothing here can be told to skip a check.

use crate::fix::Fix;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why TLS was refused, in words that name the fault and its cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsRefusal {
    /// `ca-file=` cannot be used.
    #[error("ca-file={}: {why}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// This machine has no roots.
    #[error(
        "this machine has no CA certificates ({why}); install the package ca-certificates or give \
         ca-file=PATH"
    )]
    NoRoots {
        /// What was tried.
        why: String,
    },
    /// The certificate is for other names.
    #[error(
        "{host}: its certificate is for another name ({names}); write that name in the URL, or \
         give the server a certificate for {host}"
    )]
    WrongName {
        /// The name asked for.
        host: String,
        /// The names that the certificate has.
        names: String,
    },
    /// The certificate has expired.
    #[error("{host}: its certificate has expired{since}; renew it on the server")]
    Expired {
        /// The name asked for.
        host: String,
        /// How long ago.
        since: String,
    },
    /// The certificate is not valid yet.
    #[error("{host}: its certificate is not valid yet; check the clocks of both machines")]
    NotYet {
        /// The name asked for.
        host: String,
    },
    /// The certificate leads to no root that is trusted.
    #[error(
        "{host}: its certificate is self-signed, or its issuer is not trusted here; give the \
         issuer's certificate with ca-file=PATH"
    )]
    Untrusted {
        /// The name asked for.
        host: String,
    },
    /// What answers there does not speak TLS.
    #[error("{host}: what listens there does not speak TLS; use the plain scheme or the TLS port")]
    NoTls {
        /// The name asked for.
        host: String,
    },
    /// Anything else, in the library's words.
    #[error("{host}: TLS failed: {why}")]
    Other {
        /// The name asked for.
        host: String,
        /// The words.
        why: String,
    },
}

impl TlsRefusal {
    /// Whose hand mends it.
    pub const fn fix(&self) -> Fix {
        match self {
            Self::CaFile { .. } | Self::NoRoots { .. } | Self::Untrusted { .. } => Fix::Settings,
            _ => Fix::Remote,
        }
    }

    /// The refusal in an error of the stream, if that is one.
    pub fn of(host: &str, error: &std::io::Error) -> Option<Self> {
        let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
        Some(words(host, inner))
    }
}

fn words(host: &str, error: &rustls::Error) -> TlsRefusal {
    use CertificateError as C;
    let host = host.to_owned();
    let certificate = match error {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::InvalidMessage(_) => return TlsRefusal::NoTls { host },
        other => {
            let why = other.to_string();
            return TlsRefusal::Other { host, why };
        }
    };
    match certificate {
        C::NotValidForName => TlsRefusal::WrongName {
            host,
            names: "not given".to_owned(),
        },
        C::NotValidForNameContext { presented, .. } => TlsRefusal::WrongName {
            host,
            names: match presented.is_empty() {
                true => "it has none".to_owned(),
                false => presented.join(", "),
            },
        },
        C::Expired => TlsRefusal::Expired {
            host,
            since: String::new(),
        },
        C::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            let since = format!(" {days} d ago");
            TlsRefusal::Expired { host, since }
        }
        C::NotValidYet | C::NotValidYetContext { .. } => TlsRefusal::NotYet { host },
        // A bad signature: the root that is trusted has the issuer's name and another key, as
        // when a CA was made anew.
        C::UnknownIssuer | C::BadSignature => TlsRefusal::Untrusted { host },
        // A self-signed certificate made as a CA's own (`openssl req -x509`) is told apart only
        // by webpki's words.
        C::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            TlsRefusal::Untrusted { host }
        }
        other => TlsRefusal::Other {
            host,
            why: other.to_string(),
        },
    }
}

/// The settings of a TLS client. Reads files: not for the thread of a live line.
///
/// # Errors
/// A `ca-file` that cannot be read or holds no certificate; a machine without roots.
pub fn client(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, TlsRefusal> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let fault = |why: String| TlsRefusal::CaFile {
                path: path.to_owned(),
                why,
            };
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|why| fault(why.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|why| fault(why.to_string()))?;
                let added = roots.add(certificate);
                added.map_err(|why| fault(why.to_string()))?;
            }
            if roots.is_empty() {
                return Err(fault("holds no PEM certificate".to_owned()));
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            // A root that cannot be read makes fewer servers trusted, never more.
            roots.add_parsable_certificates(system.certs);
            if roots.is_empty() {
                let why = system.errors.first().map(ToString::to_string);
                let why = why.unwrap_or_else(|| "none found".to_owned());
                return Err(TlsRefusal::NoRoots { why });
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|why| TlsRefusal::Other {
        host: String::new(),
        why: why.to_string(),
    })?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

/// The name that the server's certificate must bear.
///
/// # Errors
/// What can be neither a DNS name nor an address.
pub(crate) fn server_name(host: &str) -> Result<ServerName<'static>, TlsRefusal> {
    ServerName::try_from(host.to_owned()).map_err(|why| TlsRefusal::Other {
        host: host.to_owned(),
        why: why.to_string(),
    })
}
