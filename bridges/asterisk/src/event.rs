//! Turns AMI events into [`PbxEvent`]s, given their pairs in any format.

use crate::ami1::{self, Old};
use crate::cel::CelRow;
use crate::cel_time::CelClock;
use crate::key::Key;
use crate::text::{RawPairs, RawValue, add_variable, epoch, number, same, strip, text_or_empty};
use crate::{cdr, key};
use callbridge_call::{
    ChannelEvent, ChannelRef, ChannelState, Kind, Mark, Origin, PbxEvent, Text, Unreadable,
};
use std::time::Duration;

/// How an event's pairs are read. An event without a rule is skipped once its name has been read.
/// `VarSet`, `DeviceStateChange`, `RTCPSent`, `QueueMemberStatus`, and others have no rule, because
/// everything they report is also in the events below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The keys describe a single channel, without a prefix.
    Plain(Plain),
    /// A channel dials another one, whose keys start with `Dest`.
    Dial {
        begins: bool,
    },
    /// The event joins channels from several calls. The values are the key prefix of the event's
    /// main channel and those of the channels being joined to it.
    Joined(&'static [u8], &'static [&'static [u8]]),
    /// An event that only exists in AMI 1.x or has a different form there.
    Old(Old),
    Cel,
    Cdr,
    Mark(Mark),
}

/// Events whose keys describe a single channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plain {
    Born,
    State,
    Enter,
    Leave,
    HangupRequest,
    Hangup,
    Seen,
    /// The channel is running an application.
    Runs,
    /// One of the live channels in the `CoreShowChannels` list.
    Listed,
}

/// The space-separated names of the events that are read. All others are skipped as soon as their
/// name has been read.
pub const DECODED: &str = "\
    CEL Newchannel Newstate Newexten BridgeEnter BridgeLeave Hangup NewConnectedLine \
    NewCallerid NewAccountCode HangupRequest SoftHangupRequest Hold Unhold DialBegin \
    DialEnd Cdr LocalBridge Pickup AttendedTransfer BlindTransfer FullyBooted Shutdown \
    Newcallerid Dial Bridge Link Unlink Rename Masquerade MeetmeJoin MeetmeLeave \
    ConfbridgeJoin ConfbridgeLeave AgentCalled AgentConnect OriginateResponse Transfer \
    QueueCallerAbandon CoreShowChannel CoreShowChannelsComplete";

/// Returns the rule for an event name.
pub(crate) fn rule(event: &[u8]) -> Option<Rule> {
    Some(match event {
        b"CEL" => Rule::Cel,
        b"Newchannel" => Rule::Plain(Plain::Born),
        b"Newstate" => Rule::Plain(Plain::State),
        b"BridgeEnter" => Rule::Plain(Plain::Enter),
        b"BridgeLeave" => Rule::Plain(Plain::Leave),
        b"Hangup" => Rule::Plain(Plain::Hangup),
        b"HangupRequest" => Rule::Plain(Plain::HangupRequest),
        // `SoftHangupRequest` comes from the PBX, which also uses it to connect the channel to
        // something else, so it doesn't mean that a party is hanging up.
        b"NewConnectedLine" | b"NewCallerid" | b"Newcallerid" | b"NewAccountCode"
        | b"SoftHangupRequest" | b"Hold" | b"Unhold" => Rule::Plain(Plain::Seen),
        b"Newexten" => Rule::Plain(Plain::Runs),
        b"DialBegin" => Rule::Dial { begins: true },
        b"DialEnd" => Rule::Dial { begins: false },
        b"Cdr" => Rule::Cdr,
        b"LocalBridge" => Rule::Joined(b"LocalOne", &[b"LocalTwo"]),
        b"Pickup" => Rule::Joined(b"", &[b"Target"]),
        // In an attended transfer, the two halves of a Local channel link the two bridges.
        b"AttendedTransfer" => Rule::Joined(
            b"OrigTransferer",
            &[
                b"SecondTransferer",
                b"Transferee",
                b"TransferTarget",
                b"LocalOne",
                b"LocalTwo",
            ],
        ),
        b"BlindTransfer" => Rule::Joined(b"Transferer", &[b"Transferee"]),
        b"FullyBooted" => Rule::Mark(Mark::FullyBooted { uptime: None }),
        b"Shutdown" => Rule::Mark(Mark::Shutdown { at: None }),
        b"CoreShowChannel" => Rule::Plain(Plain::Listed),
        b"CoreShowChannelsComplete" => Rule::Mark(Mark::ListEnd { channels: None }),
        _ => return Old::parse(event).map(Rule::Old),
    })
}

