//! The consent page (§4.2). This module creates the URL to open in the browser, and reads the
//! page's redirect. It does no I/O.

use callbridge_call::redact::Redactor;
use callbridge_model::{ExposeSecret, Secret, safe};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use subtle::ConstantTimeEq as _;
use url::{Host, Url};

/// Maximum length in characters of an error text in a redirect. Anything longer is cut off.
const WORDS_MAX: usize = 200;

/// `--redirect-uri`, both unchanged as it's registered (§5.6.1) and parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// The URL as given, which is sent unchanged.
    pub text: String,
    url: Url,
}

impl Redirect {
    /// Parses an HTTP or HTTPS URL without a fragment. Port 0 is rejected.
    ///
    /// # Errors
    /// Returns an error message about `--redirect-uri`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let url = Url::parse(text).map_err(|error| format!("`{text}` is not a URL ({error})"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(format!("`{text}` is not an http(s) address"));
        }
        if url.fragment().is_some() {
            return Err("must not have a fragment (#…)".to_owned());
        }
        if url.port() == Some(0) {
            return Err("port 0 cannot be used: give the registered port".to_owned());
        }
        let text = text.to_owned();
        Ok(Self { text, url })
    }

    /// Returns the loopback addresses on which the redirect can be received, or `None` if it goes
    /// to another host or uses TLS.
    pub fn listen(&self) -> Option<Vec<SocketAddr>> {
        if self.url.scheme() != "http" {
            return None;
        }
        let port = self.url.port_or_known_default()?;
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let hosts: Vec<IpAddr> = match self.url.host()? {
            Host::Ipv4(ip) if ip.is_loopback() => vec![ip.into()],
            Host::Ipv6(ip) if ip.is_loopback() => vec![ip.into()],
            Host::Domain("localhost") => loopback.into(),
            Host::Ipv4(_) | Host::Ipv6(_) | Host::Domain(_) => return None,
        };
        let addresses = hosts.into_iter().map(|ip| SocketAddr::new(ip, port));
        Some(addresses.collect())
    }

    /// Returns the URL's path, without the query.
    pub fn path(&self) -> &str {
        self.url.path()
    }

    /// Returns `true` if `url` is this URL, apart from its query.
    fn leads_to(&self, url: &Url) -> bool {
        let own = &self.url;
        own.scheme() == url.scheme()
            && own.host_str() == url.host_str()
            && own.port_or_known_default() == url.port_or_known_default()
            && own.path() == url.path()
    }
}

/// Returns the URL of the consent page to open in a browser. `state` is the random text that the
/// redirect must return.
pub fn address(
    consent: &Url,
    client_id: &str,
    redirect: &Redirect,
    scope: &str,
    state: &str,
) -> Url {
    let mut url = consent.clone();
    url.query_pairs_mut()
        .append_pair("response_type", "code")
        .append_pair("client_id", client_id)
        .append_pair("redirect_uri", &redirect.text)
        .append_pair("scope", scope)
        .append_pair("state", state);
    // Every page decodes %20 as a space, but some don't decode a plus.
    let query = url.query().map(|query| query.replace('+', "%20"));
    url.set_query(query.as_deref());
    url
}

/// What a redirect from the consent page means.
#[derive(Clone, Debug)]
pub enum ConsentReply {
    /// Consent was given. The code can be exchanged for the first pair of tokens.
    Code(Secret),
    /// Consent was declined, which isn't an error (§4.2).
    Declined,
    /// The page couldn't ask for consent, for the reason given.
    Failed(String),
    /// The redirect doesn't belong to our request and is ignored, for the reason given.
    Wrong(&'static str),
}

impl ConsentReply {
    /// Returns `true` if there's no need to wait for another redirect, which is the case for
    /// anything except `Wrong`.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Wrong(_))
    }
}

/// Parses a redirect's query. If its `state` isn't the one that was sent, the result is `Wrong`
/// (§5.6.3).
pub fn read(query: &str, state: &Secret) -> ConsentReply {
    let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).collect();
    let [found] = values_of(&pairs, "state")[..] else {
        return ConsentReply::Wrong("it has no state, or more than one");
    };
    if !bool::from(found.as_bytes().ct_eq(state.expose_secret().as_bytes())) {
        return ConsentReply::Wrong("its state is not the one that was sent");
    }
    match (
        &values_of(&pairs, "code")[..],
        &values_of(&pairs, "error")[..],
    ) {
        ([code], []) if !code.trim().is_empty() => ConsentReply::Code(Secret::from(code.trim())),
        ([], ["access_denied"]) => ConsentReply::Declined,
        ([], [error]) => {
            let message = match values_of(&pairs, "error_description").first() {
                Some(description) => format!("{error}: {description}"),
                None => (*error).to_owned(),
            };
            let redacted = Redactor::new([state.expose_secret()]).redact(&message);
            ConsentReply::Failed(safe(&redacted).chars().take(WORDS_MAX).collect())
        }
        _ => ConsentReply::Wrong("it must have either one code or one error"),
    }
}

fn values_of<'a>(pairs: &'a [(Cow<'_, str>, Cow<'_, str>)], name: &str) -> Vec<&'a str> {
    pairs
        .iter()
        .filter(|(key, _)| key == name)
        .map(|(_, value)| &**value)
        .collect()
}

