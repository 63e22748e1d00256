//! The keys of channel events, known by their length and their first and last letters.

/// A key that some rule reads; in a dial or transfer event, what follows the side's prefix.
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

/// Sets the bit that tells lower case from upper in each byte: two keys whose letters differ in
/// case alone become equal, two other names made of letters stay different.
const CASE: u64 = 0x2020_2020_2020_2020;

/// The first eight bytes, in lower case; shorter keys are filled up with zeros.
#[inline]
pub(crate) const fn head(name: &[u8]) -> u64 {
    match name.first_chunk::<8>() {
        Some(first) => u64::from_le_bytes(*first) | CASE,
        None => short(name),
    }
}

/// The last eight bytes, in lower case, of a key that is no shorter.
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
            let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
            (first as u64 | (last as u64) << 32) | CASE
        }
        _ => 0,
    }
}

/// Whether `name` is `other`, compared without case. `other` is four to sixteen letters long.
#[inline]
pub(crate) const fn is(name: &[u8], other: &[u8]) -> bool {
    name.len() == other.len() && head(name) == head(other) && tail(name) == tail(other)
}

/// The key with this name, compared without case.
#[inline]
pub(crate) fn of(name: &[u8]) -> Key {
    let either = |one: &[u8], key, two: &[u8], other| {
        if is(name, one) {
            key
        } else if is(name, two) {
            other
        } else {
            Key::Other
        }
    };
    let only = |one: &[u8], key| if is(name, one) { key } else { Key::Other };
    match name.len() {
        5 => match either(b"Exten", Key::Exten, b"Cause", Key::Cause) {
            Key::Other => only(b"State", Key::StateDesc),
            key => key,
        },
        7 => either(b"Channel", Key::Channel, b"Context", Key::Context),
        8 => match either(b"Uniqueid", Key::Uniqueid, b"Linkedid", Key::Linkedid) {
            Key::Other => only(b"CallerID", Key::CallerIdNum),
            key => key,
        },
        9 => only(b"Timestamp", Key::Timestamp),
        10 => either(
            b"DialString",
            Key::DialString,
            b"DialStatus",
            Key::DialStatus,
        ),
        11 => only(b"CallerIDNum", Key::CallerIdNum),
        12 => either(
            b"ChanVariable",
            Key::ChanVariable,
            b"ChannelState",
            Key::State,
        ),
        14 => only(b"BridgeUniqueid", Key::BridgeUniqueid),
        16 => {
            let key = either(
                b"ChannelStateDesc",
                Key::StateDesc,
                b"BridgeTechnology",
                Key::BridgeTechnology,
            );
            if key == Key::Other {
                old_variable(name)
            } else {
                key
            }
        }
        15 | 17.. => old_variable(name),
        _ => Key::Other,
    }
}

/// Before Asterisk 12: `ChanVariable(PJSIP/x): a=b`.
#[inline]
fn old_variable(name: &[u8]) -> Key {
    match name.split_at_checked(12) {
        Some((start, [b'(', ..])) if is(start, b"ChanVariable") => Key::ChanVariable,
        Some(_) | None => Key::Other,
    }
}

/// Keys of long or numerous values that no rule reads, with or without a prefix of one word.
/// What this does not know is read, so it need not be complete.
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
    // The bare one is a CDR's with the number in it, or of AMI 1.x, as `CallerID1` is.
    if head == self::head(b"CallerID") {
        let number = |last: &[u8; 3]| last.eq_ignore_ascii_case(b"num");
        return name.len() > 9 && !name.last_chunk::<3>().is_some_and(number);
    }
    name.len() >= 8 && WORDS.contains(&head)
}
/// What a channel is in an event that names several: the prefix of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Of `Pickup`: the channel that picked up.
    Picker,
    /// Of `Pickup`: the channel that was ringing.
    Target,
    OrigTransferer,
    SecondTransferer,
    Transferer,
    Transferee,
    TransferTarget,
    LocalOne,
    LocalTwo,
}

impl Side {
    /// What its keys begin with.
    pub(crate) const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Picker => b"",
            Self::Target => b"Target",
            Self::OrigTransferer => b"OrigTransferer",
            Self::SecondTransferer => b"SecondTransferer",
            Self::Transferer => b"Transferer",
            Self::Transferee => b"Transferee",
            Self::TransferTarget => b"TransferTarget",
            Self::LocalOne => b"LocalOne",
            Self::LocalTwo => b"LocalTwo",
        }
    }
}

/// Who comes together with the main channel of an event. The Local halves of an attended
/// transfer link its two bridges.
pub(crate) const fn joining_sides(main: Side) -> &'static [Side] {
    match main {
        Side::Picker => &[Side::Target],
        Side::OrigTransferer => &[
            Side::SecondTransferer,
            Side::Transferee,
            Side::TransferTarget,
            Side::LocalOne,
            Side::LocalTwo,
        ],
        Side::Transferer => &[Side::Transferee],
        Side::LocalOne => &[Side::LocalTwo],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_known_in_every_spelling() {
        assert_eq!(of(b"Uniqueid"), Key::Uniqueid);
        assert_eq!(of(b"UniqueID"), Key::Uniqueid);
        assert_eq!(of(b"LINKEDID"), Key::Linkedid);
        assert_eq!(of(b"ChanVariable(PJSIP/x)"), Key::ChanVariable);
        assert_eq!(of(b"chanvariable(SIP/1-1)"), Key::ChanVariable);
        assert_eq!(of(b"ChanVariableX"), Key::Other);
        assert_eq!(of(b"Chanvel"), Key::Other);
        assert_eq!(of(b""), Key::Other);
    }

    #[test]
    fn no_key_that_a_rule_reads_is_needless() {
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
