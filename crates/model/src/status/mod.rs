//! The shape of `status --json`: fixed in names and types, only added to.
//!
//! | module | what lives there |
//! |---|---|
//! | this | the shape |
//! | [`verdict`] | whether all is well, and what waits for a person, by kind |
//! | [`fleet`] | collectors and senders around one stream |
//! | [`findings`] | what is found in the shape: one function for each part |
//! | [`silent_sources`] | lines that are let in, and what they lack |
//! | [`journal`] | what the CRM's journal shows of our calls |
//! | [`lead_fields`] | fields of leads that show their calls |
//! | [`lease`] | the lease of `--standby` |
//! | [`people`] | lists of leads and employees |
//! | [`trunks`] | what each trunk took, and which takes nothing |
//! | [`text`] | the same for people |

pub mod findings;
pub mod fleet;
pub mod journal;
pub mod lead_fields;
pub mod lease;
pub mod other_reader;
pub mod people;
pub mod silent_sources;
pub mod text;
pub mod trunks;
pub mod verdict;

use crate::status::other_reader::OtherReader;
pub use fleet::{FleetMember, FleetStatus, FleetTable, LastWord};
pub use journal::{Echo, ForeignCalls, JournalField, SentField};
pub use lead_fields::{LeadField, LeadFields};
pub use lease::{Lease, LeasePhase};
pub use people::{Doubtful, Employees, ListFile, UnknownEmployee, Unlisted};
use serde::{Deserialize, Serialize};
pub use silent_sources::{Lacking, MissingRight};
use std::collections::BTreeMap;
pub use text::seconds_in_words;
pub use trunks::TrunkStatus;
pub use verdict::{FindingKind, OverallState, Todo};

/// Everything `status` shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// Where every call stands.
    pub books: Books,
    /// Requests of the running window.
    pub budget: BudgetStatus,
    /// Calls that wait to be sent.
    pub backlog: Backlog,
    /// One entry a source, in the order of the flags.
    pub sources: Vec<SourceStatus>,
    /// What is known of the token.
    pub token: Token,
    /// Why nothing is sent, and what mends it; `null` while all is well.
    pub pause: Option<Pause>,
    /// What of the CRM fails while the rest works; left out where nothing does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<SenderTrouble>,
    /// Events from the CRM; not there without `--webhook-listen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhooks: Option<Webhooks>,
    /// The directory of leads; left out where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory: Option<Directory>,
    /// Fields of leads that show their calls; not there without `--lead-field`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lead_fields: Option<LeadFields>,
    /// What the CRM's events show of our calls, by what was sent; left out before the first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub journal_fields: Vec<JournalField>,
    /// Who else has journaled calls of ours in the last 24 hours; left out where nobody has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign_calls: Vec<ForeignCalls>,
    /// Who sends where several could; `null` without `--standby`.
    pub lease: Option<Lease>,
    /// Whether all is well.
    pub verdict: OverallState,
    /// What waits for a person, worst first.
    pub todo: Vec<Todo>,
    /// The version of the program that says all this.
    pub version: String,
    /// When it is said, in epoch seconds.
    pub at: i64,
    /// The state folder.
    pub state: String,
    /// The PBX of the sources that name none; left out where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pbx_id: Option<String>,
    /// When the newest customer call that is kept began, in epoch seconds.
    pub last_call_at: Option<i64>,
    /// Letters by reason, unreadable ones included.
    pub letters: BTreeMap<String, u64>,
    /// Logins of a broker whose unreadable messages found no room, with how many did not; not told
    /// in JSON.
    #[serde(skip)]
    pub floods: BTreeMap<String, u64>,
    /// The last gaps of each source, oldest first.
    pub gaps: Vec<SourceGap>,
    /// Channels of no trunk that carried outside numbers, first seen first.
    pub unmatched: Vec<Unmatched>,
    /// Files of leads and employees.
    pub lists: Vec<ListFile>,
    /// How employees meet the newest calls; not there without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub employees: Option<Employees>,
    /// The trunks, and what each took.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trunks: Vec<TrunkStatus>,
    /// Calls of the last 24 hours, those between extensions among them.
    pub day_calls: u64,
    /// Its last words, and those of others; not there without a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// Why what becomes of calls is not told in the stream that they came from; not there while it
    /// is, and without a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untold_outcomes: Option<String>,
    /// The command that tries what the daemon was given; not told in JSON.
    #[serde(skip)]
    pub check_command: Option<String>,
    /// Where a person puts a new token; not told in JSON.
    #[serde(skip)]
    pub token_place: Option<String>,
}

/// Which lead has which phone, as far as the CRM has told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Directory {
    /// Numbers.
    pub phones: u64,
    /// Leads that are neither merged nor deleted.
    pub leads: u64,
    /// News that told something not known before.
    pub learned: u64,
    /// `--lead-directory`: `reading`, `waiting`, `no_grant` or `left`.
    pub backfill: Option<String>,
    /// Every change up to this second is read.
    pub read_to: Option<i64>,
    /// Why it is left.
    pub why: Option<String>,
}

