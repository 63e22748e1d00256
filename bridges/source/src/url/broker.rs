//! A broker's part of a URL: its hosts, its user, and the queue or stream that is meant.

use super::keys::{Keys, decoded};
use super::parse::Front;
use super::{Broker, TcpEndpoint, UrlFault};

/// Seconds between two heartbeats when the URL does not say: a dead line is found in 30.
const HEARTBEAT: u16 = 15;
/// A cluster has fewer nodes that a client has to know.
const HOSTS_MAX: usize = 16;

/// `amqp://USER@H1,H2:5673/V` as a URL of its first host, and the hosts after it.
pub(super) fn split_hosts(text: &str) -> (String, Vec<String>) {
    let whole = || (text.to_owned(), Vec::new());
    let Some(start) = text.find("://").map(|at| at + 3) else {
        return whole();
    };
    let rest = &text[start..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let hosts = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let mut all = rest[hosts..end].split(',');
    let (first, others) = (all.next().unwrap_or_default(), all.map(str::to_owned));
    let others: Vec<String> = others.collect();
    if others.is_empty() {
        return whole();
    }
    let front = &text[..start + hosts];
    (format!("{front}{first}{}", &rest[end..]), others)
}

/// A host with its port, where one is given.
fn endpoint(text: &str, tls: bool, port: u16) -> Option<TcpEndpoint> {
    let url = url::Url::parse(&format!("amqp://{text}")).ok()?;
    let plain = url.path().is_empty() && url.username().is_empty() && url.query().is_none();
    let host = url.host_str().filter(|host| plain && !host.is_empty())?;
    let host = host.strip_prefix('[').unwrap_or(host);
    let host = host.strip_suffix(']').unwrap_or(host);
    Some(TcpEndpoint {
        host: decoded(host),
        port: url.port().unwrap_or(port),
        tls,
    })
}

/// The broker, all but what is read or written there.
pub(super) fn broker(front: &Front<'_>, keys: &mut Keys<'_>, faults: &mut Vec<UrlFault>) -> Broker {
    let tls = front.url.scheme() == "amqps";
    let port = if tls { 5671 } else { 5672 };
    let path = front.url.path();
    let vhost = decoded(path.strip_prefix('/').unwrap_or(path));
    let heartbeat = match keys.take("heartbeat") {
        None => HEARTBEAT,
        Some(text) => match text.parse::<u16>() {
            Ok(seconds @ 2..=25) => seconds,
            Ok(_) | Err(_) => {
                let allowed = "2 to 25 (seconds): a dead line must be found within a minute";
                faults.push(keys.fault("heartbeat", text, allowed));
                HEARTBEAT
            }
        },
    };
    let mut others = Vec::new();
    for host in front.other_hosts {
        match endpoint(host, tls, port) {
            Some(found) if others.len() < HOSTS_MAX => others.push(found),
            Some(_) | None => {
                let cure = "write HOST or HOST:PORT between the commas, at most 16 of them";
                faults.push(front.missing("a host", cure));
            }
        }
    }
    Broker {
        endpoint: front.endpoint(tls, port, faults),
        others,
        user: front.user(faults),
        vhost: if vhost.is_empty() {
            "/".to_owned()
        } else {
            vhost
        },
        heartbeat,
    }
}

/// The queue's name, or the stream's and that it is one.
pub(super) fn queue_or_stream(
    front: &Front<'_>,
    keys: &mut Keys<'_>,
    faults: &mut Vec<UrlFault>,
) -> (String, bool) {
    let (queue, stream) = (keys.take("queue"), keys.take("stream"));
    if queue.is_some() && stream.is_some() {
        faults.push(front.needless("stream=", "keep queue= or stream=, whichever it is"));
    }
    let is_stream = stream.is_some() && queue.is_none();
    let key = if is_stream { "stream" } else { "queue" };
    let name = queue.or(stream).unwrap_or_default();
    if name.is_empty() {
        let cure = "name the durable queue: queue=NAME";
        faults.push(front.missing("queue=", cure));
    }
    checked(key, name, is_stream, keys, faults)
}

/// The stream's name.
pub(super) fn stream(front: &Front<'_>, keys: &mut Keys<'_>, faults: &mut Vec<UrlFault>) -> String {
    let name = keys.take("stream").unwrap_or_default();
    if name.is_empty() {
        let cure = "name the stream that calls are forwarded to: stream=NAME";
        faults.push(front.missing("stream=", cure));
    }
    checked("stream", name, true, keys, faults).0
}

fn checked(
    key: &'static str,
    name: String,
    is_stream: bool,
    keys: &Keys<'_>,
    faults: &mut Vec<UrlFault>,
) -> (String, bool) {
    if name.len() > 255 {
        let allowed = "a name of at most 255 bytes";
        faults.push(keys.fault(key, name.clone(), allowed));
    }
    (name, is_stream)
}
