//! What a PBX told: one [`PbxEvent`] a message, borrowed from the bytes that came in.

use crate::units::{EventTime, UniqueId};
use serde::{Deserialize, Serialize};
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
    /// Returns the stand-in time of an event without one of its own among those of its file: after
    /// the `last` one, and not before its channel was made, which the unique id shows. `None` for
    /// all else.
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
    /// The PBX is up (`FullyBooted`); it says so when it has booted, and after each login.
    FullyBooted {
        /// Time since the start of the PBX (`Uptime`), where it is given.
        uptime: Option<Duration>,
    },
    /// A login was accepted: the stream begins (anew) here.
    LoggedIn,
    /// The PBX reports that it stops (`Shutdown`).
    Shutdown {
        /// The PBX's time of the report, if it has one.
        at: Option<EventTime>,
    },
    /// The list of live channels ends here (`CoreShowChannelsComplete`); the channels came before,
    /// as [`Kind::Listed`].
    ListEnd,
    /// The PBX is another process than before; it tells so some time after its start, and what
    /// came since was heard.
    Restarted {
        /// Start of the new process, by its own clock, where it is given.
        began: Option<EventTime>,
    },
    /// A process of the PBX says, as it does every few seconds, that it lives.
    Alive {
        /// Number of the process, as in [`ChannelRef::process`].
        process: u64,
        /// Time of the message, by the process's own clock.
        at: EventTime,
        /// Number of the message among the process's events, where it counts them.
        stamp: Option<EventStamp>,
        /// Start of the process, by its own clock, where it is given.
        began: Option<EventTime>,
        /// Number of its live channels, where it is given.
        channels: Option<usize>,
    },
}

/// An event among all of its process: its number, which grows, and what the clock showed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EventStamp {
    /// Greater than those of all events before.
    pub number: u64,
    /// Time at which the event was sent, which may be some time after it happened.
    pub at: EventTime,
}

/// The one of Asterisk's two vocabularies that an event came in. Both may report the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// AMI's own channel, bridge and dial events.
    Channel,
    /// Channel event logging (CEL), by whatever way.
    Cel,
}

/// Something that happened to one channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelEvent<'a> {
    /// The PBX's own time of it; `None` where the message carries none.
    pub at: Option<EventTime>,
    /// The vocabulary that the event came in.
    pub origin: Origin,
    /// The channel it happened to. Of a dialing, the channel that is dialed.
    pub channel: ChannelRef<'a>,
    /// The thing that happened, with its details.
    pub kind: Kind<'a>,
}

impl<'a> ChannelEvent<'a> {
    /// Makes an event of its four parts.
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
        let joined = match &self.kind {
            Kind::Joined { with } => with.as_slice(),
            _ => &[],
        };
        let target = match &self.kind {
            Kind::Monitors { target, .. } => target.as_ref(),
            _ => "",
        };
        // A text with a slash is a channel's name.
        let joined = joined.iter().map(AsRef::as_ref);
        let joined = joined.filter(|id: &&str| !id.contains('/'));
        ids.chain(joined).chain(std::iter::once(target))
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
    /// Name of the channel: `PJSIP/city-0000004f`.
    pub name: Text<'a>,
    /// `1795151317.146`; empty where the source told the name alone.
    pub uniqueid: Text<'a>,
    /// The linkedid at that moment; empty where the source has none (AMI 1.x).
    pub linkedid: Text<'a>,
    /// The number the channel calls from (`CallerIDNum`).
    pub caller_number: Text<'a>,
    /// `Exten`; what was dialed on a channel of FreeSWITCH that came in, at its birth.
    pub exten: Text<'a>,
    /// Context of the dialplan that the channel is in (`Context`).
    pub context: Text<'a>,
    /// Channel variables, in the order told, without the empty ones.
    pub variables: Vec<(Text<'a>, Text<'a>)>,
    /// The CDR's user field as CEL tells it (`Userfield`).
    pub userfield: Text<'a>,
    /// The application the channel runs, as CEL tells it in every row (`Application`): `Dial`,
    /// or `AppDial` on a channel that was dialed.
    pub application: Text<'a>,
    /// The application's data (`AppData`): `PJSIP/998901110001@city,20,tT`.
    pub app_data: Text<'a>,
    /// Number of the PBX's process that the channel belongs to, where its messages name one: with a
    /// process its channels end.
    pub process: Option<u64>,
    /// Number of the event in that process, where it counts its events.
    pub stamp: Option<EventStamp>,
    /// Traits that the PBX reports beside the name, where the name does not say what the channel
    /// is.
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

