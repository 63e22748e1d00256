//! Collects unmatched channels, which carried an outside number but don't belong to any trunk,
//! either because their trunk isn't configured or because its endpoint is misspelled. Their calls
//! look like internal ones.

use crate::trunk::{
    LineTraits, OUTSIDE_DIGITS_MIN, digits, is_numeric, is_outside, is_sip, prefix,
};

/// Maximum number of prefixes per call.
const PREFIXES_MAX: usize = 8;

/// How a channel carried a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// The party with the number called in on the channel.
    In,
    /// The number was in the channel's dial string.
    Out,
}

/// Distinct prefixes of a call's unmatched channels, such as `PJSIP/citty`.
#[derive(Debug, Default)]
pub(crate) struct Unmatched(pub(crate) Vec<String>);

impl Unmatched {
    /// Records a channel that doesn't belong to any trunk, along with a number that it carried. A
    /// phone's own number is ignored, and so is a phone's dial string, such as
    /// `PJSIP/101/sip:4711@10.0.0.5`.
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

    /// Records a channel by the line traits that the PBX reports. A channel with an extension is a
    /// phone, no matter what number it shows.
    pub(crate) fn note_line(&mut self, line: &LineTraits, number: &str) {
        match (line.gateway.as_str(), line.profile.as_str()) {
            _ if !line.extension.is_empty() => {}
            ("", "") => {}
            ("", profile) => self.take_in(format!("profile/{profile}"), number),
            (gateway, _) => self.take_in(format!("gateway/{gateway}"), number),
        }
    }
}

/// Returns `true` for an extension number such as `101` or `101-WS`.
fn is_short(device: &str) -> bool {
    let number = device.strip_suffix("-WS").unwrap_or(device);
    is_numeric(number) && number.len() < OUTSIDE_DIGITS_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unmatched_prefixes(channel: &str, number: &str, way: Carried) -> Vec<String> {
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
                assert_eq!(unmatched_prefixes(channel, "+998901110001", way), [prefix]);
            }
        }
        // A card's line may be a phone, but outside numbers aren't dialed over a phone.
        assert_eq!(
            unmatched_prefixes("DAHDI/33-1", "998901110001", Carried::Out),
            ["DAHDI/33"]
        );
        assert_eq!(
            unmatched_prefixes("DAHDI/33-1", "998901110001", Carried::In),
            [] as [&str; 0]
        );
    }

    #[test]
    fn telephones_and_inside_numbers_are_not_unmatched() {
        for (channel, number) in [
            ("PJSIP/101-00000050", "998901110001"),
            ("PJSIP/101-WS-00000050", "998901110001"),
            ("PJSIP/reception-00000050", "102"),
            ("PJSIP/reception-00000050", "anonymous"),
            ("PJSIP/998712000000-00000050", "+998712000000"),
            ("Local/998901110001@out-0000004f;1", "998901110001"),
        ] {
            for way in [Carried::In, Carried::Out] {
                assert_eq!(
                    unmatched_prefixes(channel, number, way),
                    [] as [&str; 0],
                    "{channel}"
                );
            }
        }
    }

    #[test]
    fn unmatched_channels_of_a_call_are_few_and_each_once() {
        let mut unmatched = Unmatched::default();
        for n in 0..20 {
            for suffix in ["0000004f", "00000050"] {
                let channel = format!("PJSIP/gw{n}-{suffix}");
                unmatched.note(&channel, "998901110001", Carried::In);
            }
        }
        let expected: Vec<String> = (0..PREFIXES_MAX).map(|n| format!("PJSIP/gw{n}")).collect();
        assert_eq!(unmatched.0, expected);
    }
}