/// `finished = ready + sending + submitted + journaled + forwarded + dead + parked + discarded` at
/// every instant; `internal`, `skipped` and `unreadable` stand beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Books {
    /// Finished customer calls in all.
    pub finished: u64,
    /// Waiting to be sent.
    pub ready: u64,
    /// A request is under way.
    pub sending: u64,
    /// Accepted by the CRM, not confirmed yet.
    pub submitted: u64,
    /// Confirmed in the journal.
    pub journaled: u64,
    /// Confirmed by a broker (`--forward`).
    #[serde(default)]
    pub forwarded: u64,
    /// Dead letters.
    pub dead: u64,
    /// Waiting for a lead.
    pub parked: u64,
    /// Given up by a person.
    pub discarded: u64,
    /// Calls between extensions.
    pub internal: u64,
    /// Calls that a flag leaves out.
    pub skipped: u64,
    /// Messages of a source that could not be read.
    pub unreadable: u64,
}

impl Books {
    /// Is every finished call in exactly one place?
    pub const fn balance(&self) -> bool {
        self.finished
            == self.ready
                + self.sending
                + self.submitted
                + self.journaled
                + self.forwarded
                + self.dead
                + self.parked
                + self.discarded
    }

    /// Is nothing under way any more?
    pub const fn settled(&self) -> bool {
        self.ready + self.sending + self.submitted == 0
    }

    /// Each book with its name, in the order of the shape.
    pub const fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("finished", self.finished),
            ("ready", self.ready),
            ("sending", self.sending),
            ("submitted", self.submitted),
            ("journaled", self.journaled),
            ("forwarded", self.forwarded),
            ("dead", self.dead),
            ("parked", self.parked),
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
    /// Requests a window.
    pub limit: u32,
    /// The window, in seconds.
    pub window_sec: u64,
    /// Slots taken now.
    pub used: u32,
    /// Milliseconds until a slot is free; 0 when one is.
    pub next_free_in_ms: u64,
}

/// What waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backlog {
    /// Calls not yet confirmed.
    pub calls: u64,
    /// Seconds until they are, at the budget's pace.
    pub drain_sec: u64,
    /// Those of them that ended before this state began: looked for in the CRM's journal before
    /// they are sent.
    #[serde(default)]
    pub sought: u64,
}

/// How a source is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceState {
    /// Connected, and an event was heard since.
    Up,
    /// Let in, and nothing was heard yet: no call took place, or the account may hear none.
    Connected,
    /// Not connected; tried again.
    #[default]
    Down,
    /// A file with more to read.
    Reading,
    /// A file read to its end.
    Done,
}

impl SourceState {
    /// The line is there, or the file is read.
    pub const fn is_up(self) -> bool {
        match self {
            Self::Up | Self::Connected | Self::Reading | Self::Done => true,
            Self::Down => false,
        }
    }
}

/// One source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SourceStatus {
    /// As given by its flag, without secrets and their files.
    pub url: String,
    /// What people know it by: `office/ami`; empty of a daemon that is older than labels.
    pub label: String,
    /// The id of its PBX.
    pub pbx: String,
    /// It is a file that fills what the others could not hear (`--catch-up`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub catch_up: bool,
    /// How it is doing.
    pub state: SourceState,
    /// Arrival of its last event, in epoch seconds; `null` before the first.
    pub last_event_at: Option<i64>,
    /// Messages a call can depend on.
    pub read: u64,
    /// Messages no rule needs.
    pub skipped: u64,
    /// Messages that had to be repaired to be read.
    pub repaired: u64,
    /// Messages that could not be read.
    pub unreadable: u64,
    /// Times at which events may have been missed.
    pub gaps: u64,
    /// How often a stream was found to be another one than was read, or to lack a part.
    pub replaced: u64,
    /// The stream that it is; `null` for other sources.
    pub stream: Option<StreamStatus>,
    /// The last of them; not there before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_gap: Option<Gap>,
    /// Why it is down, or why nothing can be read of it; `null` otherwise.
    pub why: Option<String>,
    /// Since when it is down, in epoch seconds; `null` while it is not, and before it was up.
    pub down_since: Option<i64>,
    /// Since when the line is let in, in epoch seconds; `null` for files, and before it was.
    pub connected_since: Option<i64>,
    /// What its account turned out to lack, worst first.
    pub lacks: Vec<MissingRight>,
    /// The switches that told on it by their names, in the order in which they were first heard.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub switches: Vec<SwitchName>,
    /// Other daemons on this machine that read it, too.
    pub others: Vec<OtherReader>,
}

/// A stream that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// The last message that was taken; `null` before the first.
    pub offset: Option<u64>,
    /// When it was last found to be another one than was read, or to lack a part, in epoch seconds;
    /// `null` where it never was.
    pub recreated_at: Option<i64>,
}

/// A switch that told on a source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchName {
    /// As it calls itself: `FreeSWITCH-Switchname`, `server_name`.
    pub name: String,
    /// The id of the PBX that it is: the first of a source is the source's own.
    pub pbx: String,
}

