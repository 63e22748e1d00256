//! Events of AMI 1.x (Asterisk 1.4 to 11), which has neither linkedids nor bridges. They report
//! which channel dialed another, which channels are connected, and which channel continues under
//! another one's unique ID.
//!
//! ```text
//! Dial        SubEvent, Channel, Destination, UniqueID, DestUniqueID, Dialstring
//!             Source, Destination, SrcUniqueID, DestUniqueID                (1.4)
//! Bridge      Bridgestate, Channel1, Channel2, Uniqueid1, Uniqueid2
//! Link Unlink Channel1, Channel2, Uniqueid1, Uniqueid2                      (1.4; Unlink to 11)
//! Rename      Channel (1.4: Oldname), Newname, Uniqueid
//! Masquerade  Clone, Original: only names
//! ```

use crate::key::{self, Key};
use crate::text::{RawPairs, RawValue, add_variable, epoch, same, text_or_empty};
use callbridge_call::{ChannelEvent, ChannelRef, EventTime, Kind, Origin, Text};
use std::borrow::Cow;

/// Events that Asterisk 12 and later don't send or send in a different form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Old {
    Dial,
    /// `Link` reports that two channels were connected, and `Unlink` that they were disconnected.
    /// `Bridge` reports both, distinguished by `Bridgestate`.
    Link {
        begins: bool,
    },
    Rename,
    Masquerade,
    /// A channel enters or leaves a conference (`MeetmeJoin`, `MeetmeLeave`, `ConfbridgeJoin`,
    /// `ConfbridgeLeave`).
    Room {
        enters: bool,
    },
    AgentCalled,
    AgentConnect,
    OriginateResponse,
    Transfer,
    /// A caller left a queue before being connected. From Asterisk 12 on, the event also describes
    /// the caller's channel.
    QueueCallerAbandon,
}

impl Old {
    /// Returns the rule for an event name.
    pub(crate) fn parse(event: &[u8]) -> Option<Self> {
        Some(match event {
            b"Dial" => Self::Dial,
            b"Bridge" | b"Link" => Self::Link { begins: true },
            b"Unlink" => Self::Link { begins: false },
            b"Rename" => Self::Rename,
            b"Masquerade" => Self::Masquerade,
            b"MeetmeJoin" | b"ConfbridgeJoin" => Self::Room { enters: true },
            b"MeetmeLeave" | b"ConfbridgeLeave" => Self::Room { enters: false },
            b"AgentCalled" => Self::AgentCalled,
            b"AgentConnect" => Self::AgentConnect,
            b"OriginateResponse" => Self::OriginateResponse,
            b"Transfer" => Self::Transfer,
            b"QueueCallerAbandon" => Self::QueueCallerAbandon,
            _ => return None,
        })
    }
}

/// The values that a rule reads from an event.
#[derive(Default)]
struct Read<'a> {
    at: Option<EventTime>,
    /// The event's first or only channel.
    one: ChannelRef<'a>,
    /// The second channel, which is dialed, linked, or the target of a transfer.
    two: ChannelRef<'a>,
    /// The value that isn't a channel's, which may be a new name, a dial string, a dial status, or
    /// a conference.
    word: Text<'a>,
    /// Whether the event reports an end (`SubEvent: End`, `Bridgestate: Unlink`).
    ends: bool,
    /// The conference's bridge, as reported by Asterisk 12 and later. These releases report entries
    /// and exits through other events, so this one only shows where the channel is.
    bridge: Text<'a>,
    /// Variables, along with the name of the channel that has them.
    variables: Vec<(String, Text<'a>)>,
}

/// Turns an event's pairs into a channel event, or returns `None` if the event doesn't matter for
/// calls. Sets `repaired` if any bytes weren't valid UTF-8.
pub(crate) fn decode<'a>(
    old: Old,
    pairs: impl RawPairs<'a>,
    repaired: &mut bool,
) -> Option<ChannelEvent<'a>> {
    let mut read = Read::default();
    for (name, value) in pairs {
        read.take(old, name.as_ref(), value, repaired);
    }
    read.give_variables();
    let at = read.at;
    let (channel, kind) = read.into_channel_and_kind(old)?;
    let named = channel.is_named();
    named.then(|| ChannelEvent::new(at, Origin::Channel, channel, kind))
}

