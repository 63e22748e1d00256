//! Collectors and senders around one stream, by their status reports.

use super::verdict::{Detail, counted, first_five, todo};
use super::{Backlog, Books, FindingKind, OverallState, SourceState, Status, Todo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use strum::IntoStaticStr;

/// The task of a process in its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum FleetRole {
    /// A process that forwards the calls of its PBX to the stream.
    Collector,
    /// A process that reads the stream and sends its calls to the CRM.
    Sender,
}

impl FleetRole {
    /// The role's name as JSON and metrics spell it: `collector`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// A status report that a process publishes each minute (`docs/fleet-decisions.md`). Times are
/// epoch seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// Collector or sender; parts the two kinds of report.
    pub role: FleetRole,
    /// A collector: its PBXs with commas between; a sender: its company, or its token's print.
    pub instance: String,
    /// The PBXs that a collector listens to.
    #[serde(default)]
    pub pbx: Vec<String>,
    /// The name of the machine that the process runs on.
    pub hostname: String,
    /// The state folder: it parts two senders on one machine.
    #[serde(default)]
    pub state: String,
    /// The version of the program, as `Cargo.toml` has it.
    pub version: String,
    /// The commit that it was built from.
    #[serde(default)]
    pub commit: String,
    /// The process's calls, by the place where each stands.
    pub books: Books,
    /// The sources that the process reads its calls from.
    #[serde(default)]
    pub sources: Vec<FleetSource>,
    /// Times at which events may have been missed.
    #[serde(default)]
    pub gaps: FleetGaps,
    /// Calls that the process has not passed on yet.
    #[serde(default)]
    pub backlog: Backlog,
    /// The pace at which a sender may send.
    pub rate: Option<FleetRate>,
    /// Number of dead and parked letters.
    #[serde(default)]
    pub letters: u64,
    /// The lease of a sender with a standby; `null` without one.
    pub lease: Option<FleetLease>,
    /// The token that a sender sends with; `null` while none is known, and for collectors.
    pub token: Option<TokenName>,
    /// The reason for which nothing leaves the process; `null` while all is well.
    pub pause: Option<String>,
    /// The worst of the process's findings, as its own `status` shows it.
    #[serde(default)]
    pub verdict: OverallState,
    /// Epoch seconds at which the process was started.
    pub started_at: i64,
    /// Epoch seconds at which the report was made.
    pub at: i64,
    /// The process was stopped in order, and this is its last report.
    #[serde(default)]
    pub ends: bool,
}

/// A source in a status report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetSource {
    /// The label that people know the source by: `office/ami`.
    pub name: String,
    /// The state of its connection or file.
    pub state: SourceState,
    /// Arrival of its last event; `null` before the first.
    pub last_event_at: Option<i64>,
}

/// Gaps of all sources in a status report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetGaps {
    /// Number of gaps that are not filled.
    pub count: u64,
    /// The end of the newest; `null` without any.
    pub newest: Option<i64>,
}

/// The pace of a sender: so many requests in so many seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetRate {
    /// Requests allowed within one window.
    pub limit: u32,
    /// Length of the window in seconds.
    pub window_sec: u64,
}

/// The lease in a status report of a sender.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetLease {
    /// The queue of `--standby` that decides the lease.
    pub name: String,
    /// The process may send by this lease.
    pub held: bool,
    /// Epoch seconds since which it has held the lease and could not send; `null` while it could,
    /// or does not hold it.
    pub unable_since: Option<i64>,
}

/// Names by which a token is recognised, never the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenName {
    /// The token's fingerprint: 16 hex digits.
    pub print: String,
    /// The company's name; `null` before the CRM has reported it.
    pub company: Option<String>,
}

/// Liveness of a process, by the age of its last status report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Liveness {
    /// No report arrived for three minutes: the machine, the process or its line is gone.
    Silent,
    /// The process was stopped in order and reported so.
    Stopped,
    /// The last report is at most three minutes old.
    Speaking,
}

impl Liveness {
    /// The state's name as JSON and metrics spell it: `speaking`.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// A fault of one machine, or of the fleet as a whole; a string in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct FleetTrouble {
    /// The fault in words, for the text output.
    pub what: String,
    /// The same for a text in another language.
    pub detail: Detail,
}

