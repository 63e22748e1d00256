//! `--source` URLs: read, and checked whole before anything is opened.
//!
//! ```text
//! ami://USER@HOST[:5038]      amis://USER@HOST[:5039]      AMI over TCP, over TLS
//! esl://HOST[:8021][?clear=yes]                            FreeSWITCH's event socket
//! ws://HOST[:80][/PATH]       wss://HOST[:443][/PATH]      AMI as JSON over a WebSocket
//! amqp://USER@HOST[:5672][,HOST…][/VHOST]?queue=Q&format=F amqps://…[:5671]
//! file:///PATH?format=F[&from=end|start|DATE]
//! ```
//! Every URL takes `pbx=`, `secret-file=`, `ca-file=`; the broker's also `exchange=`, `bind=`,
//! `declare=yes`, `heartbeat=`. `%2F` and the like stand for their characters; `+` is a plus.

mod parse;

pub use callbridge_formats::Format;

use crate::EventTime;
use percent_encoding::percent_decode_str;
use std::{fmt, net::IpAddr, path::PathBuf};

/// One fault of a `--source` or `--dead-letter-queue` URL, which is shown as it was
/// given, its password masked: what is wrong, and its fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {words}")]
pub struct UrlFault {
    url: String,
    words: String,
}

/// Host and port of a TCP server, and the transport spoken there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpEndpoint {
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// TCP port; the scheme's default where the URL names none.
    pub port: u16,
    /// Set when TLS is spoken, as with `amis`, `wss` and `amqps`.
    pub tls: bool,
}

impl TcpEndpoint {
    /// Returns `true` when what is sent there does not leave this machine.
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// Returns `true` when what is sent there can be read on its way.
    pub fn is_clear(&self) -> bool {
        !self.tls && !self.is_loopback()
    }
}

impl fmt::Display for TcpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A broker and how to log in to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// The node that is tried first.
    pub endpoint: TcpEndpoint,
    /// Other nodes of it, tried in turn.
    pub others: Vec<TcpEndpoint>,
    /// The user to log in as, from the URL.
    pub user: String,
    /// The virtual host; `/` when the URL names none.
    pub vhost: String,
    /// Seconds; the line is given up after twice this long without a byte.
    pub heartbeat: u16,
}

/// A queue of a broker and how it comes to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSource {
    /// The broker that has the queue.
    pub broker: Broker,
    /// The name of the queue.
    pub queue: String,
    /// Format of the queue's messages (`format=`).
    pub format: Format,
    /// Declared, durable, if it is missing (`declare=yes`).
    pub declare: bool,
    /// The exchange that it is bound to, when declared.
    pub exchange: Option<String>,
    /// The binding key; `NAME=VALUE[,NAME=VALUE…]` for a headers exchange. Several, separated by
    /// `;`, each bind it once.
    pub bind: Option<String>,
}

/// The point at which the reading of a file begins when it is seen for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// The file's present end: only what is written later.
    End,
    /// The file's first byte: all that is in it.
    Start,
    /// The file's first byte, too; calls that began before this moment are to be left out by
    /// whoever reads the frames, for only the decoder knows their times.
    Since(UrlDate),
}

/// A date in a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlDate {
    /// A moment with its offset: `2026-11-20T08:00:00+05:00`.
    Absolute(EventTime),
    /// Without one, so in the PBX's zone: `2026-11-20`, `2026-11-20T08:00:00`.
    Local(jiff::civil::DateTime),
}

impl UrlDate {
    /// The moment, where `zone` is the PBX's.
    pub fn at(&self, zone: &jiff::tz::TimeZone) -> EventTime {
        match self {
            Self::Absolute(time) => *time,
            Self::Local(local) => {
                let at = zone.to_ambiguous_timestamp(*local).compatible();
                EventTime::from_micros(at.map_or(0, jiff::Timestamp::as_microsecond))
            }
        }
    }
}

/// The protocol of a source, with the place that it is reached at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// AMI text over TCP or TLS.
    Ami {
        /// The manager port of the PBX.
        endpoint: TcpEndpoint,
        /// The manager user (`manager.conf`) to log in as.
        user: String,
    },
    /// FreeSWITCH's event socket, over plain TCP.
    Esl {
        /// The event socket's host and port, without TLS.
        endpoint: TcpEndpoint,
    },
    /// AMI as JSON over a WebSocket.
    WebSocket {
        /// The gateway's host and port.
        endpoint: TcpEndpoint,
        /// The path to ask for.
        path: String,
    },
    /// A queue of a broker.
    Amqp(QueueSource),
    /// A file that grows, or a folder that gets a file for each record.
    File {
        /// Absolute path of the file or folder.
        path: PathBuf,
        /// Format of the records (`format=`).
        format: Format,
        /// The first position to read, where the spool stores none (`from=`).
        from: From,
    },
}

