//! The page's settings, which are supplied by `run` and consist of its address, names, TLS, and
//! users.

use crate::{passwords::Passwords, sessions::Links};
use callbridge_listener::places::PeerGroup;
use callbridge_model::Zone;
use rustls::ServerConfig;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tokio::sync::watch;

/// The listener's TLS configuration. The sender replaces the certificate when the files change.
pub type Tls = watch::Receiver<Arc<ServerConfig>>;

/// The page's settings.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) address: SocketAddr,
    /// `None` for plain HTTP, which is only allowed on loopback, e.g., at the end of an SSH tunnel.
    pub(crate) tls: Option<Tls>,
    /// Trusted senders of `X-Forwarded-For`, in addition to those on loopback, or `None` if the
    /// page isn't behind a proxy.
    proxies: Option<Vec<PeerGroup>>,
    pub(crate) names: Vec<String>,
    /// The users in the password file, as last read.
    pub people: watch::Receiver<Passwords>,
    /// The valid links. Clones share the same links, and can issue more.
    pub links: Links,
    /// The PBX's time zone, in which times are shown (`Asia/Tashkent`).
    pub zone: Zone,
    /// This instance's name. It's part of the cookie's name, so that two pages on the same host
    /// have different cookies.
    pub instance: String,
    /// The URL of a lead in the CRM, where `{id}` is the placeholder for its ID.
    pub lead_url: Option<Arc<str>>,
}

impl Settings {
    /// Creates checked settings. Without TLS, the address must be on loopback. `proxies` lists the
    /// proxies that provide TLS to browsers, in addition to those on loopback, and `names` lists
    /// further hosts for the page (`--page-name`), in addition to its address and the loopback
    /// names.
    ///
    /// # Errors
    /// Returns a message that says why the page can't be opened.
    pub fn new(
        address: SocketAddr,
        tls: Option<Tls>,
        proxies: Option<&[IpAddr]>,
        names: &[String],
    ) -> Result<Self, String> {
        if tls.is_none() && !address.ip().to_canonical().is_loopback() {
            return Err(format!(
                "--page {address}: passwords and calls would cross the network unencrypted, also \
                 from a proxy on another machine: give --page-cert and --page-key, or listen on \
                 127.0.0.1 and use an SSH tunnel or a proxy on this machine (--page-behind-proxy)"
            ));
        }
        let proxies = proxies.map(|all| all.iter().copied().map(PeerGroup::from).collect());
        let names = names.iter().map(|name| host_name(name));
        Ok(Self {
            address,
            tls,
            proxies,
            names: names.collect::<Result<_, _>>()?,
            people: watch::channel(Passwords::default()).1,
            links: Links::default(),
            zone: Zone::from_pbx(None),
            instance: String::new(),
            lead_url: None,
        })
    }

    /// Returns the scheme used by browsers, which is `http` or `https`.
    pub const fn scheme(&self) -> &'static str {
        if self.is_secure() { "https" } else { "http" }
    }

    /// Returns `true` if browsers use TLS, so that cookies can be limited to TLS.
    pub(crate) const fn is_secure(&self) -> bool {
        self.tls.is_some() || self.is_behind_proxy()
    }

    pub(crate) const fn is_behind_proxy(&self) -> bool {
        self.proxies.is_some()
    }

    /// Returns `true` if `X-Forwarded-For` from this peer is trusted.
    pub(crate) fn trusts_proxy(&self, peer: PeerGroup) -> bool {
        let of_loopback = match peer {
            PeerGroup::V4(address) => address.is_loopback(),
            PeerGroup::V6(_) => peer == PeerGroup::from(IpAddr::from(Ipv6Addr::LOCALHOST)),
        };
        let proxies = self.proxies.as_ref();
        proxies.is_some_and(|all| of_loopback || all.contains(&peer))
    }

    /// Returns the page's hosts for messages, in which `localhost` and `127.0.0.1` stand for
    /// loopback.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let own = match self.address.ip() {
            own if own.is_unspecified() => None,
            IpAddr::V4(own) => Some(own.to_string()),
            IpAddr::V6(own) => Some(format!("[{own}]")),
        };
        let loopback = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut hosts: Vec<String> = own.into_iter().chain(loopback).collect();
        hosts.extend(self.names.iter().cloned());
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Returns `true` if the page responds to this host (without its port).
    pub(crate) fn allows_host(&self, host: &str) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if host == "localhost" || self.names.contains(&host) {
            return true;
        }
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        bare.parse::<IpAddr>().is_ok_and(|ip| {
            let ip = ip.to_canonical();
            ip.is_loopback() || ip == self.address.ip().to_canonical()
        })
    }
}

