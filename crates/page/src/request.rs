//! The parts of a request that the page reads, which are the path, the fields, and the cookies, and
//! the checks of its host and origin.

use crate::{backend::LetterQuery, settings::Settings};
use callbridge_listener::places::PeerGroup;
use callbridge_spool::RowId;
use hyper::{HeaderMap, Method, Uri, header};
use std::net::IpAddr;
use url::form_urlencoded;

/// Maximum number of fields in a form or a query. Any further ones are ignored.
const FIELDS_MAX: usize = 400;

/// The fields of a query or a form, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormFields(Vec<(String, String)>);

impl FormFields {
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let fields = form_urlencoded::parse(bytes).into_owned();
        Self(fields.take(FIELDS_MAX).collect())
    }

    /// Returns all fields except those with this name.
    pub(crate) fn without(&self, name: &str) -> Self {
        let others = self.0.iter().filter(|(known, _)| known != name);
        Self(others.cloned().collect())
    }

    /// Returns the first field with this name, trimmed, or `None` if it's empty or missing.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name)?;
        let value = found.1.trim();
        if value.is_empty() { None } else { Some(value) }
    }

    /// Returns an owned copy of the value from [`FormFields::get`].
    pub(crate) fn get_owned(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// Returns a field as it was typed, for showing it again.
    pub(crate) fn typed_value(&self, name: &str) -> String {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// Returns the dead letter IDs in the fields with this name.
    pub(crate) fn letters(&self, name: &str) -> Vec<RowId> {
        let values = self.0.iter().filter(|(known, _)| known == name);
        let ids = values.filter_map(|(_, value)| value.parse().ok());
        ids.map(RowId).collect()
    }

    /// Returns `true` if the form applies to all dead letters that match
    /// [`FormFields::letter_query`] rather than just the selected ones.
    pub(crate) fn all_letters(&self) -> bool {
        self.get("scope") == Some("all")
    }

    /// Returns a query for the reason and cause selected in the form.
    pub(crate) fn letter_query(&self) -> LetterQuery {
        LetterQuery {
            reason: self.get_owned("reason"),
            cause: self.get_owned("cause"),
            before: None,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Returns the form-encoded fields, as in `a=1&b=2`.
    pub(crate) fn encode(&self) -> String {
        let mut text = form_urlencoded::Serializer::new(String::new());
        text.extend_pairs(self.iter());
        text.finish()
    }
}

/// Returns `path?a=1&b=2`, without the values that are `None`.
pub(crate) fn link(path: &str, query: &[(&str, Option<&str>)]) -> String {
    let mut text = form_urlencoded::Serializer::new(String::new());
    for (name, value) in query {
        if let Some(value) = value {
            text.append_pair(name, value);
        }
    }
    let encoded = text.finish();
    if encoded.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{encoded}")
    }
}

/// A request whose query and form have been read.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) query: FormFields,
    pub(crate) form: FormFields,
    /// The address of the peer, or of the client according to a trusted proxy, as the group by
    /// which wrong passwords are counted.
    pub(crate) from: PeerGroup,
}

impl Asked {
    /// Returns a header as text, which is empty if it's missing or not text.
    pub(crate) fn header(&self, name: header::HeaderName) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    pub(crate) fn is_post(&self) -> bool {
        self.method == Method::POST
    }

    /// Returns all cookies with this name. A browser may send several, which were set for different
    /// paths.
    pub(crate) fn cookies<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let all = self.headers.get_all(header::COOKIE).into_iter();
        let texts = all.filter_map(|value| value.to_str().ok());
        let cookies = texts.flat_map(|text| text.split(';')).map(str::trim);
        cookies.filter_map(move |cookie| cookie.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the path and query as requested.
    pub(crate) fn target(&self) -> &str {
        match self.uri.path_and_query() {
            Some(target) => target.as_str(),
            None => "/",
        }
    }

    /// Returns the last address in `X-Forwarded-For`, which was added by the proxy. The addresses
    /// before it may have been written by the client itself.
    pub(crate) fn forwarded_address(headers: &HeaderMap) -> Option<IpAddr> {
        let value = headers.get_all("x-forwarded-for").into_iter().next_back()?;
        let last = value.to_str().ok()?.rsplit(',').next()?.trim();
        let bare = last.trim_start_matches('[').trim_end_matches(']');
        let ip = bare.parse().ok();
        ip.or_else(|| Some(last.parse::<std::net::SocketAddr>().ok()?.ip()))
    }
}

/// Returns `true` if the request is for one of the page's own hosts.
pub(crate) fn is_own_host(asked: &Asked, settings: &Settings) -> bool {
    let mut hosts = asked.headers.get_all(header::HOST).into_iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let named = host.is_some_and(|host| settings.allows_host(without_port(host)));
    // A request such as `GET http://host/ HTTP/1.1` also contains a host.
    let mut target = asked.uri.host().into_iter();
    named && target.all(|host| settings.allows_host(host)) && hosts.next().is_none()
}

/// Checks that a POST was sent by one of this page's forms. The browser must send `Origin` or
/// `Sec-Fetch-Site`, and it must match the page. The error is the key of the message to show.
pub(crate) fn check_origin(asked: &Asked, settings: &Settings) -> Result<(), &'static str> {
    let origin = sent_header(&asked.headers, "origin");
    let site = sent_header(&asked.headers, "sec-fetch-site");
    let own = match (origin, site) {
        (None, None) => return Err("problem.no_origin.words"),
        (_, Some(site)) if site != "same-origin" => false,
        // A browser that hides the origin sends `null`, in which case `Sec-Fetch-Site` decides.
        (None | Some("null"), Some(_)) => true,
        (Some(origin), site) => {
            is_own(origin, asked.header(header::HOST), settings, site.is_some())
        }
    };
    if own {
        Ok(())
    } else {
        Err("problem.origin.words")
    }
}

/// Returns a header as text, which is empty if it isn't text, or `None` if it wasn't sent.
fn sent_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get(name)?;
    Some(value.to_str().unwrap_or_default())
}

fn is_own(origin: &str, host: &str, settings: &Settings, same_origin: bool) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    // Browsers may use plain HTTP to the proxy, which is up to the proxy.
    let scheme_fits = scheme == settings.scheme() || settings.is_behind_proxy();
    if !scheme_fits || !authority.is_ascii() {
        return false;
    }
    let own = authority.eq_ignore_ascii_case(host);
    // Some proxies forward the host without its port, in which case only `Sec-Fetch-Site` can tell
    // ports apart.
    let but_for_port = settings.is_behind_proxy()
        && same_origin
        && without_port(authority).eq_ignore_ascii_case(without_port(host));
    (own || but_for_port) && settings.allows_host(without_port(authority))
}

fn without_port(host: &str) -> &str {
    if host.starts_with('[') {
        let ip = host.split_once(']');
        return ip.map_or(host, |(ip, _)| &host[..=ip.len()]);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

/// Returns a path on this page to continue to, or `/` if the path leads elsewhere.
pub(crate) fn local_path(path: &str) -> &str {
    let inside = path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if inside { path } else { "/" }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
