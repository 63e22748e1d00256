//! Which events are asked for: those that a rule reads, and none of the rest.

use crate::rule::{CONFERENCE, EVENTS, EventRule};

/// The command that asks for them, without its line end. Events of modules are named each, for
/// only `ALL` would take them all in.
pub fn command() -> String {
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
        let command = command();
        assert!(command.starts_with("event json CHANNEL_CREATE CHANNEL_ANSWER CHANNEL_BRIDGE "));
        assert!(command.ends_with(" HEARTBEAT CUSTOM conference::maintenance"));
        assert!(!command.contains("CHANNEL_DATA"));
    }
}
