//! What can be wrong with a URL, each with its cure.

/// One fault of a `--source` or `--dead-letter-queue` URL. `url` is the text given, its password
/// masked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlFault {
    /// Not a URL at all.
    #[error("{url}: not a URL ({why}); give {example}")]
    NotUrl {
        /// The text given.
        url: String,
        /// The parser's words.
        why: String,
        /// What one looks like.
        example: &'static str,
    },
    /// A scheme that is not known here.
    #[error("{url}: unknown scheme {scheme}; give one of {known}")]
    Scheme {
        /// The text given.
        url: String,
        /// The scheme.
        scheme: String,
        /// What there is.
        known: &'static str,
    },
    /// A password inside the URL: every user of the machine could read it.
    #[error(
        "{url}: a password in the URL can be read by every user of this machine; remove it and \
         give secret-file=PATH or {variable}"
    )]
    Password {
        /// The text given, masked.
        url: String,
        /// The environment variable to use.
        variable: &'static str,
    },
    /// A part that must be there is not.
    #[error("{url}: {part} is missing; {cure}")]
    Missing {
        /// The text given.
        url: String,
        /// What is missing.
        part: &'static str,
        /// What to add.
        cure: String,
    },
    /// A part that must not be there is.
    #[error("{url}: {part} has no meaning here; {cure}")]
    Needless {
        /// The text given.
        url: String,
        /// What is too much.
        part: &'static str,
        /// What to do.
        cure: &'static str,
    },
    /// A key that the scheme does not know.
    #[error("{url}: unknown key {key}=; {scheme}:// takes {known}")]
    Key {
        /// The text given.
        url: String,
        /// The key.
        key: String,
        /// The scheme.
        scheme: String,
        /// What it takes.
        known: String,
    },
    /// A key given twice.
    #[error("{url}: {key}= is given twice; keep one")]
    Twice {
        /// The text given.
        url: String,
        /// The key.
        key: String,
    },
    /// A password that would cross a network in the clear.
    #[error(
        "{url}: the event socket knows no TLS, and its password would cross the network to {host} \
         in the clear; add clear=yes if that way is protected (a VPN), else forward the port to \
         this machine (ssh -L 8021:127.0.0.1:8021 {host}) and give esl://127.0.0.1"
    )]
    Clear {
        /// The text given.
        url: String,
        /// Where the switch is.
        host: String,
    },
    /// A value that cannot be.
    #[error("{url}: {key}={value} cannot be; give {allowed}")]
    Value {
        /// The text given.
        url: String,
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
        /// What can be.
        allowed: &'static str,
    },
}
