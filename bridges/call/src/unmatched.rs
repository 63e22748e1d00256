//! Channels of no trunk that carried somebody from outside: of a trunk that no flag names, or whose
//! endpoint is misspelt. Their calls look internal.

use crate::trunk::{
    LineTraits, OUTSIDE_DIGITS_MIN, digits, is_numeric, is_outside, is_sip, prefix,
};

/// Prefixes named of one call.
const PREFIXES_MAX: usize = 8;

/// The way in which a channel carried a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// The number's owner called in on the channel.
    In,
    /// The number stood in the dial string of the channel.
    Out,
}

/// Prefixes of the channels of one call that belong to no trunk and carried an outside number, each
/// once: `PJSIP/citty`.
#[derive(Debug, Default)]
pub(crate) struct Unmatched(pub(crate) Vec<String>);

impl Unmatched {
    /// A channel of no trunk, and a number that it carried. It is passed over where that is a
    /// telephone's own, or what is dialed of a telephone: `PJSIP/101/sip:4711@10.0.0.5`.
    pub(crate) fn note(&mut self, channel: &str, number: &str, way: Carried) {
        let Some(prefix) = prefix(channel) else {
            return;
        };
        let device = prefix.split_once('/').map_or("", |(_, device)| device);
        let is_phone = is_short(device) && (is_sip(&prefix) || way == Carried::In);
        let own = is_numeric(device) && digits(number).ends_with(&digits(device));
        if !is_phone && !own {
            self.take_in(prefix, number);
        }
    }

    fn take_in(&mut self, prefix: String, number: &str) {
        let room = self.0.len() < PREFIXES_MAX;
        if room && is_outside(number) && !self.0.contains(&prefix) {
            self.0.push(prefix);
        }
    }

    /// The same of a channel of which the PBX tells what it is. One that it calls a telephone's is
    /// that, whatever number it shows.
    pub(crate) fn note_line(&mut self, line: &LineTraits, number: &str) {
        match (line.gateway.as_str(), line.profile.as_str()) {
            _ if !line.extension.is_empty() => {}
            ("", "") => {}
            ("", profile) => self.take_in(format!("profile/{profile}"), number),
            (gateway, _) => self.take_in(format!("gateway/{gateway}"), number),
        }
    }
}

/// `101`, `101-WS`: an extension's number.
fn is_short(device: &str) -> bool {
    let number = device.strip_suffix("-WS").unwrap_or(device);
    is_numeric(number) && number.len() < OUTSIDE_DIGITS_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(channel: &str, number: &str, way: Carried) -> Vec<String> {
        let mut unmatched = Unmatched::default();
        unmatched.note(channel, number, way);
        unmatched.0
    }

    #[test]
    fn unmatched_channel_with_outside_number_is_named_by_prefix() {
        for (channel, prefix) in [
            ("PJSIP/citty-0000004f", "PJSIP/citty"),
            ("SIP/998712000000-0000004f", "SIP/998712000000"),
            ("Dongle/MTS-SUP-0100000151", "Dongle/MTS-SUP"),
            ("DAHDI/i1/998901110001-3", "DAHDI/i1"),
            ("PJSIP/trunk_1/998901110001-1", "PJSIP/trunk_1"),
        ] {
            for way in [Carried::In, Carried::Out] {
                assert_eq!(noted(channel, "+998901110001", way), [prefix]);
            }
        }
        // A line of a card may be a telephone's; an outside number is dialed over no telephone.
        assert_eq!(
            noted("DAHDI/33-1", "998901110001", Carried::Out),
            ["DAHDI/33"]
        );
        assert_eq!(
            noted("DAHDI/33-1", "998901110001", Carried::In),
            [] as [&str; 0]
        );
    }

    #[test]
    fn telephones_and_inside_numbers_are_none() {
        for (channel, number) in [
            ("PJSIP/101-00000050", "998901110001"),
            ("PJSIP/101-WS-00000050", "998901110001"),
            ("PJSIP/reception-00000050", "102"),
            ("PJSIP/reception-00000050", "anonymous"),
            ("PJSIP/998712000000-00000050", "+998712000000"),
            ("Local/998901110001@out-0000004f;1", "998901110001"),
        ] {
            for way in [Carried::In, Carried::Out] {
                assert_eq!(noted(channel, number, way), [] as [&str; 0], "{channel}");
            }
        }
    }

    #[test]
    fn a_call_names_few_and_each_once() {
        let mut unmatched = Unmatched::default();
        for n in (0..20).chain(0..20) {
            unmatched.note(
                &format!("PJSIP/gw{n}-0000004f"),
                "998901110001",
                Carried::In,
            );
        }
        assert_eq!(unmatched.0.len(), PREFIXES_MAX);
    }
}
