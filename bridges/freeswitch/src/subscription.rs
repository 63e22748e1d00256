//! Which events are asked for: those that a call can depend on, and none of the rest.

/// Events of channels and of the switch itself.
pub const EVENTS: [&str; 17] = [
    "CHANNEL_CREATE",
    "CHANNEL_ORIGINATE",
    "CHANNEL_PROGRESS",
    "CHANNEL_PROGRESS_MEDIA",
    "CHANNEL_ANSWER",
    "CHANNEL_BRIDGE",
    "CHANNEL_UNBRIDGE",
    "CHANNEL_HOLD",
    "CHANNEL_UNHOLD",
    "CHANNEL_PARK",
    "CHANNEL_UNPARK",
    "CHANNEL_EXECUTE",
    "CHANNEL_HANGUP",
    "CHANNEL_HANGUP_COMPLETE",
    "CHANNEL_DESTROY",
    "HEARTBEAT",
    "SHUTDOWN",
];

/// Events of modules, each named: only `ALL` would take them all in.
pub const SUBCLASSES: [&str; 4] = [
    "conference::maintenance",
    "callcenter::info",
    "fifo::info",
    "valet_parking::info",
];

/// The command that asks for them, without its line end.
pub fn command() -> String {
    let (events, subclasses) = (EVENTS.join(" "), SUBCLASSES.join(" "));
    format!("event json {events} CUSTOM {subclasses}")
}
