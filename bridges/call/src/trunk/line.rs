//! Determines a channel's trunk by the gateway, address, context, or SIP profile reported by the
//! PBX (FreeSWITCH), for channels whose name doesn't show the trunk.
//!
//! ```text
//! gateway/city               dialed through this gateway, or came in from it
//! address/203.0.113.5:5060   has its other end there (without a port, any port matches)
//! context/public             came in to this context
//! profile/external           carried by this SIP profile
//! ```
//! If several match, the first one in this list wins, since the gateway is the most specific.

use super::{
    Endpoints, Party, TrunkEndpoint, extension, glob, is_known_technology, is_one_of, technology,
};
use crate::units::Extension;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

/// Minimum number of digits in an outside number. Extensions have fewer.
pub(crate) const OUTSIDE_DIGITS_MIN: usize = 7;
/// The SIP port for addresses without a port.
const PORT: &str = "5060";

/// Technologies whose channels have no party on PBXs that report [`LineTraits`].
const PLUMBING: [&str; 5] = ["loopback", "null", "pickup", "tone_stream", "local_stream"];

/// What the PBX reports about a channel's line. Unknown strings are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineTraits {
    /// Whether this is an incoming channel. If not, it was dialed, and its context is that of the
    /// channel that dialed it.
    pub inbound: bool,
    /// Name of the gateway through which the channel was dialed or came in.
    #[serde(default, skip_serializing_if = "SmolStr::is_empty")]
    pub gateway: SmolStr,
    /// Name of the SIP profile that carries the channel.
    #[serde(default, skip_serializing_if = "SmolStr::is_empty")]
    pub profile: SmolStr,
    /// The channel's dialplan context.
    #[serde(default, skip_serializing_if = "SmolStr::is_empty")]
    pub context: SmolStr,
    /// The remote host, with or without a port.
    #[serde(default, skip_serializing_if = "SmolStr::is_empty")]
    pub address: SmolStr,
    /// Extension of the phone on the channel.
    #[serde(default, skip_serializing_if = "SmolStr::is_empty")]
    pub extension: SmolStr,
}

/// Returns `true` if the address matches the pattern. If the pattern has a port, it must match too.
/// Addresses without a port use port 5060.
fn is_address(pattern: &str, address: &str) -> bool {
    let (host, port) = host_and_port(address);
    let (wanted, wanted_port) = host_and_port(pattern);
    let same = !host.is_empty() && glob(wanted, host);
    same && wanted_port.is_none_or(|wanted| wanted == port.unwrap_or(PORT))
}

/// Splits an address such as `203.0.113.5:5060`, `[2001:db8::5]:5060`, or `2001:db8::5` into host
/// and port.
pub fn host_and_port(address: &str) -> (&str, Option<&str>) {
    if let Some(bracketed) = address.strip_prefix('[')
        && let Some((host, rest)) = bracketed.split_once(']')
    {
        return (host, rest.strip_prefix(':'));
    }
    match address.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        Some(_) | None => (address, None),
    }
}

impl TrunkEndpoint {
    /// Returns how specifically the endpoint matches the channel, as the rank of the trait in its
    /// pattern and the pattern's length, or `None` if the channel doesn't belong to this trunk.
    fn is_of(&self, name: &str, line: &LineTraits) -> Option<(u8, usize)> {
        let (named, text) = self.pattern.split_once('/').unwrap_or_default();
        let (rank, matches, pattern) = match named {
            "gateway" => (4, matches_trait(text, &line.gateway), text),
            "address" => (3, is_address(text, &line.address), text),
            "context" => (2, line.inbound && matches_trait(text, &line.context), text),
            "profile" => (1, matches_trait(text, &line.profile), text),
            _ => (0, self.matches(name), self.pattern.as_str()),
        };
        if matches {
            Some((rank, pattern.chars().count()))
        } else {
            None
        }
    }
}

impl Endpoints {
    /// Returns the endpoint that matches a channel most specifically, going by its line and name,
    /// or only its name if `line` is `None`.
    pub fn find_for_line(&self, name: &str, line: Option<&LineTraits>) -> Option<&TrunkEndpoint> {
        let Some(line) = line else {
            return self.find(name);
        };
        if is_plumbing(name) {
            return None;
        }
        let matching = self
            .iter()
            .filter_map(|endpoint| Some((endpoint.is_of(name, line)?, endpoint)));
        let (_, best) = matching.max_by_key(|&(specificity, _)| specificity)?;
        Some(best)
    }
}

/// Returns `true` if the trait's value `known` isn't empty and matches the pattern.
fn matches_trait(pattern: &str, known: &str) -> bool {
    !known.is_empty() && glob(pattern, known)
}

/// Returns `true` if the channel has no party. Only meaningful for PBXs that report [`LineTraits`].
pub(crate) fn is_plumbing(name: &str) -> bool {
    is_one_of(&PLUMBING, technology(name))
}

/// Returns only the ASCII digits in a text.
pub(crate) fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}

