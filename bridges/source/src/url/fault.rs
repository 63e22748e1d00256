//! What can be wrong with a URL, each with its cure.

/// One fault of a `--source`, `--dead-letter-queue` or `--forward` URL, which is shown as it was
/// given, its password masked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {kind}")]
pub struct UrlFault {
    pub(super) url: String,
    pub(super) kind: FaultKind,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FaultKind {
    /// The parser's words, and what a URL looks like.
    #[error("not a URL ({0}); give {1}")]
    NotUrl(String, &'static str),
    /// A scheme that is not known here, and what there is.
    #[error("unknown scheme {0}; give one of {1}")]
    Scheme(String, &'static str),
    /// A password inside the URL, which every user of the machine could read; the environment
    /// variable to use in its place.
    #[error(
        "a password in the URL can be read by every user of this machine; remove it and give \
         secret-file=PATH or {0}"
    )]
    Password(&'static str),
    /// A part that must be there, and how to add it.
    #[error("{0} is missing; {1}")]
    Missing(&'static str, String),
    /// A part that must not be there, and what to do.
    #[error("{0} has no meaning here; {1}")]
    Needless(&'static str, &'static str),
    /// A key that the scheme does not take.
    #[error("unknown key {key}=; {scheme}:// takes {}=", known.join("=, "))]
    Key {
        key: String,
        scheme: String,
        known: &'static [&'static str],
    },
    #[error("{0}= is given twice; keep one")]
    Twice(String),
    /// A password that would cross the network to this host in the clear.
    #[error(
        "the event socket knows no TLS, and its password would cross the network to {0} in the \
         clear; add clear=yes if that way is protected (a VPN), else forward the port to this \
         machine (ssh -L 8021:127.0.0.1:8021 {0}) and give esl://127.0.0.1"
    )]
    Clear(String),
    /// A key with a value that cannot be, and what can.
    #[error("{0}={1} is invalid; give {2}")]
    Value(&'static str, String, &'static str),
}
