//! Text → checked URL, or every fault of it.

use super::broker::{broker, queue_or_stream, split_hosts, stream};
use super::keys::{Keys, decoded};
use super::{Format, From, QueueSource, QueueUrl, StreamUrl, TcpEndpoint, UrlDate, UrlFault};
use super::{SourceUrl, Transport};
use crate::EventTime;
use std::path::{Path, PathBuf};
use url::Url;

const SCHEMES: &str = "ami://, amis://, esl://, ws://, wss://, amqp://, amqps://, file:///";
const SOURCE_EXAMPLE: &str = "for instance ami://USER@HOST:5038 or ws://HOST:8000/";
const QUEUE_EXAMPLE: &str = "for instance amqp://USER@HOST/VHOST?queue=Q";
const STREAM_EXAMPLE: &str = "for instance amqp://USER@HOST1,HOST2/VHOST?stream=S";
/// As RabbitMQ's rights name it; in the protocol it has no name.
const DEFAULT_EXCHANGE: &str = "amq.default";
const FILE_FORMATS: &str = "ami, ami-json, cel-csv, cdr-csv, freeswitch, freeswitch-cdr or call";
const QUEUE_FORMATS: &str = "asterisk-cel, asterisk-cdr, wazo, freeswitch or call";

const COMMON_KEYS: &[&str] = &["pbx", "secret-file", "ca-file"];
const ESL_KEYS: &[&str] = &["clear", "pbx", "secret-file"];
const FILE_KEYS: &[&str] = &["format", "from", "pbx", "secret-file", "ca-file"];
#[rustfmt::skip]
const AMQP_KEYS: &[&str] = &[
    "queue", "stream", "format", "exchange", "bind", "declare", "heartbeat", "pbx", "secret-file",
    "ca-file",
];
const QUEUE_KEYS: &[&str] = &["queue", "heartbeat", "secret-file", "ca-file"];
const STREAM_KEYS: &[&str] = &[
    "stream",
    "exchange",
    "declare",
    "heartbeat",
    "secret-file",
    "ca-file",
];

/// What stands before the query.
pub(super) struct Front<'a> {
    shown: &'a str,
    pub(super) url: &'a Url,
    /// Hosts after the first one.
    pub(super) other_hosts: &'a [String],
    variable: &'static str,
}

impl Front<'_> {
    pub(super) fn missing(&self, part: &'static str, cure: impl Into<String>) -> UrlFault {
        UrlFault::Missing {
            url: self.shown.to_owned(),
            part,
            cure: cure.into(),
        }
    }

    pub(super) fn needless(&self, part: &'static str, cure: &'static str) -> UrlFault {
        UrlFault::Needless {
            url: self.shown.to_owned(),
            part,
            cure,
        }
    }

    fn check_password(&self, faults: &mut Vec<UrlFault>) {
        if self.url.password().is_some() {
            faults.push(UrlFault::Password {
                url: self.shown.to_owned(),
                variable: self.variable,
            });
        }
    }

    pub(super) fn endpoint(&self, tls: bool, port: u16, faults: &mut Vec<UrlFault>) -> TcpEndpoint {
        let host = self.url.host_str().unwrap_or_default();
        if host.is_empty() {
            faults.push(self.missing("the host", "write it after ://"));
        }
        let host = host.strip_prefix('[').unwrap_or(host);
        let host = host.strip_suffix(']').unwrap_or(host);
        TcpEndpoint {
            host: decoded(host),
            port: self.url.port().unwrap_or(port),
            tls,
        }
    }

    pub(super) fn user(&self, faults: &mut Vec<UrlFault>) -> String {
        let user = decoded(self.url.username());
        if user.is_empty() {
            let cure = format!("write {}://USER@HOST", self.url.scheme());
            faults.push(self.missing("the user", cure));
        }
        user
    }
}