/// Reads an event's pairs according to its rule, returning `None` if the event doesn't matter for
/// calls. Sets `repaired` if any bytes weren't valid UTF-8.
#[inline]
pub(crate) fn decode<'a>(
    rule: Rule,
    pairs: impl RawPairs<'a>,
    clock: &mut CelClock,
    repaired: &mut bool,
) -> Result<Option<PbxEvent<'a>>, Unreadable> {
    let event = match rule {
        Rule::Plain(plain) => decode_plain(plain, pairs, repaired),
        Rule::Dial { begins } => decode_dial(begins, pairs, repaired),
        Rule::Joined(main, others) => decode_joined(main, others, pairs, repaired),
        Rule::Cel => CelRow::from_pairs(pairs, repaired).into_event(clock),
        Rule::Old(old) => return Ok(ami1::decode(old, pairs, repaired).map(PbxEvent::Channel)),
        Rule::Cdr => return cdr::decode(pairs, repaired).map(Some),
        Rule::Mark(mark) => return Ok(Some(PbxEvent::Mark(with_details(mark, pairs)))),
    };
    if !event.channel.is_named() {
        return Err(Unreadable::NoChannel);
    }
    Ok(Some(PbxEvent::Channel(event)))
}

/// Adds details from the event to its mark: the PBX's uptime for `FullyBooted`, the timestamp for
/// `Shutdown`, and the number of entries (`ListItems`) for the end of a list.
fn with_details<'a>(mark: Mark, mut pairs: impl RawPairs<'a>) -> Mark {
    match mark {
        Mark::FullyBooted { .. } => {
            let uptime = pairs.find(|(name, _)| same(name.as_ref(), b"Uptime"));
            let seconds = uptime.and_then(|(_, value)| number(value.as_ref()));
            let uptime = seconds.map(Duration::from_secs);
            Mark::FullyBooted { uptime }
        }
        Mark::Shutdown { .. } => {
            let time = pairs.find(|(name, _)| key::parse(name.as_ref()) == Key::Timestamp);
            let at = time.and_then(|(_, value)| epoch(value.as_ref()));
            Mark::Shutdown { at }
        }
        Mark::ListEnd { .. } => {
            let items = pairs.find(|(name, _)| same(name.as_ref(), b"ListItems"));
            let channels = items.and_then(|(_, value)| number(value.as_ref()));
            Mark::ListEnd { channels }
        }
        _ => mark,
    }
}

/// Stores the value in the field of `channel` given by `key`, or hands it back if `key` isn't a
/// channel field.
#[inline(always)]
fn describe<'a, V: RawValue<'a>>(
    channel: &mut ChannelRef<'a>,
    key: Key,
    value: V,
    repaired: &mut bool,
) -> Option<V> {
    let field = match key {
        Key::Channel => &mut channel.name,
        Key::Uniqueid => &mut channel.uniqueid,
        Key::Linkedid => &mut channel.linkedid,
        Key::CallerIdNum => &mut channel.caller_number,
        Key::Exten => &mut channel.exten,
        Key::Context => &mut channel.context,
        Key::ChanVariable => {
            add_variable(&mut channel.variables, value.text(repaired));
            return None;
        }
        _ => return Some(value),
    };
    *field = text_or_empty(value, repaired);
    None
}

