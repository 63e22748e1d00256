//! Determines whether an account receives bridge events, without which there's no telling who
//! talked to whom.

/// Events that show who is connected to whom, in lowercase.
pub(super) const BRIDGE_EVENTS: [&[u8]; 3] = [b"bridgeenter", b"bridge", b"link"];

/// Events we send to ourselves that contain the start of a call event as text. Since an
/// `eventfilter` is matched against the entire text of an event, one that drops bridge events will
/// also drop our sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    Bridge,
    Channel,
}

impl Sample {
    /// Returns the start of the event's text. Before Asterisk 12, the event was called `Bridge`.
    pub(super) const fn text(self, is_old: bool) -> &'static str {
        match self {
            Self::Bridge if is_old => "Event: Bridge",
            Self::Bridge => "Event: BridgeEnter",
            Self::Channel => "Event: Newchannel",
        }
    }
}

/// Whether the account receives bridge events, which are needed to tell who talked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BridgeProof {
    /// Not known. Even a sample that comes back is inconclusive, since a filter may also list the
    /// events to let through.
    #[default]
    Unknown,
    /// A bridge event has arrived.
    Heard,
    /// The sample bridge event didn't come back, although another of our events did.
    Dropped,
}
