//! PBX events, with one [`PbxEvent`] per message, borrowed from the received bytes.

use crate::units::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::time::Duration;

/// Prefix of the placeholder for a bridge ID that the PBX didn't report.
pub const UNNAMED: &str = "?";

/// Follows [`UNNAMED`] in place of channel names if a single event starts or ends a bridge for both
/// of its channels. The channel that answered last is on the other side of the bridge.
pub const WHO_ANSWERED: &str = "*";

/// Text that's borrowed from the source's bytes if possible, and owned if it had to be unescaped or
/// repaired.
pub type Text<'a> = Cow<'a, str>;

/// A message from a PBX, reduced to what may matter for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "made and matched at once; never stored"
)]
pub enum PbxEvent<'a> {
    /// Something that happened to a channel.
    Channel(ChannelEvent<'a>),
    /// A call detail record, which describes one path between two parties and is reported after it
    /// ended.
    Cdr(Box<Cdr<'a>>),
    /// The event stream starts, ends, or was interrupted here.
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

    /// Returns a substitute time for a channel event without a timestamp, so that the events in a
    /// file can be ordered, or `None` for all other events.
    ///
    /// It's later than both `last`, the previous event's time, and the channel's creation time,
    /// which is part of its unique ID.
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

/// A point in the stream where events may be missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The PBX has booted (`FullyBooted`). It reports this both when it has just booted and after
    /// each login.
    FullyBooted {
        /// Time since the PBX started (`Uptime`), if given.
        uptime: Option<Duration>,
    },
    /// A login was accepted. The stream starts or restarts here.
    LoggedIn,
    /// The PBX reports that it's shutting down (`Shutdown`).
    Shutdown {
        /// The PBX's time of the report, if given.
        at: Option<EventTime>,
    },
    /// The list of live channels ends here (`CoreShowChannelsComplete`). The channels themselves
    /// were reported before that, as [`Kind::Listed`].
    ListEnd {
        /// Number of channels in the list, if the PBX provides it (`ListItems`). If fewer have
        /// arrived, the list is inconclusive about the rest.
        channels: Option<usize>,
    },
    /// The PBX is a new process. This is reported some time after its start, and all events since
    /// then have been received.
    Restarted {
        /// When the new process started by its own clock, if given.
        began: Option<EventTime>,
    },
    /// A heartbeat, sent every few seconds to report that a process of the PBX is alive.
    Alive {
        /// The process's number, as in [`ChannelRef::process`].
        process: u64,
        /// Time of the message by the process's own clock.
        at: EventTime,
        /// The message's number among the process's events, if it numbers them.
        stamp: Option<EventStamp>,
        /// When the process started by its own clock, if given.
        began: Option<EventTime>,
        /// Number of live channels in the process, if given.
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

/// An event's position among those of its process, consisting of its number and the time by the
/// process's clock when it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EventStamp {
    /// The event's number, which is greater than those of all earlier events.
    pub number: u64,
    /// When the event was sent, which may be some time after it happened.
    pub at: EventTime,
}

/// Which of Asterisk's two event systems an event comes from. Both can report the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// AMI's own channel, bridge, and dial events.
    Channel,
    /// Channel event logging (CEL), using any backend.
    Cel,
}

/// Something that happened to one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelEvent<'a> {
    /// Time of the event by the PBX's clock, or `None` if the message has no timestamp.
    pub at: Option<EventTime>,
    /// Which event system the event comes from.
    pub origin: Origin,
    /// The event's channel. For a dial event, this is the dialed channel.
    pub channel: ChannelRef<'a>,
    /// What kind of event it is, including the details.
    pub kind: Kind<'a>,
}

impl<'a> ChannelEvent<'a> {
    /// Returns `true` if the event is an entry in a list of live channels.
    pub fn is_listed(&self) -> bool {
        let traits = &self.channel.traits;
        matches!(self.kind, Kind::Listed { .. })
            || traits.as_ref().is_some_and(|traits| traits.listed)
    }

