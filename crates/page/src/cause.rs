//! What letters have in common: mended once, all of them leave.

use callbridge_leads::lead_request::Finding;
use callbridge_model::Reason;
use callbridge_spool::Letter;
use std::fmt;

/// The kind of subject that a cause has; its words stand in links: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum About {
    /// A lead that the CRM does not know or take.
    Lead,
    /// An employee that it does not know.
    Employee,
    /// A number that has no lead, or two.
    Phone,
    /// An extension that has no employee.
    Extension,
}

impl About {
    /// Returns the word that links carry, such as `lead`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// The cause of a letter: its reason, and the subject to be mended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// The reason that all letters of the cause have.
    pub reason: Reason,
    /// The lead, number or extension; `None` where each letter is a case of its own.
    pub about: Option<(About, String)>,
}

impl Cause {
    /// Returns the cause that the letter shares with others.
    pub fn of(letter: &Letter) -> Self {
        let lead = || Some((About::Lead, letter.lead()?.to_string()));
        let phone = || Some((About::Phone, letter.phone()?.to_owned()));
        let about = match (letter.reason, letter.finding) {
            (Reason::Failed, Some(Finding::LeadExists)) => {
                (letter.employee()).map(|it| (About::Employee, it.to_string()))
            }
            (Reason::Failed | Reason::Rejected, _) => lead(),
            (Reason::NoLead | Reason::AmbiguousLead, _) => phone(),
            (Reason::NoEmployee, _) => letter.extension().map(|it| (About::Extension, it)),
            (Reason::Conflict | Reason::UuidConflict | Reason::ServerError, _)
            | (Reason::Unconfirmed | Reason::Incomplete | Reason::TalkExceedsDuration, _)
            | (Reason::InvalidEpoch | Reason::Unreadable, _) => None,
        };
        let reason = letter.reason;
        Self { reason, about }
    }
}

/// As a link has it: `lead:9001`; empty where it is about nothing.
impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.about {
            Some((about, which)) => write!(f, "{}:{which}", about.word()),
            None => Ok(()),
        }
    }
}