fn host_name(name: &str) -> Result<String, String> {
    let lower = name.trim_end_matches('.').to_ascii_lowercase();
    let ip = lower.trim_start_matches('[').trim_end_matches(']');
    let is_v6 = ip.parse::<Ipv6Addr>().is_ok();
    if is_v6 {
        return Ok(format!("[{ip}]"));
    }
    let is_fit = lower
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    if lower.is_empty() || lower.len() > 253 || !is_fit {
        return Err(format!(
            "--page-name {name}: give a host without port or path, such as `calls.example.uz`"
        ));
    }
    Ok(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(address: &str, behind_proxy: bool, names: &[&str]) -> Result<Settings, String> {
        let address = address.parse().expect("an address");
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let proxies: Option<&[IpAddr]> = behind_proxy.then_some(&[]);
        Settings::new(address, None, proxies, &names)
    }

    fn peer(text: &str) -> PeerGroup {
        PeerGroup::from(text.parse::<IpAddr>().expect("an address"))
    }

    #[test]
    fn proxy_is_trusted_only_from_loopback_and_named_address() {
        let address = "127.0.0.1:9000".parse().expect("an address");
        let proxy = ["10.0.0.5".parse().expect("an address")];
        let named = Settings::new(address, None, Some(&proxy), &[]).expect("settings");
        for believed in ["127.0.0.1", "127.9.9.9", "::1", "10.0.0.5"] {
            assert!(named.trusts_proxy(peer(believed)), "{believed}");
        }
        assert!(!named.trusts_proxy(peer("10.0.0.6")) && !named.trusts_proxy(peer("2001:db8::1")));
        let without = settings("127.0.0.1:9000", false, &[]).expect("settings");
        assert!(!without.trusts_proxy(peer("127.0.0.1")));
    }

    fn tls() -> Tls {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(rustls::server::ResolvesServerCertUsingSni::new()));
        watch::channel(Arc::new(server)).1
    }

    #[test]
    fn page_listens_beyond_loopback_only_with_tls() {
        for loopback in ["127.0.0.1:9000", "[::1]:9000", "127.8.8.8:1"] {
            assert!(settings(loopback, false, &[]).is_ok(), "{loopback}");
        }
        for open in ["0.0.0.0:9000", "[::]:9000", "192.0.2.1:9000"] {
            let refused = settings(open, false, &[]).expect_err(open).to_string();
            assert!(refused.contains("--page-cert"), "{refused}");
            assert!(settings(open, true, &[]).is_err(), "{open}");
        }
        let tls = tls();
        let address = "0.0.0.0:9000".parse().expect("an address");
        assert!(Settings::new(address, Some(tls.clone()), None, &[]).is_ok());
        assert!(Settings::new(address, Some(tls), Some(&[]), &[]).is_ok());
    }

    #[test]
    fn allowed_hosts_are_loopback_own_address_and_page_names() {
        let page = settings("127.0.0.1:9000", true, &["Calls.example.uz"]).expect("settings");
        for host in [
            "localhost",
            "LOCALHOST",
            "127.0.0.1",
            "127.0.0.2",
            "[::1]",
            "calls.example.uz",
            "calls.example.uz.",
        ] {
            assert!(page.allows_host(host), "{host}");
        }
        for host in [
            "evil.example",
            "192.0.2.2",
            "xcalls.example.uz",
            "",
            "[::2]",
        ] {
            assert!(!page.allows_host(host), "{host}");
        }
        let address = "192.0.2.1:9000".parse().expect("an address");
        let page = Settings::new(address, Some(tls()), None, &[]).expect("settings");
        for host in ["192.0.2.1", "[::ffff:192.0.2.1]", "localhost"] {
            assert!(page.allows_host(host), "{host}");
        }
        assert!(!page.allows_host("192.0.2.2"));
        for name in ["https://a.uz", "a.uz:443", "a b", ""] {
            let refused = settings("127.0.0.1:1", false, &[name]).expect_err(name);
            let begin = format!("--page-name {name}: give a host");
            assert!(refused.starts_with(&begin), "{refused}");
        }
    }
}
