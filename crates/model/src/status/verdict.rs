//! The verdict and the problems, computed only from the status: without clock, socket, or file.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OverallState {
    #[default]
    Ok,
    /// A problem needs attention. Calls are still sent.
    Attention,
    /// Nothing reaches the CRM, or no source is up.
    Down,
}

impl OverallState {
    /// Returns the exit code of `status --exit-code`.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Attention => 1,
            Self::Down => 2,
        }
    }
}

/// The kind of a finding. The words are stable, because monitors and scripts compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum FindingKind {
    /// No daemon runs: nothing is received and nothing is sent.
    NoDaemon,
    /// No process leads a state that several processes share.
    NoLeader,
    /// Nothing is sent, for the reason of the pause.
    Paused,
    /// No source that reports calls as they happen is up.
    NoSource,
    /// A source is down while another is up.
    SourceDown,
    /// Collectors of branches send no reports.
    SilentBranches,
    /// No calls of a branch are sent, since the CRM refuses them.
    PausedBranches,
    /// A standby could not take over, or has other flags than the leader.
    Standby,
    /// The database has a problem that an administrator must solve.
    Database,
    /// A source is logged in and receives no calls, or has received nothing for a long time.
    NotHeard,
    /// The account of a source lacks a right that some calls need.
    Rights,
    /// The events of a source arrive much too late.
    LateEvents,
    /// The directory of a source is almost full.
    SourceDisk,
    /// The messages of a source cannot be read because they are in another format than its flag
    /// says.
    OtherFormat,
    /// Another daemon on this machine journals the same calls, or receives a part of them.
    OtherDaemon,
    /// Channels that no trunk matches carry outside numbers. Their calls are not journaled.
    NoTrunk,
    /// Channels took part in calls, but callbridge can't tell whether they're phones.
    UnknownTechnology,
    /// A trunk has had no call for a day while other trunks had calls.
    SilentTrunk,
    /// A list of employees has matched none of a day's calls.
    SilentEmployees,
    /// Calls at extensions name no employee because their trunks have no list.
    NoEmployees,
    /// Notices of dead letters do not reach their queue.
    DeadLetterQueue,
    /// Consent must be given again, or the token cannot be used.
    Token,
    /// The token expires soon, and cannot be renewed here.
    TokenEnds,
    /// Outcomes cannot be polled, or pages of the CRM's journal cannot be read.
    CrmDegraded,
    /// The state of a hub was restored, or is new, and has lost commits.
    HubLostCommits,
    /// A collector of a branch knows less of the hub's answers than before.
    CopiedCollector,
    /// Several senders use the token of one branch.
    BranchSenders,
    /// The hub's certificate expires within two weeks, or has expired.
    HubCertificate,
    /// Calls during a gap in the events are missing.
    Gap,
    /// Calls or messages are dead letters.
    DeadLetters,
    /// Calls that wait for a lead.
    NoLead,
    /// Calls that wait for an employee.
    NoEmployee,
    /// A file of passwords or secrets has a problem.
    SecretFiles,
    /// A list of leads or employees, or rows of it, cannot be used.
    Lists,
    /// Employee lists match no calls, a listed extension seems mistyped, or the CRM does not know
    /// an employee.
    Employees,
    /// Webhooks cannot be verified because no signing secret is known.
    Webhooks,
    /// The CRM's leads cannot be read.
    LeadDirectory,
    /// Fields of leads are not written.
    LeadFields,
    /// The CRM's journal does not show a field of calls as it was sent.
    FieldNotShown,
    /// Another provider also journals our calls.
    ForeignCalls,
    Notify,
    /// The books do not add up.
    Books,
}

impl FindingKind {
    /// All kinds, worst first.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the kind's name in JSON and metrics: `dead_letters`.
    pub fn word(self) -> &'static str {
        self.into()
    }

    pub const fn verdict(self) -> OverallState {
        match self {
            Self::NoDaemon | Self::NoLeader | Self::Paused | Self::NoSource => OverallState::Down,
            _ => OverallState::Attention,
        }
    }
}

/// A problem that needs a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    pub kind: FindingKind,
    /// A short text with the figures.
    pub message: String,
    /// The command that shows or fixes the problem.
    pub command: String,
    /// The same finding for texts in other languages. Not part of the JSON.
    #[serde(skip)]
    pub detail: Detail,
}

/// A reference to a row of the table of translated texts, with the values for its placeholders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// The kind's word, or one of [`DETAILS`]. Empty if the problem comes from an older daemon.
    pub code: &'static str,
    /// The values, in the order of the row's placeholders.
    pub values: Vec<String>,
}

/// The values of [`Detail::code`], except [`super::PAUSES`] and the words of kinds.
pub const DETAILS: [&str; 15] = [
    "employee_doubtful",
    "employee_unknown",
    "employees_unmatched",
    "lead_field",
    "leads_barred",
    "leads_unread",
    "list_empty",
    "list_rows",
    "list_unused",
    "not_heard_reason",
    "source_down",
    "standby_settings",
    "token_consent",
    "token_not_refreshed",
    "webhook_mismatch",
];

impl Problem {
    pub(super) fn new(
        kind: FindingKind,
        message: impl Into<String>,
        command: impl Into<String>,
    ) -> Self {
        Self {
            kind,
            message: message.into(),
            command: command.into(),
            detail: Detail::default(),
        }
    }

    /// Adds the values for the row of the problem's kind.
    pub(super) fn with_values(self, values: impl Into<Vec<String>>) -> Self {
        let detail = Detail {
            code: self.kind.word(),
            values: values.into(),
        };
        Self { detail, ..self }
    }

    /// Adds the code of another row of the table of texts, and the values for that row.
    pub(super) fn with_code(self, code: &'static str, values: impl Into<Vec<String>>) -> Self {
        // The table of texts only has rows for these codes.
        debug_assert!(DETAILS.contains(&code) || super::PAUSES.contains(&code));
        let values = values.into();
        let detail = Detail { code, values };
        Self { detail, ..self }
    }
}

/// Lists the first five names and the number of further names: `a, b and 3 more`.
pub(super) fn first_five<T: AsRef<str>>(all: &[T]) -> String {
    let shown: Vec<&str> = all.iter().take(5).map(AsRef::as_ref).collect();
    let more = if_any(all.len().saturating_sub(5) as u64, |more| {
        format!(" and {more} more")
    });
    shown.join(", ") + &more
}

/// Returns the text for a count. Empty for 0.
pub(super) fn if_any(count: u64, text: impl Fn(u64) -> String) -> String {
    match count {
        0 => String::new(),
        count => text(count),
    }
}

/// Returns the count with the matching noun form: `1 call`, `2 calls`.
pub(super) fn count_with_noun(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_words_match_the_json_and_are_unique() {
        let mut words: Vec<&str> = FindingKind::ALL.iter().map(|kind| kind.word()).collect();
        for &kind in FindingKind::ALL {
            let json = serde_json::to_value(kind).expect("a word");
            assert_eq!(json, kind.word());
        }
        assert!(FindingKind::ALL.is_sorted(), "worst first");
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), FindingKind::ALL.len());
    }

    #[test]
    fn overall_state_down_is_worse_than_attention() {
        let codes = [
            OverallState::Ok,
            OverallState::Attention,
            OverallState::Down,
        ]
        .map(OverallState::exit_code);
        assert_eq!(codes, [0, 1, 2]);
        assert!(
            OverallState::Down > OverallState::Attention
                && OverallState::Attention > OverallState::Ok
        );
        let word = serde_json::to_value(OverallState::Attention).expect("a word");
        assert_eq!(word, "attention");
    }
}
