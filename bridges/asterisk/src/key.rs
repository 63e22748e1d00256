//! The keys of channel events, found by their length first.

use crate::text::same;

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

/// The key with this name, compared without case.
#[inline]
pub(crate) fn of(name: &[u8]) -> Key {
    let candidates: &[(&[u8], Key)] = match name.len() {
        5 => &[(b"Exten", Key::Exten), (b"Cause", Key::Cause)],
        7 => &[(b"Channel", Key::Channel), (b"Context", Key::Context)],
        8 => &[(b"Uniqueid", Key::Uniqueid), (b"Linkedid", Key::Linkedid)],
        9 => &[(b"Timestamp", Key::Timestamp)],
        10 => &[
            (b"DialString", Key::DialString),
            (b"DialStatus", Key::DialStatus),
        ],
        11 => &[(b"CallerIDNum", Key::CallerIdNum)],
        12 => &[
            (b"ChanVariable", Key::ChanVariable),
            (b"ChannelState", Key::State),
        ],
        14 => &[(b"BridgeUniqueid", Key::BridgeUniqueid)],
        16 => &[
            (b"ChannelStateDesc", Key::StateDesc),
            (b"BridgeTechnology", Key::BridgeTechnology),
        ],
        _ => &[],
    };
    let found = candidates
        .iter()
        .find(|(candidate, _)| same(name, candidate));
    match found {
        Some(&(_, key)) => key,
        // Before Asterisk 12: `ChanVariable(PJSIP/x): a=b`.
        None if name.len() > 13 && same(&name[..13], b"ChanVariable(") => Key::ChanVariable,
        None => Key::Other,
    }
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
        Side::Target
        | Side::SecondTransferer
        | Side::Transferee
        | Side::TransferTarget
        | Side::LocalTwo => &[],
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
        assert_eq!(of(b"ChanVariableX"), Key::Other);
        assert_eq!(of(b""), Key::Other);
    }
}
