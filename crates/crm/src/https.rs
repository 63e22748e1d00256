//! HTTP clients that send each request once, and messages for their errors.

use crate::{Address, Timeouts};
use reqwest::ClientBuilder;
use std::error::Error as StdError;
use std::fmt::Display;
use std::path::Path;

/// Maximum length of an error text in characters.
const WORDS_MAX: usize = 300;

/// A server's name in messages, and the flags that set its URL and its CAs.
#[derive(Clone, Copy, Debug)]
pub struct ServerFlags {
    pub server: &'static str,
    pub address: &'static str,
    pub ca_file: &'static str,
}

/// Creates a builder that doesn't follow redirects, doesn't repeat anything, doesn't keep
/// connections, and doesn't use a proxy from the environment. `ca_file` replaces the system's CAs.
///
/// # Errors
/// Returns a message that says why the file can't be used.
pub fn builder(
    address: &Address,
    ca_file: Option<&Path>,
    timeouts: Timeouts,
    flags: &ServerFlags,
) -> Result<ClientBuilder, String> {
    let builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .no_proxy()
        .http1_only()
        .pool_max_idle_per_host(0)
        .connect_timeout(timeouts.connect)
        .timeout(timeouts.total)
        // Without this, the system would try for minutes to deliver data from before the timeout.
        .tcp_user_timeout(timeouts.total)
        .user_agent(concat!("callbridge/", env!("CARGO_PKG_VERSION")));
    if let Some(path) = ca_file {
        let roots = std::fs::read(path).map_err(|error| ca_file_problem(flags, path, &error))?;
        let roots = reqwest::Certificate::from_pem_bundle(&roots)
            .map_err(|error| ca_file_problem(flags, path, &error))?;
        if roots.is_empty() {
            return Err(ca_file_problem(flags, path, &"no certificate in it"));
        }
        return Ok(builder.tls_certs_only(roots));
    }
    if address.is_plain() {
        // Without TLS, an empty list avoids loading the system's list, which may not exist.
        return Ok(builder.tls_certs_only([]));
    }
    Ok(builder)
}

fn ca_file_problem(flags: &ServerFlags, path: &Path, problem: &dyn Display) -> String {
    format!("{} {}: {problem}", flags.ca_file, path.display())
}

/// Creates the client.
///
/// # Errors
/// Returns a message that says why TLS can't be set up.
pub fn build(builder: ClientBuilder, flags: &ServerFlags) -> Result<reqwest::Client, String> {
    builder.build().map_err(|error| {
        let why = StdError::source(&error).map_or(error.to_string(), ToString::to_string);
        let ca_file = flags.ca_file;
        format!("TLS cannot be set up: {why}; install CA certificates or give {ca_file}")
    })
}

/// Returns the text of the error's innermost cause, which is the most precise.
pub fn innermost(error: &(dyn StdError + 'static)) -> String {
    let innermost = causes(error).last();
    let text = innermost.map(ToString::to_string).unwrap_or_default();
    text.chars().take(WORDS_MAX).collect()
}

/// Returns why TLS rejected the server, along with the fix, or `None` for other errors.
pub fn tls_problem(error: &(dyn StdError + 'static), flags: &ServerFlags) -> Option<String> {
    use rustls::{CertificateError as Fault, Error as Tls};
    let ServerFlags {
        server,
        address,
        ca_file,
    } = flags;
    let tls: &Tls = causes(error).find_map(|cause| cause.downcast_ref())?;
    Some(match tls {
        Tls::InvalidCertificate(Fault::NotValidForName | Fault::NotValidForNameContext { .. }) => {
            format!("the certificate is for another name; use that name in {address}")
        }
        Tls::InvalidCertificate(Fault::Expired | Fault::ExpiredContext { .. }) => {
            format!("the certificate has expired; renew it at {server}")
        }
        Tls::InvalidCertificate(Fault::NotValidYet | Fault::NotValidYetContext { .. }) => {
            "the certificate is not valid yet; check this machine's clock".to_owned()
        }
        Tls::InvalidCertificate(Fault::UnknownIssuer | Fault::BadSignature) => format!(
            "the certificate is self-signed, or signed by an authority that is not trusted here; \
             if it is your own, give it with {ca_file}"
        ),
        // Certificates created by `openssl req -x509` cause this error.
        Tls::InvalidCertificate(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            format!(
                "the certificate is a CA certificate (CA:TRUE), not a server certificate; issue \
                 one for the server, signed by that CA, and give the CA certificate with \
                 {ca_file}"
            )
        }
        Tls::InvalidMessage(_) => {
            format!("the server does not speak TLS; check the port of {address}")
        }
        other => other.to_string().chars().take(WORDS_MAX).collect(),
    })
}

/// Iterates over the error and its causes, including those inside an `io::Error`. This is needed
/// because an `io::Error`'s `source` skips the error that it wraps, and rustls's errors are wrapped
/// in one.
pub fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let io = error.downcast_ref::<std::io::Error>();
        match io.and_then(std::io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        }
    })
}
