//! The parts of a request that the page reads: path, fields, cookies, and the checks of its host
//! and origin.

use crate::{backend::LetterQuery, settings::Settings};
use callbridge_listener::places::PeerGroup;
use callbridge_spool::RowId;
use hyper::{HeaderMap, Method, Uri, header};
use std::net::IpAddr;
use url::form_urlencoded;

/// Maximum fields of a form or a query. Further fields are ignored.
const FIELDS_MAX: usize = 400;

/// The fields of a query or a form, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FormFields(Vec<(String, String)>);

impl FormFields {
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let fields = form_urlencoded::parse(bytes).into_owned();
        Self(fields.take(FIELDS_MAX).collect())
    }

    /// Returns all fields except the fields with this name.
    pub(crate) fn without(&self, name: &str) -> Self {
        let others = self.0.iter().filter(|(known, _)| known != name);
        Self(others.cloned().collect())
    }

    /// Returns the first field with this name, trimmed. `None` if it is empty or missing.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name)?;
        let value = found.1.trim();
        if value.is_empty() { None } else { Some(value) }
    }

    /// Returns an owned copy of [`FormFields::get`].
    pub(crate) fn get_owned(&self, name: &str) -> Option<String> {
        self.get(name).map(str::to_owned)
    }

    /// Returns a field as it was typed, to show it again.
    pub(crate) fn typed_value(&self, name: &str) -> String {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone()).unwrap_or_default()
    }

    /// Returns the ids of the dead letters in the fields with this name.
    pub(crate) fn letters(&self, name: &str) -> Vec<RowId> {
        let values = self.0.iter().filter(|(known, _)| known == name);
        let ids = values.filter_map(|(_, value)| value.parse().ok());
        ids.map(RowId).collect()
    }

    /// Returns `true` if the form is about all dead letters of [`FormFields::letter_query`], not
    /// only about the chosen dead letters.
    pub(crate) fn all_letters(&self) -> bool {
        self.get("scope") == Some("all")
    }

    /// Returns the query for the reason and the cause in the fields.
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

    /// Returns the fields in the encoding of forms: `a=1&b=2`.
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

/// A request whose query and form were read.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) query: FormFields,
    pub(crate) form: FormFields,
    /// The address of the peer, or of the client that a trusted proxy names, as a group. Wrong
    /// passwords are counted by group.
    pub(crate) from: PeerGroup,
}

impl Asked {
    /// Returns a header as text. Empty if it is missing or not text.
    pub(crate) fn header(&self, name: header::HeaderName) -> &str {
        let value = self.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    }

    pub(crate) fn is_post(&self) -> bool {
        self.method == Method::POST
    }

    /// Returns all cookies with this name. A browser can send several, which were set for other
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

    /// Returns the last address of `X-Forwarded-For`, which the proxy added. The client itself can
    /// write the addresses before it.
    pub(crate) fn forwarded_address(headers: &HeaderMap) -> Option<IpAddr> {
        let value = headers.get_all("x-forwarded-for").into_iter().next_back()?;
        let last = value.to_str().ok()?.rsplit(',').next()?.trim();
        let bare = last.trim_start_matches('[').trim_end_matches(']');
        let ip = bare.parse().ok();
        ip.or_else(|| Some(last.parse::<std::net::SocketAddr>().ok()?.ip()))
    }
}

/// Returns `true` if the request uses one of the page's own hosts.
pub(crate) fn is_own_host(asked: &Asked, settings: &Settings) -> bool {
    let mut hosts = asked.headers.get_all(header::HOST).into_iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let named = host.is_some_and(|host| settings.allows_host(without_port(host)));
    // A request like `GET http://host/ HTTP/1.1` also contains a host.
    let mut target = asked.uri.host().into_iter();
    named && target.all(|host| settings.allows_host(host)) && hosts.next().is_none()
}

/// Checks that a POST was sent by a form of this page. The browser must send `Origin` or
/// `Sec-Fetch-Site`, and they must match the page. The error is the key of the refusal's text.
pub(crate) fn check_origin(asked: &Asked, settings: &Settings) -> Result<(), &'static str> {
    let origin = sent_header(&asked.headers, "origin");
    let site = sent_header(&asked.headers, "sec-fetch-site");
    let own = match (origin, site) {
        (None, None) => return Err("problem.no_origin.words"),
        (_, Some(site)) if site != "same-origin" => false,
        // A browser that hides the origin sends `null`. Then `Sec-Fetch-Site` decides.
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

/// Returns a header as text, empty if it is not text. `None` if it was not sent.
fn sent_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let value = headers.get(name)?;
    Some(value.to_str().unwrap_or_default())
}

fn is_own(origin: &str, host: &str, settings: &Settings, same_origin: bool) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    // Browsers can use plain HTTP to the proxy, which is the proxy's choice.
    let scheme_fits = scheme == settings.scheme() || settings.is_behind_proxy();
    if !scheme_fits || !authority.is_ascii() {
        return false;
    }
    let own = authority.eq_ignore_ascii_case(host);
    // Proxies forward the host without its port. Then only `Sec-Fetch-Site` distinguishes ports.
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

/// Returns a path of this page to continue to. `/` if the path leads elsewhere.
pub(crate) fn local_path(path: &str) -> &str {
    let inside = path.starts_with('/')
        && !path.starts_with("//")
        && path.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if inside { path } else { "/" }
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
