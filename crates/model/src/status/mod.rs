//! The form of `status --json`. The names and types of its fields are fixed. Fields can only be
//! added.
//!
//! | module | what it contains |
//! |---|---|
//! | this | the form |
//! | [`verdict`] | the verdict, and the problems by kind |
//! | [`findings`] | finds problems, with one function for each part |
//! | [`silent_sources`] | connected sources, and the rights that they lack |
//! | [`hub`] | a hub with its branches, and a collector that sends to a hub |
//! | [`journal`] | how the CRM's journal shows our calls |
//! | [`lead_fields`] | fields of leads that show their calls |
//! | [`leadership`] | the processes that share a state in PostgreSQL |
//! | [`losses`] | counters that can mean a lost call |
//! | [`outboxes`] | messages that wait for a broker, and a notify command that fails |
//! | [`people`] | lists of leads and employees |
//! | [`switches`] | the switches that send events over one source |
//! | [`trunks`] | the calls of each trunk, and trunks without calls |
//! | [`text`] | the status as text for people |

pub mod findings;
pub mod free_space;
pub mod hub;
pub mod journal;
pub mod lead_fields;
pub mod leadership;
pub mod losses;
pub mod other_reader;
pub mod outboxes;
pub mod people;
pub mod secret_files;
pub mod silent_sources;
pub mod switches;
pub mod text;
pub mod trunks;
pub mod verdict;

use crate::status::other_reader::OtherReader;
pub use free_space::FreeSpace;
pub use hub::{
    BranchReport, BranchState, BranchStatus, CERTIFICATE_SOON_SEC, ForwardStatus, HubStatus,
    ReportedSource, SenderStatus,
};
pub use journal::{Echo, ForeignCalls, JournalField, SentField};
pub use lead_fields::{LeadField, LeadFields};
pub use leadership::{
    DatabaseProblem, LeaderStatus, LeadershipStatus, LostSession, Role, StandbyStatus,
};
pub use losses::LOSS_COUNTERS;
pub use outboxes::{OutboxProblem, OutboxStatus};
pub use people::{Doubtful, Employees, ListFile, UnknownEmployee, Unlisted};
pub use secret_files::SecretFile;
use serde::{Deserialize, Serialize};
pub use silent_sources::{MissingRight, RightKind};
use std::collections::BTreeMap;
pub use switches::SwitchName;
pub use text::{clock_difference, seconds_in_words};
pub use trunks::TrunkStatus;
pub use verdict::{FindingKind, OverallState, Problem};

/// The state of the daemon, as `status --json` and the page show it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// All calls by their state.
    pub books: Books,
    /// Requests of the current window.
    pub budget: BudgetStatus,
    pub backlog: Backlog,
    /// One entry per source, in the order of the flags.
    pub sources: Vec<SourceStatus>,
    /// The CRM's answer about the token.
    pub token: Token,
    /// Why nothing is sent, and the fix. `null` if calls are sent.
    pub pause: Option<Pause>,
    /// Parts of the CRM that fail while the other parts work. Left out if none fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub degraded: Vec<DegradedPart>,
    /// Events from the CRM. Absent without `--webhook-listen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<Webhooks>,
    /// The hub and its branches. Absent without `--collect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hub: Option<HubStatus>,
    /// The processes that share the state. Absent without PostgreSQL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leadership: Option<LeadershipStatus>,
    /// The connection to the hub. Absent without `--forward`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forward: Option<ForwardStatus>,
    /// The directory of leads. Left out if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<Directory>,
    /// Fields of leads that show their calls. Absent without `--lead-field`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead_fields: Option<LeadFields>,
    /// Comparison of the CRM's events with the values that were sent. Left out before the first
    /// comparison.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub journal_fields: Vec<JournalField>,
    /// Other providers that journaled our calls in the last 24 hours. Left out if there
    /// are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign_calls: Vec<ForeignCalls>,
    /// The verdict of the worst of `problems`.
    pub verdict: OverallState,
    /// Problems that need a person, worst first.
    pub problems: Vec<Problem>,
    /// Version and commit of the program that made this status.
    pub version: String,
    /// Epoch seconds at which the status was taken.
    pub at: i64,
    /// Path of the state folder. Empty if not known.
    pub state: String,
    /// The value of `--pbx-id`: the PBX of sources that name no PBX. Left out if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pbx_id: Option<String>,
    /// Epoch seconds at which the newest stored customer call began.
    pub last_call_at: Option<i64>,
    /// Counters of [`LOSS_COUNTERS`] that are not 0.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<String, u64>,
    /// Dead letters by reason, unreadable messages included.
    pub dead_letters: BTreeMap<String, u64>,
    /// Calls that wait for a lead or employee, by reason.
    pub waiting: BTreeMap<String, u64>,
    /// The last gaps of each source, oldest first.
    pub gaps: Vec<SourceGap>,
    /// Channels that no trunk matches and that carried outside numbers, first seen first.
    pub unmatched: Vec<Unmatched>,
    /// Channels that may or may not be phones, since callbridge doesn't know their technology.
    pub unknown_channels: Vec<Unmatched>,
    pub lists: Vec<ListFile>,
    /// Files of passwords and secrets that have a problem.
    pub secret_files: Vec<SecretFile>,
    /// Comparison of the employee lists with the newest calls. Absent without lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub employees: Option<Employees>,
    /// The trunks and their numbers of calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trunks: Vec<TrunkStatus>,
    /// Calls of the last 24 hours, including those between extensions.
    pub day_calls: u64,
    /// Why `--notify-command` failed. Left out while it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify_problem: Option<String>,
    /// Messages that wait for a broker. Left out without `--dead-letter-queue`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub outboxes: Vec<OutboxStatus>,
    /// The command that tests the daemon's configuration. Not part of the JSON.
    #[serde(skip)]
    pub check_command: Option<String>,
    /// Where a person puts a new token. Not part of the JSON.
    #[serde(skip)]
    pub token_place: Option<String>,
}

