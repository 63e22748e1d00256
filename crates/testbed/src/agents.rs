//! Adds to a recording the events that a queue of AMI 1.x sends about the telephones that it rings,
//! if `eventwhencalled` is set in `queues.conf`. They follow each channel that is made while a
//! caller waits in the queue.

const END: &str = "\r\n\r\n";

/// Returns the AMI recording as a PBX with that setting would have sent it.
pub fn called(ami: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(ami.to_vec()).expect("UTF-8");
    let mut waiting = None;
    let mut told = String::new();
    for message in text.split_inclusive(END) {
        told += message;
        match value(message, "Event") {
            "Join" => waiting = Some(message),
            "Leave" => waiting = None,
            "Newchannel" => told += &waiting.map_or_else(String::new, |by| event(by, message)),
            _ => {}
        }
    }
    told.into_bytes()
}

fn value<'m>(message: &'m str, key: &str) -> &'m str {
    let pairs = message.lines().filter_map(|line| line.split_once(": "));
    let mut own = pairs.filter(|(name, _)| *name == key);
    own.next().map_or("", |(_, value)| value)
}

/// Writes an event with the fields of Asterisk 1.8 to 11. The unique id is the caller's.
fn event(by: &str, agent: &str) -> String {
    let channel = value(agent, "Channel");
    let interface = channel.rsplit_once('-').map_or(channel, |(name, _)| name);
    let pairs = [
        ("Event", "AgentCalled"),
        ("Privilege", "agent,all"),
        ("Timestamp", value(agent, "Timestamp")),
        ("Queue", value(by, "Queue")),
        ("AgentCalled", interface),
        ("AgentName", interface),
        ("ChannelCalling", value(by, "Channel")),
        ("DestinationChannel", channel),
        ("CallerIDNum", value(by, "CallerIDNum")),
        ("CallerIDName", "unknown"),
        ("ConnectedLineNum", value(agent, "CallerIDNum")),
        ("ConnectedLineName", value(agent, "CallerIDName")),
        ("Context", "queues"),
        ("Extension", "s"),
        ("Priority", "2"),
        ("Uniqueid", value(by, "Uniqueid")),
    ];
    let lines = pairs.map(|(key, value)| format!("{key}: {value}"));
    lines.join("\r\n") + END
}
