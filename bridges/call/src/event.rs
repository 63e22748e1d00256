//! The events of a PBX: one [`PbxEvent`] per message, borrowed from the received bytes.

use crate::units::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// Prefix of the substitute for a bridge id that the PBX did not report.
pub const UNNAMED: &str = "?";

/// Follows [`UNNAMED`] in place of channel names if one event begins or ends a bridge for both its
/// channels. The channel that answered last is the other side of the bridge.
pub const WHO_ANSWERED: &str = "*";

/// Text that is borrowed from the source's bytes if possible, and owned if it had to be unescaped
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
    /// A call detail record: one path between two parties, reported after it ended.
    Cdr(Box<Cdr<'a>>),
    /// The stream of events begins, ends or was interrupted here.
    Mark(Mark),
}

impl PbxEvent<'_> {
    /// Returns when the PBX sent the event according to its own clock, if known. It's never known
    /// for list entries, which don't say when anything happened.
    pub fn sent_at(&self) -> Option<EventTime> {
        match self {
            PbxEvent::Channel(event) if event.is_listed() => None,
            PbxEvent::Channel(event) => event.channel.stamp.map(|stamp| stamp.at).or(event.at),
            PbxEvent::Cdr(cdr) => cdr.at,
            PbxEvent::Mark(mark) => mark.sent_at(),
        }
    }

    /// Returns the unique ID of the event's channel if the switch recovered it. The other node of a
    /// pair may recover a channel too, using its own name.
    pub fn recovered_id(&self) -> Option<&str> {
        let PbxEvent::Channel(ChannelEvent { channel, .. }) = self else {
            return None;
        };
        let is_recovered = matches!(&channel.traits, Some(traits) if traits.recovered);
        is_recovered.then_some(channel.uniqueid.as_ref())
    }

    /// Returns a substitute time for a channel event without a time, so events of a file can be
    /// ordered. It is later than `last`, the time of the previous event, and than the creation of
    /// the channel, which the unique id shows. Returns `None` for all other events.
    pub fn order_after(&self, last: EventTime) -> Option<EventTime> {
        const STEP: Duration = Duration::from_micros(1);
        let PbxEvent::Channel(event @ ChannelEvent { at: None, .. }) = self else {
            return None;
        };
        let epoch = UniqueId::epoch_in(&event.channel.uniqueid);
        let born = epoch.map_or(last, EventTime::from_seconds);
        Some(last.max(born).plus(STEP))
    }
}

/// A point at which events may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The PBX is up (`FullyBooted`). It reports this when it has booted, and after each login.
    FullyBooted {
        /// Time since the start of the PBX (`Uptime`), if given.
        uptime: Option<Duration>,
    },
    /// A login was accepted. The stream begins here, possibly again.
    LoggedIn,
    /// The PBX reports that it stops (`Shutdown`).
    Shutdown {
        /// The PBX's time of the report, if it has one.
        at: Option<EventTime>,
    },
    /// The list of live channels ends here (`CoreShowChannelsComplete`). The channels came before,
    /// as [`Kind::Listed`].
    ListEnd {
        /// Number of channels in the list, if the PBX provides it (`ListItems`). If fewer have
        /// arrived, the list is inconclusive about the rest.
        channels: Option<usize>,
    },
    /// The PBX is a new process. It reports this some time after its start, and all events since
    /// the start were received.
    Restarted {
        /// Start of the new process, by its own clock, if given.
        began: Option<EventTime>,
    },
    /// A heartbeat: a process of the PBX reports that it is alive, as it does every few seconds.
    Alive {
        /// Number of the process, as in [`ChannelRef::process`].
        process: u64,
        /// Time of the message, by the process's own clock.
        at: EventTime,
        /// Number of the message among the process's events, if it counts them.
        stamp: Option<EventStamp>,
        /// Start of the process, by its own clock, if given.
        began: Option<EventTime>,
        /// Number of its live channels, if given.
        channels: Option<usize>,
    },
}

impl Mark {
    fn sent_at(&self) -> Option<EventTime> {
        match self {
            Self::Shutdown { at } => *at,
            Self::Alive { at, .. } => Some(*at),
            Self::FullyBooted { .. }
            | Self::LoggedIn
            | Self::ListEnd { .. }
            | Self::Restarted { .. } => None,
        }
    }
}

/// The position of an event among the events of its process: its number, and the time of the clock
/// when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EventStamp {
    /// Number of the event, greater than those of all earlier events.
    pub number: u64,
    /// Time at which the event was sent, which may be some time after it happened.
    pub at: EventTime,
}