/// Returns `true` if the text isn't empty and consists only of digits.
pub fn is_numeric(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Returns `true` if the text is an outside number, which has at least seven digits and otherwise
/// only characters that carriers use.
pub fn is_outside(number: &str) -> bool {
    number
        .chars()
        .all(|c| c.is_ascii_digit() || "+-(). ".contains(c))
        && digits(number).len() >= OUTSIDE_DIGITS_MIN
}

/// Returns the party of a channel. `line` is `None` if the PBX reports only names.
pub(crate) fn party_of_line<'a>(
    name: &str,
    line: Option<&LineTraits>,
    endpoints: &'a Endpoints,
) -> Party<'a> {
    if let Some(endpoint) = endpoints.find_for_line(name, line) {
        return Party::Trunk(endpoint);
    }
    let Some(known) = line else {
        return match extension(name) {
            None => Party::Plumbing,
            Some(extension) if is_known_technology(technology(name)) => Party::Extension(extension),
            Some(extension) => Party::Unknown(extension),
        };
    };
    let device = name.rsplit_once('/').map_or(name, |(_, device)| device);
    let user = device.split('@').next().unwrap_or_default();
    // The name may also contain the other end, i.e., the caller or a number dialed through a
    // gateway.
    match known.extension.as_str() {
        _ if is_plumbing(name) => Party::Plumbing,
        "" if user.is_empty() => Party::Plumbing,
        "" if !known.gateway.is_empty() || is_outside(user) => Party::Outsider,
        "" => Party::Extension(Extension::new(user)),
        extension => Party::Extension(Extension::new(extension)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(known: &[(&str, &str)]) -> Endpoints {
        let made = known
            .iter()
            .map(|&(trunk, pattern)| TrunkEndpoint::new(trunk, pattern));
        Endpoints::new(made.collect()).expect("no conflict")
    }

    fn line() -> LineTraits {
        LineTraits {
            inbound: true,
            profile: "external".into(),
            context: "public".into(),
            address: "203.0.113.5:5080".into(),
            ..LineTraits::default()
        }
    }

    fn trunk<'e>(endpoints: &'e Endpoints, line: &LineTraits) -> Option<&'e str> {
        let name = "sofia/external/998901110001@203.0.113.5";
        let found = endpoints.find_for_line(name, Some(line));
        found.map(|found| found.trunk.as_str())
    }

    #[test]
    fn gateway_outranks_address_context_and_profile() {
        let all = [
            ("profile", "profile/external"),
            ("context", "context/public"),
            ("address", "address/203.0.113.5"),
            ("port", "address/203.0.113.5:5080"),
            ("gateway", "gateway/city"),
        ];
        let of_gateway = LineTraits {
            gateway: "city".into(),
            ..line()
        };
        assert_eq!(trunk(&endpoints(&all), &of_gateway), Some("gateway"));
        for (most, says) in ["profile", "context", "address", "port", "port"]
            .into_iter()
            .enumerate()
        {
            assert_eq!(trunk(&endpoints(&all[..=most]), &line()), Some(says));
        }
        let prefix = endpoints(&[("prefix", "sofia/external")]);
        assert_eq!(trunk(&prefix, &line()), Some("prefix"));
        assert_eq!(trunk(&endpoints(&[("other", "sofia/ext")]), &line()), None);
    }

    fn line_from(address: &str) -> LineTraits {
        LineTraits {
            address: address.into(),
            ..line()
        }
    }

    #[test]
    fn address_without_a_port_has_the_sip_port() {
        let plain = endpoints(&[("city", "address/203.0.113.5:5060")]);
        assert_eq!(trunk(&plain, &line_from("203.0.113.5")), Some("city"));
        assert_eq!(trunk(&plain, &line_from("203.0.113.5:5061")), None);
        let six = endpoints(&[("six", "address/2001:db8::5")]);
        assert_eq!(trunk(&six, &line_from("[2001:db8::5]:5060")), Some("six"));
        assert_eq!(trunk(&six, &line_from("2001:db8::6")), None);
    }

    #[test]
    fn dialed_line_is_not_matched_by_the_context_of_its_dialer() {
        let context = endpoints(&[("city", "context/public")]);
        let dialed = LineTraits {
            inbound: false,
            extension: "101".into(),
            ..line()
        };
        assert_eq!(trunk(&context, &dialed), None);
        let party = party_of_line("sofia/internal/101@127.0.0.1", Some(&dialed), &context);
        assert_eq!(party, Party::Extension(Extension::new("101")));
    }

    #[test]
    fn gateway_trunk_does_not_match_a_phone_of_the_same_name() {
        let trunks = endpoints(&[("city", "gateway/101")]);
        let phone = LineTraits {
            extension: "101".into(),
            ..LineTraits::default()
        };
        let name = "sofia/internal/101@127.0.0.1:16101";
        assert!(trunks.find_for_line(name, Some(&phone)).is_none());
        let half = "loopback/101;4bf5c277;1";
        assert_eq!(
            party_of_line(half, Some(&LineTraits::default()), &trunks),
            Party::Plumbing
        );
    }
}
