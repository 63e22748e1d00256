//! Facts about an open call's channels, which are stored instead of its events.

use crate::trunk;
use crate::{ChannelEvent, ChannelState, EventTime, Kind, MonitorMode, Origin, UniqueId, clip};
use serde::{Deserialize, Serialize};

/// Maximum length of a stored text in bytes. Anything longer isn't a name, number, or ID.
pub(super) const TEXT_BYTES_MAX: usize = 2048;
/// Maximum number of distinct names, numbers, linkedids, and so on stored per channel.
pub(super) const TEXTS_MAX: usize = 16;
/// Maximum length of a stored dial status in bytes.
const STATUS_BYTES_MAX: usize = 32;
/// The dial status if the call was answered.
const ANSWERED: &str = "ANSWER";

/// Something that happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) at: EventTime,
    pub(crate) origin: Origin,
    pub(crate) what: FactKind,
    /// The Q.850 hangup cause, which doesn't affect the call's values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cause: Option<u16>,
}

impl Fact {
    /// Creates a fact without a cause.
    pub(crate) fn new(at: EventTime, origin: Origin, what: FactKind) -> Self {
        Self {
            at,
            origin,
            what,
            cause: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FactKind {
    Born(ChannelState),
    State(ChannelState),
    Dialed {
        by: Option<UniqueId>,
        string: String,
    },
    /// Dialing this channel ended with a status such as `ANSWER` or `BUSY`, which is empty if the
    /// event was truncated.
    DialEnded {
        status: String,
    },
    /// A `Dial` or `Queue` that this channel ran ended with this status.
    DialRan {
        status: String,
    },
    /// The channel left its queue before being connected to anyone.
    GaveUp,
    /// The channel ran an application, which is listed in `Applications` if it matters.
    App,
    Enter {
        bridge: String,
        holding: bool,
    },
    Leave {
        bridge: String,
        holding: bool,
    },
    /// The channel is in this conference bridge, so its entry must have been reported as well.
    Sits {
        bridge: String,
    },
    /// When the channel left this bridge, the phone or line with this name remained in it.
    Remains {
        bridge: String,
        name: String,
    },
    /// From now on, the channel and another can hear each other.
    Linked {
        with: UniqueId,
    },
    Unlinked {
        with: UniqueId,
    },
    /// The channel leaves the one it was connected to in order to talk to a third one (`begins`),
    /// or returns to it.
    Consults {
        begins: bool,
    },
    /// The channel listens to the channel `target`. `mode` determines who can hear this channel
    /// from now on, and `by_keys` whether its user can change the mode by pressing a key.
    Monitors {
        target: UniqueId,
        mode: MonitorMode,
        by_keys: bool,
    },
    /// The user of this channel transfers the call with this linkedid to the party they dialed
    /// here.
    Transfers {
        call: String,
    },
    /// The channel continues under the name `to`. On AMI 1.x, this unique ID may belong to a
    /// different phone from now on.
    Renamed {
        to: String,
    },
    /// The PBX listed a previously unknown channel as live, running this application (which may be
    /// empty).
    Listed {
        running: String,
    },
    /// The person at the channel hung up. The channel may continue for its hangup handlers.
    HangupRequested,
    Hangup,
    Gone,
}

/// A channel's entry into a bridge, or its exit from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage<'a> {
    pub(crate) bridge: &'a str,
    /// Whether this is a bridge whose channels can't hear each other.
    pub(crate) holding: bool,
    pub(crate) enters: bool,
}

impl FactKind {
    /// Returns `true` if the channel was created or dialed.
    pub(crate) fn is_creation(&self) -> bool {
        matches!(self, Self::Born(_)) || self.is_dialed()
    }

    /// Returns `true` if another channel dialed this one.
    pub(crate) fn is_dialed(&self) -> bool {
        matches!(self, Self::Dialed { .. })
    }

    /// Creates a fact for a channel that enters (if `enters`) or leaves a bridge. In a `holding`
    /// bridge, the channels can't hear each other.
    pub(crate) fn enter_or_leave(bridge: String, enters: bool, holding: bool) -> Self {
        if enters {
            Self::Enter { bridge, holding }
        } else {
            Self::Leave { bridge, holding }
        }
    }

    /// Returns the bridge that the channel enters or leaves, if that's what this fact is about.
    pub(crate) fn passage(&self) -> Option<Passage<'_>> {
        let (Self::Enter { bridge, holding } | Self::Leave { bridge, holding }) = self else {
            return None;
        };
        Some(Passage {
            bridge,
            holding: *holding,
            enters: matches!(self, Self::Enter { .. }),
        })
    }

    /// Returns the bridge that the channel enters, leaves, or is in, if this fact is about one.
    pub(crate) fn bridge(&self) -> Option<&str> {
        match self {
            Self::Enter { bridge, .. } | Self::Leave { bridge, .. } | Self::Sits { bridge } => {
                Some(bridge)
            }
            _ => None,
        }
    }

    /// Returns the other channel of a link, and `true` if the link begins or `false` if it ends.
    /// Only AMI 1.x, old CEL, and FreeSWITCH report links.
    pub(crate) fn link(&self) -> Option<(&UniqueId, bool)> {
        let (Self::Linked { with } | Self::Unlinked { with }) = self else {
            return None;
        };
        Some((with, matches!(self, Self::Linked { .. })))
    }

    /// Returns the channel that dialed this one.
    pub(crate) fn dialer(&self) -> Option<&UniqueId> {
        match self {
            Self::Dialed { by, .. } => by.as_ref(),
            _ => None,
        }
    }

    /// Returns the channel that dialed this one or was linked with it.
    pub(crate) fn partner(&self) -> Option<&UniqueId> {
        self.dialer().or(self.link().map(|(with, _)| with))
    }

    /// Returns the monitored channel, if anyone can hear the channel monitoring it.
    pub(crate) fn heard_target(&self) -> Option<&UniqueId> {
        match self {
            Self::Monitors { target, mode, .. } if mode.is_heard() => Some(target),
            _ => None,
        }
    }

    /// Returns `true` if the dialing of this channel ended.
    pub(crate) fn is_dial_end(&self) -> bool {
        matches!(self, Self::DialEnded { .. })
    }

    /// Returns whether this channel answered, or `None` if the fact isn't the result of dialing it.
    pub(crate) fn dial_result(&self) -> Option<bool> {
        match self {
            Self::DialEnded { status } if !status.is_empty() => {
                Some(status.eq_ignore_ascii_case(ANSWERED))
            }
            _ => None,
        }
    }

    /// Returns whether a channel dialed by this one answered, or `None` if the fact isn't the
    /// result of this channel's `Dial`.
    pub(crate) fn ran_dial_result(&self) -> Option<bool> {
        match self {
            Self::DialRan { status } => Some(status.eq_ignore_ascii_case(ANSWERED)),
            _ => None,
        }
    }

    /// Creates a fact for the result of a `Dial` that the event's channel ran.
    pub(super) fn dial_ran(status: &str) -> Self {
        Self::DialRan {
            status: clip(status, STATUS_BYTES_MAX),
        }
    }

    /// Returns `true` if this fact ends the channel.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Hangup | Self::Gone)
    }
}