/// Parses a redirect that someone pasted, either as the whole URL or just its query. If the URL
/// isn't `redirect`, the result is `Wrong`.
pub fn read_pasted(line: &str, redirect: &Redirect, state: &Secret) -> ConsentReply {
    let line = line.trim_matches(|c: char| c.is_whitespace() || "\"'<>".contains(c));
    if line.contains("://") {
        return match Url::parse(line) {
            Ok(url) if redirect.leads_to(&url) => read(url.query().unwrap_or_default(), state),
            Ok(_) | Err(_) => ConsentReply::Wrong("it is not the address in --redirect-uri"),
        };
    }
    let query = line.rsplit_once('?').map_or(line, |(_, query)| query);
    read(query, state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redirect() -> Redirect {
        Redirect::parse("http://127.0.0.1:8765/back").expect("an address")
    }

    fn state() -> Secret {
        Secret::from("s1")
    }

    fn describe(back: &ConsentReply) -> String {
        match back {
            ConsentReply::Code(code) => format!("code {}", code.expose_secret()),
            ConsentReply::Declined => "declined".to_owned(),
            ConsentReply::Failed(words) => format!("failed {words}"),
            ConsentReply::Wrong(words) => format!("wrong: {words}"),
        }
    }

    #[test]
    fn consent_address_contains_the_documented_parameters() {
        let consent = Url::parse("https://crm.example/consent?lang=uz").expect("a URL");
        let url = address(&consent, "svc_app_1", &redirect(), "A:READ B:SAVE", "s1");
        insta::assert_snapshot!(url.as_str().replace('&', "\n&"), @r"
        https://crm.example/consent?lang=uz
        &response_type=code
        &client_id=svc_app_1
        &redirect_uri=http%3A%2F%2F127.0.0.1%3A8765%2Fback
        &scope=A%3AREAD%20B%3ASAVE
        &state=s1
        ");
    }

    #[test]
    fn echoed_state_is_redacted_before_the_text_is_cut() {
        let state = Secret::from("state_1234567890");
        let long = "x".repeat(WORDS_MAX - 20);
        let query =
            format!("error={long}&error_description=state_1234567890&state=state_1234567890");
        let ConsentReply::Failed(text) = read(&query, &state) else {
            panic!("a failure")
        };
        assert!(text.ends_with("x: [redacted]"), "{text}");
    }

    #[test]
    fn consent_reply_needs_sent_state_and_one_code_or_error() {
        for (query, words) in [
            ("code=c1&state=s1", "code c1"),
            ("state=s1&code=c%2F1&later=2", "code c/1"),
            ("error=access_denied&state=s1", "declined"),
            (
                "error=invalid_scope&error_description=no%0Away&state=s1",
                r"failed invalid_scope: no\nway",
            ),
            ("code=c1", "wrong: it has no state, or more than one"),
            (
                "code=c1&state=s1&state=s2",
                "wrong: it has no state, or more than one",
            ),
            (
                "code=c1&state=s2",
                "wrong: its state is not the one that was sent",
            ),
            (
                "code=c1&state=",
                "wrong: its state is not the one that was sent",
            ),
            (
                "error=access_denied&state=s2",
                "wrong: its state is not the one that was sent",
            ),
            (
                "state=s1",
                "wrong: it must have either one code or one error",
            ),
            (
                "code=&state=s1",
                "wrong: it must have either one code or one error",
            ),
            (
                "code=a&code=b&state=s1",
                "wrong: it must have either one code or one error",
            ),
            (
                "code=a&error=access_denied&state=s1",
                "wrong: it must have either one code or one error",
            ),
        ] {
            assert_eq!(describe(&read(query, &state())), words, "{query}");
        }
    }

    #[test]
    fn pasted_redirect_is_accepted_in_any_common_form() {
        for good in [
            "http://127.0.0.1:8765/back?code=c1&state=s1",
            "  \"http://127.0.0.1:8765/back?code=c1&state=s1\"\r\n",
            "?code=c1&state=s1",
            "code=c1&state=s1",
            "/back?code=c1&state=s1",
        ] {
            assert_eq!(
                describe(&read_pasted(good, &redirect(), &state())),
                "code c1",
                "{good}"
            );
        }
        for bad in [
            "https://127.0.0.1:8765/back?code=c1&state=s1",
            "http://127.0.0.1:8765/other?code=c1&state=s1",
            "http://evil.example/back?code=c1&state=s1",
            "",
        ] {
            let back = read_pasted(bad, &redirect(), &state());
            assert!(matches!(back, ConsentReply::Wrong(_)), "{bad}: {back:?}");
        }
    }

    /// Returns the addresses on which this machine listens for the redirect, joined with spaces.
    fn listen_addresses(redirect: &str) -> Option<String> {
        let addresses = Redirect::parse(redirect).expect("an address").listen()?;
        let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        Some(texts.join(" "))
    }

    #[test]
    fn redirect_listener_uses_only_loopback_addresses() {
        assert_eq!(
            listen_addresses("http://127.0.0.1:8765/x").as_deref(),
            Some("127.0.0.1:8765")
        );
        assert_eq!(
            listen_addresses("http://[::1]:9/").as_deref(),
            Some("[::1]:9")
        );
        assert_eq!(
            listen_addresses("http://localhost:9").as_deref(),
            Some("127.0.0.1:9 [::1]:9")
        );
        assert_eq!(listen_addresses("https://localhost:9/x"), None);
        assert_eq!(listen_addresses("http://localhost.example/x"), None);
        assert_eq!(listen_addresses("https://vendor.example/x"), None);
        for bad in [
            "127.0.0.1:9/x",
            "ftp://x/y",
            "http://127.0.0.1:0/",
            "http://x/#y",
        ] {
            assert!(Redirect::parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn pasted_line_without_the_state_is_never_accepted(line in "\\PC{0,80}") {
            let secret = Secret::from("0123456789abcdef0123456789abcdef");
            prop_assert!(!read_pasted(&line, &redirect(), &secret).is_final());
        }
    }
}
