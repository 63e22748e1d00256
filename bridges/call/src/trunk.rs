//! Determines a channel's party by its name, which may be a trunk, a phone, or none. Channels
//! without a party, such as Local channels, are called plumbing.
//!
//! ```text
//! PJSIP/city-0000004f            PJSIP: technology   city: endpoint   0000004f: suffix
//! PJSIP/trunk_1/998901110001-1   an endpoint with a slash after it
//! Dongle/MTS-SUP-0100000151      an endpoint that contains a dash
//! AsyncGoto/PJSIP/city-0000004f  plumbing, whatever follows its slash
//! ```

mod line;

use crate::timeline::{Role, TEXT_BYTES_MAX};
use crate::units::{Extension, clip};
pub use line::{LineTraits, host_and_port, is_numeric, is_outside};
pub(crate) use line::{OUTSIDE_DIGITS_MIN, digits, is_plumbing, party_of_line};

/// Technologies whose channels are phones or trunks. A channel with any other technology that isn't
/// plumbing is a phone if it dials or was dialed.
///
/// `Agent` is an agent logged in on any phone (Asterisk before 12).
const TELEPHONES: [&str; 34] = [
    "PJSIP", "SIP", "IAX2", "DAHDI", "Zap", "SCCP", "Skinny", "Dongle", "Datacard", "Quectel",
    "GSM", "EXTRA", "OOH323", "H323", "Motif", "Gtalk", "Jingle", "Console", "ALSA", "OSS", "MGCP",
    "UniSTIM", "USTM", "mISDN", "Phone", "Mobile", "CAPI", "Khomp", "DGV", "Unicall", "SS7", "vpb",
    "Woomera", "Agent",
];

/// Technologies whose channels only connect other channels. There's no phone or trunk behind them,
/// even if an endpoint with `*` matches their names.
const PLUMBING: [&str; 17] = [
    "Local",
    "Snoop",
    "CBAnn",
    "CBRec",
    "Recorder",
    "Announcer",
    "Surrogate",
    "AsyncGoto",
    "Message",
    "UnicastRTP",
    "MulticastRTP",
    "AudioSocket",
    "WebSocket",
    "Bridge",
    "Parked",
    "Transfered",
    "OutgoingSpoolFailed",
];

/// One endpoint of a `--trunk`, consisting of the trunk's name and a pattern that its channels
/// match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrunkEndpoint {
    /// The trunk's name, as in `--trunk`.
    pub trunk: String,
    /// The endpoint as in `--trunk`, which is either a channel name prefix or a trait such as
    /// `gateway/city`. `*` matches any text.
    pub pattern: String,
    /// Whether calls over this trunk wait for a CDR, because its user field contains the lead.
    pub awaits_cdr: bool,
}

impl TrunkEndpoint {
    /// Creates an endpoint of the trunk called `trunk`. `pattern` is the part of its channel names
    /// before the suffix, such as `PJSIP/city`, where `*` matches any text, including an empty one.
    pub fn new(trunk: impl Into<String>, pattern: impl Into<String>) -> Self {
        Self {
            trunk: trunk.into(),
            pattern: pattern.into(),
            awaits_cdr: false,
        }
    }

    /// Returns `true` if the channel called `name` belongs to this trunk.
    pub fn matches(&self, name: &str) -> bool {
        self.end_in(name).is_some()
    }

    /// Returns the length in bytes of the longest prefix of a channel name that matches this
    /// endpoint, or `None` if the channel doesn't belong to this trunk.
    fn end_in(&self, name: &str) -> Option<usize> {
        let name = unmarked(name);
        let end = if self.pattern.contains('*') {
            let mut ends = (0..=name.len()).filter(|&end| name.is_char_boundary(end));
            ends.rfind(|&end| can_end_at(name, end) && glob(&self.pattern, &name[..end]))?
        } else if name.starts_with(&self.pattern) && can_end_at(name, self.pattern.len()) {
            self.pattern.len()
        } else {
            return None;
        };
        if is_one_of(&PLUMBING, technology(name)) || is_pseudo(name) {
            None
        } else {
            Some(end)
        }
    }
}