/// The directory of leads by phone, as reported by the CRM so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    pub phones: u64,
    /// Leads that are neither merged nor deleted.
    pub leads: u64,
    /// Number of events that changed the directory.
    pub learned: u64,
    /// `--lead-directory`: `reading`, `waiting`, `no_grant` or `left`.
    pub backfill: Option<String>,
    /// Epoch seconds up to which every change has been read.
    pub read_to: Option<i64>,
    /// Why the backfill was given up.
    pub reason: Option<String>,
}

/// The counts of calls. `finished = ready + sending + submitted + journaled + forwarded + dead +
/// waiting + discarded` at every time. `internal`, `skipped`, and `unreadable` are counted
/// separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// All finished customer calls.
    pub finished: u64,
    /// Calls that wait to be sent.
    pub ready: u64,
    /// Calls whose request is in flight.
    pub sending: u64,
    /// Calls that the CRM accepted and that are not confirmed yet.
    pub submitted: u64,
    /// Calls confirmed in the CRM's journal.
    pub journaled: u64,
    /// Calls that a hub has stored (`--forward`).
    #[serde(default)]
    pub forwarded: u64,
    /// Dead letters, without waiting calls.
    pub dead: u64,
    /// Calls that wait for a lead or an employee.
    pub waiting: u64,
    /// Calls that a person discarded. They are not sent.
    pub discarded: u64,
    /// Calls between extensions, which are not journaled.
    pub internal: u64,
    /// Calls that a flag leaves out.
    pub skipped: u64,
    /// Messages of a source that could not be read.
    pub unreadable: u64,
}

impl Books {
    /// Returns `true` if every finished call is counted in exactly one place.
    pub const fn balance(&self) -> bool {
        self.finished
            == self.ready
                + self.sending
                + self.submitted
                + self.journaled
                + self.forwarded
                + self.dead
                + self.waiting
                + self.discarded
    }

    /// Returns `true` if no call waits to be sent or confirmed.
    pub const fn settled(&self) -> bool {
        self.ready + self.sending + self.submitted == 0
    }

    /// Returns each book with its name, in the order of the JSON.
    pub const fn counts_by_name(&self) -> [(&'static str, u64); 12] {
        [
            ("finished", self.finished),
            ("ready", self.ready),
            ("sending", self.sending),
            ("submitted", self.submitted),
            ("journaled", self.journaled),
            ("forwarded", self.forwarded),
            ("dead", self.dead),
            ("waiting", self.waiting),
            ("discarded", self.discarded),
            ("internal", self.internal),
            ("skipped", self.skipped),
            ("unreadable", self.unreadable),
        ]
    }
}

/// The window of requests (§ Limits).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetStatus {
    pub limit: u32,
    /// Length of the window in seconds.
    pub window_sec: u64,
    /// Taken slots of the current window.
    pub used: u32,
    /// Milliseconds until a slot is free. 0 if a slot is free now.
    pub next_free_in_ms: u64,
}

/// Calls that the CRM has not confirmed yet, and the time until they are confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backlog {
    /// Calls that the CRM has not confirmed yet.
    pub calls: u64,
    /// Seconds until these calls are confirmed, at the budget's rate.
    pub drain_sec: u64,
}

