//! Rejects requests that a foreign web page makes a browser send.
//!
//! A page on any site can make its visitor's browser send requests to this machine. Three rules
//! prevent that before a listener sees the request:
//!
//! | rule | prevents |
//! |---|---|
//! | on loopback, `Host` is an IP address, `localhost`, or a known name | DNS rebinding |
//! | `Origin` is the listener's own origin | scripts and forms on other sites |
//! | `Sec-Fetch-Site` isn't `cross-site` | images, frames, links, and scripts on other sites |
//!
//! Programs (a PBX, Prometheus, `curl`) send neither `Origin` nor `Sec-Fetch-Site`.

use hyper::header::{HOST, ORIGIN};
use hyper::{HeaderMap, Method, Request, StatusCode, Version};
use std::net::IpAddr;

/// The hostnames that a loopback listener responds to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRule {
    /// IP addresses and `localhost`.
    Local,
    /// Any name, because the listener checks names itself or verifies each request by its
    /// signature.
    Any,
}

/// A listener's rules for requests from browsers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRules {
    /// The names accepted on a loopback address.
    pub hosts: HostRule,
    /// Whether the listener is behind a proxy, which may forward the `Host` header without its
    /// port.
    pub behind_proxy: bool,
    /// Whether links and redirects from other sites are accepted (a `GET` that loads a whole page).
    pub navigation: bool,
}

impl SiteRules {
    /// Rules for listeners that are only used by programs and local tools.
    pub const STRICT: Self = Self {
        hosts: HostRule::Local,
        behind_proxy: false,
        navigation: false,
    };

    /// Returns why a request must be rejected, if it must. `is_loopback` means that the listener's
    /// address is on loopback.
    pub fn refusal<B>(&self, request: &Request<B>, is_loopback: bool) -> Option<SiteRefusal> {
        if is_loopback && self.hosts == HostRule::Local && !is_local_host(request) {
            return Some(SiteRefusal::Host);
        }
        let headers = request.headers();
        if !self.accepts_origin(headers) {
            return Some(SiteRefusal::Origin);
        }
        if is_cross_site(headers) && !(self.navigation && is_navigation(request)) {
            return Some(SiteRefusal::CrossSite);
        }
        None
    }

    fn accepts_origin(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(ORIGIN).into_iter();
        let Some(origin) = origins.next() else {
            return true;
        };
        let (Ok(origin), None) = (origin.to_str(), origins.next()) else {
            return false;
        };
        if origin == "null" {
            // A browser may hide the origin of our own form, in which case `Sec-Fetch-Site` is
            // `same-origin`.
            return only_value(headers, FETCH_SITE) == Some("same-origin");
        }
        let host = only_value(headers, HOST.as_str()).unwrap_or_default();
        self.is_own_origin(origin, host)
    }

    fn is_own_origin(&self, origin: &str, host: &str) -> bool {
        let Some((scheme, authority)) = origin.split_once("://") else {
            return false;
        };
        let default_port = match scheme {
            "http" => "80",
            "https" => "443",
            _ => return false,
        };
        let (Some(origin), Some(host)) = (HostPort::read(authority), HostPort::read(host)) else {
            return false;
        };
        let same_port = origin.port.unwrap_or(default_port) == host.port.unwrap_or(default_port);
        origin.name.eq_ignore_ascii_case(host.name) && (same_port || self.behind_proxy)
    }
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteRefusal {
    /// The host is neither an IP address nor `localhost`.
    Host,
    /// The request comes from a page with a different origin.
    Origin,
    /// According to the browser, the request was caused by another site.
    CrossSite,
}

impl SiteRefusal {
    /// The status of the response.
    pub const STATUS: StatusCode = StatusCode::FORBIDDEN;

    /// Returns the message in the response, which says what was rejected and what to do.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Host => {
                "Nothing was done: this address answers only if Host is an IP address or \
                 localhost. Use one of these in the URL. A proxy must send its own Host, not the \
                 browser's.\n"
            }
            Self::Origin => {
                "Nothing was done: a page of another origin sent this request (Origin header).\n"
            }
            Self::CrossSite => {
                "Nothing was done: another site caused this request (Sec-Fetch-Site: cross-site). \
                 Type or paste the address into the browser instead.\n"
            }
        }
    }
}

const FETCH_SITE: &str = "sec-fetch-site";
const FETCH_MODE: &str = "sec-fetch-mode";
const FETCH_DEST: &str = "sec-fetch-dest";

/// Returns the value of a header that appears exactly once, or `None` if it's missing, repeated, or
/// not text.
fn only_value<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next()?;
    if values.next().is_some() {
        return None;
    }
    value.to_str().ok()
}

fn is_cross_site(headers: &HeaderMap) -> bool {
    for value in headers.get_all(FETCH_SITE) {
        if value
            .as_bytes()
            .trim_ascii()
            .eq_ignore_ascii_case(b"cross-site")
        {
            return true;
        }
    }
    false
}

/// Returns `true` if the browser is loading a whole page because of a link or a redirect.
fn is_navigation<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is_document = matches!(only_value(headers, FETCH_DEST), None | Some("document"));
    request.method() == Method::GET
        && only_value(headers, FETCH_MODE) == Some("navigate")
        && is_document
}

/// Returns `true` if every host in the request is local. Since browsers always send `Host`, it may
/// be missing in a request from a program that uses HTTP/1.0.
fn is_local_host<B>(request: &Request<B>) -> bool {
    if let Some(authority) = request.uri().authority()
        && !is_local_name(authority.as_str())
    {
        return false;
    }
    let headers = request.headers();
    match only_value(headers, HOST.as_str()) {
        Some(host) => is_local_name(host),
        None => !headers.contains_key(HOST) && request.version() == Version::HTTP_10,
    }
}

fn is_local_name(authority: &str) -> bool {
    let Some(HostPort { name, .. }) = HostPort::read(authority) else {
        return false;
    };
    if let Some(inner) = name.strip_prefix('[') {
        let inner = inner.strip_suffix(']').unwrap_or_default();
        return inner.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv6());
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_ip = name.parse::<IpAddr>().is_ok_and(|ip| ip.is_ipv4());
    is_ip || name.eq_ignore_ascii_case("localhost")
}

/// A host and its port, as in a `Host` header. IPv6 addresses keep their brackets.
struct HostPort<'a> {
    name: &'a str,
    port: Option<&'a str>,
}

impl<'a> HostPort<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let end = if text.starts_with('[') {
            text.find(']')? + 1
        } else {
            text.find(':').unwrap_or(text.len())
        };
        let (name, rest) = text.split_at(end);
        let port = match rest.strip_prefix(':') {
            Some("") => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(digits),
            None if rest.is_empty() => None,
            Some(_) | None => return None,
        };
        Some(Self { name, port })
    }
}

#[cfg(test)]
#[path = "site_tests.rs"]
mod tests;
