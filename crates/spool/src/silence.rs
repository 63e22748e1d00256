//! The one reason to send nothing to the CRM until some moment: requests that this state doesn't
//! know may still count there. The table `silence` holds it in its only row.

use std::time::Duration;

/// A time in which nothing is sent to the CRM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silence {
    /// The boot that `until` belongs to. In any other boot, the silence begins anew. Empty if the
    /// sender hasn't begun it yet.
    pub boot_id: String,
    /// End of the silence, as time since that boot.
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

/// Why requests may count that the state doesn't know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SilenceReason {
    /// The state is a copy, such as a restored backup.
    Copied,
    /// The process with this name led the state before.
    TakenOver(String),
    /// A branch has seen a commit that the database lost.
    LostCommits,
    /// The stored slots aren't certain, for example after a reboot.
    UncertainSlots,
}

const TAKEN_OVER: &str = "taken_over ";

impl SilenceReason {
    /// Returns the text that the table holds.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Copied => "copied".to_owned(),
            Self::TakenOver(name) => format!("{TAKEN_OVER}{name}"),
            Self::LostCommits => "lost_commits".to_owned(),
            Self::UncertainSlots => "uncertain_slots".to_owned(),
        }
    }

    /// Reads a text of the table. An unknown text still means that nothing is sent.
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "copied" => Self::Copied,
            "lost_commits" => Self::LostCommits,
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
            SilenceReason::UncertainSlots,
        ] {
            assert_eq!(SilenceReason::parse(&why.text()), why);
        }
        let unknown = SilenceReason::parse("of a newer version");
        assert_eq!(unknown, SilenceReason::UncertainSlots);
    }
}
