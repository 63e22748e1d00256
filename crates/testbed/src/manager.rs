//! A manager of Asterisk (AMI) that treats classes and filters of events, and the actions `Filter`
//! and `UserEvent`, as a given release does.

use crate::pbx::value;
use regex::Regex;

/// A release of Asterisk whose manager differs from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// The manager of Asterisk 1.8, which has no action `Filter`.
    V1_8,
    /// The manager of Asterisk 11, which reads a filter as a basic regular expression: `(A|B)` is
    /// literal text.
    V11,
    /// The manager of Asterisk 13, which reads a filter as an extended regular expression.
    V13,
    /// A manager that answers `Success` to any filter, and then sends no events.
    Mute,
}

/// One connection to the manager of a release.
pub struct Manager {
    release: Release,
    classes: String,
    filters: Vec<Regex>,
}

impl Release {
    /// Returns the line that a manager of this release sends to every new client.
    pub const fn banner(self) -> &'static str {
        match self {
            Self::V1_8 => "Asterisk Call Manager/1.1\r\n",
            Self::V11 | Self::Mute => "Asterisk Call Manager/1.3\r\n",
            Self::V13 => "Asterisk Call Manager/2.10.6\r\n",
        }
    }
}

impl Manager {
    pub fn new(release: Release) -> Self {
        Self {
            release,
            classes: String::new(),
            filters: Vec::new(),
        }
    }

    /// Handles an action, given as lines `Key: value`. Returns the answer if the answer differs
    /// between releases.
    pub fn handle_action(&mut self, action: &[String]) -> Option<String> {
        let id = value(action, "ActionID");
        match value(action, "Action").to_lowercase().as_str() {
            "login" => self.classes = value(action, "Events").to_owned(),
            "events" => self.classes = value(action, "EventMask").to_owned(),
            "filter" if self.release == Release::V1_8 => {
                let error = "Response: Error\r\nMessage: Invalid/unknown command";
                return Some(format!("{error}\r\nActionID: {id}\r\n\r\n"));
            }
            "filter" => {
                let filter = self.expression(value(action, "Filter"));
                self.filters.push(filter);
            }
            "userevent" => {
                let event = format!(
                    "Event: UserEvent\nPrivilege: user,all\nTimestamp: 1795226443.028147\n\
                     UserEvent: {}\nAction: UserEvent\n\
                     ActionID: {id}",
                    value(action, "UserEvent")
                );
                let sent = String::from_utf8(self.filter_messages(event.as_bytes()));
                let sent = sent.expect("UTF-8");
                let success = "Response: Success\r\nMessage: Event Sent";
                return Some(format!("{success}\r\nActionID: {id}\r\n\r\n{sent}"));
            }
            _ => {}
        }
        None
    }

    /// Compiles a filter as this release does. The expression is matched against the whole event,
    /// line ends included.
    fn expression(&self, filter: &str) -> Regex {
        let mut text = String::from("(?s)");
        if self.release == Release::Mute {
            return Regex::new("[^\\s\\S]").expect("an expression");
        }
        for letter in filter.chars() {
            if self.release == Release::V11 && "(){}|+?".contains(letter) {
                text.push('\\');
            }
            text.push(letter);
        }
        Regex::new(&text).expect("an expression")
    }

    /// Returns the messages of `messages` whose class the client has subscribed to, and that match
    /// one of the filters, if there are filters.
    pub fn filter_messages(&self, messages: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(messages).replace("\r\n", "\n");
        let all = text.split_terminator("\n\n").map(str::trim_start);
        let sent = all.filter(|message| self.is_permitted(message));
        let sent = sent.map(|message| message.replace('\n', "\r\n") + "\r\n\r\n");
        sent.collect::<String>().into_bytes()
    }

    fn is_permitted(&self, message: &str) -> bool {
        let class = message
            .lines()
            .find_map(|line| line.strip_prefix("Privilege: "));
        let class = class
            .and_then(|classes| classes.split(',').next())
            .unwrap_or_default();
        let wanted = match self.classes.as_str() {
            "off" => false,
            "on" => true,
            classes => classes.split(',').any(|subscribed| subscribed == class),
        };
        let whole = message.replace('\n', "\r\n") + "\r\n\r\n";
        let mut filters = self.filters.iter();
        let passes = self.filters.is_empty() || filters.any(|filter| filter.is_match(&whole));
        wanted && passes
    }
}