impl SourceStatus {
    /// This switch told on it.
    pub fn note_switch(&mut self, name: &str, pbx: &str) {
        const SWITCHES_MAX: usize = 64;
        let known = self.switches.iter().any(|it| it.name == name);
        if !known && self.switches.len() < SWITCHES_MAX {
            self.switches.push(SwitchName {
                name: name.to_owned(),
                pbx: pbx.to_owned(),
            });
        }
    }

    /// What it is called.
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
    /// The last event before it that is stored.
    pub from: i64,
    /// When events were heard again.
    pub until: i64,
}

/// A gap of a source, in epoch seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceGap {
    /// The source, as its flag names it.
    pub source: String,
    /// The last event before it that is stored.
    pub from: i64,
    /// When events were heard again.
    pub to: i64,
    /// A catch-up file has told what happened in it.
    pub filled: bool,
    /// What shows it, where a stream is not the one that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Channels that no trunk takes in, and that carried outside numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unmatched {
    /// What their names have in common: `PJSIP/citty`; `other` for all beyond the first 32.
    pub prefix: String,
    /// Calls that went over them.
    pub calls: u64,
    /// When the last of these began, in epoch seconds.
    pub last_at: i64,
    /// The id of their PBX.
    pub pbx: String,
}

/// What is known of the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// `ok`, `missing`, `refused`, `wrong_company`, `no_grant`; `unknown` before the first answer;
    /// `reconnect` once consent has to be given anew, though the last token may still be good.
    pub state: String,
    /// `PAT` or `ACCESS` (§2.2).
    pub kind: Option<String>,
    /// The company's name.
    pub company: Option<String>,
    /// The application's name.
    pub application: Option<String>,
    /// Epoch seconds; `null` for no expiry.
    pub expires_at: Option<i64>,
    /// `PERMISSION:SCOPE` each.
    pub grants: Vec<String>,
    /// By which it can be told from another: 16 hex digits of a hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub print: Option<String>,
}

/// Events that the CRM sends to us.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Webhooks {
    /// Where they are taken.
    pub address: String,
    /// Over TLS of our own.
    pub tls: bool,
    /// `listening`; `no_secret` while nothing can be proved.
    pub state: String,
    /// Arrival of the last one that was proved, in epoch seconds; `null` before the first.
    pub last_event_at: Option<i64>,
    /// How many by result, since the start of the process.
    pub events: BTreeMap<String, u64>,
}

/// Every [`Pause::reason`] there is.
pub const PAUSES: [&str; 14] = [
    "token_missing",
    "token_refused",
    "reconnect",
    "client_refused",
    "wrong_company",
    "no_grant",
    "wrong_address",
    "outage",
    "too_many_requests",
    "calls_refused",
    "disk",
    "spool",
    "clock",
    "dry_run",
];

/// Why nothing is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// One of [`PAUSES`]; `no daemon runs` where that is so.
    pub reason: String,
    /// What mends it.
    pub cure: String,
}

/// Every [`SenderTrouble::part`] there is.
pub const TROUBLES: [&str; 2] = ["polls", "sweeps"];

/// A part of the CRM that fails while others work: calls go out all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SenderTrouble {
    /// One of [`TROUBLES`].
    pub part: String,
    /// What was said last.
    pub why: String,
    /// What is done instead.
    pub instead: String,
    /// Since when, in epoch seconds.
    pub since: i64,
}

/// Requests sent, by endpoint and verdict: the labels of `callbridge_requests_total`.
pub type Requests = BTreeMap<(String, String), u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shape_is_the_promised_one() {
        let status = Status {
            sources: vec![SourceStatus::default()],
            gaps: vec![SourceGap::default()],
            unmatched: vec![Unmatched::default()],
            lists: vec![ListFile::default()],
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
            "/todo/0/what",
            "/todo/0/command",
            "/todo/0/kind",
            "/version",
            "/lastCallAt",
            "/gaps/0/source",
            "/gaps/0/from",
            "/gaps/0/to",
            "/gaps/0/filled",
            "/unmatched/0/prefix",
            "/unmatched/0/calls",
            "/unmatched/0/lastAt",
            "/lists/0/file",
            "/lists/0/kind",
            "/lists/0/rows",
            "/lists/0/bad",
            "/lists/0/faults",
            "/lists/0/why",
            "/lists/0/readAt",
        ] {
            assert!(json.pointer(path).is_some(), "{path} is missing in {json}");
        }
        assert_eq!(json.pointer("/sources/0/state"), Some(&"down".into()));
        assert_eq!(json.pointer("/verdict"), Some(&"down".into()));
    }

    #[test]
    fn what_an_older_daemon_says_is_still_understood() {
        let mut json = serde_json::to_value(Status::default()).expect("a status");
        let object = json.as_object_mut().expect("an object");
        for key in [
            "verdict",
            "todo",
            "version",
            "at",
            "state",
            "lastCallAt",
            "letters",
            "gaps",
            "unmatched",
            "lists",
        ] {
            object.remove(key).expect("a key of today");
        }
        let status: Status = serde_json::from_value(json).expect("an older shape");
        assert_eq!(status, Status::default());
    }
}