    /// Creates an event from these values.
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

    /// Returns the unique IDs and linkedids in the event, including empty ones.
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
        // A text with a slash is a channel name.
        let joined_ids = joined
            .iter()
            .map(AsRef::as_ref)
            .filter(|id: &&str| !id.contains('/'));
        ids.chain(joined_ids).chain(std::iter::once(single))
    }

    /// Removes all variables except those that are wanted.
    pub fn retain_variables(&mut self, wanted: impl Fn(&str) -> bool) {
        let other = self.kind.other_mut();
        for channel in other.into_iter().chain([&mut self.channel]) {
            channel.variables.retain(|(name, _)| wanted(name));
        }
    }
}

/// A channel as described in one message. Unknown strings are empty, including those reported as
/// `<unknown>`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelRef<'a> {
    /// The channel's name, such as `PJSIP/city-0000004f`.
    pub name: Text<'a>,
    /// The channel's unique ID, such as `1795151317.146`, or empty if the source reports only the
    /// name.
    pub uniqueid: Text<'a>,
    /// The linkedid at the time of the message, or empty if the source doesn't have any (AMI 1.x).
    pub linkedid: Text<'a>,
    /// The number that the channel calls from (`CallerIDNum`).
    pub caller_number: Text<'a>,
    /// The extension (`Exten`). For an inbound FreeSWITCH channel, this is the dialed number when
    /// the channel is born.
    pub exten: Text<'a>,
    /// The channel's dialplan context (`Context`).
    pub context: Text<'a>,
    /// Nonempty channel variables in the order reported.
    pub variables: Vec<(Text<'a>, Text<'a>)>,
    /// The CDR's user field as reported by CEL (`Userfield`).
    pub userfield: Text<'a>,
    /// The application that the channel is running, which CEL reports in every row (`Application`),
    /// e.g., `Dial`, or `AppDial` on a dialed channel.
    pub application: Text<'a>,
    /// The application's data (`AppData`), such as `PJSIP/998901110001@city,20,tT`.
    pub app_data: Text<'a>,
    /// Comma-separated names of the other channels in the bridge that the channel is leaving
    /// (`Peer` in CEL since Asterisk 12).
    pub peers: Text<'a>,
    /// Result of a `Dial` or `Queue` that the channel ran, such as `ANSWER` or `NOANSWER`, if
    /// reported (`Dial` with `SubEvent: End` in AMI 1.x, or `dialstatus` in CEL's `HANGUP`).
    pub dial_status: Text<'a>,
    /// Number of the PBX process that the channel belongs to, if messages contain one. When a
    /// process ends, so do its channels.
    pub process: Option<u64>,
    /// The event's position in that process, if the process numbers its events.
    pub stamp: Option<EventStamp>,
    /// Additional traits reported by the PBX if the name doesn't show what kind of channel it is.
    pub traits: Option<Box<ChannelTraits<'a>>>,
}

impl<'a> ChannelRef<'a> {
    /// Creates a channel of which only the unique ID is known.
    pub fn by_id(uniqueid: Text<'a>) -> Self {
        Self {
            uniqueid,
            ..Self::default()
        }
    }

    /// Returns `true` if the channel's name or its unique ID is known.
    #[inline]
    pub fn is_named(&self) -> bool {
        !self.name.is_empty() || !self.uniqueid.is_empty()
    }
}