/// The field of [`Read`] that a key's value is stored in.
#[derive(Clone, Copy)]
enum Target {
    Channel,
    Id,
    Linkedid,
    Number,
    OtherChannel,
    OtherId,
    OtherNumber,
    Word,
    Room,
    /// Sets `ends` if the value equals this, ignoring case.
    EndsBy(&'static [u8]),
    Bridge,
}

/// Returns the keys to read from an event. `Channel` is omitted for `AgentConnect`, because it's
/// the agent's channel, or merely the called interface, whereas the event's unique ID is the
/// caller's.
const fn keys(old: Old) -> &'static [(&'static [u8], Target)] {
    use Target::{
        Bridge, Channel, EndsBy, Id, Linkedid, Number, OtherChannel, OtherId, OtherNumber, Room,
        Word,
    };
    match old {
        Old::Dial => &[
            (b"SubEvent", EndsBy(b"End")),
            (b"Channel", Channel),
            (b"Source", Channel),
            (b"UniqueID", Id),
            (b"SrcUniqueID", Id),
            (b"CallerIDNum", Number),
            (b"CallerID", Number),
            (b"Destination", OtherChannel),
            (b"DestUniqueID", OtherId),
            (b"Dialstring", Word),
            (b"DialStatus", Word),
            // The application's data, which some vendors add to 1.4.
            (b"Data", Word),
        ],
        Old::Link { .. } => &[
            (b"Bridgestate", EndsBy(b"Unlink")),
            (b"Channel1", Channel),
            (b"Uniqueid1", Id),
            (b"CallerID1", Number),
            (b"Channel2", OtherChannel),
            (b"Uniqueid2", OtherId),
            (b"CallerID2", OtherNumber),
        ],
        Old::Rename => &[
            (b"Channel", Channel),
            (b"Oldname", Channel),
            (b"Newname", Word),
            (b"Uniqueid", Id),
        ],
        Old::Masquerade => &[(b"Original", Channel), (b"Clone", Word)],
        Old::Room { .. } => &[
            (b"Channel", Channel),
            (b"Uniqueid", Id),
            (b"Linkedid", Linkedid),
            (b"Meetme", Room),
            (b"Conference", Room),
            (b"BridgeUniqueid", Bridge),
        ],
        Old::AgentCalled => &[
            (b"ChannelCalling", Channel),
            (b"Channel", Channel),
            (b"Uniqueid", Id),
            (b"Linkedid", Linkedid),
            (b"DestinationChannel", OtherChannel),
            (b"AgentCalled", Word),
        ],
        Old::AgentConnect => &[
            (b"Uniqueid", Id),
            (b"Linkedid", Linkedid),
            (b"BridgedChannel", OtherId),
        ],
        Old::OriginateResponse => &[(b"Uniqueid", Id), (b"Channel", Word)],
        Old::Transfer => &[
            (b"Channel", Channel),
            (b"Uniqueid", Id),
            (b"TargetUniqueid", OtherId),
        ],
        Old::QueueCallerAbandon => &[
            (b"Channel", Channel),
            (b"Uniqueid", Id),
            (b"Linkedid", Linkedid),
        ],
    }
}