/// Returns `true` if any of the facts satisfies the predicate.
pub(crate) fn any(facts: &[Fact], is: impl Fn(&FactKind) -> bool) -> bool {
    facts.iter().any(|fact| is(&fact.what))
}

/// Returns the spans between starts (`true`) and ends (`false`). `edges` must be in chronological
/// order, and the last span is open-ended if its start has no matching end.
pub(crate) fn spans(
    edges: impl IntoIterator<Item = (EventTime, bool)>,
) -> Vec<(EventTime, Option<EventTime>)> {
    let mut since = None;
    let mut spans = Vec::new();
    for (at, begins) in edges {
        if begins {
            since = since.or(Some(at));
        } else if let Some(from) = since.take() {
            spans.push((from, Some(at)));
        }
    }
    spans.extend(since.map(|from| (from, None)));
    spans
}

/// Returns a fact for each phone or line among `peers`, the channels left behind in the bridge.
/// There are none for a holding bridge, because its channels don't hear each other.
pub(super) fn remaining(exit: &Fact, peers: &str) -> Vec<Fact> {
    let FactKind::Leave {
        bridge,
        holding: false,
    } = &exit.what
    else {
        return Vec::new();
    };
    let names = peers.split(',').map(trunk::unmarked).take(TEXTS_MAX);
    names
        .filter(|name| trunk::extension(name).is_some())
        .map(|name| {
            let (bridge, name) = (bridge.clone(), clip(name, TEXT_BYTES_MAX));
            Fact::new(exit.at, exit.origin, FactKind::Remains { bridge, name })
        })
        .collect()
}