impl FleetTrouble {
    /// A trouble with its row in the table of texts, one of [`FLEET_DETAILS`].
    pub fn new(
        what: impl Into<String>,
        code: &'static str,
        values: impl Into<Vec<String>>,
    ) -> Self {
        debug_assert!(FLEET_DETAILS.contains(&code));
        let (what, values) = (what.into(), values.into());
        let detail = Detail { code, values };
        Self { what, detail }
    }
}

impl From<String> for FleetTrouble {
    fn from(what: String) -> Self {
        let detail = Detail::default();
        Self { what, detail }
    }
}

impl From<FleetTrouble> for String {
    fn from(trouble: FleetTrouble) -> Self {
        trouble.what
    }
}

/// Every [`Detail::code`] of a [`FleetTrouble`]; the value of `fleet_silent` and `fleet_stopped` is
/// in seconds.
pub const FLEET_DETAILS: [&str; 11] = [
    "fleet_books",
    "fleet_empty",
    "fleet_no_holder",
    "fleet_no_sender",
    "fleet_paused",
    "fleet_sender_silent",
    "fleet_silent",
    "fleet_sources",
    "fleet_status_down",
    "fleet_stopped",
    "fleet_two_holders",
];

/// A process of the fleet, with its last status report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetMember {
    /// Liveness of the process when the table was made.
    pub speech: Liveness,
    /// The fault of this process; `null` where there is none.
    pub trouble: Option<FleetTrouble>,
    /// The broker's user that published the report.
    pub user: String,
    /// Epoch seconds at which its last report arrived.
    pub heard_at: i64,
    /// The last report that it published.
    pub word: StatusReport,
}

/// Backlog and letters of the senders that share one token; with a lease those of its holder alone,
/// for the others hold the same calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetToken {
    /// Fingerprint and company of the token.
    #[serde(flatten)]
    pub token: TokenName,
    /// Number of its senders that report.
    pub senders: u64,
    /// The machine of the one that holds the lease; `null` without a lease, empty while nobody
    /// holds it.
    pub holder: Option<String>,
    /// Calls that wait, and for how long at the token's pace.
    pub backlog: Backlog,
    /// Dead and parked letters, counted as the backlog is.
    pub letters: u64,
}

/// Sums over all members of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetTotals {
    /// Collectors that have ever reported.
    pub collectors: u64,
    /// Senders that have ever reported.
    pub senders: u64,
    /// Members of both roles whose last report is recent.
    pub speaking: u64,
    /// Members that have stopped reporting without notice.
    pub silent: u64,
    /// Members that were stopped in order.
    pub stopped: u64,
    /// Calls that collectors have forwarded.
    pub forwarded: u64,
    /// Calls that senders have in the journal.
    pub journaled: u64,
    /// Calls that wait, at collectors and tokens.
    pub waiting: u64,
    /// Gaps that are not filled.
    pub gaps: u64,
    /// Dead and parked letters of all members.
    pub letters: u64,
}

/// Every collector and sender around one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetTable {
    /// Epoch seconds at which the table was made.
    pub at: i64,
    /// The stream of the status reports.
    pub stream: String,
    /// All members report, and none has a fault.
    pub healthy: bool,
    /// Faults of the fleet as a whole, a sentence each.
    pub troubles: Vec<FleetTrouble>,
    /// All members: the silent ones first, then by role and name.
    pub members: Vec<FleetMember>,
    /// Tokens in use by senders, in order of their fingerprints.
    pub tokens: Vec<FleetToken>,
    /// Sums over all members of the fleet.
    pub totals: FleetTotals,
    /// Number of messages in the stream that are no reports, by what is wrong with them.
    pub skipped: BTreeMap<String, u64>,
    /// Logins that report for more PBXs, or publish more, than one login may, with the number of
    /// their reports that were skipped for that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub floods: BTreeMap<String, u64>,
}

impl FleetTable {
    /// Returns each PBX with `true` where a collector reports for it.
    pub fn collectors(&self) -> BTreeMap<&str, bool> {
        let mut up = BTreeMap::new();
        let of = |member: &&FleetMember| member.word.role == FleetRole::Collector;
        for member in self.members.iter().filter(of) {
            for pbx in &member.word.pbx {
                *up.entry(pbx.as_str()).or_default() |= member.speech == Liveness::Speaking;
            }
        }
        up
    }
}