/// The endpoints of all of a PBX's trunks. A channel belongs to at most one trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoints(Vec<TrunkEndpoint>);

/// Two endpoints of the same length that can match the same channel.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the endpoints {} (trunk {}) and {} (trunk {}) are equally long and can match the same \
     channel: make one of them more exact", .0.pattern, .0.trunk, .1.pattern, .1.trunk
)]
pub struct Conflict(TrunkEndpoint, TrunkEndpoint);

impl Endpoints {
    /// Creates the list of endpoints for all of a PBX's trunks.
    ///
    /// # Errors
    ///
    /// Returns an error if two endpoints of different trunks have the same length and can match the
    /// same channel.
    pub fn new(endpoints: Vec<TrunkEndpoint>) -> Result<Self, Conflict> {
        for (i, a) in endpoints.iter().enumerate() {
            for b in &endpoints[i + 1..] {
                if a.trunk != b.trunk
                    && a.pattern.chars().count() == b.pattern.chars().count()
                    && overlap(a.pattern.as_bytes(), b.pattern.as_bytes())
                {
                    return Err(Conflict(a.clone(), b.clone()));
                }
            }
        }
        Ok(Self(endpoints))
    }

    /// Returns the trunk endpoint that matches the channel `name`, if any.
    ///
    /// If several match, the longest pattern wins. Among equally long ones, the one that matches
    /// more of the name wins.
    pub fn find(&self, name: &str) -> Option<&TrunkEndpoint> {
        let fits = self
            .0
            .iter()
            .filter_map(|endpoint| Some((endpoint.end_in(name)?, endpoint)));
        let best = fits.max_by_key(|(end, endpoint)| (endpoint.pattern.chars().count(), *end));
        best.map(|(_, endpoint)| endpoint)
    }

    /// Returns the endpoints, in the order given to [`Endpoints::new`].
    pub fn iter(&self) -> impl Iterator<Item = &TrunkEndpoint> {
        self.0.iter()
    }
}

/// The party at a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Party<'a> {
    /// An outside line, over this trunk.
    Trunk(&'a TrunkEndpoint),
    /// A phone inside the company.
    Extension(Extension),
    /// An outside party, on a line that doesn't match any trunk.
    Outsider,
    /// A channel with a technology that callbridge doesn't know. It's a phone with this extension
    /// if it dials or was dialed, and may also be one if it only shares a bridge.
    Unknown(Extension),
    /// A channel without a party, such as half of a Local channel, a recorder, or an announcer.
    Plumbing,
}

impl<'a> Party<'a> {
    pub(crate) fn is_real(&self) -> bool {
        match self {
            Self::Trunk(_) | Self::Extension(_) | Self::Outsider => true,
            Self::Unknown(_) | Self::Plumbing => false,
        }
    }

    /// Returns the trunk's name, or `None` if the party isn't on a trunk.
    pub(crate) fn trunk(&self) -> Option<&'a str> {
        match self {
            Self::Trunk(endpoint) => Some(&endpoint.trunk),
            Self::Extension(_) | Self::Outsider | Self::Unknown(_) | Self::Plumbing => None,
        }
    }

    /// Returns the extension, or `None` if the party isn't a phone.
    pub(crate) fn extension(&self) -> Option<&Extension> {
        match self {
            Self::Extension(extension) => Some(extension),
            Self::Trunk(_) | Self::Outsider | Self::Unknown(_) | Self::Plumbing => None,
        }
    }

    /// Returns the party's role in a timeline.
    pub(crate) fn role(&self, is_customer: bool) -> Role {
        match self {
            _ if is_customer => Role::Customer(self.trunk().map(str::to_owned)),
            Self::Trunk(endpoint) => Role::Trunk(endpoint.trunk.clone()),
            Self::Extension(extension) => Role::Extension(clip(extension.as_str(), TEXT_BYTES_MAX)),
            Self::Outsider => Role::Trunk("?".to_owned()),
            Self::Unknown(_) | Self::Plumbing => Role::Plumbing,
        }
    }
}

