//! What a PBX told: one [`PbxEvent`] a message, borrowed from the bytes that came in.

use crate::units::{EventTime, UniqueId};
use std::borrow::Cow;
use std::time::Duration;

/// Begins what stands for the id of a bridge that was not told.
pub const UNNAMED: &str = "?";

/// Stands behind [`UNNAMED`] for the other side of a bridge that begins or ends for both its
/// channels at once: whoever answered last.
pub const WHO_ANSWERED: &str = "*";

/// Text borrowed from the source's bytes where it could be, owned where it had to be unescaped
/// or repaired.
pub type Text<'a> = Cow<'a, str>;

/// One message of a PBX, as far as a call can depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "made and matched at once; never stored"
)]
pub enum PbxEvent<'a> {
    /// Something happened to a channel.
    Channel(ChannelEvent<'a>),
    /// A call detail record: one path between two parties, told after it ended.
    Cdr(Box<Cdr<'a>>),
    /// The stream of events begins, ends or was interrupted here.
    Mark(Mark),
}

impl PbxEvent<'_> {
    /// Where an event without a time of its own stands among those of its file: after the `last`
    /// one, and not before its channel was made, which the unique id tells. `None` for all else.
    pub fn order_after(&self, last: EventTime) -> Option<EventTime> {
        const STEP: Duration = Duration::from_micros(1);
        let PbxEvent::Channel(event) = self else {
            return None;
        };
        if event.at.is_some() {
            return None;
        }
        let epoch = UniqueId::epoch_in(&event.channel.uniqueid);
        let born = epoch.map_or(last, EventTime::from_seconds);
        Some(last.max(born).plus(STEP))
    }
}

/// A point at which events may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The PBX is up (`FullyBooted`); it says so when it has booted, and after each login.
    FullyBooted {
        /// How long it has been up (`Uptime`), where told.
        uptime: Option<Duration>,
    },
    /// A login was accepted: the stream begins (anew) here.
    LoggedIn,
    /// The PBX says that it stops (`Shutdown`).
    Shutdown,
    /// The list of live channels ends here (`CoreShowChannelsComplete`); the channels came before,
    /// as [`Kind::Listed`].
    ListEnd,
    /// The PBX is another process than before; it tells so some time after its start, and what
    /// came since was heard.
    Restarted {
        /// When it was started, by its own clock, where told.
        began: Option<EventTime>,
    },
    /// A process of the PBX says, as it does every few seconds, that it lives.
    Alive {
        /// Which one ([`ChannelRef::process`]).
        process: u64,
        /// When it said so, by its own clock.
        at: EventTime,
        /// Where it counts its events: which one this is.
        stamp: Option<EventStamp>,
        /// When it was started, by its own clock, where told.
        began: Option<EventTime>,
    },
}

/// An event among all of its process: its number, which grows, and what the clock showed then.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub struct EventStamp {
    /// Greater than those of all events before.
    pub number: u64,
    /// When it was told, which may be some time after what it tells of.
    pub at: EventTime,
}

/// Which of Asterisk's two vocabularies told an event. Both may tell of the same thing.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Origin {
    /// AMI's own channel, bridge and dial events.
    Channel,
    /// Channel event logging.
    Cel,
}

/// Something that happened to one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelEvent<'a> {
    /// The PBX's own time of it; `None` where the message carries none.
    pub at: Option<EventTime>,
    /// Who told it.
    pub origin: Origin,
    /// The channel it happened to. Of a dialling, the channel that is dialled.
    pub channel: ChannelRef<'a>,
    /// What happened.
    pub kind: Kind<'a>,
}

impl<'a> ChannelEvent<'a> {
    /// This happened to this channel, as this vocabulary tells it.
    #[inline]
    pub fn new(
        at: Option<EventTime>,
        origin: Origin,
        channel: ChannelRef<'a>,
        kind: Kind<'a>,
    ) -> Self {
        Self {
            at,
            origin,
            channel,
            kind,
        }
    }

