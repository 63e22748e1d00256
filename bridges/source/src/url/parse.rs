//! Parses a URL, returning either the checked URL or all of its errors.

use super::{Broker, BrokerUrl, Format, From, QueueSource, SourceUrl, TcpEndpoint, Transport};
use super::{UrlDate, UrlFault, decode};
use crate::EventTime;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use url::Url;

const SCHEMES: &str = "ami://, amis://, esl://, ws://, wss://, amqp://, amqps://, file:///";
const SOURCE_EXAMPLE: &str = "for instance ami://USER@HOST:5038 or ws://HOST:8000/";
const QUEUE_EXAMPLE: &str = "for instance amqp://USER@HOST/VHOST?queue=Q";
/// Default number of seconds between two heartbeats, with which a dead connection is noticed after
/// 30 seconds.
const HEARTBEAT: u16 = 15;
/// Maximum number of hosts for a broker. No client needs to know more of a cluster's nodes.
const HOSTS_MAX: usize = 16;

const AMI_SECRET: &str = "CALLBRIDGE_AMI_SECRET";
const ESL_SECRET: &str = "CALLBRIDGE_ESL_SECRET";
const AMQP_SECRET: &str = "CALLBRIDGE_AMQP_SECRET";

/// A URL's allowed keys, as listed in errors (`pbx=, ca-file=`).
const LINE_KEYS: &str = "pbx=, secret-file=, ca-file=";
const ESL_KEYS: &str = "clear=, pbx=, secret-file=";
const FILE_KEYS: &str = "format=, from=, pbx=, secret-file=, ca-file=";
const AMQP_KEYS: &str = "queue=, format=, exchange=, bind=, declare=, heartbeat=, pbx=, \
                         secret-file=, ca-file=";
const QUEUE_KEYS: &str = "queue=, waiting=, heartbeat=, secret-file=, ca-file=";

#[rustfmt::skip]
const FILE_FORMATS: [Format; 7] = [
    Format::Ami, Format::AmiJson, Format::CelCsv, Format::CdrCsv, Format::Freeswitch,
    Format::FreeswitchCdr, Format::Call,
];
#[rustfmt::skip]
const QUEUE_FORMATS: [Format; 5] = [
    Format::CelAmqp, Format::CdrAmqp, Format::Wazo, Format::Freeswitch, Format::Call,
];

/// Joins the names of formats for an error, as in `ami, ami-json or call`.
fn list_formats(formats: &[Format]) -> String {
    let names: Vec<&str> = formats.iter().map(|format| format.name()).collect();
    match names.split_last() {
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => String::new(),
    }
}

impl SourceUrl {
    /// Parses the value of a `--source` flag, without opening anything.
    ///
    /// # Errors
    /// Returns all errors in the value, each as a full sentence with its fix.
    pub fn parse(text: &str) -> Result<Self, Vec<UrlFault>> {
        let mut url = UrlReader::new(text, SOURCE_EXAMPLE)?;
        type Read = fn(&mut UrlReader) -> Transport;
        let (known, variable, read): (_, _, Read) = match url.url.scheme() {
            "ami" => (LINE_KEYS, AMI_SECRET, |url| url.ami(false, 5038)),
            "amis" => (LINE_KEYS, AMI_SECRET, |url| url.ami(true, 5039)),
            "esl" => (ESL_KEYS, ESL_SECRET, UrlReader::event_socket),
            "ws" => (LINE_KEYS, AMI_SECRET, |url| url.web_socket(false, 80)),
            "wss" => (LINE_KEYS, AMI_SECRET, |url| url.web_socket(true, 443)),
            "amqp" | "amqps" => (AMQP_KEYS, AMQP_SECRET, UrlReader::queue_source),
            "file" => (FILE_KEYS, AMI_SECRET, UrlReader::file),
            _ => return Err(url.unknown_scheme(SCHEMES)),
        };
        url.check_password(variable);
        if url.url.fragment().is_some() {
            url.add_needless("the part after #", "write %23 for a # in a name");
        }
        url.read_keys(known);
        let pbx = url.take("pbx");
        let secret_file = url.take_path("secret-file");
        let ca_file = url.take_path("ca-file");
        let transport = read(&mut url);
        if transport.format().carries_whole_calls() && pbx.is_some() {
            url.add_needless(
                "pbx=",
                "each message of format=call names its own PBX: remove it",
            );
        }
        Ok(SourceUrl {
            shown: url.finish()?,
            transport,
            pbx,
            secret_file,
            ca_file,
        })
    }
}

