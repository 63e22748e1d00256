//! The CRM's checked URL (`{base_url}` in the document), and the settings for reaching it.

use std::path::PathBuf;
use std::time::Duration;
use url::{Host, Url};

/// A message that says why `--crm-url` can't be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("--crm-url{0}")]
pub struct AddressError(String);

impl AddressError {
    fn invalid(text: &str, why: &str) -> Self {
        Self(format!(" {text}: {why}"))
    }
}

/// The CRM's base URL, which is HTTPS, or HTTP on loopback, without a user, query, or fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    base: Url,
    loopback: bool,
}

impl Address {
    /// Parses the value of `--crm-url`.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let form = "give it as https://HOST or https://HOST/PATH";
        let base = Url::parse(text.trim())
            .map_err(|error| AddressError::invalid(text, &format!("{error}; {form}")))?;
        let bare = base.username().is_empty()
            && base.password().is_none()
            && base.query().is_none()
            && base.fragment().is_none();
        if !bare {
            let message = ": it must not carry a user, password, query or fragment";
            return Err(AddressError(message.to_owned()));
        }
        let loopback = match base.host() {
            Some(Host::Ipv4(ip)) => ip.is_loopback(),
            Some(Host::Ipv6(ip)) => ip.is_loopback(),
            Some(Host::Domain(name)) => name == "localhost",
            None => false,
        };
        match base.scheme() {
            "http" if !loopback => Err(AddressError::invalid(
                text,
                "http is allowed to a loopback address only; use https",
            )),
            "https" | "http" => Ok(Self { base, loopback }),
            _ => Err(AddressError::invalid(text, "the scheme must be https")),
        }
    }

    /// Returns `true` for an address on this machine, where plain HTTP and rates above 60 per 60 s
    /// are allowed.
    pub fn is_loopback(&self) -> bool {
        self.loopback
    }

    /// Returns `true` for plain HTTP without TLS.
    pub fn is_plain(&self) -> bool {
        self.base.scheme() == "http"
    }

    /// Returns the URL of this path below the base URL. Each segment is escaped, so nothing from
    /// the CRM (such as a requestId) can lead anywhere else.
    pub fn join(&self, segments: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty();
            for segment in segments {
                // `.` and `..` would be removed by the URL rules.
                match *segment {
                    "." => path.push("%2E"),
                    ".." => path.push("%2E%2E"),
                    other => path.push(other),
                };
            }
        }
        url
    }

    /// Returns the host and port for messages, as in `crm.example.uz:443`.
    pub fn place(&self) -> String {
        let host = self.base.host_str().unwrap_or_default();
        match self.base.port_or_known_default() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        }
    }

    /// Returns the URL in the form in which it's stored and displayed, such as
    /// `https://crm.example.uz`.
    pub fn as_str(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }
}

/// The CRM's URL, along with everything needed to reach it.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The checked value of `--crm-url`.
    pub address: Address,
    /// `--crm-ca-file`, which contains CAs in PEM. If it's given, no others are trusted.
    pub ca_file: Option<PathBuf>,
    /// The value of `--crm-proxy`, or `None` to connect directly.
    pub proxy: Option<Url>,
    pub timeouts: Timeouts,
}

/// Timeouts for one exchange.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Timeout for establishing the connection, which is 5 s by default.
    pub connect: Duration,
    /// Timeout for the whole exchange, including the connection, which is 30 s by default.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            total: Duration::from_secs(30),
        }
    }
}

impl Setup {
    /// Creates the settings for this URL, without a proxy or a CA file.
    pub fn new(address: Address) -> Self {
        Self {
            address,
            ca_file: None,
            proxy: None,
            timeouts: Timeouts::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_accepted_for_loopback_only() {
        for good in [
            "http://127.0.0.1:8080",
            "http://localhost:1",
            "http://[::1]:9",
            "https://x",
        ] {
            assert!(Address::parse(good).is_ok(), "{good}");
        }
        let refused = Address::parse("http://crm.example.uz").expect_err("refused");
        let message = "http is allowed to a loopback address only";
        assert!(refused.to_string().contains(message), "{refused}");
        assert!(Address::parse("http://localhost.example.uz").is_err());
        assert!(Address::parse("ftp://127.0.0.1").is_err());
        assert!(Address::parse("https://u:p@x").is_err());
        assert!(Address::parse("crm.example.uz").is_err());
    }

    #[test]
    fn request_id_is_escaped_within_its_path_segment() {
        let base = Address::parse("https://crm.example.uz/tenant/").expect("good");
        for (id, path) in [
            ("a1-b2", "/tenant/v1/request/a1-b2"),
            (
                "../../lead?x=1#f",
                "/tenant/v1/request/..%2F..%2Flead%3Fx=1%23f",
            ),
            ("..", "/tenant/v1/request/%252E%252E"),
        ] {
            let url = base.join(&["v1", "request", id]);
            assert_eq!(url.path(), path);
            assert_eq!(url.query(), None);
        }
        assert_eq!(base.as_str(), "https://crm.example.uz/tenant");
    }
}
