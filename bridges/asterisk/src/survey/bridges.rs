//! Whether an account receives bridge events, which show who talked with whom.

/// Events that show who is connected with whom, in lowercase.
pub(super) const BRIDGE_EVENTS: [&[u8]; 3] = [b"bridgeenter", b"bridge", b"link"];

/// Our own events that contain the beginning of an event of calls as text. An `eventfilter` is
/// matched with an event's whole text, so one that drops bridge events also drops our sample of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    Bridge,
    Channel,
}

impl Sample {
    /// Returns how the event begins. Before Asterisk 12, `Bridge` was the whole name.
    pub(super) const fn text(self, is_old: bool) -> &'static str {
        match self {
            Self::Bridge if is_old => "Event: Bridge",
            Self::Bridge => "Event: BridgeEnter",
            Self::Channel => "Event: Newchannel",
        }
    }
}

/// Whether the account receives bridge events, which show who talked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BridgeProof {
    /// It isn't known. A sample that comes back doesn't prove much, because a filter can also name
    /// the events that pass.
    #[default]
    Unknown,
    /// A bridge event has arrived.
    Heard,
    /// The sample of a bridge event didn't come back, although another of our events did.
    Dropped,
}