    /// Returns `true` when the channel's name or its unique id is known.
    #[inline]
    pub fn is_named(&self) -> bool {
        !self.name.is_empty() || !self.uniqueid.is_empty()
    }
}

/// Traits of a channel whose name says neither whose telephone nor which trunk it is. Unknown texts
/// are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelTraits<'a> {
    /// Set when the channel came into the PBX; else the PBX dialed it.
    pub inbound: bool,
    /// The gateway it was dialed over, or came in from.
    pub gateway: Text<'a>,
    /// The profile of the SIP stack that carries it.
    pub profile: Text<'a>,
    /// The host of the other end, with its port where told: `203.0.113.5:5060`.
    pub address: Text<'a>,
    /// The telephone inside the company that it is.
    pub extension: Text<'a>,
    /// The number that it was dialed with.
    pub dialed: Text<'a>,
    /// Nothing can have happened to it before that was not told.
    pub fresh: bool,
    /// Set when the channel is over, and was linked with one other in all its life, which
    /// [`linked`](Self::linked) names.
    pub sole: bool,
    /// The PBX lists it among those that are up.
    pub listed: bool,
    /// Time at which the channel was made.
    pub created: Option<EventTime>,
    /// Time at which the channel answered; `None` as long as it has not.
    pub answered: Option<EventTime>,
    /// Beginning of the channel's last link, and the unique id of the other, as the PBX reports
    /// them after it.
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
    /// Told in other words, or not at all (CEL has no state).
    Unknown,
}

/// Those who hear a channel that monitors another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MonitorMode {
    /// No one: the channel only listens.
    Listen,
    /// The monitored channel.
    Target,
    /// The channel that the monitored one is linked with.
    Partner,
    /// Both: a call of three.
    Both,
    /// No one, and the channel does not listen anymore.
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
    /// `Newstate`, CEL `ANSWER` (as [`ChannelState::Up`])
    State {
        /// The state it is in now.
        state: ChannelState,
    },
    /// `DialBegin`: the event's channel is being dialed.
    DialBegin {
        /// The channel that dials; `None` for an originated call.
        by: Option<Box<ChannelRef<'a>>>,
        /// `998901110001@city`: the only place with the number as dialed out.
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
        /// The bridge's id; where CEL does not tell it, [`UNNAMED`] and the names of the channels
        /// that are in it already, as far as those are told, separated by commas.
        bridge: Text<'a>,
        /// `simple_bridge`, `softmix`, `holding_bridge`…; empty if not told.
        technology: Text<'a>,
    },
    /// The channel left a bridge: `BridgeLeave`, CEL `BRIDGE_EXIT`.
    BridgeLeave {
        /// The bridge's id; [`UNNAMED`] where CEL does not tell it.
        bridge: Text<'a>,
        /// Technology of the bridge, as of [`Kind::BridgeEnter`].
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
    /// The channel and another hear each other no more (`Bridgestate: Unlink`, `Unlink`,
    /// `BRIDGE_END`).
    Unlinked {
        /// The other channel, as of [`Kind::Linked`].
        with: Box<ChannelRef<'a>>,
    },
    /// The channel leaves whom it hears alone to speak with a third, and comes back; the PBX tells
    /// of no other end of their bridge.
    Consults {
        /// Set when the channel leaves; else it is back.
        begins: bool,
    },
    /// The channel listens to another one and to the channel that is linked with that one
    /// (eavesdropping, a call of three). It has no link with them.
    Monitors {
        /// Unique id of the monitored channel. Empty for a key press, which changes the mode of
        /// whatever the channel monitors.
        target: Text<'a>,
        /// Those who hear the channel from here on.
        mode: MonitorMode,
        /// Set when the channel's user can change the mode by a key.
        by_keys: bool,
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
        /// The new name: `SIP/101-0000002a`, `SIP/101-0000002a<ZOMBIE>`.
        to: Text<'a>,
        /// The unique id that had the name up to now; empty from a decoder, for only the
        /// assembler knows.
        holder: Text<'a>,
    },
    /// The person at the channel hung up (`HangupRequest`). The channel itself can go on, in the
    /// extension `h` for example, until its `Hangup`.
    HangupRequested,
    /// The channel hung up: `Hangup`, CEL `HANGUP`.
    Hangup {
        /// Q.850 cause of the hang-up, where it is given.
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
        /// The state that it is in.
        state: ChannelState,
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

    /// Returns the channel of [`Kind::other`], to be changed.
    pub fn other_mut(&mut self) -> Option<&mut ChannelRef<'a>> {
        match self {
            Self::DialBegin { by, .. } | Self::DialEnd { by, .. } => by.as_deref_mut(),
            Self::Linked { with } | Self::Unlinked { with } => Some(with),
            _ => None,
        }
    }

    /// Returns `true` for a kind that says who hears whom.
    pub const fn is_of_bridge(&self) -> bool {
        matches!(self, Self::BridgeEnter { .. } | Self::BridgeLeave { .. })
            || matches!(self, Self::Linked { .. } | Self::Unlinked { .. })
    }
}