/// Traits of a channel whose name doesn't reveal its phone or trunk. Unknown strings are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelTraits<'a> {
    /// Whether this is an incoming channel, as opposed to one dialed by the PBX.
    pub inbound: bool,
    /// The gateway through which the channel was dialed or came in.
    pub gateway: Text<'a>,
    /// The SIP profile that carries the channel.
    pub profile: Text<'a>,
    /// The remote host, with its port if reported, such as `203.0.113.5:5060`.
    pub address: Text<'a>,
    /// The name of the company phone on this channel.
    pub extension: Text<'a>,
    /// The number that was dialed to create the channel.
    pub dialed: Text<'a>,
    /// How long the command that dialed the channel waits before redialing, or zero if it doesn't
    /// redial.
    pub pause: Duration,
    /// Whether it's certain that no earlier events of the channel were missed.
    pub fresh: bool,
    /// Whether the channel is over and was only ever linked with one other channel, which is given
    /// in [`linked`](Self::linked).
    pub sole: bool,
    /// Whether the channel ended without ever being linked to another one.
    pub unlinked: bool,
    /// Whether the PBX reported the channel in a list of live channels.
    pub listed: bool,
    /// Whether the switch recovered the channel after its process had ended (`fsctl recover`),
    /// which means that no event reports what happened in between.
    pub recovered: bool,
    /// When the channel was created.
    pub created: Option<EventTime>,
    /// When the channel answered, or `None` if it hasn't.
    pub answered: Option<EventTime>,
    /// When the channel's last link began and the other channel's unique ID, as reported by the PBX
    /// after the link ended.
    pub linked: Option<(EventTime, Text<'a>)>,
}

/// `ChannelStateDesc`, reduced to what matters for a call's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ChannelState {
    /// The channel is idle or reserved (`Down`, `Rsrvd`).
    Down,
    /// A call is coming in on this channel (`Ring`).
    Ring,
    /// A call is coming in on this DAHDI channel (`Pre-ring`).
    PreRing,
    /// This channel is being called (`Ringing`, `Dialing`, `Dialing Offhook`).
    Ringing,
    /// The channel has been answered (`Up`).
    Up,
    /// Any other state, or none (CEL doesn't report states).
    Unknown,
}

/// Who can hear a channel that's monitoring another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MonitorMode {
    /// No one, since the channel is only listening.
    Listen,
    /// The monitored channel.
    Target,
    /// The channel that the monitored one is linked with.
    Partner,
    /// Both, as in a three-way call.
    Both,
    /// No one, since the channel has stopped listening.
    Ended,
}

impl MonitorMode {
    /// Returns `true` if anyone can hear the channel.
    pub const fn is_heard(self) -> bool {
        matches!(self, Self::Target | Self::Partner | Self::Both)
    }
}

