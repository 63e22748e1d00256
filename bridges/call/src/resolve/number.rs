//! Finds the customer's number and where it came from.
//!
//! ```text
//! 998901110001@city              the number before the peer
//! 2040404/998901110001           the peer before the number
//! city/sip:998901110001@host     a URI after the peer
//! PJSIP/998901110001@city,20,tT  the data of Dial, as CEL reports it
//! ```

use super::view::View;
use crate::facts::{FactKind, SeenDial, Stamped};
use crate::trunk;
use crate::{EventTime, RawNumber};
use std::time::Duration;

/// How long after a channel's end the `Dial` that dialed it may end.
const DIAL_END_SLACK: Duration = Duration::from_millis(50);

/// A number, along with the event it was read from.
#[derive(Clone, Debug)]
pub(super) struct Number {
    pub(super) raw: RawNumber,
    pub(super) at: EventTime,
    pub(super) message: &'static str,
}

fn number(text: impl Into<String>, dialed: bool, at: EventTime, message: &'static str) -> Number {
    let raw = RawNumber::new(text, dialed);
    Number { raw, at, message }
}

/// Creates a [`Number`] from a text that an event reported. `message` describes where the text came
/// from.
fn number_of_channel(text: &Stamped, message: &'static str) -> Number {
    number(text.text.as_str(), false, text.at, message)
}

/// Returns the number of the caller who came in on this channel.
pub(super) fn caller(leg: &View<'_>) -> Option<Number> {
    let callers = leg.leg.callers.by_time();
    let caller = callers.into_iter().find(|caller| is_number(&caller.text))?;
    Some(number_of_channel(caller, "the caller's number"))
}

/// Returns the candidates for the number of a customer who called in on this channel, which are the
/// numbers it shows until the first leg is dialed. A hidden number ends the search.
pub(super) fn callers(leg: &View<'_>, first_dialed: Option<EventTime>) -> Vec<Number> {
    let texts = leg.leg.callers.by_time();
    let until = match (first_dialed, texts.first()) {
        // If a channel's start was missed, its first text arrives later.
        (Some(dialed), Some(first)) => dialed.max(first.at),
        _ => leg.end,
    };
    let did = leg.leg.did.as_deref();
    let mut numbers = Vec::new();
    for text in texts.into_iter().filter(|text| text.at <= until) {
        if text.text.eq_ignore_ascii_case("anonymous") {
            break;
        }
        if is_number(&text.text) && Some(text.text.as_str()) != did {
            numbers.push(number_of_channel(text, "the caller's number"));
        }
    }
    numbers
}

