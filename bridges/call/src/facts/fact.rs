//! What happened to a channel of an open call, as a fact that is kept of an event.

use crate::{ChannelState, EventTime, Kind, MonitorMode, Origin, UniqueId, clip};
use serde::{Deserialize, Serialize};

/// Bytes of a text that is remembered; a longer one is no name, number or id.
pub(super) const TEXT_BYTES_MAX: usize = 2048;
/// Different names, numbers, linkedids… remembered of one channel.
pub(super) const TEXTS_MAX: usize = 16;
/// Bytes of a dialing's result that are remembered.
const STATUS_BYTES_MAX: usize = 32;

/// Something that happened to a channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fact {
    pub(crate) at: EventTime,
    pub(crate) origin: Origin,
    pub(crate) what: FactKind,
    /// Detail of the event beside the fact; says nothing for the call's values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<Note>,
}

impl Fact {
    /// One that no event told in these words.
    pub(crate) fn new(at: EventTime, origin: Origin, what: FactKind) -> Self {
        Self {
            at,
            origin,
            what,
            note: None,
        }
    }
}

/// Detail of an event beside its fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Note {
    /// The Q.850 cause of a hang-up.
    Cause(u16),
    /// Outcome of a dialing: `ANSWER`, `BUSY`…
    Status(Box<str>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FactKind {
    Born(ChannelState),
    State(ChannelState),
    Dialed {
        by: Option<UniqueId>,
        string: String,
    },
    DialEnded,
    /// The channel ran an application, which stands in `Applications` where it counts.
    App,
    Enter {
        bridge: String,
        holding: bool,
    },
    Leave {
        bridge: String,
        holding: bool,
    },
    /// The channel and another hear each other from here on.
    Linked {
        with: UniqueId,
    },
    Unlinked {
        with: UniqueId,
    },
    /// The channel leaves whom it hears to speak with a third (`begins`), or is back.
    Consults {
        begins: bool,
    },
    /// The channel listens to another one, and those who hear it changed.
    Monitors {
        target: UniqueId,
        mode: MonitorMode,
        by_keys: bool,
    },
    /// Whoever has this channel leaves the call of this linkedid to whom they dial here.
    Transfers {
        call: String,
    },
    /// Another telephone is known by this unique id from here on.
    Renamed {
        to: String,
    },
    /// The person at the channel hung up. The channel can go on for its hangup handlers.
    HangupRequested,
    Hangup,
    Gone,
}

/// A channel comes into a bridge or leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage<'a> {
    pub(crate) bridge: &'a str,
    /// Set for a bridge in which nobody hears anybody.
    pub(crate) holding: bool,
    pub(crate) enters: bool,
}

impl FactKind {
    /// Returns `true` if another channel dialed this one.
    pub(crate) fn is_dialed(&self) -> bool {
        matches!(self, Self::Dialed { .. })
    }

    /// The channel comes into a bridge (`enters`) or leaves it; nobody hears anybody in one that is
    /// `holding`.
    pub(crate) fn passes(bridge: String, enters: bool, holding: bool) -> Self {
        match enters {
            true => Self::Enter { bridge, holding },
            false => Self::Leave { bridge, holding },
        }
    }

    /// The bridge that the channel comes into or leaves by this.
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

    /// AMI 1.x: whom the channel hears from here on (`true`), or no more.
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

    /// Returns the monitored channel, if this channel can be heard by someone.
    pub(crate) fn heard_target(&self) -> Option<&UniqueId> {
        match self {
            Self::Monitors { target, mode, .. } if mode.is_heard() => Some(target),
            _ => None,
        }
    }

    /// Returns `true` for a hang-up in one of its forms.
    pub(crate) fn is_end(&self) -> bool {
        matches!(self, Self::Hangup | Self::Gone)
    }
}

/// Returns `true` when one of the facts is so.
pub(crate) fn any(facts: &[Fact], is: impl Fn(&FactKind) -> bool) -> bool {
    facts.iter().any(|fact| is(&fact.what))
}

/// The spans that beginnings (`true`) and ends make, in the order of time; the last may have no
/// end.
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

/// The fact that a kind of event leaves behind.
pub(super) fn fact_of(kind: &Kind<'_>) -> Option<FactKind> {
    Some(match kind {
        Kind::Born { state } => FactKind::Born(*state),
        Kind::State { state } => FactKind::State(*state),
        Kind::DialBegin { by, dial_string } => FactKind::Dialed {
            by: by.as_ref().and_then(|by| UniqueId::new(&by.uniqueid)),
            string: clip(dial_string, TEXT_BYTES_MAX),
        },
        Kind::DialEnd { .. } => FactKind::DialEnded,
        Kind::App { .. } => FactKind::App,
        Kind::BridgeEnter { bridge, technology } | Kind::BridgeLeave { bridge, technology } => {
            let enters = matches!(kind, Kind::BridgeEnter { .. });
            FactKind::passes(clip(bridge, TEXT_BYTES_MAX), enters, is_holding(technology))
        }
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
        // It is up, in whatever state.
        Kind::Listed { .. } => FactKind::State(ChannelState::Unknown),
        Kind::HangupRequested => FactKind::HangupRequested,
        Kind::Hangup { .. } => FactKind::Hangup,
        Kind::Gone => FactKind::Gone,
        Kind::Joined { .. } | Kind::LinkedidEnd | Kind::Seen => return None,
    })
}

/// Returns the detail that an event has beside its fact.
pub(super) fn note_of(kind: &Kind<'_>) -> Option<Note> {
    match kind {
        Kind::Hangup { cause } => cause.map(Note::Cause),
        Kind::DialEnd { status, .. } if !status.is_empty() => {
            Some(Note::Status(clip(status, STATUS_BYTES_MAX).into()))
        }
        _ => None,
    }
}

/// Parking lots, music, switchboard queues: a bridge in which nobody hears anybody.
pub(crate) fn is_holding(technology: &str) -> bool {
    technology.eq_ignore_ascii_case("holding_bridge")
}

/// Returns `true` for a conference, in which channels of several calls can hear each other. AMI 1.x
/// and CEL name one by its number.
pub(super) fn is_room(bridge: &str, technology: &str) -> bool {
    technology.eq_ignore_ascii_case("softmix") || bridge.starts_with("room ")
}
