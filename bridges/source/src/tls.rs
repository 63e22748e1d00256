//! TLS as every source speaks it: rustls with ring, the system's roots or those of `ca-file=`.
//! Nothing here can be told to skip a check.

use crate::{Error, Fix};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// A refusal at this host, in words that name the fault and its cure.
fn at(host: &str, words: impl Display) -> Error {
    Error::fault(Fix::Remote, format!("{host}: {words}"))
}

/// Any other failure, in the library's words.
pub(crate) fn failed(host: &str, why: impl Display) -> Error {
    at(host, format!("TLS failed: {why}"))
}

/// The refusal in an error of the stream, if that is one.
pub(crate) fn refusal(host: &str, error: &std::io::Error) -> Option<Error> {
    use CertificateError as C;
    let certificate = match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(certificate) => certificate,
        rustls::Error::InvalidMessage(_) => {
            let words = "what listens there does not speak TLS; use the plain scheme or the TLS \
                         port";
            return Some(at(host, words));
        }
        other => return Some(failed(host, other)),
    };
    let other_name = |names: &str| {
        let words = format!(
            "its certificate is for another name ({names}); write that name in the URL, or give \
             the server a certificate for {host}"
        );
        at(host, words)
    };
    let expired = |since: &str| {
        let words = format!("its certificate has expired{since}; renew it on the server");
        at(host, words)
    };
    let untrusted = || {
        let words = format!(
            "{host}: its certificate is self-signed, or its issuer is not trusted here; give the \
             issuer's certificate with ca-file=PATH"
        );
        Error::fault(Fix::Settings, words)
    };
    Some(match certificate {
        C::NotValidForName => other_name("not given"),
        C::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            other_name("it has none")
        }
        C::NotValidForNameContext { presented, .. } => other_name(&presented.join(", ")),
        C::Expired => expired(""),
        C::ExpiredContext { time, not_after } => {
            let days = time.as_secs().saturating_sub(not_after.as_secs()) / 86_400;
            expired(&format!(" {days} d ago"))
        }
        C::NotValidYet | C::NotValidYetContext { .. } => at(
            host,
            "its certificate is not valid yet; check the clocks of both machines",
        ),
        // A bad signature: the root that is trusted has the issuer's name and another key, as
        // when a CA was made anew.
        C::UnknownIssuer | C::BadSignature => untrusted(),
        // A self-signed certificate made as a CA's own (`openssl req -x509`) is told apart only
        // by webpki's words.
        C::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => untrusted(),
        other => failed(host, other),
    })
}

/// The settings of a TLS client. Reads files: not for the thread of a live line.
///
/// # Errors
/// A `ca-file` that cannot be read or holds no certificate; a machine without roots.
pub(crate) fn client(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, Error> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let fault = |why: &dyn Display| {
                Error::fault(Fix::Settings, format!("ca-file={}: {why}", path.display()))
            };
            for certificate in CertificateDer::pem_file_iter(path).map_err(|why| fault(&why))? {
                let certificate = certificate.map_err(|why| fault(&why))?;
                roots.add(certificate).map_err(|why| fault(&why))?;
            }
            if roots.is_empty() {
                return Err(fault(&"holds no PEM certificate"));
            }
        }
        None => {
            let system = rustls_native_certs::load_native_certs();
            // A root that cannot be read makes fewer servers trusted, never more.
            roots.add_parsable_certificates(system.certs);
            if roots.is_empty() {
                let why = system.errors.first().map(ToString::to_string);
                let why = why.unwrap_or_else(|| "none found".to_owned());
                let words = format!(
                    "this machine has no CA certificates ({why}); install the package \
                     ca-certificates or give ca-file=PATH"
                );
                return Err(Error::fault(Fix::Settings, words));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let versions =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = versions.map_err(|why| failed("", why))?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}