/// Returns `true` for a channel name such as `PJSIP/city-00000048`, as opposed to an interface such
/// as `SIP/city/998901110001`.
fn has_suffix(name: &str) -> bool {
    let name = name.strip_suffix(";1").unwrap_or(name);
    let suffix = name.rsplit_once('-').map_or("", |(_, suffix)| suffix);
    suffix.len() == 8 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl<'a> Read<'a> {
    fn take(&mut self, old: Old, name: &[u8], value: impl RawValue<'a>, repaired: &mut bool) {
        match key::parse(name) {
            Key::Timestamp => {
                self.at = epoch(value.as_ref());
                return;
            }
            Key::ChanVariable => {
                let owner = name.get(13..name.len().saturating_sub(1));
                let owner = String::from_utf8_lossy(owner.unwrap_or_default()).into_owned();
                self.variables.push((owner, value.text(repaired)));
                return;
            }
            _ => {}
        }
        let Some((_, place)) = keys(old).iter().find(|(key, _)| same(name, key)) else {
            return;
        };
        let field = match place {
            Target::Channel => &mut self.one.name,
            Target::Id => &mut self.one.uniqueid,
            Target::Linkedid => &mut self.one.linkedid,
            Target::Number => &mut self.one.caller_number,
            Target::OtherChannel => &mut self.two.name,
            Target::OtherId => &mut self.two.uniqueid,
            Target::OtherNumber => &mut self.two.caller_number,
            Target::Word => &mut self.word,
            Target::Bridge => &mut self.bridge,
            Target::Room => {
                self.word = Cow::Owned(format!("room {}", text_or_empty(value, repaired)));
                return;
            }
            Target::EndsBy(word) => {
                self.ends = value.as_ref().eq_ignore_ascii_case(word);
                return;
            }
        };
        *field = match value.as_ref() {
            b"<null>" | b"(null)" => Text::default(),
            _ => text_or_empty(value, repaired),
        };
    }

    /// Returns the event's channel and what happened to it.
    fn into_channel_and_kind(self, old: Old) -> Option<(ChannelRef<'a>, Kind<'a>)> {
        let Self {
            one,
            two,
            word,
            ends,
            bridge,
            ..
        } = self;
        Some(match old {
            // The end of a `Dial` only has the dialing channel and the result.
            Old::Dial if ends && !two.is_named() => {
                let channel = ChannelRef {
                    dial_status: word,
                    ..one
                };
                (channel, Kind::Seen)
            }
            Old::Dial | Old::AgentCalled if !two.is_named() => (one, Kind::Seen),
            Old::QueueCallerAbandon => (one, Kind::GaveUp),
            Old::Dial if ends => {
                let kind = Kind::DialEnd {
                    by: boxed_if_named(one),
                    status: word,
                };
                (two, kind)
            }
            Old::Dial | Old::AgentCalled => {
                let kind = Kind::DialBegin {
                    by: boxed_if_named(one),
                    dial_string: word,
                };
                (two, kind)
            }
            // In later releases, the value is the channel's name, and other events report the
            // dialing.
            Old::OriginateResponse if word.is_empty() || has_suffix(&word) => return None,
            Old::OriginateResponse => {
                let kind = Kind::DialBegin {
                    by: None,
                    dial_string: word,
                };
                (one, kind)
            }
            Old::Link { begins } => match boxed_if_named(two) {
                None => (one, Kind::Seen),
                Some(with) if begins && !ends => (one, Kind::Linked { with }),
                Some(with) => (one, Kind::Unlinked { with }),
            },
            Old::Rename | Old::Masquerade if word.is_empty() => return None,
            Old::Rename | Old::Masquerade => {
                let kind = Kind::Renamed {
                    to: word,
                    holder: Text::default(),
                };
                (one, kind)
            }
            Old::Room { enters: true } if !bridge.is_empty() => (one, Kind::Sits { bridge }),
            Old::Room { .. } if !bridge.is_empty() || word.is_empty() => (one, Kind::Seen),
            Old::Room { enters } => (
                one,
                Kind::enter_or_leave(enters, word, Text::Borrowed("softmix")),
            ),
            Old::AgentConnect | Old::Transfer if two.uniqueid.is_empty() => (one, Kind::Seen),
            Old::AgentConnect | Old::Transfer => {
                let kind = Kind::Joined {
                    with: vec![two.uniqueid],
                };
                (one, kind)
            }
        })
    }

    /// Adds each variable to the channel identified by its key, or to the first channel if that's
    /// not a known name.
    fn give_variables(&mut self) {
        for (owner, text) in std::mem::take(&mut self.variables) {
            let channel = if owner == self.two.name && !owner.is_empty() {
                &mut self.two
            } else {
                &mut self.one
            };
            add_variable(&mut channel.variables, text);
        }
    }
}

fn boxed_if_named(channel: ChannelRef<'_>) -> Option<Box<ChannelRef<'_>>> {
    channel.is_named().then(|| Box::new(channel))
}