/// Connection of a source to its PBX, or progress with its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// Connected, and an event has arrived since.
    Up,
    /// Logged in, but no event has arrived yet: no call took place, or the account receives no
    /// events.
    Connected,
    /// Not connected. The connection is tried again.
    #[default]
    Down,
    /// A file with more to read.
    Reading,
    /// A file read to its end.
    Done,
}

impl SourceState {
    /// Returns `true` if the connection is up, or the file was read.
    pub const fn is_up(self) -> bool {
        match self {
            Self::Up | Self::Connected | Self::Reading | Self::Done => true,
            Self::Down => false,
        }
    }
}

/// A source of calls: a connection to a PBX, a queue, or a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceStatus {
    /// The URL given by its flag, without secrets and their files.
    pub url: String,
    /// The label for people: `office/ami`. Empty for a daemon without labels.
    pub label: String,
    pub pbx: String,
    /// The source is a file that fills gaps of the other sources (`--catch-up`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub catch_up: bool,
    pub state: SourceState,
    /// Epoch seconds at which its last event arrived. `null` before the first.
    pub last_event_at: Option<i64>,
    /// Calls with missing events that wait for this catch-up file.
    pub awaited: u64,
    /// Messages that a call can depend on.
    pub read: u64,
    /// Messages that no rule needs.
    pub skipped: u64,
    /// Messages that had to be repaired to be read.
    pub repaired: u64,
    /// Messages that could not be read.
    pub unreadable: u64,
    /// Messages longer than 1 MiB. Each is a gap of a connection, or an unreadable message of other
    /// sources.
    pub too_long: u64,
    /// Messages dropped because the intake was too slow. Messages that are dropped in a row are one
    /// gap.
    pub dropped: u64,
    /// Times at which events may have been missed.
    pub gaps: u64,
    /// The last gap. Absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_gap: Option<Gap>,
    /// Why the source is down or cannot be read. `null` otherwise.
    pub reason: Option<String>,
    /// Epoch seconds since which the source is down. `null` if it is up, and before it was up for
    /// the first time.
    pub down_since: Option<i64>,
    /// Epoch seconds since which the source is logged in. `null` for files, and before the first
    /// login.
    pub connected_since: Option<i64>,
    /// Rights and settings that the source's account lacks, worst first.
    pub missing_rights: Vec<MissingRight>,
    /// Milliseconds by which the PBX's clock is ahead of this machine's. Absent if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_ahead_ms: Option<i64>,
    /// How many seconds late the last overdue event of the past ten minutes was. Omitted if none
    /// was more than a minute late.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_seconds: Option<u64>,
    /// The switches that sent named events over this source, first seen first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<SwitchName>,
    /// Other daemons on this machine that also read the source.
    pub others: Vec<OtherReader>,
    /// Free space for the source's file or directory. Omitted for other sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<FreeSpace>,
}

impl SourceStatus {
    /// Returns the source's label, or its URL if it has none.
    pub fn name(&self) -> &str {
        match self.label.as_str() {
            "" => &self.url,
            label => label,
        }
    }
}

/// A time in which events may have been missed, in epoch seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Time of the last stored event before the gap.
    pub from: i64,
    /// Epoch seconds at which the source could receive events again.
    pub until: i64,
}

/// A gap of a source, in epoch seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceGap {
    /// The source's URL from its flag.
    pub source: String,
    /// Time of the last stored event before the gap.
    pub from: i64,
    /// Epoch seconds at which the source could receive events again.
    pub to: i64,
    /// The calls of the gap were read from a catch-up file.
    pub filled: bool,
}

/// Channels that callbridge couldn't identify, with the calls that they took part in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmatched {
    /// The prefix that their names share, such as `PJSIP/citty`. `other` stands for all channels
    /// once 32 prefixes are known.
    pub prefix: String,
    pub calls: u64,
    /// Epoch seconds at which the last of these calls began.
    pub last_at: i64,
    pub pbx: String,
    /// Whether they may be phones, since their technology is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub may_be_phones: bool,
}

/// The CRM token in use, as the CRM reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// `ok`, `missing`, `refused`, `wrong_company`, `no_grant`, `unknown` before the first answer,
    /// or `reconnect` if consent must be given again, although the last token can still be valid.
    pub state: String,
    /// The kind of token, `PAT` or `ACCESS` (§2.2). `null` before the first answer.
    pub kind: Option<String>,
    /// `null` before the first answer.
    pub company: Option<String>,
    /// `null` before the first answer.
    pub application: Option<String>,
    /// Epoch seconds at which the token expires. `null` if it does not expire.
    pub expires_at: Option<i64>,
    /// The grants, each as `PERMISSION:SCOPE`.
    pub grants: Vec<String>,
    /// Fingerprint that identifies the token: 16 hex digits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub print: Option<String>,
}