/// Returns the fact to store for this event, if any.
pub(super) fn fact_of(event: &ChannelEvent<'_>) -> Option<FactKind> {
    Some(match &event.kind {
        Kind::Born { state } => FactKind::Born(*state),
        Kind::State { state } => FactKind::State(*state),
        Kind::DialBegin { by, dial_string } => FactKind::Dialed {
            by: by.as_ref().and_then(|by| UniqueId::new(&by.uniqueid)),
            string: clip(dial_string, TEXT_BYTES_MAX),
        },
        Kind::DialEnd { status, .. } => FactKind::DialEnded {
            status: clip(status, STATUS_BYTES_MAX),
        },
        Kind::GaveUp => FactKind::GaveUp,
        Kind::App { .. } => FactKind::App,
        Kind::BridgeEnter { bridge, technology } | Kind::BridgeLeave { bridge, technology } => {
            let enters = matches!(event.kind, Kind::BridgeEnter { .. });
            FactKind::enter_or_leave(clip(bridge, TEXT_BYTES_MAX), enters, is_holding(technology))
        }
        Kind::Sits { bridge } => FactKind::Sits {
            bridge: clip(bridge, TEXT_BYTES_MAX),
        },
        Kind::Linked { with } => FactKind::Linked {
            with: UniqueId::new(with.uniqueid.as_ref())?,
        },
        Kind::Unlinked { with } => FactKind::Unlinked {
            with: UniqueId::new(with.uniqueid.as_ref())?,
        },
        Kind::Consults { begins } => FactKind::Consults { begins: *begins },
        Kind::Monitors {
            target,
            mode,
            by_keys,
        } => FactKind::Monitors {
            target: UniqueId::new(target.as_ref())?,
            mode: *mode,
            by_keys: *by_keys,
        },
        Kind::Transfers { call } => FactKind::Transfers {
            call: clip(call, TEXT_BYTES_MAX),
        },
        Kind::Renamed { to, .. } => FactKind::Renamed {
            to: clip(to, TEXT_BYTES_MAX),
        },
        Kind::Listed { .. } => FactKind::Listed {
            running: clip(&event.channel.application, TEXT_BYTES_MAX),
        },
        Kind::HangupRequested => FactKind::HangupRequested,
        Kind::Hangup { .. } => FactKind::Hangup,
        Kind::Gone => FactKind::Gone,
        Kind::Joined { .. } | Kind::LinkedidEnd | Kind::Seen => return None,
    })
}

/// Returns `true` for a bridge whose channels can't hear each other, such as a parking lot, music
/// on hold, or a switchboard queue.
pub(crate) fn is_holding(technology: &str) -> bool {
    technology.eq_ignore_ascii_case("holding_bridge")
}

/// Returns `true` for a conference, where channels of several calls can hear each other. AMI 1.x,
/// and CEL without bridge IDs, report it as `room` and its number, without a technology.
pub(super) fn is_room(bridge: &str, technology: &str) -> bool {
    technology.eq_ignore_ascii_case("softmix") || bridge.starts_with("room ")
}
