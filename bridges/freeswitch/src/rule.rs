//! The events that callbridge reads, and the command that subscribes to them.

/// How an event is read. Each event that callbridge reads has a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventRule {
    Create,
    Answer,
    Bridge,
    Unbridge,
    Hangup,
    /// The channel begins an application (`ExecuteComplete`: ends it). Only `APPLICATIONS` count.
    Execute,
    ExecuteComplete,
    /// The channel's user pressed a key.
    Key,
    /// A channel enters or leaves a conference.
    Conference,
    /// All facts about a live channel, as the answer to `uuid_dump`.
    Dump,
    Heartbeat,
}

/// The events that callbridge reads, except `CUSTOM`, and their rules.
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

/// The only subclass of the event `CUSTOM` that callbridge reads.
pub(crate) const CONFERENCE: &str = "conference::maintenance";

/// The application that takes a channel away from its bridge to consult someone.
pub(crate) const ATTENDED: &str = "att_xfer";
/// The application with which a channel talks with both sides of another channel's bridge. It also
/// runs when `0` is pressed during an attended transfer.
pub(crate) const THREE_WAY: &str = "three_way";
/// The application with which a channel listens to another channel. By pressing keys, its user
/// decides who hears the user.
pub(crate) const EAVESDROP: &str = "eavesdrop";
/// The applications that matter for calls.
pub(crate) const APPLICATIONS: [&str; 3] = [ATTENDED, THREE_WAY, EAVESDROP];

/// Returns the command that subscribes to the events that callbridge reads, without a line end. The
/// subclass of `CUSTOM` is named, because only `ALL` includes all events of modules.
pub fn subscription() -> String {
    let mut names = Vec::new();
    for (name, rule) in EVENTS {
        // This event is the answer to `uuid_dump`, and cannot be subscribed to.
        if rule != EventRule::Dump {
            names.push(name);
        }
    }
    format!("event json {} CUSTOM {CONFERENCE}", names.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscription_requests_the_events_that_rules_read() {
        let expected = "event json CHANNEL_CREATE CHANNEL_ANSWER CHANNEL_BRIDGE CHANNEL_UNBRIDGE \
            CHANNEL_HANGUP CHANNEL_HANGUP_COMPLETE CHANNEL_DESTROY CHANNEL_EXECUTE \
            CHANNEL_EXECUTE_COMPLETE DTMF HEARTBEAT CUSTOM conference::maintenance";
        assert_eq!(subscription(), expected);
    }
}