/// The one of Asterisk's two event systems that an event comes from. Both can report the same
/// thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// AMI's own channel, bridge and dial events.
    Channel,
    /// Channel event logging (CEL), through any backend.
    Cel,
}

/// Something that happened to one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelEvent<'a> {
    /// Time of the event by the PBX's clock, or `None` if the message has none.
    pub at: Option<EventTime>,
    /// The event system that the event comes from.
    pub origin: Origin,
    /// The channel of the event. If a channel is dialed, this is the dialed one.
    pub channel: ChannelRef<'a>,
    /// The kind of event, with its details.
    pub kind: Kind<'a>,
}

impl<'a> ChannelEvent<'a> {
    /// Returns `true` if the event is an entry in a list of live channels.
    pub fn is_listed(&self) -> bool {
        let traits = &self.channel.traits;
        matches!(self.kind, Kind::Listed { .. })
            || traits.as_ref().is_some_and(|traits| traits.listed)
    }

    /// Creates an event from its four parts.
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

    /// Returns the unique ids and linkedids that the event contains, including empty ones.
    #[inline]
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        let channels = std::iter::once(&self.channel).chain(self.kind.other());
        let ids = channels.flat_map(|channel| {
            let traits = channel.traits.as_ref();
            let linked = traits.and_then(|traits| traits.linked.as_ref());
            let linked = linked.map_or("", |(_, id)| id.as_ref());
            [channel.uniqueid.as_ref(), channel.linkedid.as_ref(), linked]
        });
        let joined = match &self.kind {
            Kind::Joined { with } => with.as_slice(),
            _ => &[],
        };
        let single = match &self.kind {
            Kind::Monitors { target: id, .. } | Kind::Transfers { call: id } => id.as_ref(),
            _ => "",
        };
        // A text with a slash is a channel's name.
        let joined_ids = joined
            .iter()
            .map(AsRef::as_ref)
            .filter(|id: &&str| !id.contains('/'));
        ids.chain(joined_ids).chain(std::iter::once(single))
    }

    /// Removes the variables whose names are not wanted.
    pub fn retain_variables(&mut self, wanted: impl Fn(&str) -> bool) {
        let other = self.kind.other_mut();
        for channel in other.into_iter().chain([&mut self.channel]) {
            channel.variables.retain(|(name, _)| wanted(name));
        }
    }
}

/// A channel as one message describes it. Unknown texts are empty. `<unknown>` also becomes an
/// empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelRef<'a> {
    /// Name of the channel: `PJSIP/city-0000004f`.
    pub name: Text<'a>,
    /// Unique id of the channel, such as `1795151317.146`. Empty if the source reports only the
    /// name.
    pub uniqueid: Text<'a>,
    /// The linkedid at the moment of the message. Empty if the source has none (AMI 1.x).
    pub linkedid: Text<'a>,
    /// The number the channel calls from (`CallerIDNum`).
    pub caller_number: Text<'a>,
    /// The extension (`Exten`). For an inbound channel of FreeSWITCH, at its birth, the number that
    /// was dialed.
    pub exten: Text<'a>,
    /// Context of the dialplan that the channel is in (`Context`).
    pub context: Text<'a>,
    /// Channel variables in the order reported, without the empty ones.
    pub variables: Vec<(Text<'a>, Text<'a>)>,
    /// The CDR's user field as CEL reports it (`Userfield`).
    pub userfield: Text<'a>,
    /// The application that the channel runs, which CEL reports in every row (`Application`):
    /// `Dial`, or `AppDial` on a channel that was dialed.
    pub application: Text<'a>,
    /// The application's data (`AppData`): `PJSIP/998901110001@city,20,tT`.
    pub app_data: Text<'a>,
    /// The names of the other channels in the bridge that the channel leaves, separated by commas
    /// (`Peer` of CEL since Asterisk 12).
    pub peers: Text<'a>,
    /// Result of a `Dial` or `Queue` that the channel ran, if the message reports one: `ANSWER`,
    /// `NOANSWER`… (`Dial` with `SubEvent: End` in AMI 1.x, `dialstatus` of CEL's `HANGUP`).
    pub dial_status: Text<'a>,
    /// Number of the PBX's process that the channel belongs to, if its messages contain one. When a
    /// process ends, its channels end, too.
    pub process: Option<u64>,
    /// Position of the event in that process, if the process counts its events.
    pub stamp: Option<EventStamp>,
    /// Traits that the PBX reports in addition to the name, if the name does not show what the
    /// channel is.
    pub traits: Option<Box<ChannelTraits<'a>>>,
}