/// What happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// The channel was created (`Newchannel`, or `CHAN_START` in CEL).
    Born {
        /// The state it was created in.
        state: ChannelState,
    },
    /// The channel's state changed (`Newstate`, or `ANSWER` in CEL, which becomes
    /// [`ChannelState::Up`]).
    State {
        /// The state it's in now.
        state: ChannelState,
    },
    /// The event's channel is being dialed (`DialBegin`).
    DialBegin {
        /// The dialing channel, or `None` for an originated call.
        by: Option<Box<ChannelRef<'a>>>,
        /// The dial string, such as `998901110001@city`. This is the only place where the number
        /// appears as it was dialed.
        dial_string: Text<'a>,
    },
    /// Dialing the event's channel ended (`DialEnd`).
    DialEnd {
        /// The channel that dialed, or `None` for an originated call.
        by: Option<Box<ChannelRef<'a>>>,
        /// The outcome, such as `ANSWER`, `BUSY`, or `CANCEL`.
        status: Text<'a>,
    },
    /// The channel started an application such as `Dial` or `Queue` (`APP_START` in CEL).
    App {
        /// The application's name, such as `Dial`.
        name: Text<'a>,
        /// The application's arguments, such as `PJSIP/998901110001@city,20,tT`.
        data: Text<'a>,
    },
    /// The channel entered a bridge (`BridgeEnter`, or `BRIDGE_ENTER` in CEL).
    BridgeEnter {
        /// The bridge's ID. If CEL doesn't report it, this is [`UNNAMED`] followed by the
        /// comma-separated names of the channels known to be in the bridge already.
        bridge: Text<'a>,
        /// The bridge's technology, such as `simple_bridge`, `softmix`, or `holding_bridge`, or
        /// empty if it isn't reported.
        technology: Text<'a>,
    },
    /// The channel left a bridge (`BridgeLeave`, or `BRIDGE_EXIT` in CEL).
    BridgeLeave {
        /// The bridge's ID, or [`UNNAMED`] if CEL doesn't report it.
        bridge: Text<'a>,
        /// The bridge's technology, as in [`Kind::BridgeEnter`].
        technology: Text<'a>,
    },
    /// The channel is in this conference bridge, which it entered earlier (`ConfbridgeJoin` in
    /// Asterisk 12 and later, `start-talking` in FreeSWITCH). The entry itself is reported as
    /// [`Kind::BridgeEnter`].
    Sits {
        /// The bridge's ID.
        bridge: Text<'a>,
    },
    /// Two calls become one without a bridge, e.g., through a pickup or transfer (`Pickup`,
    /// `AttendedTransfer`, `PICKUP`, `ATTENDEDTRANSFER`, `BLINDTRANSFER`, `LocalBridge`).
    Joined {
        /// Unique IDs of the other channels in the message, or their names if it has no IDs (CEL
        /// before Asterisk 12). None of them is empty.
        with: Vec<Text<'a>>,
    },
    /// From now on, the channel and another can hear each other (`Bridge` with `Bridgestate: Link`
    /// and `Link` in AMI 1.x, or `BRIDGE_START` in CEL before Asterisk 12).
    Linked {
        /// The other channel. Its unique ID is empty if the source reports only the name.
        with: Box<ChannelRef<'a>>,
    },
    /// The channel and another can no longer hear each other (`Bridgestate: Unlink`, `Unlink`,
    /// `BRIDGE_END`).
    Unlinked {
        /// The other channel, as in [`Kind::Linked`].
        with: Box<ChannelRef<'a>>,
    },
    /// The channel leaves the one it was connected to in order to talk to a third one, or returns
    /// to it. This is the only sign from the PBX that their bridge ended.
    Consults {
        /// Whether the channel is leaving, as opposed to returning.
        begins: bool,
    },
    /// The channel listens to a `target` and to the channel linked with it (eavesdropping or a
    /// three-way call), without being linked to either.
    Monitors {
        /// The monitored channel's unique ID, or empty for a key press, which changes the current
        /// monitoring mode.
        target: Text<'a>,
        /// Who can hear this channel from now on.
        mode: MonitorMode,
        /// Whether the channel's user can change the mode by pressing a key.
        by_keys: bool,
    },
    /// The user of this channel transfers a call from another of their channels to the party they
    /// dialed here, and leaves both (`ATTENDEDTRANSFER` before Asterisk 12). The masquerade that
    /// completes the transfer may happen much later, when the new party answers.
    Transfers {
        /// The linkedid of the call being transferred.
        call: Text<'a>,
    },
    /// The channel continues under another name (`Rename`, `Masquerade`). Before Asterisk 12, a
    /// masquerade moves names, and the phones along with them, from one unique ID to another.
    Renamed {
        /// The new name, such as `SIP/101-0000002a` or `SIP/101-0000002a<ZOMBIE>`.
        to: Text<'a>,
        /// The unique ID that had the name until now. Decoders leave it empty, because only the
        /// assembler knows it.
        holder: Text<'a>,
    },
    /// The person at the channel hung up (`HangupRequest`). The channel itself may continue until
    /// its `Hangup`, e.g., in the `h` extension.
    HangupRequested,
    /// The channel hung up (`Hangup`, or `HANGUP` in CEL).
    Hangup {
        /// The Q.850 hangup cause, if given.
        cause: Option<u16>,
    },
    /// The channel left a queue before being connected to anyone (`QueueCallerAbandon`).
    GaveUp,
    /// The channel is gone (`CHAN_END` in CEL). This can arrive before `HANGUP`.
    Gone,
    /// `LINKEDID_END` in CEL, which isn't reliable.
    LinkedidEnd,
    /// The PBX reports the channel in a list of live channels (`CoreShowChannel`).
    Listed {
        /// The bridge that the channel is in (`BridgeId`), or empty if it isn't in one.
        bridge: Text<'a>,
        /// The channel's state.
        state: ChannelState,
        /// How long the channel has existed (`Duration`), in whole seconds, if reported.
        age: Option<Duration>,
    },
    /// Any other message showing that the channel is alive, along with its linkedid and variables.
    Seen,
}