fn decode_plain<'a>(
    plain: Plain,
    pairs: impl RawPairs<'a>,
    repaired: &mut bool,
) -> ChannelEvent<'a> {
    let mut channel = ChannelRef::default();
    let mut at = None;
    let mut state = ChannelState::Unknown;
    let mut cause = None;
    let mut bridge = Text::default();
    let mut technology = Text::default();
    let mut listing = Listing::default();
    for (name, value) in pairs {
        let key = key::parse(name.as_ref());
        let Some(value) = describe(&mut channel, key, value, repaired) else {
            continue;
        };
        match key {
            Key::Timestamp => at = epoch(value.as_ref()),
            Key::StateDesc => state = state_of(value.as_ref()),
            Key::State if state == ChannelState::Unknown => state = state_of(value.as_ref()),
            Key::Cause => cause = number(value.as_ref()),
            Key::BridgeUniqueid => bridge = text_or_empty(value, repaired),
            Key::BridgeTechnology => technology = text_or_empty(value, repaired),
            _ if matches!(plain, Plain::Listed | Plain::Runs) => {
                listing.note(name.as_ref(), value, &mut channel, repaired);
            }
            _ => {}
        }
    }
    let kind = match plain {
        Plain::Listed => Kind::Listed {
            bridge: listing.bridge_of(&channel.uniqueid),
            state,
            age: listing.age,
        },
        Plain::Born => Kind::Born { state },
        Plain::State => Kind::State { state },
        Plain::Enter => Kind::BridgeEnter { bridge, technology },
        Plain::Leave => Kind::BridgeLeave { bridge, technology },
        Plain::HangupRequest => Kind::HangupRequested,
        Plain::Hangup => Kind::Hangup { cause },
        Plain::Seen | Plain::Runs => Kind::Seen,
    };
    ChannelEvent::new(at, Origin::Channel, channel, kind)
}

/// Values that are only reported in a list of live channels. The application is also in `Newexten`.
#[derive(Default)]
struct Listing<'a> {
    bridge: Text<'a>,
    /// Unique ID of the channel this one is bridged to (`BridgedUniqueID`), which AMI 1.x reports
    /// instead of a bridge.
    partner: Text<'a>,
    age: Option<Duration>,
}

impl<'a> Listing<'a> {
    /// Stores the value of `name` if it's one of these keys.
    fn note(
        &mut self,
        name: &[u8],
        value: impl RawValue<'a>,
        channel: &mut ChannelRef<'a>,
        repaired: &mut bool,
    ) {
        let field = if same(name, b"BridgeId") {
            &mut self.bridge
        } else if same(name, b"BridgedUniqueID") {
            &mut self.partner
        } else if same(name, b"Application") {
            &mut channel.application
        } else if same(name, b"ApplicationData") || same(name, b"AppData") {
            &mut channel.app_data
        } else if same(name, b"Extension") {
            &mut channel.exten
        } else {
            if same(name, b"Duration") {
                self.age = clock_time(value.as_ref());
            }
            return;
        };
        *field = text_or_empty(value, repaired);
    }

    /// Returns the bridge that channel `id` is in. Since AMI 1.x only reports the other channel,
    /// the bridge is then named after both of them.
    fn bridge_of(&self, id: &str) -> Text<'a> {
        if !self.bridge.is_empty() || self.partner.is_empty() {
            return self.bridge.clone();
        }
        let (first, second) = (id.min(&self.partner), id.max(&self.partner));
        Text::Owned(format!("{first} {second}"))
    }
}

/// Parses a duration in the form `00:01:05` or in seconds.
fn clock_time(text: &[u8]) -> Option<Duration> {
    let mut seconds: u64 = 0;
    for part in text.split(|byte| *byte == b':') {
        let part: u64 = number(part)?;
        seconds = seconds.checked_mul(60)?.checked_add(part)?;
    }
    Some(Duration::from_secs(seconds))
}