impl<'a> ChannelRef<'a> {
    /// Creates a channel of which only the unique id is known.
    pub fn by_id(uniqueid: Text<'a>) -> Self {
        Self {
            uniqueid,
            ..Self::default()
        }
    }

    /// Returns `true` if the channel's name or its unique id is known.
    #[inline]
    pub fn is_named(&self) -> bool {
        !self.name.is_empty() || !self.uniqueid.is_empty()
    }
}

/// Traits of a channel whose name does not show its telephone or its trunk. Unknown texts are
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelTraits<'a> {
    /// Set if the channel came into the PBX. Otherwise the PBX dialed it.
    pub inbound: bool,
    /// The gateway over which the channel was dialed or came in.
    pub gateway: Text<'a>,
    /// The profile of the SIP stack that carries the channel.
    pub profile: Text<'a>,
    /// The host of the other end, with its port if reported: `203.0.113.5:5060`.
    pub address: Text<'a>,
    /// The name of the telephone inside the company at this channel.
    pub extension: Text<'a>,
    /// The number with which the channel was dialed.
    pub dialed: Text<'a>,
    /// How long the command that dialed the channel waits before dialing again. Zero if it doesn't.
    pub pause: Duration,
    /// Set if no earlier event of the channel can have been missed.
    pub fresh: bool,
    /// Set if the channel is over and was linked with only one other channel, which
    /// [`linked`](Self::linked) names.
    pub sole: bool,
    /// Set if the channel has ended without ever having been linked to another one.
    pub unlinked: bool,
    /// Set if the PBX reports the channel in a list of channels that are up.
    pub listed: bool,
    /// Set if the switch recovered the channel after its process had ended (`fsctl recover`), so no
    /// event reports what happened in between.
    pub recovered: bool,
    /// Time at which the channel was made.
    pub created: Option<EventTime>,
    /// Time at which the channel answered, or `None` if it has not.
    pub answered: Option<EventTime>,
    /// Beginning of the channel's last link, and the unique id of the other channel, as the PBX
    /// reports them after the link.
    pub linked: Option<(EventTime, Text<'a>)>,
}

/// `ChannelStateDesc`, as far as the direction of a call depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChannelState {
    /// The channel is idle or reserved: `Down`, `Rsrvd`.
    Down,
    /// `Ring`: a call comes in on this channel.
    Ring,
    /// `Pre-ring`: a call comes in on this DAHDI channel.
    PreRing,
    /// `Ringing`, `Dialing`, `Dialing Offhook`: this channel is being called.
    Ringing,
    /// The channel was answered: `Up`.
    Up,
    /// Another state, or none (CEL has no state).
    Unknown,
}

/// The channels that can hear a channel that monitors another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MonitorMode {
    /// No one: the channel only listens.
    Listen,
    /// The monitored channel.
    Target,
    /// The channel that the monitored one is linked with.
    Partner,
    /// Both: a call between three.
    Both,
    /// No one. The channel has stopped listening.
    Ended,
}

impl MonitorMode {
    /// Returns `true` when someone hears the channel.
    pub const fn is_heard(self) -> bool {
        matches!(self, Self::Target | Self::Partner | Self::Both)
    }
}