impl BrokerUrl {
    /// Parses the value of `--dead-letter-queue`, without opening anything.
    ///
    /// # Errors
    /// Returns all errors in the value, each as a full sentence with its fix.
    pub fn queue(text: &str) -> Result<Self, Vec<UrlFault>> {
        let variable = "CALLBRIDGE_DEAD_LETTER_SECRET";
        let url = UrlReader::new(text, QUEUE_EXAMPLE)?;
        url.read_queue_url(QUEUE_KEYS, variable)
    }
}

/// A URL whose parts are taken one by one while its errors are collected.
struct UrlReader {
    /// The URL as given, with its password masked.
    shown: String,
    url: Url,
    /// A broker's hosts, except for the first one.
    other_hosts: Vec<String>,
    /// Keys after the question mark that haven't been taken yet.
    keys: BTreeMap<String, String>,
    errors: Vec<UrlFault>,
}

impl UrlReader {
    fn new(text: &str, example: &'static str) -> Result<Self, Vec<UrlFault>> {
        let shown = mask_password(text);
        // Only a broker can have several hosts.
        let (text, other_hosts) = if text.starts_with("amqp") {
            split_hosts(text)
        } else {
            (text.to_owned(), Vec::new())
        };
        let url = Url::parse(&text).map_err(|why| {
            vec![UrlFault {
                url: shown.clone(),
                message: format!("not a URL ({why}); give {example}"),
            }]
        })?;
        Ok(Self {
            shown,
            url,
            other_hosts,
            keys: BTreeMap::new(),
            errors: Vec::new(),
        })
    }

    fn unknown_scheme(mut self, known: &str) -> Vec<UrlFault> {
        let scheme = self.url.scheme();
        self.add_error(format!("unknown scheme {scheme}; give one of {known}"));
        self.errors
    }

    fn add_error(&mut self, message: String) {
        let url = self.shown.clone();
        self.errors.push(UrlFault { url, message });
    }

    fn add_missing(&mut self, part: &str, fix: &str) {
        self.add_error(format!("{part} is missing; {fix}"));
    }

    fn add_needless(&mut self, part: &str, fix: &str) {
        self.add_error(format!("{part} has no meaning here; {fix}"));
    }

    fn add_invalid(&mut self, key: &str, value: &str, allowed: &str) {
        self.add_error(format!("{key}={value} is invalid; give {allowed}"));
    }

    /// Returns the URL with its password masked, or all errors found in it.
    fn finish(self) -> Result<String, Vec<UrlFault>> {
        if self.errors.is_empty() {
            Ok(self.shown)
        } else {
            Err(self.errors)
        }
    }

    /// Rejects a password in the URL, because every user on the machine could read it.
    fn check_password(&mut self, variable: &str) {
        if self.url.password().is_some() {
            self.add_error(format!(
                "a password in the URL can be read by every user of this machine; remove it and \
                 give secret-file=PATH or {variable}"
            ));
        }
    }