    /// The unique ids and linkedids that it names, empty ones included.
    #[inline]
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let channels = std::iter::once(&self.channel).chain(self.kind.other());
        let ids = channels.flat_map(|it| [it.uniqueid.as_ref(), it.linkedid.as_ref()]);
        let joined = if let Kind::Joined { with } = &self.kind {
            with.as_slice()
        } else {
            &[]
        };
        // What has a slash is a channel's name.
        let joined = joined.iter().map(AsRef::as_ref);
        ids.chain(joined.filter(|id: &&str| !id.contains('/')))
    }

    /// Leaves out the variables whose names are not wanted.
    pub fn retain_variables(&mut self, wanted: impl Fn(&str) -> bool) {
        let other = self.kind.other_mut();
        for channel in other.into_iter().chain([&mut self.channel]) {
            channel.variables.retain(|(name, _)| wanted(name));
        }
    }
}

/// A channel as one message describes it. Unknown texts are empty (`<unknown>` is, too).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelRef<'a> {
    /// `PJSIP/city-0000004f`
    pub name: Text<'a>,
    /// `1795151317.146`; empty where the source told the name alone.
    pub uniqueid: Text<'a>,
    /// The linkedid at that moment; empty where the source has none (AMI 1.x).
    pub linkedid: Text<'a>,
    /// The number the channel calls from (`CallerIDNum`).
    pub caller_number: Text<'a>,
    /// `Exten`; what was dialled on a channel of FreeSWITCH that came in, at its birth.
    pub exten: Text<'a>,
    /// `Context`
    pub context: Text<'a>,
    /// Channel variables, in the order told, without the empty ones.
    pub variables: Vec<(Text<'a>, Text<'a>)>,
    /// The CDR's user field as CEL tells it (`Userfield`).
    pub userfield: Text<'a>,
    /// The application the channel runs, as CEL tells it in every row (`Application`): `Dial`,
    /// or `AppDial` on a channel that was dialled.
    pub application: Text<'a>,
    /// The application's data (`AppData`): `PJSIP/998901110001@city,20,tT`.
    pub app_data: Text<'a>,
    /// Which process of the PBX it is a channel of, where its messages name one: with a process
    /// its channels end.
    pub process: Option<u64>,
    /// Where that process counts its events: which one this is.
    pub stamp: Option<EventStamp>,
    /// What the PBX says of it beside its name, where the name does not say what it is.
    pub traits: Option<Box<ChannelTraits<'a>>>,
}

impl<'a> ChannelRef<'a> {
    /// A channel of which nothing is known but its unique id.
    pub fn by_id(uniqueid: Text<'a>) -> Self {
        Self {
            uniqueid,
            ..Self::default()
        }
    }

    /// Its name or its unique id is told.
    #[inline]
    pub fn is_named(&self) -> bool {
        !self.name.is_empty() || !self.uniqueid.is_empty()
    }
}

/// What a PBX says of a channel whose name says neither whose telephone nor which trunk it is.
/// Unknown texts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelTraits<'a> {
    /// It came into the PBX; else the PBX dialled it.
    pub inbound: bool,
    /// The gateway it was dialled over, or came in from.
    pub gateway: Text<'a>,
    /// The profile of the SIP stack that carries it.
    pub profile: Text<'a>,
    /// The host of the other end, with its port where told: `203.0.113.5:5060`.
    pub address: Text<'a>,
    /// The telephone inside the company that it is.
    pub extension: Text<'a>,
    /// The number that it was dialled with.
    pub dialled: Text<'a>,
    /// Nothing can have happened to it before that was not told.
    pub fresh: bool,
    /// It is over, and was linked with one other in all its life: with whom
    /// [`linked`](Self::linked) names.
    pub sole: bool,
    /// The PBX lists it among those that are up.
    pub listed: bool,
    /// When it was made.
    pub created: Option<EventTime>,
    /// When it answered; `None` as long as it has not.
    pub answered: Option<EventTime>,
    /// When its last link began, and with which channel, as the PBX says after it.
    pub linked: Option<(EventTime, Text<'a>)>,
}

