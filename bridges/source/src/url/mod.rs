//! `--source` URLs, which are parsed and checked completely before anything is opened.
//!
//! ```text
//! ami://USER@HOST[:5038]      amis://USER@HOST[:5039]      AMI over TCP, over TLS
//! esl://HOST[:8021][?clear=yes]                            FreeSWITCH's event socket
//! ws://HOST[:80][/PATH]       wss://HOST[:443][/PATH]      AMI as JSON over a WebSocket
//! amqp://USER@HOST[:5672][,HOST…][/VHOST]?queue=Q&format=F amqps://…[:5671]
//! file:///PATH?format=F[&from=end|start|DATE]
//! ```
//! Every URL accepts `pbx=`, `secret-file=`, and `ca-file=`. Broker URLs also accept `exchange=`,
//! `bind=`, `declare=yes`, and `heartbeat=`. Percent-encoded characters such as `%2F` are decoded,
//! and `+` stands for itself.

mod parse;

pub use callbridge_formats::Format;

use crate::EventTime;
use percent_encoding::percent_decode_str;
use std::{fmt, net::IpAddr, path::PathBuf};

/// An error in a `--source` or `--dead-letter-queue` URL, along with its fix. The URL is shown as
/// given, except that its password is masked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {message}")]
pub struct UrlFault {
    url: String,
    message: String,
}

/// A TCP server's host and port, and whether it uses TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpEndpoint {
    /// Hostname or address. An IPv6 address has no brackets.
    pub host: String,
    /// TCP port, which is the scheme's default if the URL doesn't have one.
    pub port: u16,
    /// Whether TLS is used, as with `amis`, `wss`, and `amqps`.
    pub tls: bool,
}

impl TcpEndpoint {
    /// Returns `true` if the data doesn't leave this machine.
    pub fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host.eq_ignore_ascii_case("localhost")
            || address.is_ok_and(|address| address.to_canonical().is_loopback())
    }

    /// Returns `true` if other machines on the network could read the data because TLS isn't used.
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

/// A broker, along with how to log in to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// The node to try first.
    pub endpoint: TcpEndpoint,
    /// The broker's other nodes, which are tried in turn.
    pub others: Vec<TcpEndpoint>,
    /// The user to log in as, from the URL.
    pub user: String,
    /// The virtual host, which is `/` if the URL doesn't have one.
    pub vhost: String,
    /// Heartbeat interval in seconds. The connection is given up if nothing is received for twice
    /// as long.
    pub heartbeat: u16,
}

/// A broker's queue, and how to declare it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSource {
    /// The broker that has the queue.
    pub broker: Broker,
    /// The queue's name.
    pub queue: String,
    /// Format of the queue's messages (`format=`).
    pub format: Format,
    /// Whether to declare the queue as durable if it's missing (`declare=yes`).
    pub declare: bool,
    /// The exchange to bind the queue to (`exchange=`). Only valid with `declare=yes`.
    pub exchange: Option<String>,
    /// The binding key, or `NAME=VALUE[,NAME=VALUE…]` for a headers exchange. Multiple bindings are
    /// separated by `;`.
    pub bind: Option<String>,
}

/// Where to start when a file is read for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// At the file's current end, so that only later records are read.
    End,
    /// At the file's start, so that all records are read.
    Start,
    /// At the file's start. Whoever reads the frames must skip calls that started before this time,
    /// because only the decoder knows their times.
    Since(UrlDate),
}

/// A date in a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UrlDate {
    /// A time with an offset, such as `2026-11-20T08:00:00+05:00`.
    Absolute(EventTime),
    /// A time in the PBX's time zone without an offset, such as `2026-11-20` or
    /// `2026-11-20T08:00:00`.
    Local(jiff::civil::DateTime),
}

impl UrlDate {
    /// Returns the time, given the PBX's time zone.
    pub fn event_time(&self, zone: &jiff::tz::TimeZone) -> EventTime {
        match self {
            Self::Absolute(time) => *time,
            Self::Local(local) => {
                let at = zone.to_ambiguous_timestamp(*local).compatible();
                EventTime::from_micros(at.map_or(0, jiff::Timestamp::as_microsecond))
            }
        }
    }
}

/// A source's protocol and address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// AMI text over TCP or TLS.
    Ami {
        /// The PBX's manager port.
        endpoint: TcpEndpoint,
        /// The manager user (`manager.conf`) to log in as.
        user: String,
    },
    /// FreeSWITCH's event socket over plain TCP.
    Esl {
        /// The event socket's host and port, without TLS.
        endpoint: TcpEndpoint,
    },
    /// AMI as JSON over a WebSocket.
    WebSocket {
        /// The gateway's host and port.
        endpoint: TcpEndpoint,
        /// The path to request.
        path: String,
    },
    /// A broker's queue.
    Amqp(QueueSource),
    /// A file that grows, or a directory with one file per record.
    File {
        /// Absolute path of the file or directory.
        path: PathBuf,
        /// Format of the records (`format=`).
        format: Format,
        /// Where to start reading if the spool has no position yet (`from=`).
        from: From,
    },
}

impl Transport {
    /// Returns the endpoint of a live connection, which doesn't resend earlier events, or `None`
    /// for a broker and a file.
    pub const fn live_endpoint(&self) -> Option<&TcpEndpoint> {
        match self {
            Self::Ami { endpoint, .. }
            | Self::Esl { endpoint }
            | Self::WebSocket { endpoint, .. } => Some(endpoint),
            Self::Amqp(_) | Self::File { .. } => None,
        }
    }

