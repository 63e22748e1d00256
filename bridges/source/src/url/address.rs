//! Where a source is, however it is written: two URLs with one address are one source.

use super::{SourceUrl, TcpEndpoint, Transport};
use std::net::IpAddr;
use std::path::PathBuf;

/// The names and addresses by which a machine speaks to itself are one.
const SELF: &str = "localhost";

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

impl SourceUrl {
    /// Returns the place of the source in one spelling, to be compared with others'.
    pub fn address(&self) -> Address {
        Address(match &self.transport {
            Transport::Ami { endpoint, .. } | Transport::Esl { endpoint } => on_line(endpoint, ""),
            Transport::WebSocket { endpoint, path } => on_line(endpoint, path.trim_matches('/')),
            Transport::Amqp(source) => {
                let [host, port] = place(&source.broker.endpoint);
                let (vhost, queue) = (&source.broker.vhost, &source.queue);
                vec!["queue".to_owned(), host, port, vhost.clone(), queue.clone()]
            }
            Transport::File { path, .. } => {
                // `//` and `/./` are no other file; `..` may be, behind a link.
                let path: PathBuf = path.components().collect();
                vec!["file".to_owned(), path.display().to_string()]
            }
        })
    }
}

fn on_line(endpoint: &TcpEndpoint, path: &str) -> Vec<String> {
    let [host, port] = place(endpoint);
    vec!["line".to_owned(), host, port, path.to_owned()]
}

fn place(endpoint: &TcpEndpoint) -> [String; 2] {
    [host(&endpoint.host), endpoint.port.to_string()]
}

/// A host in one spelling.
fn host(text: &str) -> String {
    let name = text.strip_suffix('.').unwrap_or(text).to_lowercase();
    match name.parse::<IpAddr>().map(|ip| ip.to_canonical()) {
        Ok(ip) if ip == IpAddr::from([127, 0, 0, 1]) => SELF.to_owned(),
        Ok(IpAddr::V6(ip)) if ip.is_loopback() => SELF.to_owned(),
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