/// `text` with the password masked, should there be one; works on what is no URL too.
fn masked(text: &str) -> String {
    let Some(start) = text.find("://").map(|at| at + 3) else {
        return text.to_owned();
    };
    // Up to the last `@` before the query: a password may hold a slash or an `@` of its own.
    let end = text.find('?').unwrap_or(text.len()).max(start);
    let Some(at) = text[start..end].rfind('@').map(|at| at + start) else {
        return text.to_owned();
    };
    match text[start..at].find(':') {
        Some(colon) => format!("{}:***{}", &text[..start + colon], &text[at..]),
        None => text.to_owned(),
    }
}

fn url(shown: &str, text: &str, example: &'static str) -> Result<Url, Vec<UrlFault>> {
    Url::parse(text).map_err(|why| {
        vec![UrlFault::NotUrl {
            url: shown.to_owned(),
            why: why.to_string(),
            example,
        }]
    })
}

/// Reads a `--source`.
pub(super) fn source(text: &str) -> Result<SourceUrl, Vec<UrlFault>> {
    let shown = masked(text);
    let (text, other_hosts) = hosts(text);
    let url = url(&shown, &text, SOURCE_EXAMPLE)?;
    let scheme = url.scheme();
    let (known, variable) = match scheme {
        "ami" | "amis" | "ws" | "wss" => (COMMON_KEYS, "CALLBRIDGE_AMI_SECRET"),
        "esl" => (ESL_KEYS, "CALLBRIDGE_ESL_SECRET"),
        "amqp" | "amqps" => (AMQP_KEYS, "CALLBRIDGE_AMQP_SECRET"),
        "file" => (FILE_KEYS, "CALLBRIDGE_AMI_SECRET"),
        other => {
            return Err(vec![UrlFault::Scheme {
                scheme: other.to_owned(),
                url: shown,
                known: SCHEMES,
            }]);
        }
    };
    let mut faults = Vec::new();
    let front = Front {
        shown: &shown,
        url: &url,
        other_hosts: &other_hosts,
        variable,
    };
    front.check_password(&mut faults);
    if url.fragment().is_some() {
        faults.push(front.needless("the part after #", "write %23 for a # in a name"));
    }
    let query = url.query().unwrap_or_default();
    let mut keys = Keys::read(&shown, scheme, known, query, &mut faults);
    let pbx = keys.take("pbx");
    let secret_file = keys.take("secret-file").map(PathBuf::from);
    let ca_file = keys.take("ca-file").map(PathBuf::from);
    let transport = transport(scheme, &front, &mut keys, &mut faults);
    if transport.format().tells_whole_calls() && pbx.is_some() {
        faults.push(front.needless(
            "pbx=",
            "each message of format=call says its own PBX: remove it",
        ));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(SourceUrl {
        shown,
        transport,
        pbx,
        secret_file,
        ca_file,
    })
}

/// How it is reached.
fn transport(
    scheme: &str,
    front: &Front<'_>,
    keys: &mut Keys<'_>,
    faults: &mut Vec<UrlFault>,
) -> Transport {
    match scheme {
        "ami" | "amis" => {
            let tls = scheme == "amis";
            if !matches!(front.url.path(), "" | "/") {
                faults.push(front.needless("the path", "end after HOST:PORT"));
            }
            Transport::Ami {
                endpoint: front.endpoint(tls, if tls { 5039 } else { 5038 }, faults),
                user: front.user(faults),
            }
        }
        "esl" => event_socket(front, keys, faults),
        "ws" | "wss" => {
            let tls = scheme == "wss";
            if !front.url.username().is_empty() {
                faults.push(front.needless("the user", "the gateway asks for none: remove it"));
            }
            Transport::WebSocket {
                endpoint: front.endpoint(tls, if tls { 443 } else { 80 }, faults),
                path: front.url.path().to_owned(),
            }
        }
        "file" => file(front, keys, faults),
        _ => Transport::Amqp(queue_source(front, keys, faults)),
    }
}

/// Several hosts are a broker's alone.
fn hosts(text: &str) -> (String, Vec<String>) {
    match text.starts_with("amqp") {
        true => split_hosts(text),
        false => (text.to_owned(), Vec::new()),
    }
}

/// A broker's URL that is written to, whatever it names there.
struct BrokerTarget {
    shown: String,
    url: Url,
    other_hosts: Vec<String>,
}

impl BrokerTarget {
    fn read(text: &str, example: &'static str) -> Result<Self, Vec<UrlFault>> {
        let shown = masked(text);
        let (text, other_hosts) = hosts(text);
        let url = url(&shown, &text, example)?;
        if !matches!(url.scheme(), "amqp" | "amqps") {
            return Err(vec![UrlFault::Scheme {
                scheme: url.scheme().to_owned(),
                url: shown,
                known: "amqp://, amqps://",
            }]);
        }
        Ok(Self {
            shown,
            url,
            other_hosts,
        })
    }

    fn front(&self, variable: &'static str, faults: &mut Vec<UrlFault>) -> Front<'_> {
        let front = Front {
            shown: &self.shown,
            url: &self.url,
            other_hosts: &self.other_hosts,
            variable,
        };
        front.check_password(faults);
        front
    }

    fn keys(&self, known: &[&str], faults: &mut Vec<UrlFault>) -> Keys<'_> {
        let query = self.url.query().unwrap_or_default();
        Keys::read(&self.shown, self.url.scheme(), known, query, faults)
    }
}

/// Reads a `--dead-letter-queue`.
pub(super) fn queue(text: &str) -> Result<QueueUrl, Vec<UrlFault>> {
    let target = BrokerTarget::read(text, QUEUE_EXAMPLE)?;
    let mut faults = Vec::new();
    let front = target.front("CALLBRIDGE_DEAD_LETTER_SECRET", &mut faults);
    let mut keys = target.keys(QUEUE_KEYS, &mut faults);
    let broker = broker(&front, &mut keys, &mut faults);
    let (queue, _) = queue_or_stream(&front, &mut keys, &mut faults);
    let secret_file = keys.take("secret-file").map(PathBuf::from);
    let ca_file = keys.take("ca-file").map(PathBuf::from);
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(QueueUrl {
        shown: target.shown,
        broker,
        queue,
        secret_file,
        ca_file,
    })
}

/// Reads a `--forward`.
pub(super) fn forward(text: &str) -> Result<StreamUrl, Vec<UrlFault>> {
    let target = BrokerTarget::read(text, STREAM_EXAMPLE)?;
    let mut faults = Vec::new();
    let front = target.front("CALLBRIDGE_AMQP_SECRET", &mut faults);
    let mut keys = target.keys(STREAM_KEYS, &mut faults);
    let broker = broker(&front, &mut keys, &mut faults);
    let stream = stream(&front, &mut keys, &mut faults);
    let words = [("yes", true), ("no", false)];
    let declare = keys.word("declare", &words, "yes or no", &mut faults);
    let exchange = keys.take("exchange").filter(|it| it != DEFAULT_EXCHANGE);
    if exchange.is_some() && declare == Some(true) {
        let cure = "nothing would bind the stream to the exchange: remove it, and make both as \
                    deploy/rabbitmq/fleet.json has them";
        faults.push(front.needless("declare=yes beside exchange=", cure));
    }
    let secret_file = keys.take("secret-file").map(PathBuf::from);
    let ca_file = keys.take("ca-file").map(PathBuf::from);
    if !faults.is_empty() {
        return Err(faults);
    }
    Ok(StreamUrl {
        shown: target.shown,
        broker,
        stream,
        exchange,
        declare: declare == Some(true),
        secret_file,
        ca_file,
    })
}

fn event_socket(front: &Front<'_>, keys: &mut Keys<'_>, faults: &mut Vec<UrlFault>) -> Transport {
    if !matches!(front.url.path(), "" | "/") {
        faults.push(front.needless("the path", "end after HOST:PORT"));
    }
    if !front.url.username().is_empty() {
        let cure = "the event socket knows a password alone: remove it";
        faults.push(front.needless("the user", cure));
    }
    let endpoint = front.endpoint(false, 8021, faults);
    let words = [("yes", true), ("no", false)];
    let clear = keys.word("clear", &words, "yes or no", faults);
    if endpoint.is_clear() && !endpoint.host.is_empty() && clear != Some(true) {
        faults.push(UrlFault::Clear {
            url: front.shown.to_owned(),
            host: endpoint.host.clone(),
        });
    }
    Transport::Esl { endpoint }
}

fn queue_source(front: &Front<'_>, keys: &mut Keys<'_>, faults: &mut Vec<UrlFault>) -> QueueSource {
    let broker = broker(front, keys, faults);
    let (queue, is_stream) = queue_or_stream(front, keys, faults);
    let formats = [
        Format::CelAmqp,
        Format::CdrAmqp,
        Format::Wazo,
        Format::Freeswitch,
        Format::Call,
    ];
    let format = format(front, keys, &formats, QUEUE_FORMATS, faults);
    let words = [("yes", true), ("no", false)];
    let declare = keys.word("declare", &words, "yes or no", faults);
    let exchange = keys.take("exchange");
    let bind = keys.take("bind");
    if exchange.is_some() && declare != Some(true) {
        let cure = "exchange= binds a queue of our own, and nothing is declared without \
                    declare=yes; add it, or remove exchange=";
        faults.push(front.missing("declare=yes", cure));
    }
    if bind.is_some() && exchange.is_none() {
        faults.push(front.missing("exchange=", "name what bind= binds to, or remove bind="));
    }
    if is_stream && exchange.is_some() {
        let cure = "a stream is published to by its name; bind it by hand where it is not";
        faults.push(front.needless("exchange=", cure));
    }
    QueueSource {
        broker,
        queue,
        is_stream,
        format,
        declare: declare == Some(true),
        exchange,
        bind,
    }
}

/// The `format=` key; a fault stands for the value when there is none.
fn format(
    front: &Front<'_>,
    keys: &mut Keys<'_>,
    formats: &[Format],
    allowed: &'static str,
    faults: &mut Vec<UrlFault>,
) -> Format {
    let before = faults.len();
    let words: Vec<_> = formats.iter().map(|f| (f.name(), *f)).collect();
    let found = keys.word("format", &words, allowed, faults);
    if found.is_none() && faults.len() == before {
        faults.push(front.missing("format=", format!("give {allowed}")));
    }
    found.unwrap_or(formats[0])
}

fn file(front: &Front<'_>, keys: &mut Keys<'_>, faults: &mut Vec<UrlFault>) -> Transport {
    let path = PathBuf::from(decoded(front.url.path()));
    if front.url.host_str().is_some_and(|host| !host.is_empty()) {
        faults.push(front.needless("the host", "write file:///PATH with three slashes"));
    }
    if path == Path::new("/") || path.as_os_str().is_empty() {
        faults.push(front.missing("the path", "write file:///PATH"));
    }
    #[rustfmt::skip]
    let formats = [
        Format::Ami, Format::AmiJson, Format::CelCsv, Format::CdrCsv, Format::Freeswitch,
        Format::FreeswitchCdr, Format::Call,
    ];
    let format = format(front, keys, &formats, FILE_FORMATS, faults);
    let from = match keys.take("from") {
        None => From::End,
        Some(text) if text == "end" => From::End,
        Some(text) if text == "start" => From::Start,
        Some(text) => moment(&text).map_or_else(
            || {
                let allowed = "end, start, or a date like 2026-11-20 or 2026-11-20T08:00:00+05:00";
                faults.push(keys.fault("from", text.clone(), allowed));
                From::End
            },
            From::Since,
        ),
    };
    Transport::File { path, format, from }
}

fn moment(text: &str) -> Option<UrlDate> {
    if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
        let time = EventTime::from_micros(timestamp.as_microsecond());
        return Some(UrlDate::Absolute(time));
    }
    let local = text.parse::<jiff::civil::DateTime>().ok();
    let date = text.parse::<jiff::civil::Date>().ok();
    let local = local.or(date.map(|date| date.at(0, 0, 0, 0)))?;
    Some(UrlDate::Local(local))
}
