//! The only reason to send the CRM nothing until a certain moment: requests that this state doesn't
//! know about may still count there. It's stored in the only row of the `silence` table.

use std::time::Duration;

/// A period during which the CRM is sent nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The boot that `until` refers to. In any other boot, the silence starts over. Empty if the
    /// sender hasn't started it yet.
    pub boot_id: String,
    /// When the silence ends, as time since that boot.
    pub until: Duration,
    pub why: SilenceReason,
}

impl Silence {
    /// Returns a silence that begins when a sender starts.
    pub fn to_begin(why: SilenceReason) -> Self {
        Self {
            boot_id: String::new(),
            until: Duration::ZERO,
            why,
        }
    }
}

/// Why requests that the state doesn't know about may count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SilenceReason {
    /// The state is a copy, such as a restored backup.
    Copied,
    /// The process with this name was using the state before.
    TakenOver(String),
    /// A branch has seen a commit that the database lost.
    LostCommits,
    /// Another hub was sending from a second database.
    SecondDatabase,
    /// The stored slots can't be relied on, for example after a reboot.
    UncertainSlots,
}

const TAKEN_OVER: &str = "taken_over ";

impl SilenceReason {
    /// Returns the text stored in the table.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Copied => "copied".to_owned(),
            Self::TakenOver(name) => format!("{TAKEN_OVER}{name}"),
            Self::LostCommits => "lost_commits".to_owned(),
            Self::SecondDatabase => "second_database".to_owned(),
            Self::UncertainSlots => "uncertain_slots".to_owned(),
        }
    }

    /// Parses a text from the table. An unknown one still means that nothing is sent.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "copied" => Self::Copied,
            "lost_commits" => Self::LostCommits,
            "second_database" => Self::SecondDatabase,
            _ => match text.strip_prefix(TAKEN_OVER) {
                Some(name) => Self::TakenOver(name.to_owned()),
                None => Self::UncertainSlots,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_round_trip_through_its_text() {
        for why in [
            SilenceReason::Copied,
            SilenceReason::TakenOver("hub 1".to_owned()),
            SilenceReason::LostCommits,
            SilenceReason::SecondDatabase,
            SilenceReason::UncertainSlots,
        ] {
            assert_eq!(SilenceReason::parse(&why.text()), why);
        }
        let unknown = SilenceReason::parse("of a newer version");
        assert_eq!(unknown, SilenceReason::UncertainSlots);
    }
}