/// The connection of a process to the status reports of its fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetStatus {
    /// The stream of the status reports.
    pub stream: String,
    /// Epoch seconds at which a broker confirmed our last report; `null` before the first.
    pub last_word_at: Option<i64>,
    /// The reason for which our reports are not taken, and its cure; `null` while they are.
    pub why: Option<String>,
    /// The reason for which reports of others cannot be read, and its cure; `null` while they are,
    /// and where nobody reads them.
    pub unread: Option<String>,
    /// The table of all members, where this process reads the reports; not part of the JSON.
    #[serde(skip)]
    pub table: Option<Arc<FleetTable>>,
}

/// Most logins named, in a line each.
const LOGINS_MAX: usize = 5;

/// Finds status reports that are not taken, and those of others that cannot be read.
pub(super) fn words(status: &Status, found: &mut Vec<Todo>) {
    let Some(fleet) = &status.fleet else { return };
    let unsent = "status reports do not reach the broker, so nobody sees that this process works";
    let unread = "the status reports of others cannot be read";
    for (code, what, why) in [
        ("last_words", unsent, &fleet.why),
        ("last_words_unread", unread, &fleet.unread),
    ] {
        if let Some(why) = why {
            let what = format!("{what}: {why}");
            let words = todo(FindingKind::LastWords, what, status.check());
            found.push(words.with_code(code, [why.clone()]));
        }
    }
    let floods = fleet.table.iter().flat_map(|table| &table.floods);
    for (login, words) in floods.take(LOGINS_MAX) {
        let what = format!(
            "login {login} floods the stream of status reports: {words} of its reports were \
             skipped, for PBXs that are not known, their length or their number; look at what \
             publishes as {login}, and take its right away until then (--pbx-owner \
             PBX={login} where they are its PBXs)"
        );
        let values = [login.clone(), words.to_string()];
        let flood = todo(FindingKind::LastWords, what, status.check());
        found.push(flood.with_code("last_words_flood", values));
    }
}

/// Logins whose messages nobody can read, and that have filled their share of the dead letters.
pub(super) fn unreadable(status: &Status, found: &mut Vec<Todo>) {
    for (login, count) in status.floods.iter().take(LOGINS_MAX) {
        let login = match login.as_str() {
            "" => "a publisher without a login".to_owned(),
            login => format!("login {login}"),
        };
        let what = format!(
            "{login} floods the dead letters with messages that cannot be read: {count} more were \
             counted and not kept, to leave room to others; look at what publishes them, then \
             discard its letters"
        );
        let command = status.command("dead list --reason unreadable");
        let values = [login, count.to_string()];
        let flood = todo(FindingKind::DeadLetters, what, command);
        found.push(flood.with_code("letters_flood", values));
    }
}

/// Outcomes that do not get into the stream.
pub(super) fn outcomes(status: &Status, found: &mut Vec<Todo>) {
    if let Some(why) = &status.untold_outcomes {
        let what = format!("results of calls are not written into their stream: {why}");
        found.push(todo(FindingKind::Outcomes, what, status.check()).with([why.clone()]));
    }
}

/// Finds collectors that send no status reports.
pub(super) fn silent(status: &Status, found: &mut Vec<Todo>) {
    let table = status.fleet.as_ref().and_then(|it| it.table.as_ref());
    let Some(table) = table else { return };
    let silent =
        |it: &&FleetMember| it.word.role == FleetRole::Collector && it.speech != Liveness::Speaking;
    let silent: Vec<&FleetMember> = table.members.iter().filter(silent).collect();
    if silent.is_empty() {
        return;
    }
    let named = silent.iter().map(|it| {
        let trouble = it.trouble.as_ref();
        let trouble = trouble.map_or(it.speech.word(), |it| it.what.as_str());
        format!("{} on {} ({trouble})", it.word.instance, it.word.hostname)
    });
    let named = first_five(&named.collect::<Vec<_>>());
    let count = counted(silent.len() as u64, "collector sends", "collectors send");
    let what =
        format!("{count} no status reports: {named}; their calls wait there, or are not received");
    let command = "callbridge fleet --source URL (the stream of run)";
    let values = [silent.len().to_string(), named];
    found.push(todo(FindingKind::SilentCollector, what, command).with(values));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_json() {
        for role in [FleetRole::Collector, FleetRole::Sender] {
            assert_eq!(serde_json::json!(role), role.word());
        }
        for speech in [Liveness::Silent, Liveness::Stopped, Liveness::Speaking] {
            assert_eq!(serde_json::json!(speech), speech.word());
        }
    }
}
