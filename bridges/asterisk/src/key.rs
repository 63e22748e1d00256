//! The keys of channel events, which are recognized by their length and their first and last
//! letters.

/// A key that some rule reads. In a dial or transfer event, it's the part after a channel's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Timestamp,
    Channel,
    Uniqueid,
    Linkedid,
    CallerIdNum,
    Exten,
    Context,
    ChanVariable,
    StateDesc,
    State,
    BridgeUniqueid,
    BridgeTechnology,
    Cause,
    DialString,
    DialStatus,
    Other,
}

/// Mask for the bit that makes a letter lowercase, in each of eight bytes. With it, names
/// consisting of letters are equal only if they differ in case alone.
const CASE: u64 = 0x2020_2020_2020_2020;

/// Returns the first eight bytes in lowercase. For a shorter key, returns its first and last four
/// bytes, or 0 if it has fewer than four.
#[inline]
pub(crate) const fn head(name: &[u8]) -> u64 {
    match name.first_chunk::<8>() {
        Some(first) => u64::from_le_bytes(*first) | CASE,
        None => short(name),
    }
}

/// Returns the last eight bytes in lowercase. For a shorter key, returns the same as [`head`].
#[inline]
pub(crate) const fn tail(name: &[u8]) -> u64 {
    match name.last_chunk::<8>() {
        Some(last) => u64::from_le_bytes(*last) | CASE,
        None => short(name),
    }
}

const fn short(name: &[u8]) -> u64 {
    match (name.first_chunk::<4>(), name.last_chunk::<4>()) {
        (Some(first), Some(last)) => {
            let first = u32::from_le_bytes(*first);
            let last = u32::from_le_bytes(*last);
            (first as u64 | (last as u64) << 32) | CASE
        }
        _ => 0,
    }
}

/// Returns `true` if `name` equals `other` (which has four to sixteen letters), ignoring case.
#[inline]
pub(crate) const fn is(name: &[u8], other: &[u8]) -> bool {
    name.len() == other.len() && head(name) == head(other) && tail(name) == tail(other)
}

/// Returns the key with this name, ignoring case.
#[inline]
pub(crate) fn parse(name: &[u8]) -> Key {
    match name.len() {
        5 if is(name, b"Exten") => Key::Exten,
        5 if is(name, b"Cause") => Key::Cause,
        5 if is(name, b"State") => Key::StateDesc,
        7 if is(name, b"Channel") => Key::Channel,
        7 if is(name, b"Context") => Key::Context,
        8 if is(name, b"Uniqueid") => Key::Uniqueid,
        8 if is(name, b"Linkedid") => Key::Linkedid,
        8 if is(name, b"CallerID") => Key::CallerIdNum,
        9 if is(name, b"Timestamp") => Key::Timestamp,
        10 if is(name, b"DialString") => Key::DialString,
        10 if is(name, b"DialStatus") => Key::DialStatus,
        11 if is(name, b"CallerIDNum") => Key::CallerIdNum,
        12 if is(name, b"ChanVariable") => Key::ChanVariable,
        12 if is(name, b"ChannelState") => Key::State,
        14 if is(name, b"BridgeUniqueid") => Key::BridgeUniqueid,
        16 if is(name, b"ChannelStateDesc") => Key::StateDesc,
        16 if is(name, b"BridgeTechnology") => Key::BridgeTechnology,
        15.. if is_old_variable(name) => Key::ChanVariable,
        _ => Key::Other,
    }
}

/// Returns `true` for a variable's key in Asterisk before 12, as in `ChanVariable(PJSIP/x): a=b`.
#[inline]
fn is_old_variable(name: &[u8]) -> bool {
    match name.split_at_checked(12) {
        Some((start, [b'(', ..])) => is(start, b"ChanVariable"),
        _ => false,
    }
}

/// Returns `true` for a key that no rule reads and that has long or numerous values, with or
/// without the `Dest` prefix. The list may be incomplete, because other keys are read and then
/// ignored.
#[inline]
pub(crate) fn is_needless(name: &[u8]) -> bool {
    const WORDS: [u64; 12] = [
        head(b"Connecte"),
        head(b"Language"),
        head(b"AccountC"),
        head(b"Priority"),
        head(b"Privileg"),
        head(b"AMAFlags"),
        head(b"PeerAcco"),
        head(b"BridgeTy"),
        head(b"BridgeCr"),
        head(b"BridgeNa"),
        head(b"BridgeNu"),
        head(b"BridgeVi"),
    ];
    let name = crate::text::strip(name, b"Dest").unwrap_or(name);
    let head = head(name);
    // `CallerID` is a key both in CDRs, where it contains the number, and in AMI 1.x, like
    // `CallerID1`. So only longer names that don't end with `num` are needless.
    if head == self::head(b"CallerID") {
        let is_number = name
            .last_chunk::<3>()
            .is_some_and(|last| last.eq_ignore_ascii_case(b"num"));
        return name.len() > 9 && !is_number;
    }
    name.len() >= 8 && WORDS.contains(&head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_recognized_in_any_case_and_with_a_channel() {
        assert_eq!(parse(b"Uniqueid"), Key::Uniqueid);
        assert_eq!(parse(b"UniqueID"), Key::Uniqueid);
        assert_eq!(parse(b"LINKEDID"), Key::Linkedid);
        assert_eq!(parse(b"ChanVariable(PJSIP/x)"), Key::ChanVariable);
        assert_eq!(parse(b"chanvariable(SIP/1-1)"), Key::ChanVariable);
        assert_eq!(parse(b"ChanVariableX"), Key::Other);
        assert_eq!(parse(b"Chanvel"), Key::Other);
        assert_eq!(parse(b""), Key::Other);
    }

    #[test]
    fn keys_that_rules_read_are_not_needless() {
        for name in [
            "Event",
            "Timestamp",
            "Channel",
            "Uniqueid",
            "Linkedid",
            "CallerIDNum",
            "CallerIDnum",
            "DestCallerIDNum",
            "Exten",
            "Context",
            "ChanVariable",
            "DestChanVariable",
            "Cause",
            "ChannelStateDesc",
            "BridgeUniqueid",
            "BridgeTechnology",
            "DialString",
            "EventName",
            "DestinationChannel",
            "DestinationContext",
            "Destination",
            "Extra",
            "Userfield",
            "CallerID",
            "CallerID2",
        ] {
            assert!(!is_needless(name.as_bytes()), "{name}");
        }
        for name in ["CallerIDName", "DestConnectedLineNum", "CallerIDani"] {
            assert!(is_needless(name.as_bytes()), "{name}");
        }
    }
}