/// Returns the candidates for the number that was dialed on this trunk channel.
///
/// These are the dial strings, the dial event's `DestCallerIDNum`, the Dial application's data, and
/// the extension that the phone dialed. Some carriers require a prefix in the dial string that
/// makes it an invalid number. A channel without any of these has a single candidate, which is the
/// number it shows.
pub(super) fn all_dialed(legs: &[&View<'_>], i: usize) -> Vec<Number> {
    let leg = legs[i];
    let mut numbers = in_dial_strings(leg);
    if numbers.is_empty() {
        numbers.extend(dialed_number(legs, i));
    }
    // An originated channel shows the company's number or the extension.
    if leg.leg.linkedids.first().is_some() && leg.is_root() {
        return numbers;
    }
    for text in leg.leg.callers.by_time() {
        let mut facts = leg.leg.facts.iter();
        if is_number(&text.text) && facts.any(|fact| fact.at == text.at && fact.what.is_dialed()) {
            numbers.push(number_of_channel(text, "the number of the dialed channel"));
        }
    }
    numbers.extend(in_dial_application(legs, leg));
    numbers.extend(dialed_extensions(legs, leg));
    let mut seen: Vec<RawNumber> = Vec::new();
    numbers.retain(|number| {
        let is_new = !seen.contains(&number.raw);
        seen.push(number.raw.clone());
        is_new
    });
    numbers
}

/// Returns the number that was dialed on this trunk channel, taken from the dial string or else its
/// caller number or extension, which may include a dial prefix.
pub(super) fn dialed_number(legs: &[&View<'_>], i: usize) -> Option<Number> {
    let leg = legs[i];
    if let Some(number) = in_dial_strings(leg).into_iter().next() {
        return Some(number);
    }
    if let Some(traits) = &leg.leg.traits
        && is_number(&traits.dialed)
    {
        let message = "the number it was dialed with";
        return Some(number(traits.dialed.as_str(), true, leg.leg.first, message));
    }
    // An originated channel wasn't dialed by a `Dial`. It has the company's number and the
    // extension that it's going to be connected to.
    let has_linkedid = leg.leg.linkedids.first().is_some();
    if has_linkedid && leg.is_root() {
        return None;
    }
    if let Some(number) = in_dial_application(legs, leg) {
        return Some(number);
    }
    if !has_linkedid && !leg.was_dialed() {
        return None;
    }
    let callers = leg.leg.callers.by_time().into_iter();
    let texts = callers.chain(leg.leg.extens.by_time());
    let mut prefixed = texts.filter(|text| is_number(&text.text));
    if let Some(text) = prefixed.next() {
        return Some(number_of_channel(text, "the number of the dialed channel"));
    }
    dialed_extensions(legs, leg).into_iter().next()
}

/// Returns the numbers from the dial strings used to dial this channel, in chronological order.
fn in_dial_strings(leg: &View<'_>) -> Vec<Number> {
    let mut numbers = Vec::new();
    for fact in &leg.leg.facts {
        if let FactKind::Dialed { string, .. } = &fact.what
            && let Some(text) = in_dial_string(string, peer(leg.name))
        {
            numbers.push(number(text, true, fact.at, "the dial string"));
        }
    }
    numbers.sort_by_key(|number| number.at);
    numbers
}

/// Returns the numbers dialed by the phone that placed the call before this channel was created,
/// most recent first. Extensions such as `s`, which a dialplan goes through internally, are
/// skipped.
fn dialed_extensions(legs: &[&View<'_>], leg: &View<'_>) -> Vec<Number> {
    let mut phones = legs
        .iter()
        .filter(|phone| phone.party.extension().is_some());
    let phone = match leg.leg.linkedids.first() {
        Some(linkedid) => phones.find(|phone| phone.leg.id.as_str() == linkedid.text),
        None => phones.next(),
    };
    let Some(phone) = phone else {
        return Vec::new();
    };
    let extens = phone.leg.extens.by_time().into_iter().rev();
    extens
        .filter(|exten| exten.at <= leg.leg.first && is_number(&exten.text))
        .map(|exten| number_of_channel(exten, "the extension that was dialed"))
        .collect()
}

/// Returns those digits of the number dialed on this trunk channel that carriers don't change.
pub(super) fn dialed_digits(legs: &[&View<'_>], i: usize) -> Option<String> {
    let number = dialed_number(legs, i)?;
    let digits = subscriber(&number.raw.text);
    if digits.is_empty() {
        None
    } else {
        Some(digits)
    }
}

/// Returns the last nine digits, which aren't affected by the prefix that a carrier requires.
fn subscriber(number: &str) -> String {
    let digits: Vec<char> = number.chars().filter(char::is_ascii_digit).collect();
    digits[digits.len().saturating_sub(9)..].iter().collect()
}

/// Returns the caller ID of a channel that the PBX originated. Whoever originates the call sets it
/// to either the customer's or the company's number.
pub(super) fn originated_number(leg: &View<'_>) -> Option<Number> {
    let number = caller(leg)?;
    let message = "the number that the called channel shows; it counts only if a lead has it";
    Some(Number { message, ..number })
}

/// Returns the number in the `Dial` that was running during this channel's life or else in the last
/// one before its creation.
fn in_dial_application(legs: &[&View<'_>], leg: &View<'_>) -> Option<Number> {
    let mut found: Vec<(&SeenDial, String)> = Vec::new();
    for dial in legs.iter().flat_map(|leg| &leg.leg.applications.dials) {
        if let Some(number) = in_dial_data(&dial.data, leg.name) {
            found.push((dial, number));
        }
    }
    found.sort_by_key(|(dial, _)| dial.first);
    // The channel's end may be reported a moment before the Dial's.
    let until = leg.end.plus(DIAL_END_SLACK);
    let born = leg.leg.first;
    let (dial, number) = found
        .iter()
        .find(|(dial, _)| dial.last >= born && dial.first <= until)
        .or_else(|| found.iter().rfind(|(dial, _)| dial.first <= born))?;
    Some(self::number(
        number.as_str(),
        true,
        dial.first,
        "the data of Dial",
    ))
}

/// Returns the number for the channel with this name from the data of a `Dial`. The destination
/// must specify the channel's peer, but since a DAHDI or GSM group doesn't, the only destination
/// with that technology is used instead.
pub(super) fn in_dial_data(data: &str, channel: &str) -> Option<String> {
    let tech = trunk::technology(channel);
    let peer = peer(channel);
    // Before Asterisk 1.6, arguments were separated by a vertical bar.
    let destinations = data.split([',', '|']).next().unwrap_or_default();
    let same: Vec<&str> = destinations
        .split('&')
        .filter_map(|destination| destination.split_once('/'))
        .filter(|(its_tech, _)| its_tech.eq_ignore_ascii_case(tech))
        .map(|(_, rest)| rest)
        .collect();
    let named = same
        .iter()
        .find(|rest| rest.split(['/', '@', ':']).any(|part| part == peer));
    match (named, same.as_slice()) {
        (Some(named), _) => in_dial_string(named, peer),
        (None, [only]) if !["PJSIP", "SIP", "IAX2"].contains(&tech) => in_dial_string(only, peer),
        (None, _) => None,
    }
}

/// Returns the text between the slash and the suffix in a channel name.
fn peer(name: &str) -> &str {
    let rest = name.split_once('/').map_or(name, |(_, rest)| rest);
    let device = rest.split('/').next().unwrap_or(rest);
    device.rsplit_once('-').map_or(device, |(peer, _)| peer)
}

/// Returns the number in a dial string.
fn in_dial_string(string: &str, peer: &str) -> Option<String> {
    let mut segments: Vec<&str> = string.split('/').collect();
    if segments.len() > 1 && trunk::is_known_technology(segments[0]) {
        segments.remove(0);
    }
    // In `peer/number` and `peer/number/host`, the number comes second.
    let order = segments.get(1).into_iter().chain(segments.first());
    let mut numbers = order.filter_map(|segment| number_in_segment(segment));
    numbers.find(|number| *number != peer).map(str::to_owned)
}

/// Returns a segment's number without the scheme, host, and suffixes.
fn number_in_segment(segment: &str) -> Option<&str> {
    let lower = segment.to_ascii_lowercase();
    let mut schemes = ["sips:", "sip:", "tel:"].into_iter();
    let scheme = schemes.find(|scheme| lower.starts_with(scheme));
    let rest = &segment[scheme.map_or(0, str::len)..];
    let end = rest.find(['@', '!', ';', '?', ',', '|', ':', 'w', 'W']);
    let text = &rest[..end.unwrap_or(rest.len())];
    let is_clean = text
        .chars()
        .all(|c| c.is_ascii_digit() || "+*#-.() ".contains(c));
    if is_clean && is_number(text) {
        Some(text)
    } else {
        None
    }
}

/// Returns `true` if a text may be a phone number, unlike `anonymous`, `<unknown>`, `s`, and the
/// empty text.
pub(crate) fn is_number(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_is_read_from_dial_strings_of_all_channel_drivers() {
        for string in [
            "998901110001@city",
            "city/998901110001",
            "2040404/998901110001",
            "sip:998901110001@10.0.0.1",
            "city/sip:998901110001@10.0.0.1:5060",
            "PJSIP/998901110001@city",
            "SIP/2040404/998901110001",
            "2040404/998901110001/172.20.0.13!!0260010001",
            "g1/998901110001",
            "user:pass@carrier/998901110001",
            "998901110001",
        ] {
            assert_eq!(
                in_dial_string(string, "2040404").as_deref(),
                Some("998901110001"),
                "{string}"
            );
        }
        assert_eq!(
            in_dial_string("+998901110001@city", "city").as_deref(),
            Some("+998901110001")
        );
        for string in ["2040404", "city", "s@city", "", "PJSIP/city"] {
            assert_eq!(in_dial_string(string, "2040404"), None, "{string}");
        }
    }

    #[test]
    fn peer_is_the_part_before_the_suffix() {
        assert_eq!(peer("PJSIP/city-0000004f"), "city");
        assert_eq!(peer("Dongle/MTS-SUP-0100000151"), "MTS-SUP");
        assert_eq!(peer("PJSIP/trunk_1/998901110001-1"), "trunk_1");
    }
}