/// Events that the CRM sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhooks {
    pub address: String,
    /// The listener itself uses TLS.
    pub tls: bool,
    /// `listening`, or `no_secret` while no event can be verified.
    pub state: String,
    /// Epoch seconds at which the last verified event arrived. `null` before the first.
    pub last_event_at: Option<i64>,
    /// Number of events by result, since the start of the process.
    pub events: BTreeMap<String, u64>,
    /// The newest event that no known secret has signed, although it could be the CRM's. Absent
    /// once an event from its installation has been verified, and after 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<WebhookMismatch>,
}

/// An event whose secret isn't known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WebhookMismatch {
    /// The id of the installation that the event is for, which isn't verified either.
    pub installation: String,
    /// Epoch seconds at which the event arrived.
    pub at: i64,
    /// What to do with the installation's secret: where to write it, or the flag to add.
    pub fix: String,
}

/// All values of [`Pause::reason`] except `no daemon runs`.
pub const PAUSES: [&str; 21] = [
    "token_missing",
    "token_refused",
    "reconnect",
    "client_refused",
    "wrong_company",
    "no_grant",
    "wrong_address",
    "unreachable",
    "failing",
    "takeover",
    "rate_limited",
    "calls_refused",
    "disk",
    "spool",
    "clock",
    "dry_run",
    "split_database",
    "hub_unreachable",
    "hub_token_refused",
    "hub_refuses",
    "hub_older",
];

/// A state in which nothing is sent, with its reason and its fix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// One of [`PAUSES`], or `no daemon runs`.
    pub reason: String,
    /// Text of the action that ends the pause.
    pub fix: String,
}

impl Pause {
    pub fn new(reason: &str, fix: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            fix: fix.into(),
        }
    }
}

/// The names of all parts of the CRM that [`DegradedPart::part`] can have.
pub const DEGRADED_PARTS: [&str; 2] = ["polls", "pages"];

/// A part of the CRM that fails while other parts work. Calls are still sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DegradedPart {
    /// One of [`DEGRADED_PARTS`].
    pub part: String,
    /// The CRM's last reason.
    pub reason: String,
    /// The fallback that is used meanwhile.
    pub fallback: String,
    /// Epoch seconds since which the part fails.
    pub since: i64,
}

/// Requests sent, by endpoint and verdict: the labels of `callbridge_requests_total`.
pub type Requests = BTreeMap<(String, String), u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_json_has_the_promised_fields() {
        let status = Status {
            sources: vec![SourceStatus::default()],
            gaps: vec![SourceGap::default()],
            unmatched: vec![Unmatched::default()],
            unknown_channels: vec![Unmatched::default()],
            lists: vec![ListFile::default()],
            secret_files: vec![SecretFile::default()],
            pause: Some(Pause::default()),
            ..Status::default()
        };
        let json = serde_json::to_value(status.judged()).expect("a status");
        for path in [
            "/books/finished",
            "/books/unreadable",
            "/budget/windowSec",
            "/budget/nextFreeInMs",
            "/backlog/drainSec",
            "/sources/0/lastEventAt",
            "/sources/0/gaps",
            "/token/expiresAt",
            "/token/grants",
            "/pause",
            "/verdict",
            "/problems/0/message",
            "/problems/0/command",
            "/problems/0/kind",
            "/version",
            "/lastCallAt",
            "/gaps/0/source",
            "/gaps/0/from",
            "/gaps/0/to",
            "/gaps/0/filled",
            "/unmatched/0/prefix",
            "/unmatched/0/calls",
            "/unmatched/0/lastAt",
            "/unknownChannels/0/prefix",
            "/lists/0/file",
            "/lists/0/kind",
            "/lists/0/rows",
            "/lists/0/bad",
            "/lists/0/faults",
            "/lists/0/reason",
            "/lists/0/readAt",
            "/secretFiles/0/flag",
            "/secretFiles/0/reason",
        ] {
            assert!(json.pointer(path).is_some(), "{path} is missing in {json}");
        }
        assert_eq!(json.pointer("/sources/0/state"), Some(&"down".into()));
        assert_eq!(json.pointer("/verdict"), Some(&"down".into()));
    }
}