impl Transport {
    /// Returns the endpoint of a line that reports nothing from before it was opened; `None` for a
    /// broker and a file.
    pub const fn live_endpoint(&self) -> Option<&TcpEndpoint> {
        match self {
            Self::Ami { endpoint, .. }
            | Self::Esl { endpoint }
            | Self::WebSocket { endpoint, .. } => Some(endpoint),
            Self::Amqp(_) | Self::File { .. } => None,
        }
    }

    /// Returns the format that the protocol fixes, or, for a broker and a file, that `format=`
    /// names.
    pub const fn format(&self) -> Format {
        match self {
            Self::Ami { .. } => Format::Ami,
            Self::Esl { .. } => Format::Freeswitch,
            Self::WebSocket { .. } => Format::AmiJson,
            Self::Amqp(queue) => queue.format,
            Self::File { format, .. } => *format,
        }
    }
}

/// One `--source` URL without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceUrl {
    pub(crate) shown: String,
    /// The protocol, with all that it needs of the URL.
    pub transport: Transport,
    /// The PBX that it belongs to (`pbx=`).
    pub pbx: Option<String>,
    /// The file whose first line is the secret (`secret-file=`).
    pub secret_file: Option<PathBuf>,
    /// PEM certificates that replace the system's roots (`ca-file=`).
    pub ca_file: Option<PathBuf>,
}

impl SourceUrl {
    /// Returns the format of the source's messages, as [`Transport::format`].
    pub const fn format(&self) -> Format {
        self.transport.format()
    }

    /// Returns the URL as it was given, but for the file of its secret: for pages and messages that
    /// others see.
    pub fn public(&self) -> String {
        without_secret_file(&self.shown)
    }

    /// Returns the text before `://`, such as `amis`.
    pub fn scheme(&self) -> &str {
        self.shown.split("://").next().unwrap_or_default()
    }

    /// Returns the endpoint that is connected to, of a broker the first; `None` for a file.
    pub const fn endpoint(&self) -> Option<&TcpEndpoint> {
        match &self.transport {
            Transport::Amqp(queue) => Some(&queue.broker.endpoint),
            live => live.live_endpoint(),
        }
    }

    /// Names the source in the spool: stays the same when keys of the URL change that do not
    /// make it another source (`from=`, `secret-file=`, …).
    pub fn key(&self) -> String {
        let scheme = |tls, plain, secure| if tls { secure } else { plain };
        match &self.transport {
            Transport::Ami { endpoint, user } => {
                let scheme = scheme(endpoint.tls, "ami", "amis");
                format!("{scheme}://{user}@{endpoint}")
            }
            Transport::Esl { endpoint } => format!("esl://{endpoint}"),
            Transport::WebSocket { endpoint, path } => {
                format!("{}://{endpoint}{path}", scheme(endpoint.tls, "ws", "wss"))
            }
            Transport::Amqp(QueueSource { broker, queue, .. }) => {
                let (endpoint, vhost) = (&broker.endpoint, &broker.vhost);
                let scheme = scheme(endpoint.tls, "amqp", "amqps");
                format!("{scheme}://{endpoint}/{vhost}?queue={queue}")
            }
            Transport::File { path, .. } => format!("file://{}", path.display()),
        }
    }

    /// Returns the place of the source in one spelling, to be compared with others'.
    pub fn address(&self) -> Address {
        let at = |kind: &str, endpoint: &TcpEndpoint, rest: &[&str]| {
            let (host, port) = (host(&endpoint.host), endpoint.port.to_string());
            let parts = [kind, &host, &port].into_iter().chain(rest.iter().copied());
            parts.map(str::to_owned).collect()
        };
        Address(match &self.transport {
            Transport::Ami { endpoint, .. } | Transport::Esl { endpoint } => {
                at("line", endpoint, &[""])
            }
            Transport::WebSocket { endpoint, path } => {
                at("line", endpoint, &[path.trim_matches('/')])
            }
            Transport::Amqp(QueueSource { broker, queue, .. }) => {
                at("queue", &broker.endpoint, &[&broker.vhost, queue])
            }
            Transport::File { path, .. } => {
                // `//` and `/./` are no other file; `..` may be, behind a link.
                let path: PathBuf = path.components().collect();
                vec!["file".to_owned(), path.display().to_string()]
            }
        })
    }
}

