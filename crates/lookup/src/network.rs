//! Networks whose clients are allowed to query, such as `192.168.1.0/24`.

use callbridge_listener::places::PeerGroup;
use std::net::IpAddr;

/// Addresses with a common prefix, in CIDR notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Parses `192.168.1.0/24`, `2001:db8::/64`, or a single address.
    ///
    /// # Errors
    /// Returns a message that shows the correct form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (prefix, length) = match text.split_once('/') {
            Some((prefix, length)) => (prefix, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = prefix.parse().map_err(|_| not_a_network(text))?;
        let most = if address.is_ipv4() { 32 } else { 64 };
        let bits = match length {
            Some(length) => length.parse().map_err(|_| not_a_network(text))?,
            None => most,
        };
        match bits {
            // The owner of an IPv6 address is free to choose its second half.
            65..=128 if address.is_ipv6() => {
                Err(format!("`{text}`: an IPv6 network has 64 bits at most"))
            }
            _ if bits > most => Err(not_a_network(text)),
            _ => Ok(Self { address, bits }),
        }
    }

    /// Returns `true` if this peer is in the network.
    pub fn contains(&self, peer: PeerGroup) -> bool {
        let (width, own) = bits_of(PeerGroup::from(self.address));
        let (peer_width, other) = bits_of(peer);
        let rest = width - u32::from(self.bits).min(width);
        width == peer_width && own.checked_shr(rest) == other.checked_shr(rest)
    }
}

fn not_a_network(text: &str) -> String {
    format!("`{text}` is not a network such as 192.168.1.0/24")
}

/// Returns how many bits a peer has, and the bits.
fn bits_of(peer: PeerGroup) -> (u32, u64) {
    match peer {
        PeerGroup::V4(address) => (32, u64::from(address.to_bits())),
        PeerGroup::V6(parts) => {
            let mut bits = 0;
            for part in parts {
                bits = (bits << 16) | u64::from(part);
            }
            (64, bits)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer_group(text: &str) -> PeerGroup {
        PeerGroup::from(text.parse::<IpAddr>().expect("an address"))
    }

    #[test]
    fn network_contains_only_its_own_addresses() {
        for (network, inside, outside) in [
            ("192.168.1.0/24", "192.168.1.200", "192.168.2.1"),
            ("10.0.0.5", "10.0.0.5", "10.0.0.6"),
            ("10.0.0.5/32", "10.0.0.5", "10.0.0.4"),
            ("10.1.2.3/8", "10.200.0.1", "11.0.0.1"),
            ("2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("2001:db8:0:1::/64", "2001:db8:0:1::9", "2001:db8:0:2::9"),
            ("192.168.1.0/24", "::ffff:192.168.1.7", "::1"),
        ] {
            let network = Network::parse(network).expect(network);
            assert!(network.contains(peer_group(inside)), "{network:?} {inside}");
            assert!(
                !network.contains(peer_group(outside)),
                "{network:?} {outside}"
            );
        }
        let all = Network::parse("0.0.0.0/0").expect("all");
        assert!(all.contains(peer_group("203.0.113.1")) && !all.contains(peer_group("::2")));
        assert!(
            Network::parse("::/0")
                .expect("all")
                .contains(peer_group("2001:db8::1"))
        );
    }

    #[test]
    fn invalid_network_is_reported() {
        for wrong in [
            "",
            "office",
            "10.0.0.0/33",
            "10.0.0/8",
            "10.0.0.0/",
            "1.2.3.4/-1",
            "::/129",
        ] {
            let message = Network::parse(wrong).expect_err(wrong);
            assert!(message.contains("is not a network"), "{message}");
        }
        assert!(
            Network::parse("2001:db8::1/128")
                .expect_err("long")
                .contains("64 bits")
        );
    }
}