/// The thing that happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// The channel was made: `Newchannel`, CEL `CHAN_START`.
    Born {
        /// The state it was born in.
        state: ChannelState,
    },
    /// The state of the channel changed: `Newstate`, CEL `ANSWER` (as [`ChannelState::Up`]).
    State {
        /// The state it is in now.
        state: ChannelState,
    },
    /// `DialBegin`: the event's channel is being dialed.
    DialBegin {
        /// The channel that dials; `None` for an originated call.
        by: Option<Box<ChannelRef<'a>>>,
        /// The dial string, such as `998901110001@city`. No other text has the number as dialed.
        dial_string: Text<'a>,
    },
    /// `DialEnd`: dialing the event's channel ended.
    DialEnd {
        /// The channel that dialed; `None` for an originated call.
        by: Option<Box<ChannelRef<'a>>>,
        /// Outcome of the dialing: `ANSWER`, `BUSY`, `CANCEL`…
        status: Text<'a>,
    },
    /// CEL `APP_START`: the channel runs an application (`Dial`, `Queue`…).
    App {
        /// Name of the application, such as `Dial`.
        name: Text<'a>,
        /// Arguments of the application: `PJSIP/998901110001@city,20,tT`.
        data: Text<'a>,
    },
    /// The channel came into a bridge: `BridgeEnter`, CEL `BRIDGE_ENTER`.
    BridgeEnter {
        /// The bridge's id. If CEL does not report it, this is [`UNNAMED`] and the names of the
        /// channels that are already in the bridge, as far as they are known, separated by commas.
        bridge: Text<'a>,
        /// Technology of the bridge: `simple_bridge`, `softmix`, `holding_bridge`…, or empty if not
        /// reported.
        technology: Text<'a>,
    },
    /// The channel left a bridge: `BridgeLeave`, CEL `BRIDGE_EXIT`.
    BridgeLeave {
        /// The bridge's id, or [`UNNAMED`] if CEL does not report it.
        bridge: Text<'a>,
        /// Technology of the bridge, as in [`Kind::BridgeEnter`].
        technology: Text<'a>,
    },
    /// The channel is in this conference bridge, which it entered before (`ConfbridgeJoin` of
    /// Asterisk 12 and later). The entry itself is reported by [`Kind::BridgeEnter`].
    Sits {
        /// The bridge's id.
        bridge: Text<'a>,
    },
    /// Two calls become one in another way than through a bridge: pickup, transfer (`Pickup`,
    /// `AttendedTransfer`, `PICKUP`, `ATTENDEDTRANSFER`, `BLINDTRANSFER`, `LocalBridge`).
    Joined {
        /// Unique ids of the other channels that the message names, or their names if it has no ids
        /// (CEL before Asterisk 12). Never empty texts.
        with: Vec<Text<'a>>,
    },
    /// The channel and another hear each other from here on (`Bridge` with `Bridgestate: Link` and
    /// `Link` of AMI 1.x, `BRIDGE_START` of CEL before Asterisk 12).
    Linked {
        /// The other channel. Its unique id is empty if the source reports only the name.
        with: Box<ChannelRef<'a>>,
    },
    /// The channel and another stop hearing each other (`Bridgestate: Unlink`, `Unlink`,
    /// `BRIDGE_END`).
    Unlinked {
        /// The other channel, as in [`Kind::Linked`].
        with: Box<ChannelRef<'a>>,
    },
    /// The channel leaves the channel that it hears to speak with a third one, or comes back. The
    /// PBX reports the end of their bridge in no other way.
    Consults {
        /// Set if the channel leaves. Otherwise it is back.
        begins: bool,
    },
    /// The channel listens to a `target` and to the channel that is linked with the target
    /// (eavesdropping, or a call between three). The listening channel has no link with them.
    Monitors {
        /// Unique id of the monitored channel. Empty for a key press, which changes the mode of the
        /// current monitoring.
        target: Text<'a>,
        /// The channels that hear this channel from here on.
        mode: MonitorMode,
        /// Set when the channel's user can change the mode by a key.
        by_keys: bool,
    },
    /// The user of this channel transfers a call on another of their channels to the party that
    /// they dialed here, and leaves both (`ATTENDEDTRANSFER` before Asterisk 12). The masquerade
    /// that completes the transfer can come much later, when the new party answers.
    Transfers {
        /// The linkedid of the call that is transferred.
        call: Text<'a>,
    },
    /// The channel goes on under another name (`Rename`, `Masquerade`). Before Asterisk 12 a
    /// masquerade moves names, and with them the telephones, from one unique id to another.
    Renamed {
        /// The new name: `SIP/101-0000002a`, `SIP/101-0000002a<ZOMBIE>`.
        to: Text<'a>,
        /// The unique id that had the name so far. A decoder leaves it empty, because only the
        /// assembler knows it.
        holder: Text<'a>,
    },
    /// The person at the channel hung up (`HangupRequest`). The channel itself can go on, in the
    /// extension `h` for example, until its `Hangup`.
    HangupRequested,
    /// The channel hung up: `Hangup`, CEL `HANGUP`.
    Hangup {
        /// Q.850 cause of the hangup, if given.
        cause: Option<u16>,
    },
    /// The channel left a queue before being connected to anyone (`QueueCallerAbandon`).
    GaveUp,
    /// CEL `CHAN_END`: the channel is gone. It can come before `HANGUP`.
    Gone,
    /// CEL `LINKEDID_END`, which is not reliable.
    LinkedidEnd,
    /// The PBX reports the channel in a list of channels that are up (`CoreShowChannel`).
    Listed {
        /// The bridge that the channel is in (`BridgeId`), or empty if it is in none.
        bridge: Text<'a>,
        /// The state of the channel.
        state: ChannelState,
        /// How long the channel has existed (`Duration`) in whole seconds, if reported.
        age: Option<Duration>,
    },
    /// Any other message that shows that the channel is alive, with its linkedid and variables.
    Seen,
}