impl fmt::Display for SourceUrl {
    /// The URL as it was given; a secret cannot stand in one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A queue that is published to: `amqp://USER@HOST/VHOST?queue=Q` (`--dead-letter-queue`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerUrl {
    shown: String,
    /// The broker's nodes, and the user that publishes.
    pub broker: Broker,
    /// The name of the queue.
    pub name: String,
    /// Calls that wait for a lead or employee are published too (`waiting=yes`).
    pub waiting: bool,
    /// The file whose first line is the secret (`secret-file=`).
    pub secret_file: Option<PathBuf>,
    /// PEM certificates that replace the system's roots (`ca-file=`).
    pub ca_file: Option<PathBuf>,
}

impl BrokerUrl {
    /// Returns the URL as it was given, but for the file of its secret.
    pub fn public(&self) -> String {
        without_secret_file(&self.shown)
    }
}

impl fmt::Display for BrokerUrl {
    /// The URL as it was given; a secret cannot stand in one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// `%2F` → `/`; a plus stays a plus. Bytes that are no UTF-8 become U+FFFD.
fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The URL without `secret-file=`, however the key is written.
pub fn without_secret_file(shown: &str) -> String {
    let Some((front, query)) = shown.split_once('?') else {
        return shown.to_owned();
    };
    let pairs = query.split('&').filter(|pair| {
        let key = pair.split('=').next().unwrap_or_default();
        decoded(key) != "secret-file"
    });
    match pairs.collect::<Vec<_>>().join("&") {
        rest if rest.is_empty() => front.to_owned(),
        rest => format!("{front}?{rest}"),
    }
}

/// Identity of a source by its place. Scheme, TLS and user do not belong to it: whoever listens on
/// a port is one. The port does: behind one name, the loopback's among them, stand as many PBXs as
/// ports are forwarded, and 5039 may be a second one's as well as the first one's TLS.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Vec<String>);

impl Address {
    /// Iterates over the kind (`line`, `queue`, `file`), then the parts of the place. No two
    /// addresses have the same.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// A host in one spelling: the names and addresses by which a machine speaks to itself are one.
fn host(text: &str) -> String {
    let name = text.strip_suffix('.').unwrap_or(text).to_lowercase();
    match name.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) if ip == IpAddr::from([127, 0, 0, 1]) => "localhost".to_owned(),
        Ok(IpAddr::V6(ip)) if ip.is_loopback() => "localhost".to_owned(),
        Ok(ip) => ip.to_string(),
        Err(_) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str) -> Address {
        SourceUrl::parse(url).expect("a source").address()
    }

    #[test]
    fn spellings_of_one_place_are_one() {
        for same in [
            &[
                "ami://a@localhost",
                "ami://b@LOCALHOST.:5038",
                "ami://a@127.0.0.1:5038?pbx=x",
                "amis://a@[::1]:5038",
                "ami://a@[::ffff:127.0.0.1]",
                "ws://127.0.0.1:5038",
                "ws://localhost:5038/",
            ][..],
            &["ws://pbx:8000/ami", "wss://PBX:8000/ami/"],
            &[
                "amqp://u@[2001:db8:0::1]?queue=q&format=wazo",
                "amqp://v@[2001:DB8::1]:5672?queue=q&format=asterisk-cel",
            ],
            &[
                "file:///var/log/cel.csv?format=cel-csv",
                "file:///var//log/./cel.csv?format=cdr-csv&from=start",
            ],
        ] {
            for other in same {
                assert_eq!(address(other), address(same[0]), "{other}");
            }
        }
    }

    #[test]
    fn places_that_may_be_two_pbxs_are_two() {
        let apart = [
            "ami://a@127.0.0.1:5038",
            "ami://a@127.0.0.1:5039",
            "amis://a@127.0.0.1:15039",
            "ami://a@127.0.0.2:5038",
            "ami://a@pbx:5038",
            "ws://127.0.0.1:5038/two",
            "amqp://u@127.0.0.1:5038?queue=q&format=wazo",
            "amqp://u@127.0.0.1:5038?queue=other&format=wazo",
            "amqp://u@127.0.0.1:5038/v?queue=q&format=wazo",
            "file:///var/log/cel.csv?format=cel-csv",
            "file:///var/log/cel2.csv?format=cel-csv",
        ];
        for (at, one) in apart.iter().enumerate() {
            for other in &apart[..at] {
                assert_ne!(address(one), address(other), "{one} {other}");
            }
        }
    }
}