    /// Splits the query. Keys that aren't in `known` and duplicate keys are errors.
    fn read_keys(&mut self, known: &str) {
        let query = self.url.query().unwrap_or_default().to_owned();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = decode(key);
            let value = decode(value);
            let mut known_keys = known.split(", ");
            if !known_keys.any(|known_key| known_key.strip_suffix('=') == Some(&key)) {
                let scheme = self.url.scheme();
                self.add_error(format!("unknown key {key}=; {scheme}:// takes {known}"));
            } else if value.is_empty() {
                let fix = format!("write {key}=VALUE, or leave {key} out");
                self.add_missing("a value", &fix);
            } else if self.keys.insert(key.clone(), value).is_some() {
                self.add_error(format!("{key}= is given twice; keep one"));
            }
        }
    }

    fn take(&mut self, key: &str) -> Option<String> {
        self.keys.remove(key)
    }

    fn take_path(&mut self, key: &str) -> Option<PathBuf> {
        self.take(key).map(PathBuf::from)
    }

    /// Parses a value with `read`, adding an error if that fails.
    fn value<T>(
        &mut self,
        key: &str,
        allowed: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.take(key)?;
        let value = read(&text);
        if value.is_none() {
            self.add_invalid(key, &text, allowed);
        }
        value
    }

    /// Parses `yes` or `no`, returning `false` if the key is missing.
    fn is_yes(&mut self, key: &str) -> bool {
        let answer = self.value(key, "yes or no", |text| match text {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        });
        answer == Some(true)
    }

    /// Parses the `format=` key, adding an error if it's missing.
    fn format(&mut self, formats: &[Format]) -> Format {
        let before = self.errors.len();
        let allowed = list_formats(formats);
        let found = self.value("format", &allowed, |text| {
            formats.iter().copied().find(|format| format.name() == text)
        });
        if found.is_none() && self.errors.len() == before {
            self.add_missing("format=", &format!("give {allowed}"));
        }
        found.unwrap_or(Format::Ami)
    }

    fn endpoint(&mut self, tls: bool, port: u16) -> TcpEndpoint {
        if self.url.host_str().unwrap_or_default().is_empty() {
            self.add_missing("the host", "write it after ://");
        }
        endpoint_of(&self.url, tls, port)
    }

    fn user(&mut self) -> String {
        let user = decode(self.url.username());
        if user.is_empty() {
            let fix = format!("write {}://USER@HOST", self.url.scheme());
            self.add_missing("the user", &fix);
        }
        user
    }

    fn check_no_user(&mut self, fix: &str) {
        if !self.url.username().is_empty() {
            self.add_needless("the user", fix);
        }
    }

    fn check_no_path(&mut self) {
        if !matches!(self.url.path(), "" | "/") {
            self.add_needless("the path", "end the URL after HOST:PORT");
        }
    }

    fn ami(&mut self, tls: bool, port: u16) -> Transport {
        self.check_no_path();
        let endpoint = self.endpoint(tls, port);
        let user = self.user();
        Transport::Ami { endpoint, user }
    }

    fn web_socket(&mut self, tls: bool, port: u16) -> Transport {
        self.check_no_user("the gateway needs no user: remove it");
        let endpoint = self.endpoint(tls, port);
        let path = self.url.path().to_owned();
        Transport::WebSocket { endpoint, path }
    }

    fn event_socket(&mut self) -> Transport {
        self.check_no_path();
        self.check_no_user("the event socket has a password and no user: remove it");
        let endpoint = self.endpoint(false, 8021);
        let clear = self.is_yes("clear");
        if endpoint.is_clear() && !endpoint.host.is_empty() && !clear {
            let host = &endpoint.host;
            self.add_error(format!(
                "the event socket has no TLS, and its password would cross the network to {host} \
                 in the clear; add clear=yes if that network is protected (a VPN), or forward the \
                 port to this machine (ssh -L 8021:127.0.0.1:8021 {host}) and give \
                 esl://127.0.0.1"
            ));
        }
        Transport::Esl { endpoint }
    }

    fn file(&mut self) -> Transport {
        let path = PathBuf::from(decode(self.url.path()));
        if self.url.host_str().is_some_and(|host| !host.is_empty()) {
            self.add_needless("the host", "write file:///PATH with three slashes");
        }
        if path == Path::new("/") || path.as_os_str().is_empty() {
            self.add_missing("the path", "write file:///PATH");
        }
        let format = self.format(&FILE_FORMATS);
        let allowed = "end, start, or a date like 2026-11-20 or 2026-11-20T08:00:00+05:00";
        let from = self.value("from", allowed, |text| match text {
            "end" => Some(From::End),
            "start" => Some(From::Start),
            date => moment(date).map(From::Since),
        });
        let from = from.unwrap_or(From::End);
        Transport::File { path, format, from }
    }

    /// Parses the broker, without the queue.
    fn broker(&mut self) -> Broker {
        let tls = self.url.scheme() == "amqps";
        let port = if tls { 5671 } else { 5672 };
        let path = self.url.path();
        let vhost = decode(path.strip_prefix('/').unwrap_or(path));
        let allowed = "2 to 25 (seconds), to notice a dead connection in a minute";
        let heartbeat = self.value("heartbeat", allowed, |text| {
            let seconds = text.parse().ok();
            seconds.filter(|seconds| (2..=25).contains(seconds))
        });
        let mut others = Vec::new();
        for host in std::mem::take(&mut self.other_hosts) {
            match other_endpoint(&host, tls, port) {
                Some(found) if others.len() < HOSTS_MAX => others.push(found),
                Some(_) | None => {
                    let fix = "write HOST or HOST:PORT between the commas, at most 16 of them";
                    self.add_missing("a host", fix);
                }
            }
        }
        Broker {
            endpoint: self.endpoint(tls, port),
            others,
            user: self.user(),
            vhost: if vhost.is_empty() {
                "/".to_owned()
            } else {
                vhost
            },
            heartbeat: heartbeat.unwrap_or(HEARTBEAT),
        }
    }

    fn queue_name(&mut self) -> String {
        let name = self.take("queue").unwrap_or_default();
        if name.is_empty() {
            self.add_missing("queue=", "name the durable queue: queue=NAME");
        }
        if name.len() > 255 {
            self.add_invalid("queue", &name, "a name of at most 255 bytes");
        }
        name
    }

    fn queue_source(&mut self) -> Transport {
        let broker = self.broker();
        let queue = self.queue_name();
        let format = self.format(&QUEUE_FORMATS);
        let declare = self.is_yes("declare");
        let exchange = self.take("exchange");
        let bind = self.take("bind");
        if exchange.is_some() && !declare {
            let fix = "exchange= binds a queue that callbridge declares, and it declares none \
                       without declare=yes; add it, or remove exchange=";
            self.add_missing("declare=yes", fix);
        }
        if bind.is_some() && exchange.is_none() {
            self.add_missing(
                "exchange=",
                "name the exchange that bind= binds to, or remove bind=",
            );
        }
        Transport::Amqp(QueueSource {
            broker,
            queue,
            format,
            declare,
            exchange,
            bind,
        })
    }

    /// Parses the URL of a queue to publish to.
    fn read_queue_url(mut self, known: &str, variable: &str) -> Result<BrokerUrl, Vec<UrlFault>> {
        if !matches!(self.url.scheme(), "amqp" | "amqps") {
            return Err(self.unknown_scheme("amqp://, amqps://"));
        }
        self.check_password(variable);
        self.read_keys(known);
        let broker = self.broker();
        let name = self.queue_name();
        let waiting = self.is_yes("waiting");
        let secret_file = self.take_path("secret-file");
        let ca_file = self.take_path("ca-file");
        Ok(BrokerUrl {
            shown: self.finish()?,
            broker,
            name,
            waiting,
            secret_file,
            ca_file,
        })
    }
}