impl<'a> Kind<'a> {
    /// Returns the event of a channel that enters this bridge (`enters`), or leaves it.
    pub fn enter_or_leave(enters: bool, bridge: Text<'a>, technology: Text<'a>) -> Self {
        if enters {
            Self::BridgeEnter { bridge, technology }
        } else {
            Self::BridgeLeave { bridge, technology }
        }
    }

    /// Returns the second channel that an event describes.
    pub fn other(&self) -> Option<&ChannelRef<'a>> {
        match self {
            Self::DialBegin { by, .. } | Self::DialEnd { by, .. } => by.as_deref(),
            Self::Linked { with } | Self::Unlinked { with } => Some(with),
            _ => None,
        }
    }

    /// Returns the channel of [`Kind::other`], mutably.
    pub fn other_mut(&mut self) -> Option<&mut ChannelRef<'a>> {
        match self {
            Self::DialBegin { by, .. } | Self::DialEnd { by, .. } => by.as_deref_mut(),
            Self::Linked { with } | Self::Unlinked { with } => Some(with),
            _ => None,
        }
    }

    /// Returns `true` for an event of a bridge or a link, which shows who hears whom.
    pub const fn is_of_bridge(&self) -> bool {
        matches!(self, Self::BridgeEnter { .. } | Self::BridgeLeave { .. })
            || matches!(self, Self::Linked { .. } | Self::Unlinked { .. })
    }
}

/// A call detail record. Texts are as the source gives them. The decoder makes times absolute if it
/// can. Values that the record does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cdr<'a> {
    /// The PBX's own time of the message, not of the call.
    pub at: Option<EventTime>,
    /// Column `uniqueid`: the id of the record's channel. Can be empty.
    pub uniqueid: Text<'a>,
    /// Column `linkedid`, if mapped. Can be empty.
    pub linkedid: Text<'a>,
    /// Column `channel`: the name of the record's channel.
    pub channel: Text<'a>,
    /// Column `dstchannel`: the name of the second channel. Can be empty.
    pub dest_channel: Text<'a>,
    /// Column `src`: the number of the caller.
    pub source: Text<'a>,
    /// Column `dst`: the extension at which the dialplan was last.
    pub destination: Text<'a>,
    /// Column `did`, in which the dialplan can store the dialed number (FreePBX does).
    pub did: Text<'a>,
    /// Column `dcontext`: the context of the extension in `destination`.
    pub context: Text<'a>,
    /// Column `lastapp`: the application that ran last.
    pub last_app: Text<'a>,
    /// Column `lastdata`: the arguments of the application in `last_app`.
    pub last_data: Text<'a>,
    /// Column `start`, as written (local time without a zone, or ISO 8601).
    pub start: Text<'a>,
    /// Column `answer`, as written. Empty if unanswered.
    pub answer: Text<'a>,
    /// Column `end`, as the PBX wrote it.
    pub end: Text<'a>,
    /// Column `duration`: microseconds from start to end. Negative if the PBX's clock was set back
    /// in between.
    pub duration_micros: Option<i64>,
    /// Column `billsec`: microseconds from the answer to the end. If the PBX's clock was set, it
    /// can be negative, or longer than the duration.
    pub billed_micros: Option<i64>,
    /// Column `disposition`: `ANSWERED`, `NO ANSWER`, `BUSY`, `FAILED`, `CONGESTION`, `CANCEL`, the
    /// number that `cdr_odbc` writes in place of the word (8 for `ANSWERED`), or a future value.
    pub disposition: Text<'a>,
    /// Column `userfield`: text that the dialplan sets.
    pub userfield: Text<'a>,
    /// Column `clid`, the caller's name and number: `"Anna" <998901110001>`.
    pub caller_id: Text<'a>,
    /// Beginning of the record: `start` made absolute.
    pub started_at: Option<EventTime>,
    /// Time of the answer: `answer` made absolute. `None` if unanswered.
    pub answered_at: Option<EventTime>,
    /// End of the record: `end` made absolute.
    pub ended_at: Option<EventTime>,
    /// Set if the time zone of the record's local times is unknown. The times were read as UTC.
    pub zoneless: bool,
    /// Events of the record's channel, if the record describes one channel. Empty if the record
    /// describes a path between two channels.
    pub events: Vec<ChannelEvent<'a>>,
}