    /// Returns the protocol's format. For a broker and a file, that's the value of `format=`.
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

/// A valid `--source` URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceUrl {
    pub(crate) shown: String,
    /// The protocol, along with its parts of the URL.
    pub transport: Transport,
    /// The PBX that the source belongs to (`pbx=`).
    pub pbx: Option<String>,
    /// The file whose first line is the secret (`secret-file=`).
    pub secret_file: Option<PathBuf>,
    /// PEM certificates that replace the system's root certificates (`ca-file=`).
    pub ca_file: Option<PathBuf>,
}

impl SourceUrl {
    /// Returns the format of the source's messages, like [`Transport::format`].
    pub const fn format(&self) -> Format {
        self.transport.format()
    }

    /// Returns the URL as given but without `secret-file=`, for pages and messages that other
    /// people will see.
    pub fn public(&self) -> String {
        without_secret_file(&self.shown)
    }

    /// Returns the text before `://`, such as `amis`.
    pub fn scheme(&self) -> &str {
        self.shown.split("://").next().unwrap_or_default()
    }

    /// Returns the source's endpoint, or a broker's first one, or `None` for a file.
    pub const fn endpoint(&self) -> Option<&TcpEndpoint> {
        match &self.transport {
            Transport::Amqp(queue) => Some(&queue.broker.endpoint),
            live => live.live_endpoint(),
        }
    }

    /// Returns the source's name in the spool, which doesn't depend on those keys in the URL that
    /// don't identify the source (`from=`, `secret-file=`, …).
    pub fn key(&self) -> String {
        match &self.transport {
            Transport::Ami { endpoint, user } => {
                let scheme = if endpoint.tls { "amis" } else { "ami" };
                format!("{scheme}://{user}@{endpoint}")
            }
            Transport::Esl { endpoint } => format!("esl://{endpoint}"),
            Transport::WebSocket { endpoint, path } => {
                let scheme = if endpoint.tls { "wss" } else { "ws" };
                format!("{scheme}://{endpoint}{path}")
            }
            Transport::Amqp(QueueSource { broker, queue, .. }) => {
                let endpoint = &broker.endpoint;
                let scheme = if endpoint.tls { "amqps" } else { "amqp" };
                format!("{scheme}://{endpoint}/{}?queue={queue}", broker.vhost)
            }
            Transport::File { path, .. } => format!("file://{}", path.display()),
        }
    }

    /// Returns the source's address in a normalized form, for comparing it with other sources'
    /// addresses.
    pub fn address(&self) -> Address {
        Address(match &self.transport {
            Transport::Ami { endpoint, .. } | Transport::Esl { endpoint } => {
                address_parts("line", endpoint, &[""])
            }
            Transport::WebSocket { endpoint, path } => {
                address_parts("line", endpoint, &[path.trim_matches('/')])
            }
            Transport::Amqp(QueueSource { broker, queue, .. }) => {
                address_parts("queue", &broker.endpoint, &[&broker.vhost, queue])
            }
            Transport::File { path, .. } => {
                // `//` and `/./` are removed, since they don't change which file is meant. `..` is
                // kept, because after a symbolic link it may lead to a different file.
                let path: PathBuf = path.components().collect();
                vec!["file".to_owned(), path.display().to_string()]
            }
        })
    }
}

impl fmt::Display for SourceUrl {
    /// Writes the URL as given. It can't contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A queue to publish to, in the form `amqp://USER@HOST/VHOST?queue=Q` (`--dead-letter-queue`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerUrl {
    shown: String,
    /// The broker's nodes, and the user to publish as.
    pub broker: Broker,
    /// The queue's name.
    pub name: String,
    /// Whether to publish calls waiting for a lead or employee as well (`waiting=yes`).
    pub waiting: bool,
    /// The file whose first line is the secret (`secret-file=`).
    pub secret_file: Option<PathBuf>,
    /// PEM certificates that replace the system's root certificates (`ca-file=`).
    pub ca_file: Option<PathBuf>,
}

impl BrokerUrl {
    /// Returns the URL as given, without `secret-file=`.
    pub fn public(&self) -> String {
        without_secret_file(&self.shown)
    }
}

impl fmt::Display for BrokerUrl {
    /// Writes the URL as given. It can't contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// Decodes `%2F` to `/`, leaving a plus as is. Bytes that aren't UTF-8 become U+FFFD.
fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Removes `secret-file=` from a URL, no matter how the key is encoded.
pub fn without_secret_file(shown: &str) -> String {
    let Some((front, query)) = shown.split_once('?') else {
        return shown.to_owned();
    };
    let pairs = query.split('&').filter(|pair| {
        let key = pair.split('=').next().unwrap_or_default();
        decode(key) != "secret-file"
    });
    match pairs.collect::<Vec<_>>().join("&") {
        rest if rest.is_empty() => front.to_owned(),
        rest => format!("{front}?{rest}"),
    }
}

/// An address that identifies a source. It doesn't include the scheme, TLS, and user, since a port
/// only has one server. It does include the port, because a host name (such as `localhost`) may
/// forward several ports to different PBXs. Port 5039 may be a second PBX, or the first one's TLS
/// port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Vec<String>);

impl Address {
    /// Iterates over the kind (`line`, `queue`, `file`), followed by the other parts. No two
    /// addresses have the same parts.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

fn address_parts(kind: &str, endpoint: &TcpEndpoint, rest: &[&str]) -> Vec<String> {
    let mut parts = vec![
        kind.to_owned(),
        host(&endpoint.host),
        endpoint.port.to_string(),
    ];
    parts.extend(rest.iter().map(|part| (*part).to_owned()));
    parts
}

/// Returns a host in a normalized form, where `127.0.0.1` and `::1` become `localhost`. Other
/// loopback addresses may belong to different PBXs.
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
    fn urls_of_the_same_place_have_the_same_address() {
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
    fn urls_that_can_be_two_pbxs_have_different_addresses() {
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