fn decode_dial<'a>(
    begins: bool,
    pairs: impl RawPairs<'a>,
    repaired: &mut bool,
) -> ChannelEvent<'a> {
    let mut at = None;
    let mut by = ChannelRef::default();
    let mut dialed = ChannelRef::default();
    let mut dial_string = Text::default();
    let mut status = Text::default();
    for (name, value) in pairs {
        let name = name.as_ref();
        if let Some(name) = strip(name, b"Dest") {
            describe(&mut dialed, key::parse(name), value, repaired);
            continue;
        }
        let key = key::parse(name);
        let Some(value) = describe(&mut by, key, value, repaired) else {
            continue;
        };
        match key {
            Key::Timestamp => at = epoch(value.as_ref()),
            Key::DialString => dial_string = text_or_empty(value, repaired),
            Key::DialStatus => status = text_or_empty(value, repaired),
            _ => {}
        }
    }
    if !dialed.is_named() {
        // The event was cut off before the dialed channel, so it only shows that the dialing
        // channel exists.
        return ChannelEvent::new(at, Origin::Channel, by, Kind::Seen);
    }
    let by = by.is_named().then(|| Box::new(by));
    let kind = if begins {
        Kind::DialBegin { by, dial_string }
    } else {
        Kind::DialEnd { by, status }
    };
    ChannelEvent::new(at, Origin::Channel, dialed, kind)
}

/// Decodes an event that joins the channels with the key prefixes `others` to the one with the key
/// prefix `main`.
///
/// A failed transfer doesn't join any channels. A blind transfer only has two channels that already
/// share a bridge, and the dialing of its target is reported by other events.
fn decode_joined<'a>(
    main: &[u8],
    others: &[&[u8]],
    pairs: impl RawPairs<'a>,
    repaired: &mut bool,
) -> ChannelEvent<'a> {
    // Before Asterisk 12, the keys of `LocalBridge` are numbered.
    let numbered = main == b"LocalOne";
    let mut channel = ChannelRef::default();
    let mut at = None;
    let mut with: Vec<Text<'a>> = Vec::new();
    let mut failed = false;
    for (name, value) in pairs {
        let name = name.as_ref();
        if key::parse(name) == Key::Timestamp {
            at = epoch(value.as_ref());
        } else if same(name, b"Result") {
            failed = value.as_ref() != b"Success";
        } else if numbered && let Some(rest) = name.strip_suffix(b"1") {
            describe(&mut channel, key::parse(rest), value, repaired);
        } else if numbered && same(name, b"Uniqueid2") {
            with.push(text_or_empty(value, repaired));
        } else if let Some(rest) = others.iter().find_map(|side| strip(name, side)) {
            if key::parse(rest) == Key::Uniqueid && !value.as_ref().is_empty() {
                with.push(text_or_empty(value, repaired));
            }
        } else if let Some(rest) = strip(name, main) {
            describe(&mut channel, key::parse(rest), value, repaired);
        }
    }
    with.retain(|other| !other.is_empty() && *other != channel.uniqueid);
    let kind = if failed || with.is_empty() {
        Kind::Seen
    } else {
        Kind::Joined { with }
    };
    ChannelEvent::new(at, Origin::Channel, channel, kind)
}

/// Reads `ChannelStateDesc`, or the number in `ChannelState` for events that don't have it.
fn state_of(text: &[u8]) -> ChannelState {
    match text {
        b"Down" | b"Rsrvd" | b"0" | b"1" => ChannelState::Down,
        b"Ring" | b"4" => ChannelState::Ring,
        b"Pre-ring" | b"9" => ChannelState::PreRing,
        b"Ringing" | b"Dialing" | b"Dialing Offhook" | b"3" | b"5" | b"8" => ChannelState::Ringing,
        b"Up" | b"6" => ChannelState::Up,
        _ => ChannelState::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The PBX only sends the events in `DECODED`, so one that's missing there never arrives. The
    /// names with a rule are found among the byte strings in the two files that define rules.
    #[test]
    fn listed_event_names_have_rules_and_others_have_none() {
        let mut with_rule = BTreeSet::new();
        for source in [include_str!("event.rs"), include_str!("ami1.rs")] {
            for text in source.split("b\"").skip(1) {
                let (name, _) = text.split_once('"').expect("a closed string");
                if rule(name.as_bytes()).is_some() {
                    with_rule.insert(name);
                }
            }
        }
        let listed: BTreeSet<&str> = DECODED.split(' ').collect();
        assert_eq!(with_rule, listed);
        for name in ["VarSet", "DeviceStateChange", "RTCPSent", ""] {
            assert!(rule(name.as_bytes()).is_none(), "{name}");
        }
    }
}
