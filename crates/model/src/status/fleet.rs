//! Collectors and senders around one stream, as their last words tell them.

use super::verdict::{Detail, counted, todo};
use super::{Backlog, Books, FindingKind, OverallState, SourceState, Status, Todo};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use strum::IntoStaticStr;

/// What a process does in its fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum FleetRole {
    /// It forwards the calls of its PBX to the stream.
    Collector,
    /// It reads the stream and sends to the CRM.
    Sender,
}

impl FleetRole {
    /// The word told and compared.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// What a process says of itself each minute (`docs/fleet-decisions.md`). Times are epoch seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastWord {
    /// What it does.
    pub role: FleetRole,
    /// A collector: its PBXs with commas between; a sender: its company, or its token's print.
    pub instance: String,
    /// The PBXs that a collector listens to.
    #[serde(default)]
    pub pbx: Vec<String>,
    /// The machine.
    pub hostname: String,
    /// The state folder: it parts two senders on one machine.
    #[serde(default)]
    pub state: String,
    /// The version of the program.
    pub version: String,
    /// The commit that it was built from.
    #[serde(default)]
    pub commit: String,
    /// Where every call stands.
    pub books: Books,
    /// Where its calls come from.
    #[serde(default)]
    pub sources: Vec<FleetSource>,
    /// Times at which events may have been missed.
    #[serde(default)]
    pub gaps: FleetGaps,
    /// What waits to leave it.
    #[serde(default)]
    pub backlog: Backlog,
    /// The pace at which a sender may send.
    pub rate: Option<FleetRate>,
    /// Dead and parked letters.
    #[serde(default)]
    pub letters: u64,
    /// The lease of a sender with a standby; `null` without one.
    pub lease: Option<FleetLease>,
    /// Of a sender: the token it sends with, once the CRM has told.
    pub token: Option<TokenName>,
    /// Why nothing leaves it; `null` while all is well.
    pub pause: Option<String>,
    /// Whether all is well with it.
    #[serde(default)]
    pub verdict: OverallState,
    /// When it was started.
    pub started_at: i64,
    /// When this was said.
    pub at: i64,
    /// It was stopped in order, and this is its last word.
    #[serde(default)]
    pub ends: bool,
}

/// A source, in a last word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetSource {
    /// What people know it by: `office/ami`.
    pub name: String,
    /// How it is doing.
    pub state: SourceState,
    /// Arrival of its last event; `null` before the first.
    pub last_event_at: Option<i64>,
}

/// Gaps, in a last word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetGaps {
    /// How many are not filled.
    pub count: u64,
    /// The end of the newest; `null` without any.
    pub newest: Option<i64>,
}

/// So many requests in so many seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetRate {
    /// Requests of a window.
    pub limit: u32,
    /// The window.
    pub window_sec: u64,
}

/// A lease, in a last word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetLease {
    /// The name of the lease.
    pub name: String,
    /// Whether this process may send by it.
    pub held: bool,
    /// Since when it has held it and could not send; `null` while it could, or does not hold it.
    pub unable_since: Option<i64>,
}

/// By what a token is known, never the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TokenName {
    /// Its fingerprint: 16 hex digits.
    pub print: String,
    /// The company's name.
    pub company: Option<String>,
}

/// Whether somebody speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Speech {
    /// Nothing was heard for three minutes: the machine, the process or its line is gone.
    Silent,
    /// It was stopped in order.
    Stopped,
    /// Its word is at most three minutes old.
    Speaking,
}

impl Speech {
    /// The word told and compared.
    pub fn word(self) -> &'static str {
        self.into()
    }
}

/// What is wrong with a machine, or with all of them; a string in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct FleetTrouble {
    /// What it is, in words.
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

/// One of the fleet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetMember {
    /// Whether it speaks.
    pub speech: Speech,
    /// What is wrong with it; `null` where nothing is.
    pub trouble: Option<FleetTrouble>,
    /// The broker's user that published its word.
    pub user: String,
    /// When its last word was heard.
    pub heard_at: i64,
    /// Its last word.
    pub word: LastWord,
}

/// What waits for one token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetToken {
    /// By what it is known.
    #[serde(flatten)]
    pub token: TokenName,
    /// Senders that have it and speak.
    pub senders: u64,
    /// The machine of the one that holds the lease; `null` without a lease.
    pub holder: Option<String>,
    /// Calls that wait, and for how long at the token's pace.
    pub backlog: Backlog,
    /// Dead and parked letters.
    pub letters: u64,
}

/// All of them together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetTotals {
    /// Known collectors.
    pub collectors: u64,
    /// Known senders.
    pub senders: u64,
    /// How many of both speak.
    pub speaking: u64,
    /// How many are silent.
    pub silent: u64,
    /// How many were stopped in order.
    pub stopped: u64,
    /// Calls that collectors have forwarded.
    pub forwarded: u64,
    /// Calls that senders have in the journal.
    pub journaled: u64,
    /// Calls that wait, at collectors and tokens.
    pub waiting: u64,
    /// Gaps that are not filled.
    pub gaps: u64,
    /// Dead and parked letters.
    pub letters: u64,
}