/// `ChannelStateDesc`, as far as the direction of a call depends on it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum ChannelState {
    /// `Down`, `Rsrvd`
    Down,
    /// `Ring`: a call comes in on this channel.
    Ring,
    /// `Pre-ring`: a call comes in on this DAHDI channel.
    PreRing,
    /// `Ringing`, `Dialing`, `Dialing Offhook`: this channel is being called.
    Ringing,
    /// `Up`
    Up,
    /// Told in other words, or not at all (CEL has no state).
    Unknown,
}

/// What happened to the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// `Newchannel`, `CHAN_START`
    Born {
        /// The state it was born in.
        state: ChannelState,
    },
    /// `Newstate`, CEL `ANSWER` (as [`ChannelState::Up`])
    State {
        /// The state it is in now.
        state: ChannelState,
    },
    /// `DialBegin`: the event's channel is being dialled.
    DialBegin {
        /// The channel that dials; `None` for an originated call.
        by: Option<Box<ChannelRef<'a>>>,
        /// `998901110001@city`: the only place with the number as dialled out.
        dial_string: Text<'a>,
    },
    /// `DialEnd`: dialling the event's channel ended.
    DialEnd {
        /// The channel that dialled; `None` for an originated call.
        by: Option<Box<ChannelRef<'a>>>,
        /// `ANSWER`, `BUSY`, `CANCEL`…
        status: Text<'a>,
    },
    /// CEL `APP_START`: the channel runs an application (`Dial`, `Queue`…).
    App {
        /// `Dial`
        name: Text<'a>,
        /// `PJSIP/998901110001@city,20,tT`
        data: Text<'a>,
    },
    /// `BridgeEnter`, `BRIDGE_ENTER`
    BridgeEnter {
        /// The bridge's id; where CEL does not tell it, [`UNNAMED`] and the names of the channels
        /// that are in it already, as far as those are told, separated by commas.
        bridge: Text<'a>,
        /// `simple_bridge`, `softmix`, `holding_bridge`…; empty if not told.
        technology: Text<'a>,
    },
    /// `BridgeLeave`, `BRIDGE_EXIT`
    BridgeLeave {
        /// The bridge's id; [`UNNAMED`] where CEL does not tell it.
        bridge: Text<'a>,
        /// As of [`Kind::BridgeEnter`].
        technology: Text<'a>,
    },
    /// Two calls become one by more than a bridge: pickup, transfer (`Pickup`, `AttendedTransfer`,
    /// `PICKUP`, `ATTENDEDTRANSFER`, `BLINDTRANSFER`, `LocalBridge`).
    Joined {
        /// Unique ids of the other channels that the message names, or their names where it tells
        /// no more (CEL before Asterisk 12); never empty texts.
        with: Vec<Text<'a>>,
    },
    /// The channel and another hear each other from here on (`Bridge` with `Bridgestate: Link` and
    /// `Link` of AMI 1.x, `BRIDGE_START` of CEL before Asterisk 12).
    Linked {
        /// The other one; its unique id is empty where the source tells the name alone.
        with: Box<ChannelRef<'a>>,
    },
    /// They hear each other no more (`Bridgestate: Unlink`, `Unlink`, `BRIDGE_END`).
    Unlinked {
        /// As of [`Kind::Linked`].
        with: Box<ChannelRef<'a>>,
    },
    /// The channel leaves whom it hears alone to speak with a third, and comes back; the PBX tells
    /// of no other end of their bridge.
    Consults {
        /// It leaves; else it is back.
        begins: bool,
    },
    /// Whoever has this channel hands a call that they have on another over to whom they dial here,
    /// and is out of both (`ATTENDEDTRANSFER` before Asterisk 12). The masquerade that does it may
    /// come much later, when the new party answers.
    Transfers {
        /// The linkedid of the call that is handed over.
        call: Text<'a>,
    },
    /// The channel goes on under another name (`Rename`, `Masquerade`). Before Asterisk 12 a
    /// masquerade moves names, and with them the telephones, from one unique id to another.
    Renamed {
        /// `SIP/101-0000002a`, `SIP/101-0000002a<ZOMBIE>`
        to: Text<'a>,
        /// The unique id that had the name up to now; empty from a decoder, for only the
        /// assembler knows.
        holder: Text<'a>,
    },
    /// `Hangup`, CEL `HANGUP`
    Hangup {
        /// Q.850 cause, where told.
        cause: Option<u16>,
    },
    /// CEL `CHAN_END`: the channel is gone (it may come before `HANGUP`).
    Gone,
    /// CEL `LINKEDID_END`: says nothing reliable.
    LinkedidEnd,
    /// The PBX lists the channel among those that are up (`CoreShowChannel`).
    Listed {
        /// The bridge it is in (`BridgeId`); empty where it is in none.
        bridge: Text<'a>,
    },
    /// Any other message that shows the channel alive, with its linkedid and variables.
    Seen,
}

