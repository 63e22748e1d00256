//! Why no answer came, told apart by what it means: nothing was sent, or it may have arrived.

use super::answer::Answer;
use std::error::Error as StdError;

/// Longest text of a transport error that is kept.
const WORDS_MAX: usize = 300;

/// The answer that a failed exchange amounts to. The URL is left out of the words: it may hold a
/// requestId, never a secret, but it says nothing new.
pub(super) fn read(error: reqwest::Error) -> Answer {
    let error = error.without_url();
    let why = words(&error);
    if let Some(tls) = tls_words(&error) {
        return Answer::TlsRefused { why: tls };
    }
    if error.is_timeout() && !error.is_connect() {
        return Answer::TimedOut;
    }
    if error.is_connect() || error.is_builder() {
        return Answer::NotConnected { why };
    }
    Answer::Lost { why }
}

/// The innermost cause is the one that says something.
fn words(error: &(dyn StdError + 'static)) -> String {
    let innermost = chain(error)
        .last()
        .map_or_else(|| error.to_string(), ToString::to_string);
    innermost.chars().take(WORDS_MAX).collect()
}

fn tls_words(error: &(dyn StdError + 'static)) -> Option<String> {
    use rustls::{CertificateError as Certificate, Error as Tls};
    let tls = chain(error).find_map(find_tls)?;
    Some(match tls {
        Tls::InvalidCertificate(Certificate::NotValidForName)
        | Tls::InvalidCertificate(Certificate::NotValidForNameContext { .. }) => {
            "the certificate is for another name; give --crm-url the name that it is for".to_owned()
        }
        Tls::InvalidCertificate(Certificate::Expired)
        | Tls::InvalidCertificate(Certificate::ExpiredContext { .. }) => {
            "the certificate has expired; it has to be renewed at the CRM".to_owned()
        }
        Tls::InvalidCertificate(Certificate::UnknownIssuer | Certificate::BadSignature) => {
            "the certificate is self-signed, or signed by an authority that is not trusted here; \
             if it is your own, give it with --crm-ca-file"
                .to_owned()
        }
        other => other.to_string(),
    })
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