/// Returns the party of the channel called `name`.
pub fn party<'a>(name: &str, endpoints: &'a Endpoints) -> Party<'a> {
    party_of_line(name, None, endpoints)
}

/// Returns the extension in the name of a phone's channel, which is the part after the slash
/// without the suffix, or `None` for plumbing.
pub fn extension(name: &str) -> Option<Extension> {
    let (tech, device) = device(name)?;
    let device = line(tech, device);
    (!device.is_empty()).then(|| Extension::new(device))
}

/// Returns the text shared by the names of all of a phone's or trunk's channels, or `None` for
/// plumbing.
///
/// For example, that's `PJSIP/city` for `PJSIP/city-0000004f`, and `DAHDI/i1` for
/// `DAHDI/i1/998901110001-3`.
pub fn prefix(name: &str) -> Option<String> {
    let (tech, device) = device(name)?;
    (!device.is_empty()).then(|| format!("{tech}/{device}"))
}

/// Returns the technology and the device from the name of a phone's or trunk's channel, or `None`
/// for plumbing.
fn device(name: &str) -> Option<(&str, &str)> {
    let name = unmarked(name);
    let (tech, rest) = name.split_once('/')?;
    if tech.is_empty() || is_one_of(&PLUMBING, tech) || is_pseudo(name) {
        return None;
    }
    let device = rest.split('/').next().unwrap_or(rest);
    let end = device
        .rfind('-')
        .filter(|&dash| is_suffix(tech, &device[dash + 1..]))
        .unwrap_or(device.len());
    Some((tech, &device[..end]))
}

/// Returns the extension in a device name. Skinny and UniSTIM write `101@device`. In `MikoPBX`,
/// `101-WS` is a browser phone with the same extension as the desk phone `101`.
fn line<'n>(tech: &str, device: &'n str) -> &'n str {
    if is_one_of(&["Skinny", "USTM"], tech) {
        return device.split('@').next().unwrap_or(device);
    }
    let number = device.strip_suffix("-WS").filter(|rest| is_numeric(rest));
    number.unwrap_or(device)
}

/// Returns `true` if this is the name of a channel that `MeetMe` uses to mix a conference, such as
/// `DAHDI/pseudo-1234`.
fn is_pseudo(name: &str) -> bool {
    let device = name.split_once('/');
    device.is_some_and(|(_, device)| device.starts_with("pseudo")) && is_line(name)
}

/// Returns `true` if callbridge knows this technology to be used by phones or trunks.
pub(crate) fn is_known_technology(tech: &str) -> bool {
    is_one_of(&TELEPHONES, tech)
}

