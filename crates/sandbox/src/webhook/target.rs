//! Where a delivery may go (§6.9.7): HTTPS, and nowhere private.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use url::{Host, Url};

/// Why nothing is sent to another scheme than `https`.
pub const NOT_HTTPS: &str = "target not HTTPS";
/// Why nothing is sent to a private or internal name or address.
pub const PRIVATE: &str = "target private or internal";

/// Looks at what can be seen without asking for the name's addresses.
///
/// # Errors
/// What is against it.
pub fn check(url: &Url, private_targets: bool) -> Result<(), &'static str> {
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

/// `localhost`, `*.local`, `*.internal`, `*.localdomain`, each with or without a last dot.
pub fn is_private_name(name: &str) -> bool {
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    ["localhost", "local", "internal", "localdomain"].contains(&last) || name.is_empty()
}

/// The blocks of §6.9.7, and what else leads to no public host: broadcast, multicast, reserved, and
/// the same of IPv6, also where it wraps an address of IPv4.
pub fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_private_v4(address),
        IpAddr::V6(address) => is_private_v6(address),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [a, b, ..] = address.octets();
    match a {
        0 | 10 | 127 | 224..=255 => true,
        100 => (64..128).contains(&b),
        169 => b == 254,
        172 => (16..32).contains(&b),
        192 => b == 168,
        _ => false,
    }
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    // ::ffff:a.b.c.d and ::a.b.c.d (with ::1 and ::), then NAT64 and 6to4.
    if let Some(inner) = address.to_ipv4() {
        return is_private_v4(inner);
    }
    let [.., high, low] = address.segments();
    if (a, b) == (0x64, 0xff9b) {
        return is_private_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)));
    }
    if a == 0x2002 {
        let c = address.segments()[2];
        return is_private_v4(Ipv4Addr::from((u32::from(b) << 16) | u32::from(c)));
    }
    let unique_local = a & 0xfe00 == 0xfc00;
    let link_or_site_local = a & 0xff80 == 0xfe80;
    let multicast = a & 0xff00 == 0xff00;
    unique_local || link_or_site_local || multicast
}
