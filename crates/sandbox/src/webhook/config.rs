//! The configuration of an application's webhooks (§2.7), and the keys that sign deliveries (§6.4).
//! Also checks the target of deliveries: HTTPS, and nothing private (§6.9.7).

use crate::{CrmEvent, webhook::event::GROUPS, webhook::event::NAMES};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use url::{Host, Url};

/// Longest `targetUrl`, in UTF-16 units (§2.7, Limits).
pub const TARGET_LENGTH_MAX: usize = 1_024;

/// A signing key: 64 lowercase hexadecimal characters. The text itself is the key (§6.4.2).
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SigningKey(String);

impl SigningKey {
    /// Creates a key from its text.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the text, to sign with or to show once.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey([REDACTED])")
    }
}

/// The address and the events of an application's deliveries, shared by all companies that
/// installed it (§6.1.6).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The address of the receiver (`targetUrl`).
    pub target_url: String,
    /// Names of the subscribed events and groups of events (§6.2).
    pub events: Vec<String>,
    /// `true` to record and deliver events. Deliveries that become due while this is `false` fail
    /// for good.
    pub enabled: bool,
    /// The application-level key. `None` until the first key is set.
    pub secret: Option<SigningKey>,
}

impl Config {
    /// Returns `true` if deliveries are on, and the event or its group is subscribed to.
    pub fn subscribes(&self, event: &CrmEvent) -> bool {
        self.enabled
            && self
                .events
                .iter()
                .any(|name| *name == event.name || name == event.group())
    }

    /// Returns the errors for which §2.7 refuses the configuration: `targetUrl` or `events`, with a
    /// reason of §7.5 if one exists. `private_targets` allows private addresses.
    pub fn errors(&self, private_targets: bool) -> Vec<String> {
        let mut errors = Vec::new();
        let target = match Url::parse(&self.target_url) {
            _ if self.target_url.trim().is_empty() => Some("NOT_BLANK"),
            _ if self.target_url.encode_utf16().count() > TARGET_LENGTH_MAX => Some("LENGTH"),
            Err(_) => Some("NOT_A_URL"),
            Ok(url) => check_target(&url, private_targets).err(),
        };
        if let Some(reason) = target {
            errors.push(format!("targetUrl: {reason}"));
        }
        if self.events.is_empty() {
            errors.push("events: NOT_EMPTY".to_owned());
        }
        if !self.events.iter().all(|name| is_event(name)) {
            errors.push("events: UNKNOWN_EVENT".to_owned());
        }
        errors
    }
}

fn is_event(name: &str) -> bool {
    NAMES.contains(&name) || GROUPS.contains(&name)
}

/// The connection of a company with an application (§5.4.2). Each webhook delivery belongs to one
/// installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installation {
    /// The id of the connected company.
    pub company: i64,
    /// The id of the connected application.
    pub application: i64,
    /// The installation's own key. Without one, the application's key signs (§6.4.4).
    pub secret: Option<SigningKey>,
    /// `true` if the installation was revoked, so nothing is sent to it any more.
    pub revoked: bool,
}

/// The reason recorded for a delivery that fails for good because its target is not `https`.
pub const NOT_HTTPS: &str = "target not HTTPS";
/// The reason recorded for a delivery that fails for good because its target is a private or
/// internal name or address.
pub const PRIVATE: &str = "target private or internal";

/// Checks the scheme and the host of a delivery target, without resolving the name.
/// `private_targets` allows private and internal hosts.
///
/// # Errors
/// The reason why the target is refused.
pub fn check_target(url: &Url, private_targets: bool) -> Result<(), &'static str> {
    if url.scheme() != "https" {
        return Err(NOT_HTTPS);
    }
    let private = match url.host() {
        None => true,
        Some(Host::Domain(name)) => is_private_name(name),
        Some(Host::Ipv4(address)) => is_private(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => is_private(IpAddr::V6(address)),
    };
    if private && !private_targets {
        return Err(PRIVATE);
    }
    Ok(())
}

/// Returns `true` for `localhost`, `*.local`, `*.internal`, and `*.localdomain`, each with or
/// without a final dot.
pub fn is_private_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    ["localhost", "local", "internal", "localdomain"].contains(&last) || name.is_empty()
}

/// Returns `true` if an address is in a block of §6.9.7, or is another address that leads to no
/// public host: broadcast, multicast, or reserved. An IPv6 address that contains an IPv4 address is
/// checked as the IPv4 address.
pub fn is_private(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V4(address) => return is_private_v4(address),
        IpAddr::V6(address) => address,
    };
    let [a, b, c, .., high, low] = address.segments();
    // Finds the IPv4 address in ::ffff:a.b.c.d and ::a.b.c.d (also ::1 and ::), then in NAT64 and
    // 6to4.
    let inner = address.to_ipv4().or(match (a, b) {
        (0x64, 0xff9b) => Some(join_segments(high, low)),
        (0x2002, _) => Some(join_segments(b, c)),
        _ => None,
    });
    let link_or_site_local = a & 0xff80 == 0xfe80;
    let own = address.is_unique_local() || link_or_site_local || address.is_multicast();
    inner.map_or(own, is_private_v4)
}

fn join_segments(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let own = address.is_private() || address.is_loopback() || address.is_link_local();
    own || shared || matches!(a, 0 | 224..=255)
}
