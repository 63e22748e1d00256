//! The events that callbridge reads, and the command to subscribe to them.

/// How an event is read. Every event that callbridge reads has a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventRule {
    Create,
    Answer,
    Bridge,
    Unbridge,
    Hangup,
    /// The channel starts an application (or ends one, for `ExecuteComplete`). Only `APPLICATIONS`
    /// are considered.
    Execute,
    ExecuteComplete,
    /// The channel's user pressed a key.
    Key,
    /// A channel enters or leaves a conference.
    Conference,
    /// Everything about a live channel, in response to `uuid_dump`.
    Dump,
    Heartbeat,
}

/// The events that callbridge reads, except `CUSTOM`, along with their rules.
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

/// The only subclass of `CUSTOM` events that callbridge reads.
pub(crate) const CONFERENCE: &str = "conference::maintenance";

/// The application that takes a channel out of its bridge to consult someone.
pub(crate) const ATTENDED: &str = "att_xfer";
/// The application that lets a channel talk to both sides of another channel's bridge. It also runs
/// when `0` is pressed during an attended transfer.
pub(crate) const THREE_WAY: &str = "three_way";
/// The application that makes a channel listen to another one. Its user can press keys to choose
/// who can hear them.
pub(crate) const EAVESDROP: &str = "eavesdrop";
/// The applications that matter for calls.
pub(crate) const APPLICATIONS: [&str; 3] = [ATTENDED, THREE_WAY, EAVESDROP];

/// Returns the command that subscribes to the events that callbridge reads, without a newline. The
/// `CUSTOM` subclass has to be listed, because only `ALL` includes all of the modules' events.
pub fn subscription() -> String {
    let mut names = Vec::new();
    for (name, rule) in EVENTS {
        // This event is the response to `uuid_dump`, and can't be subscribed to.
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