/// Everybody around one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetTable {
    /// When it was made.
    pub at: i64,
    /// The stream of the words.
    pub stream: String,
    /// All speak, and nothing waits wrongly.
    pub healthy: bool,
    /// What is wrong with the fleet as a whole, a sentence each.
    pub troubles: Vec<FleetTrouble>,
    /// Who is silent first, then by role and name.
    pub members: Vec<FleetMember>,
    /// By fingerprint.
    pub tokens: Vec<FleetToken>,
    /// All together.
    pub totals: FleetTotals,
    /// Messages of the stream that are no words, by what is wrong with them.
    pub skipped: BTreeMap<String, u64>,
    /// Logins that speak for more PBXs, or say more, than one login may, with how many of their
    /// words were skipped for that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub floods: BTreeMap<String, u64>,
}

impl FleetTable {
    /// Each PBX with whether a collector speaks for it.
    pub fn collectors(&self) -> BTreeMap<&str, bool> {
        let mut up = BTreeMap::new();
        let of = |member: &&FleetMember| member.word.role == FleetRole::Collector;
        for member in self.members.iter().filter(of) {
            for pbx in &member.word.pbx {
                *up.entry(pbx.as_str()).or_default() |= member.speech == Speech::Speaking;
            }
        }
        up
    }
}

/// How a process is doing in its fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetStatus {
    /// The stream of the words.
    pub stream: String,
    /// When a broker confirmed our last one; `null` before the first.
    pub last_word_at: Option<i64>,
    /// Why ours are not taken, and what mends it; `null` while they are.
    pub why: Option<String>,
    /// Why those of others cannot be read, and what mends it; `null` while they are, and where
    /// nobody reads them.
    pub unread: Option<String>,
    /// Everybody else, where this process reads the words; not told in JSON.
    #[serde(skip)]
    pub table: Option<Arc<FleetTable>>,
}

/// Collectors named in one line.
const NAMED_MAX: usize = 5;

/// Words that are not taken, and those of others that cannot be read.
pub(super) fn words(status: &Status, found: &mut Vec<Todo>) {
    let Some(fleet) = &status.fleet else { return };
    for (code, what, why) in [
        (
            "last_words",
            "status reports do not reach the broker, so nobody sees that this process works",
            &fleet.why,
        ),
        (
            "last_words_unread",
            "the status reports of others cannot be read",
            &fleet.unread,
        ),
    ] {
        if let Some(why) = why {
            let what = format!("{what}: {why}");
            let words = todo(FindingKind::LastWords, what, status.check());
            found.push(words.with_code(code, [why.clone()]));
        }
    }
    let floods = fleet.table.iter().flat_map(|table| &table.floods);
    for (login, words) in floods.take(NAMED_MAX) {
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
    for (login, count) in status.floods.iter().take(NAMED_MAX) {
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
        found
            .push(todo(FindingKind::DeadLetters, what, command).with_code("letters_flood", values));
    }
}

/// Outcomes that do not get into the stream.
pub(super) fn outcomes(status: &Status, found: &mut Vec<Todo>) {
    if let Some(why) = &status.untold_outcomes {
        let what = format!("results of calls are not written into their stream: {why}");
        let values = [why.clone()];
        found.push(todo(FindingKind::Outcomes, what, status.check()).with(values));
    }
}

/// Collectors of which nothing is heard.
pub(super) fn silent(status: &Status, found: &mut Vec<Todo>) {
    let table = status.fleet.as_ref().and_then(|it| it.table.as_ref());
    let Some(table) = table else { return };
    let silent =
        |it: &&FleetMember| it.word.role == FleetRole::Collector && it.speech != Speech::Speaking;
    let silent: Vec<&FleetMember> = table.members.iter().filter(silent).collect();
    if silent.is_empty() {
        return;
    }
    let named = silent.iter().take(NAMED_MAX).map(|it| {
        let trouble = it.trouble.as_ref();
        let trouble = trouble.map_or(it.speech.word(), |it| it.what.as_str());
        format!("{} on {} ({trouble})", it.word.instance, it.word.hostname)
    });
    let named: Vec<String> = named.collect();
    let more = match silent.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!(
        "{}: {}{more}; their calls wait there, or are not received",
        counted(
            silent.len() as u64,
            "collector sends no status reports",
            "collectors send no status reports"
        ),
        named.join(", ")
    );
    let command = "callbridge fleet --source URL (the stream of run)";
    let values = [
        silent.len().to_string(),
        format!("{}{more}", named.join(", ")),
    ];
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
        for speech in [Speech::Silent, Speech::Stopped, Speech::Speaking] {
            assert_eq!(serde_json::json!(speech), speech.word());
        }
    }
}