/// Masks a password in `text`, which doesn't have to be a valid URL.
fn mask_password(text: &str) -> String {
    let Some(start) = text.find("://").map(|at| at + 3) else {
        return text.to_owned();
    };
    // Search up to the last `@` before the query, because a password may contain a slash or an `@`.
    let end = text.find('?').unwrap_or(text.len()).max(start);
    let Some(at) = text[start..end].rfind('@').map(|at| at + start) else {
        return text.to_owned();
    };
    match text[start..at].find(':') {
        Some(colon) => format!("{}:***{}", &text[..start + colon], &text[at..]),
        None => text.to_owned(),
    }
}

/// Splits `amqp://USER@H1,H2:5673/V` into a URL with the first host, and the other hosts.
fn split_hosts(text: &str) -> (String, Vec<String>) {
    let start = text.find("://").map_or(text.len(), |at| at + 3);
    let rest = &text[start..];
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let hosts = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let (first, others) = match rest[hosts..end].split_once(',') {
        Some((first, others)) => (first, others.split(',').map(str::to_owned).collect()),
        None => (&rest[hosts..end], Vec::new()),
    };
    let front = &text[..start + hosts];
    (format!("{front}{first}{}", &rest[end..]), others)
}

/// Parses one of the hosts after the first, such as `host` or `host:5673`, or returns `None` if the
/// text isn't a host. `port` is the default port.
fn other_endpoint(text: &str, tls: bool, port: u16) -> Option<TcpEndpoint> {
    let url = Url::parse(&format!("amqp://{text}")).ok()?;
    let plain = url.path().is_empty() && url.username().is_empty() && url.query().is_none();
    url.host_str().filter(|host| plain && !host.is_empty())?;
    Some(endpoint_of(&url, tls, port))
}

fn endpoint_of(url: &Url, tls: bool, port: u16) -> TcpEndpoint {
    let text = url.host_str().unwrap_or_default();
    let inner = text.strip_prefix('[').unwrap_or(text);
    TcpEndpoint {
        host: decode(inner.strip_suffix(']').unwrap_or(inner)),
        port: url.port().unwrap_or(port),
        tls,
    }
}

fn moment(text: &str) -> Option<UrlDate> {
    if let Ok(timestamp) = text.parse::<jiff::Timestamp>() {
        let time = EventTime::from_micros(timestamp.as_microsecond());
        return Some(UrlDate::Absolute(time));
    }
    if let Ok(local) = text.parse::<jiff::civil::DateTime>() {
        return Some(UrlDate::Local(local));
    }
    let date = text.parse::<jiff::civil::Date>().ok()?;
    Some(UrlDate::Local(date.at(0, 0, 0, 0)))
}
