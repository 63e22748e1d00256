//! Why no answer came, told apart by what it means: nothing was sent, or it may have arrived.

use super::Setup;
use super::answer::ApiError;
use callbridge_model::NotPermitted;
use std::error::Error as StdError;

/// Longest text of a transport error that is kept.
const WORDS_MAX: usize = 300;

/// The error that a failed exchange with the service behind `way` amounts to. The URL is left out
/// of the words: it may hold a requestId, never a secret, but it says nothing new.
pub(super) fn read(error: reqwest::Error, way: &Setup) -> ApiError {
    let error = error.without_url();
    let why = words(&error);
    if let Some(tls) = chain(&error).find_map(find_tls) {
        return ApiError::TlsRefused {
            why: tls_words(tls),
        };
    }
    if chain(&error).any(|cause| cause.is::<NotPermitted>()) {
        return ApiError::NotPermitted;
    }
    if error.is_timeout() && !error.is_connect() {
        return ApiError::TimedOut;
    }
    if error.is_builder() {
        return ApiError::NotConnected { why };
    }
    if error.is_connect() {
        let place = match &way.proxy {
            Some(proxy) => format!("{} by way of {proxy}", way.address.place()),
            None => way.address.place(),
        };
        let why = if error.is_timeout() {
            format!("{place} does not answer (nor perhaps the DNS that knows it)")
        } else {
            format!("{place}: {why}")
        };
        return ApiError::NotConnected { why };
    }
    match chain(&error).find_map(|cause| cause.downcast_ref::<hyper::Error>()) {
        // an answer came, and it is none of HTTP's
        Some(hyper) if hyper.is_parse_too_large() => ApiError::Unreadable {
            why: "the head of the answer is too large to be read".to_owned(),
        },
        Some(hyper) if hyper.is_parse() => ApiError::Unreadable {
            why: format!(
                "what answers at {} does not speak HTTP ({why}); check scheme and port of \
                 --crm-url",
                way.address.place()
            ),
        },
        Some(_) | None => ApiError::Lost { why },
    }
}

/// Returns the transport's words alone, of an error that [`read`] made.
pub(super) fn words_of(error: ApiError) -> String {
    match error {
        ApiError::NotConnected { why } | ApiError::TlsRefused { why } | ApiError::Lost { why } => {
            why
        }
        other => other.to_string(),
    }
}

/// The innermost cause is the one that says something.
fn words(error: &(dyn StdError + 'static)) -> String {
    let innermost = chain(error)
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string);
    innermost.chars().take(WORDS_MAX).collect()
}

fn tls_words(tls: &rustls::Error) -> String {
    use rustls::{CertificateError as Certificate, Error as Tls};
    match tls {
        Tls::InvalidCertificate(Certificate::NotValidForName)
        | Tls::InvalidCertificate(Certificate::NotValidForNameContext { .. }) => {
            "the certificate is for another name; give --crm-url the name that it is for".to_owned()
        }
        Tls::InvalidCertificate(Certificate::Expired)
        | Tls::InvalidCertificate(Certificate::ExpiredContext { .. }) => {
            "the certificate has expired; it has to be renewed at the CRM".to_owned()
        }
        Tls::InvalidCertificate(Certificate::NotValidYet)
        | Tls::InvalidCertificate(Certificate::NotValidYetContext { .. }) => {
            "the certificate is not valid yet; check this machine's clock".to_owned()
        }
        Tls::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "the certificate is self-signed, or signed by an authority that is not trusted here; \
             if it is your own, give it with --crm-ca-file"
                .to_owned()
        }
        // as `openssl req -x509` makes them
        Tls::InvalidCertificate(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "the certificate is an authority's (CA:TRUE) and no server's; issue one for the \
             server, signed by that authority, and give the authority's with --crm-ca-file"
                .to_owned()
        }
        Tls::InvalidMessage(_) => {
            "what answers there does not speak TLS; check the port of --crm-url".to_owned()
        }
        other => other.to_string().chars().take(WORDS_MAX).collect(),
    }
}

/// rustls errors travel inside `io::Error`, whose `source` steps over the error it wraps.
fn find_tls<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a rustls::Error> {
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(tls);
    }
    let io = error.downcast_ref::<std::io::Error>()?;
    io.get_ref()?.downcast_ref::<rustls::Error>()
}

/// The error and its causes, those hidden inside `io::Error` included.
fn chain<'a>(
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