impl<'a> Kind<'a> {
    /// Creates an event for a channel that enters (if `enters`) or leaves this bridge.
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

    /// Returns the same channel as [`Kind::other`], but mutably.
    pub fn other_mut(&mut self) -> Option<&mut ChannelRef<'a>> {
        match self {
            Self::DialBegin { by, .. } | Self::DialEnd { by, .. } => by.as_deref_mut(),
            Self::Linked { with } | Self::Unlinked { with } => Some(with),
            _ => None,
        }
    }

    /// Returns `true` if the event is about a bridge or a link, and therefore shows who can hear
    /// whom.
    pub const fn is_of_bridge(&self) -> bool {
        matches!(self, Self::BridgeEnter { .. } | Self::BridgeLeave { .. })
            || matches!(self, Self::Linked { .. } | Self::Unlinked { .. })
    }
}

/// A call detail record. Strings are as given by the source, times are made absolute by the decoder
/// if possible, and values that the record doesn't contain are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cdr<'a> {
    /// The PBX's own time of the message, not of the call.
    pub at: Option<EventTime>,
    /// The ID of the record's channel (column `uniqueid`). May be empty.
    pub uniqueid: Text<'a>,
    /// Column `linkedid`, if mapped. May be empty.
    pub linkedid: Text<'a>,
    /// The name of the record's channel (column `channel`).
    pub channel: Text<'a>,
    /// The name of the second channel (column `dstchannel`). May be empty.
    pub dest_channel: Text<'a>,
    /// The caller's number (column `src`).
    pub source: Text<'a>,
    /// The last extension in the dialplan (column `dst`).
    pub destination: Text<'a>,
    /// Column `did`, where the dialplan can store the dialed number (as FreePBX does).
    pub did: Text<'a>,
    /// The context of the `destination` extension (column `dcontext`).
    pub context: Text<'a>,
    /// The last application that ran (column `lastapp`).
    pub last_app: Text<'a>,
    /// The arguments of `last_app` (column `lastdata`).
    pub last_data: Text<'a>,
    /// Column `start` as written, i.e., local time without a time zone, or ISO 8601.
    pub start: Text<'a>,
    /// Column `answer` as written, or empty if the call wasn't answered.
    pub answer: Text<'a>,
    /// Column `end` as written by the PBX.
    pub end: Text<'a>,
    /// Microseconds from start to end (column `duration`). Negative if the PBX's clock was set back
    /// in between.
    pub duration_micros: Option<i64>,
    /// Microseconds from answer to end (column `billsec`). If the PBX's clock was set, this can be
    /// negative or longer than the duration.
    pub billed_micros: Option<i64>,
    /// Column `disposition`: `ANSWERED`, `NO ANSWER`, `BUSY`, `FAILED`, `CONGESTION`, `CANCEL`, the
    /// number that `cdr_odbc` writes instead of the word (8 for `ANSWERED`), or some future value.
    pub disposition: Text<'a>,
    /// Column `userfield`, a text set by the dialplan.
    pub userfield: Text<'a>,
    /// The caller's name and number (column `clid`), such as `"Anna" <998901110001>`.
    pub caller_id: Text<'a>,
    /// When the record starts, from `start`.
    pub started_at: Option<EventTime>,
    /// When the call was answered, from `answer`, or `None` if it wasn't.
    pub answered_at: Option<EventTime>,
    /// When the record ends, from `end`.
    pub ended_at: Option<EventTime>,
    /// Whether the time zone of the record's local times is unknown, in which case they were read
    /// as UTC.
    pub zoneless: bool,
    /// Events of the record's channel, or empty if the record describes a path between two channels
    /// instead of a single channel.
    pub events: Vec<ChannelEvent<'a>>,
}