/// Returns `true` if `name` is one of `names`, ignoring ASCII case.
pub(crate) fn is_one_of(names: &[&str], name: &str) -> bool {
    names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

/// Returns the technology in a channel name, which is the text before the first slash.
pub(crate) fn technology(name: &str) -> &str {
    name.split_once('/').map_or(name, |(tech, _)| tech)
}

/// Returns `true` if the channel's technology is SIP or IAX2. Such phones have names, and a dial
/// string may contain the phone's address.
pub(crate) fn is_sip(name: &str) -> bool {
    is_one_of(&["PJSIP", "SIP", "IAX2"], technology(name))
}

/// Returns `true` if the channel is on a DAHDI line. `DAHDI/1-1` and `DAHDI/1-2` are channels of
/// the same phone.
pub(crate) fn is_line(name: &str) -> bool {
    is_one_of(&["DAHDI", "Zap"], technology(name))
}

/// Returns `true` if both channels are subchannels of the same DAHDI line.
pub(crate) fn is_same_line(a: &str, b: &str) -> bool {
    is_line(a) && is_line(b) && extension(a) == extension(b)
}

/// Returns the name shared by both halves of a Local channel, without `;1` or `;2`, or `None` for
/// other channels.
pub(crate) fn local_pair(name: &str) -> Option<&str> {
    let name = unmarked(name);
    if !is_one_of(&["Local", "loopback"], technology(name)) {
        return None;
    }
    // Before Asterisk 1.8, the separator was a comma.
    let halves = [";1", ";2", ",1", ",2"];
    halves.iter().find_map(|half| name.strip_suffix(half))
}

/// Strips the marker of a masquerade from a channel name, such as `<ZOMBIE>` in
/// `PJSIP/101-00000050<ZOMBIE>`.
pub(crate) fn unmarked(name: &str) -> &str {
    name.split_once('<').map_or(name, |(name, _)| name)
}

/// Returns `true` if an endpoint can end after the first `end` bytes of a channel name, which is
/// the case at the end of the name, before a `/`, or before a suffix used by the channel's
/// technology.
fn can_end_at(name: &str, end: usize) -> bool {
    let rest = &name[end..];
    match rest.as_bytes().first() {
        None | Some(b'/') => true,
        Some(b'-') => !is_sip(name) || is_suffix(technology(name), &rest[1..]),
        Some(_) => false,
    }
}

/// Returns `true` for a text that the technology writes after the last dash. That's 8 hex digits
/// for PJSIP, SIP, and IAX2 (which may also use a call number of up to 5 digits), and any number of
/// hex digits for most others.
fn is_suffix(tech: &str, text: &str) -> bool {
    let hex = !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    match tech.to_ascii_uppercase().as_str() {
        "PJSIP" | "SIP" => hex && text.len() == 8,
        "IAX2" => hex && text.len() == 8 || text.len() <= 5 && is_numeric(text),
        "MISDN" => is_numeric(text.strip_prefix('u').unwrap_or(text)),
        "USTM" => hex || text.starts_with("0x"),
        _ => hex,
    }
}

/// Returns `true` if `text` matches `pattern`, where `*` matches any text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let pattern = pattern.as_bytes();
    let text = text.as_bytes();
    let mut p = 0;
    let mut t = 0;
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((after, from)) = retry {
            p = after;
            t = from + 1;
            retry = Some((after, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == b'*')
}

/// Returns `true` if there's a text that matches both patterns.
fn overlap(a: &[u8], b: &[u8]) -> bool {
    // Whether some text matches both the processed part of `a` and the first `j` bytes of `b`.
    let mut reach = vec![false; b.len() + 1];
    reach[0] = true;
    for (j, &y) in b.iter().enumerate() {
        reach[j + 1] = reach[j] && y == b'*';
    }
    for &x in a {
        let mut next = vec![false; b.len() + 1];
        next[0] = reach[0] && x == b'*';
        for (j, &y) in b.iter().enumerate() {
            next[j + 1] = if x == b'*' || y == b'*' {
                reach[j + 1] || next[j]
            } else {
                reach[j] && x == y
            };
        }
        reach = next;
    }
    reach[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_match(endpoint: &str, name: &str) -> bool {
        TrunkEndpoint::new("t", endpoint).matches(name)
    }

    #[test]
    fn endpoint_matches_its_name_and_names_with_a_channel_suffix() {
        assert!(is_match("PJSIP/city", "PJSIP/city"));
        assert!(is_match("PJSIP/city", "PJSIP/city-0000004f"));
        assert!(is_match("PJSIP/city", "PJSIP/city-0000004f<ZOMBIE>"));
        assert!(is_match("PJSIP/trunk_1", "PJSIP/trunk_1/998901110001-1"));
        assert!(is_match("OOH323/gw", "OOH323/gw-1946"));
        assert!(is_match("DAHDI/33", "DAHDI/33-1"));
        assert!(is_match("IAX2/city", "IAX2/city-4711"));
        let uuid = "PJSIP/trunk-7b5a61f4-2c11-4a0e-9d4f-0f6cf2b7a001";
        for (endpoint, name) in [
            ("SIP/10.0.0.5", "SIP/10.0.0.5-0000001a"),
            (
                "SIP/sip.carrier.example",
                "SIP/sip.carrier.example-0000001a",
            ),
            (uuid, &format!("{uuid}-0000001a")),
            ("DAHDI/i1", "DAHDI/i1/998901110001-3"),
            ("DAHDI/i1/998901110001", "DAHDI/i1/998901110001-3"),
            ("Zap/25", "Zap/25-1"),
            ("IAX2/city", "IAX2/city-2"),
            ("mISDN/1", "mISDN/1-u12"),
            ("Khomp/B0C12", "Khomp/B0C12-0.0"),
            ("SCCP/city", "SCCP/city-0000002a"),
            ("SIP/city", "SIP/city-b7d0a1c8"),
        ] {
            assert!(is_match(endpoint, name), "{name}");
        }
        assert!(!is_match("PJSIP/city", "PJSIP/city2-0000004f"));
        assert!(!is_match("PJSIP/city", "pjsip/city-0000004f"));
    }

    #[test]
    fn dash_after_a_sip_endpoint_needs_eight_hex_digits() {
        assert!(!is_match("PJSIP/city", "PJSIP/city-2-0000004f"));
        assert!(!is_match("SIP/city", "SIP/city-2"));
        assert!(!is_match("IAX2/city", "IAX2/city-2-0000004f"));
        assert!(is_match("Dongle/MTS", "Dongle/MTS-SUP-0100000151"));
    }

    #[test]
    fn star_matches_any_text() {
        assert!(is_match("PJSIP/trunk*", "PJSIP/trunk_1-0000004f"));
        assert!(is_match("PJSIP/*-out", "PJSIP/city-out-0000004f"));
        assert!(!is_match("PJSIP/*-out", "PJSIP/city-in-0000004f"));
        assert!(is_match("Dongle/*", "Dongle/MTS-SUP-0100000151"));
    }

    #[test]
    fn plumbing_is_never_a_trunk() {
        assert!(!is_match("PJSIP/city", "AsyncGoto/PJSIP/city-0000004f"));
        assert!(!is_match("*", "Local/city@out-0000004f;1"));
        assert!(!is_match("*", "Parked/SIP/city-0000004f"));
        assert!(!is_match("*", "Transfered/SIP/city-0000004f"));
        assert!(!is_match("DAHDI/*", "DAHDI/pseudo-1711246544"));
        assert!(is_match("*", "PJSIP/city-0000004f"));
    }

    #[test]
    fn longest_endpoint_wins() {
        let endpoints = Endpoints::new(vec![
            TrunkEndpoint::new("mts", "Dongle/MTS"),
            TrunkEndpoint::new("support", "Dongle/MTS-SUP"),
            TrunkEndpoint::new("rest", "Dongle/*"),
        ])
        .expect("no conflict");
        for (name, trunk) in [
            ("Dongle/MTS-SUP-0100000151", Some("support")),
            ("Dongle/MTS-0100000151", Some("mts")),
            ("Dongle/LIFE-0100000151", Some("rest")),
            ("PJSIP/101-00000050", None),
        ] {
            let found = endpoints.find(name);
            assert_eq!(found.map(|found| found.trunk.as_str()), trunk, "{name}");
        }
    }

    #[test]
    fn equally_long_endpoints_prefer_later_match_in_name() {
        let a = TrunkEndpoint::new("a", "PJSIP/*-a");
        let b = TrunkEndpoint::new("b", "PJSIP/*-b");
        for both in [[a.clone(), b.clone()], [b, a]] {
            let endpoints = Endpoints::new(both.to_vec()).expect("no conflict");
            for (name, trunk) in [
                ("PJSIP/x-a/y-b-00000001", "b"),
                ("PJSIP/y-b/x-a-00000001", "a"),
                ("PJSIP/x-a-00000001", "a"),
            ] {
                let found = endpoints.find(name).expect("a trunk");
                assert_eq!(found.trunk, trunk, "{name}");
            }
        }
    }

    fn is_conflict(a: &str, b: &str) -> bool {
        Endpoints::new(vec![TrunkEndpoint::new("a", a), TrunkEndpoint::new("b", b)]).is_err()
    }

    #[test]
    fn overlapping_endpoints_of_equal_length_are_refused() {
        assert!(is_conflict("PJSIP/city", "PJSIP/city"));
        assert!(is_conflict("PJSIP/ci*y", "PJSIP/cit*"));
        assert!(is_conflict("PJSIP/*out", "PJSIP/out*"));
        assert!(!is_conflict("PJSIP/*out", "PJSIP/in*t2"));
        assert!(!is_conflict("PJSIP/city", "PJSIP/gsm1"));
        assert!(!is_conflict("PJSIP/a*c", "PJSIP/b*c"));
    }

    fn extension_text(name: &str) -> Option<String> {
        extension(name).map(|extension| extension.as_str().to_owned())
    }

    #[test]
    fn extension_is_the_part_after_the_slash_without_suffix() {
        assert_eq!(extension_text("PJSIP/101-00000050").as_deref(), Some("101"));
        assert_eq!(
            extension_text("PJSIP/101-00000050<ZOMBIE>").as_deref(),
            Some("101")
        );
        assert_eq!(
            extension_text("SIP/150010001-00000018").as_deref(),
            Some("150010001")
        );
        assert_eq!(
            extension_text("PJSIP/anna-maria-0000004f").as_deref(),
            Some("anna-maria")
        );
        assert_eq!(extension_text("SCCP/101-00000006").as_deref(), Some("101"));
        assert_eq!(extension_text("DAHDI/33-1").as_deref(), Some("33"));
        assert_eq!(extension_text("IAX2/204-4711").as_deref(), Some("204"));
        assert_eq!(extension_text("Console/dsp").as_deref(), Some("dsp"));
        assert_eq!(extension_text("Skinny/101@front-3").as_deref(), Some("101"));
        assert_eq!(
            extension_text("USTM/101@front-0x7f12").as_deref(),
            Some("101")
        );
        assert_eq!(extension_text("mISDN/2-u7").as_deref(), Some("2"));
        assert_eq!(extension_text("Agent/1001").as_deref(), Some("1001"));
        assert_eq!(
            extension_text("PJSIP/101-WS-0000001a").as_deref(),
            Some("101")
        );
        assert_eq!(
            extension_text("PJSIP/front-WS-0000001a").as_deref(),
            Some("front-WS")
        );
        for plumbing in [
            "Local/101@internal-0000000c;1",
            "AsyncGoto/PJSIP/101-00000050",
            "Snoop/1795151317.146-00000001",
            "CBAnn/600-00000000;1",
            "Surrogate/PJSIP/101-00000050",
            "Message/ast_msg_queue",
            "DAHDI/pseudo-1711246544",
            "Zap/pseudo-42",
            "nonsense",
            "",
        ] {
            assert_eq!(extension_text(plumbing), None, "{plumbing}");
        }
    }

    #[test]
    fn halves_of_a_local_channel_share_one_name() {
        assert_eq!(
            local_pair("Local/101@in-0000000c;1"),
            Some("Local/101@in-0000000c")
        );
        assert_eq!(
            local_pair("Local/101@in-0000000c;2"),
            Some("Local/101@in-0000000c")
        );
        assert_eq!(local_pair("CBAnn/600-00000000;1"), None);
    }
}
