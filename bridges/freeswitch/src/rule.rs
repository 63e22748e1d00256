//! Which events a call can depend on: those are asked for, and none of the rest.

/// The way in which an event is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventRule {
    Create,
    Answer,
    Bridge,
    Unbridge,
    Hangup,
    /// The channel begins or ends an application, which counts if it is one of `APPLICATIONS`.
    Execute,
    ExecuteComplete,
    /// The channel's user pressed a key.
    Key,
    /// A channel comes into a room or leaves it.
    Conference,
    /// All that is known of a channel (`uuid_dump`).
    Dump,
    Heartbeat,
}

/// Events of which something is read: what a subscription needs.
pub(crate) const EVENTS: [(&str, EventRule); 12] = [
    ("CHANNEL_CREATE", EventRule::Create),
    ("CHANNEL_ANSWER", EventRule::Answer),
    ("CHANNEL_BRIDGE", EventRule::Bridge),
    ("CHANNEL_UNBRIDGE", EventRule::Unbridge),
    ("CHANNEL_HANGUP", EventRule::Hangup),
    ("CHANNEL_HANGUP_COMPLETE", EventRule::Hangup),
    ("CHANNEL_DESTROY", EventRule::Hangup),
    ("CHANNEL_EXECUTE", EventRule::Execute),
    ("CHANNEL_EXECUTE_COMPLETE", EventRule::ExecuteComplete),
    ("DTMF", EventRule::Key),
    ("CHANNEL_DATA", EventRule::Dump),
    ("HEARTBEAT", EventRule::Heartbeat),
];

/// The one subclass of `CUSTOM` that is read.
pub(crate) const CONFERENCE: &str = "conference::maintenance";

/// The application that takes a channel away from its bridge to consult someone.
pub(crate) const ATTENDED: &str = "att_xfer";
/// The application by which a channel talks with both sides of another one's bridge. It also runs
/// when `0` is pressed during an attended transfer.
pub(crate) const THREE_WAY: &str = "three_way";
/// The application by which a channel listens to another one. Its user's keys decide who hears it.
pub(crate) const EAVESDROP: &str = "eavesdrop";
/// The applications on which a call can depend.
pub(crate) const APPLICATIONS: [&str; 3] = [ATTENDED, THREE_WAY, EAVESDROP];

/// The command that asks for them, without its line end. Events of modules are named each, for
/// only `ALL` would take them all in.
pub fn subscription() -> String {
    let events = EVENTS.iter();
    // An answer to `uuid_dump`: nobody can subscribe to it.
    let events = events.filter(|(_, rule)| *rule != EventRule::Dump);
    let events: Vec<&str> = events.map(|(name, _)| *name).collect();
    format!("event json {} CUSTOM {CONFERENCE}", events.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rule_reads_is_asked_for() {
        let command = subscription();
        assert!(command.starts_with("event json CHANNEL_CREATE CHANNEL_ANSWER CHANNEL_BRIDGE "));
        assert!(command.ends_with(" HEARTBEAT CUSTOM conference::maintenance"));
        assert!(!command.contains("CHANNEL_DATA"));
    }
}