/// A call detail record. Texts as the source gives them; times made absolute by the decoder
/// where it can, `None` where the record has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cdr<'a> {
    /// The PBX's own time of the message, not of the call.
    pub at: Option<EventTime>,
    /// Column `uniqueid`, the id of the record's channel; may be empty.
    pub uniqueid: Text<'a>,
    /// `linkedid`, where mapped; may be empty.
    pub linkedid: Text<'a>,
    /// Column `channel`: the name of the channel that the record is of.
    pub channel: Text<'a>,
    /// Column `dstchannel`: the name of the second channel; may be empty.
    pub dest_channel: Text<'a>,
    /// Column `src`: the number of the caller.
    pub source: Text<'a>,
    /// Column `dst`: the extension at which the dialplan was last.
    pub destination: Text<'a>,
    /// `did`, where the dialplan keeps the number that was dialed (FreePBX does).
    pub did: Text<'a>,
    /// Column `dcontext`: the context of that extension.
    pub context: Text<'a>,
    /// Column `lastapp`: the application that ran last.
    pub last_app: Text<'a>,
    /// Column `lastdata`: the arguments of that application.
    pub last_data: Text<'a>,
    /// `start`, as written (local time without a zone, or ISO 8601).
    pub start: Text<'a>,
    /// `answer`, as written; empty when unanswered.
    pub answer: Text<'a>,
    /// Column `end`, as the PBX wrote it.
    pub end: Text<'a>,
    /// Column `duration`: microseconds from start to end. Negative if the PBX's clock was set back
    /// in between.
    pub duration_micros: Option<i64>,
    /// Column `billsec`: microseconds from the answer to the end. It can be negative, or longer
    /// than the duration, in the same way.
    pub billed_micros: Option<i64>,
    /// `ANSWERED`, `NO ANSWER`, `BUSY`, `FAILED`, `CONGESTION`, `CANCEL`, or others to come.
    pub disposition: Text<'a>,
    /// Column `userfield`: text that the dialplan sets.
    pub userfield: Text<'a>,
    /// Column `clid`, the caller's name and number: `"Anna" <998901110001>`.
    pub caller_id: Text<'a>,
    /// Beginning of the record: `start` made absolute.
    pub started_at: Option<EventTime>,
    /// `answer` made absolute; `None` when unanswered.
    pub answered_at: Option<EventTime>,
    /// End of the record: `end` made absolute.
    pub ended_at: Option<EventTime>,
    /// Nothing tells the zone of its local times: they were taken for UTC.
    pub zoneless: bool,
    /// Events of the one channel that the record is of; empty of a record of a path between two.
    pub events: Vec<ChannelEvent<'a>>,
}