impl<'a> Kind<'a> {
    /// The channel comes into this bridge (`enters`), or leaves it.
    pub fn passes(enters: bool, bridge: Text<'a>, technology: Text<'a>) -> Self {
        match enters {
            true => Self::BridgeEnter { bridge, technology },
            false => Self::BridgeLeave { bridge, technology },
        }
    }

    /// The channel beside its own that an event describes.
    pub fn other(&self) -> Option<&ChannelRef<'a>> {
        match self {
            Self::DialBegin { by, .. } | Self::DialEnd { by, .. } => by.as_deref(),
            Self::Linked { with } | Self::Unlinked { with } => Some(with),
            _ => None,
        }
    }

    /// As of [`Kind::other`].
    pub fn other_mut(&mut self) -> Option<&mut ChannelRef<'a>> {
        match self {
            Self::DialBegin { by, .. } | Self::DialEnd { by, .. } => by.as_deref_mut(),
            Self::Linked { with } | Self::Unlinked { with } => Some(with),
            _ => None,
        }
    }

    /// It tells who hears whom.
    pub const fn is_of_bridge(&self) -> bool {
        matches!(
            self,
            Self::BridgeEnter { .. }
                | Self::BridgeLeave { .. }
                | Self::Linked { .. }
                | Self::Unlinked { .. }
        )
    }
}

/// A call detail record. Texts as the source gives them; times made absolute by the decoder
/// where it can, `None` where the record has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cdr<'a> {
    /// The PBX's own time of the message, not of the call.
    pub at: Option<EventTime>,
    /// `uniqueid`; may be empty.
    pub uniqueid: Text<'a>,
    /// `linkedid`, where mapped; may be empty.
    pub linkedid: Text<'a>,
    /// `channel`
    pub channel: Text<'a>,
    /// `dstchannel`; may be empty.
    pub dest_channel: Text<'a>,
    /// `src`
    pub source: Text<'a>,
    /// `dst`
    pub destination: Text<'a>,
    /// `did`, where the dialplan keeps the number that was dialled (FreePBX does).
    pub did: Text<'a>,
    /// `dcontext`
    pub context: Text<'a>,
    /// `lastapp`
    pub last_app: Text<'a>,
    /// `lastdata`
    pub last_data: Text<'a>,
    /// `start`, as written (local time without a zone, or ISO 8601).
    pub start: Text<'a>,
    /// `answer`, as written; empty when unanswered.
    pub answer: Text<'a>,
    /// `end`, as written.
    pub end: Text<'a>,
    /// `duration`, in seconds.
    pub duration_sec: Option<u32>,
    /// `billsec`, in seconds.
    pub billable_sec: Option<u32>,
    /// `ANSWERED`, `NO ANSWER`, `BUSY`, `FAILED`, `CONGESTION`, `CANCEL`, or others to come.
    pub disposition: Text<'a>,
    /// `userfield`
    pub userfield: Text<'a>,
    /// `clid`: `"Anna" <998901110001>`
    pub caller_id: Text<'a>,
    /// `start` made absolute.
    pub started_at: Option<EventTime>,
    /// `answer` made absolute; `None` when unanswered.
    pub answered_at: Option<EventTime>,
    /// `end` made absolute.
    pub ended_at: Option<EventTime>,
    /// Nothing tells the zone of its local times: they were taken for UTC.
    pub zoneless: bool,
    /// Of a record that tells of one channel alone: what it tells, as events; empty of one that
    /// tells of a path between two.
    pub events: Vec<ChannelEvent<'a>>,
}
