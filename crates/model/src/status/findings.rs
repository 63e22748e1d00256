//! What is found in the shape: one function for each part of it, in a list that grows.
//!
//! A new finding is a [`FindingKind`] with a word of its own, a function here, and a line in
//! `FINDERS`.

use super::verdict::{counted, first_five, todo};
use super::{FindingKind, SourceStatus, Status, Todo};
use crate::Reason;
use crate::status::PAUSES;
use crate::status::other_reader::{Effect, OtherReader};
pub use callbridge_call::shell::quoted;

/// A gap is pointed at for this long after its end; `status` lists it for longer.
const GAP_SECONDS: i64 = 24 * 3600;
/// A shorter one is that of a restart.
const GAP_SECONDS_MIN: i64 = 30;
/// Seconds before its end at which a token is reported that nobody here can renew.
const TOKEN_SECONDS: i64 = 14 * 24 * 3600;
/// The value of [`super::Pause::reason`] where no daemon runs.
pub const NO_DAEMON: &str = "no daemon runs";

/// A check of one part of the status, which adds its findings to the list.
type Finder = fn(&Status, &mut Vec<Todo>);

/// All checks, in the order in which they run.
const FINDERS: &[Finder] = &[
    pause,
    sources,
    super::silent_sources::silent_sources,
    formats,
    daemons,
    trunks,
    super::trunks::silent,
    super::trunks::without_employees,
    token,
    troubles,
    gaps,
    letters,
    super::outboxes::dead_letter_queue,
    super::outboxes::notify_command,
    super::secret_files::secret_files,
    super::people::lists,
    super::people::employees,
    webhooks,
    directory,
    lead_fields,
    super::journal::fields,
    super::journal::foreign,
    books,
];

/// All that waits for a person.
pub fn findings(status: &Status) -> Vec<Todo> {
    let mut found = Vec::new();
    for find in FINDERS {
        find(status, &mut found);
    }
    found
}

impl Status {
    /// The same with its verdict, and with all that waits for a person.
    pub fn judged(mut self) -> Self {
        self.todo = findings(&self);
        self.todo.sort_by_key(|todo| todo.kind);
        let worst = self.todo.iter().map(|todo| todo.kind.verdict()).max();
        self.verdict = worst.unwrap_or_default();
        self
    }

    /// One of our own commands on this state: `callbridge dead list --state DIR`.
    pub fn command(&self, what: &str) -> String {
        match self.state.as_str() {
            "" => format!("callbridge {what}"),
            state => format!("callbridge {what} --state {}", quoted(state)),
        }
    }

    /// Number of letters, as `dead list` shows them: dead and parked calls, and messages that could
    /// not be read. A daemon that is older than letters by reason has its books alone.
    pub fn letter_count(&self) -> u64 {
        match self.letters.is_empty() {
            true => self.books.dead + self.books.parked,
            false => self.letters.values().sum(),
        }
    }

    /// The command that tries everything the daemon was given.
    pub fn check(&self) -> String {
        let known = self.check_command.clone();
        known.unwrap_or_else(|| "callbridge check @FILE (with the flags of run)".to_owned())
    }
}

fn pause(status: &Status, found: &mut Vec<Todo>) {
    let Some(pause) = &status.pause else { return };
    if pause.reason == NO_DAEMON {
        let what = "no daemon runs: no call is received and none is sent";
        found.push(todo(FindingKind::NoDaemon, what, status.command("run @FILE")).with([]));
        return;
    }
    let what = format!("paused ({}): {}", pause.reason, pause.fix);
    let command = match pause.reason.as_str() {
        "reconnect" => status.command("connect"),
        "calls_refused" => status.command("dead list"),
        "disk" => format!("df -h {}", quoted(&status.state)),
        "clock" => "timedatectl status".to_owned(),
        // all others are for the CRM's side, its token, or the flags
        _ => status.check(),
    };
    let paused = todo(FindingKind::Paused, what, command);
    found.push(match PAUSES.iter().find(|it| **it == pause.reason) {
        Some(reason) => paused.with_code(reason, []),
        None => paused,
    });
}

fn sources(status: &Status, found: &mut Vec<Todo>) {
    if status.sources.is_empty() {
        return;
    }
    let down = |source: &&SourceStatus| !source.state.is_up();
    let why = |source: &SourceStatus| {
        let why = source.why.as_deref().unwrap_or("not reached yet");
        format!("source {} is down: {why}", source.name())
    };
    let lines = || status.sources.iter().filter(|source| !source.catch_up);
    let deaf = lines().count() > 0 && lines().all(|source| down(&source));
    for source in status.sources.iter().filter(down) {
        let kind = match deaf && !source.catch_up {
            true => FindingKind::NoSource,
            false => FindingKind::SourceDown,
        };
        let words = source.why.clone().unwrap_or_default();
        let values = [source.name().to_owned(), words];
        found.push(todo(kind, why(source), status.check()).with_code("source_down", values));
    }
}

fn formats(status: &Status, found: &mut Vec<Todo>) {
    for source in &status.sources {
        if let (true, 0, Some(why)) = (source.state.is_up(), source.read, &source.why) {
            let what = format!("source {}: {why}", source.name());
            let values = [source.name().to_owned(), why.clone()];
            found.push(todo(FindingKind::OtherFormat, what, status.check()).with(values));
        }
    }
}

fn daemons(status: &Status, found: &mut Vec<Todo>) {
    for source in &status.sources {
        let harmful = |other: &&OtherReader| other.effect == Effect::Torn;
        for other in source.others.iter().filter(harmful) {
            let what = format!("source {}: {other}", source.name());
            let command = match other.pid {
                Some(pid) => format!("ps -fp {pid}"),
                None => status.command("status"),
            };
            let values = [source.name().to_owned(), other.to_string()];
            found.push(todo(FindingKind::OtherDaemon, what, command).with(values));
        }
    }
}

fn trunks(status: &Status, found: &mut Vec<Todo>) {
    if status.unmatched.is_empty() {
        return;
    }
    let named = status.unmatched.iter();
    let named = named.map(|it| format!("{} ({})", it.prefix, counted(it.calls, "call", "calls")));
    let named = first_five(&named.collect::<Vec<_>>());
    let what = format!(
        "outside numbers go over {named}, and no --trunk takes these in: the calls are taken for \
         internal ones and not journaled; name them with --trunk, or in --employees those that \
         are telephones"
    );
    found.push(todo(FindingKind::NoTrunk, what, status.check()).with([named]));
}

fn token(status: &Status, found: &mut Vec<Todo>) {
    let token = &status.token;
    // what a pause says already is not said again
    if status.pause.is_none() {
        let state = token.state.as_str();
        let (code, what) = match state {
            "reconnect" => {
                let what = "the CRM's consent is over: calls go out while the last token lives";
                ("token_consent", what)
            }
            "client_refused" => {
                let what = "the CRM refuses to refresh the token (company blocked, or client \
                            secret wrong): calls go out while the last token lives";
                ("token_not_refreshed", what)
            }
            "missing" => ("token_missing", "there is no token"),
            "refused" => ("token_refused", "the CRM refuses the token"),
            "wrong_company" => ("wrong_company", "the token is another company's"),
            "no_grant" => ("no_grant", "the token lacks a grant"),
            _ => ("", ""),
        };
        let command = match state {
            "reconnect" => status.command("connect"),
            _ => status.check(),
        };
        if !what.is_empty() {
            found.push(todo(FindingKind::Token, what, command).with_code(code, []));
        }
    }
    // A token by consent is renewed by itself, long before its end.
    let lasts = token.kind.as_deref() == Some("PAT") && token.state == "ok";
    let left = token.expires_at.map(|end| end - status.at);
    if let Some(left) = left.filter(|left| lasts && *left <= TOKEN_SECONDS) {
        let days = (left / 86_400).max(0).unsigned_abs();
        let place = status.token_place.as_deref().unwrap_or("--token-file");
        let what = format!(
            "the token ends in {}: issue a new one in the CRM and put it into {place}",
            counted(days, "day", "days"),
        );
        let values = [days.to_string(), place.to_owned()];
        found.push(todo(FindingKind::TokenEnds, what, status.check()).with(values));
    }
}

fn troubles(status: &Status, found: &mut Vec<Todo>) {
    for trouble in &status.troubles {
        let (part, why) = (&trouble.part, &trouble.why);
        let what = format!("the CRM's {part} fail ({why}): {}", trouble.instead);
        let command = status.command("status");
        found.push(todo(FindingKind::CrmTrouble, what, command).with([why.clone()]));
    }
}

fn gaps(status: &Status, found: &mut Vec<Todo>) {
    let open = status.gaps.iter().filter(|gap| {
        let long = gap.to - gap.from >= GAP_SECONDS_MIN;
        !gap.filled && long && status.at - gap.to <= GAP_SECONDS
    });
    let (mut count, mut seconds, mut last) = (0, 0, None);
    for gap in open {
        count += 1;
        seconds += (gap.to - gap.from).unsigned_abs();
        last = Some(gap);
    }
    let Some(gap) = last else { return };
    let what = format!(
        "{} of {} ({} in a day): whole calls may be missing; compare with the PBX's own records, \
         and give their file with --catch-up",
        counted(count, "gap", "gaps"),
        status.name_of(&gap.source),
        super::seconds_in_words(seconds),
    );
    // The calls around it say whether any was lost.
    let command = status.command("calls --today");
    let values = [count.to_string(), status.name_of(&gap.source).to_owned()];
    found.push(todo(FindingKind::Gap, what, command).with(values));
}

fn letters(status: &Status, found: &mut Vec<Todo>) {
    let of = |reason: Reason| status.letters.get(reason.word()).copied().unwrap_or(0);
    let (no_lead, no_employee) = (of(Reason::NoLead), of(Reason::NoEmployee));
    let all: Vec<_> = Reason::ALL.iter().map(|&it| (it, of(it))).collect();
    // What waits for a lead or an employee is counted among the letters, here as everywhere; where
    // nothing else is there, its own line says it.
    if all.iter().any(|(it, count)| !it.is_parked() && *count > 0) {
        let count: u64 = all.iter().map(|(_, count)| count).sum();
        let each = all.iter().filter(|(_, count)| *count > 0);
        let each: Vec<String> = each.map(|(reason, n)| format!("{n} {reason}")).collect();
        let letters = counted(count, "dead letter", "dead letters");
        let what = format!("{letters}: {}", each.join(", "));
        let command = status.command("dead list");
        found.push(todo(FindingKind::DeadLetters, what, command).with([count.to_string()]));
    }
    if no_lead > 0 {
        let calls = counted(no_lead, "call waits", "calls wait");
        let what = format!("{calls} for a lead");
        let command = status.command("lead missing");
        found.push(todo(FindingKind::NoLead, what, command).with([no_lead.to_string()]));
    }
    if no_employee > 0 {
        let calls = counted(no_employee, "call waits", "calls wait");
        let what = format!("{calls} for an employee: add the extension to --employees");
        let command = status.command("dead list --reason no_employee");
        found.push(todo(FindingKind::NoEmployee, what, command).with([no_employee.to_string()]));
    }
}

fn webhooks(status: &Status, found: &mut Vec<Todo>) {
    if status
        .webhooks
        .as_ref()
        .is_some_and(|it| it.state == "no_secret")
    {
        let what = "signatures of webhooks cannot be checked: no signing secret is known; give \
                    --webhook-secret-file";
        found.push(todo(FindingKind::Webhooks, what, status.check()).with([]));
    }
}

fn directory(status: &Status, found: &mut Vec<Todo>) {
    let Some(directory) = &status.directory else {
        return;
    };
    let why = directory.why.as_deref().unwrap_or("no reason is known");
    let (code, what, values) = match directory.backfill.as_deref() {
        Some("no_grant") => {
            let what = "leads cannot be read: grant PERMISSION_OPEN_API_LEAD:READ, or leave \
                        --lead-directory out";
            ("leads_barred", what.to_owned(), vec![])
        }
        Some("left") => {
            let what = format!("leads are not read any more: {why}");
            ("leads_unread", what, vec![why.to_owned()])
        }
        Some(_) | None => return,
    };
    found.push(todo(FindingKind::LeadDirectory, what, status.check()).with_code(code, values));
}

fn lead_fields(status: &Status, found: &mut Vec<Todo>) {
    let Some(fields) = &status.lead_fields else {
        return;
    };
    if fields.state == "off" {
        let why = fields.why.as_deref().unwrap_or("no reason is known");
        let what = format!("fields of leads are not written: {why}");
        found.push(todo(FindingKind::LeadFields, what, status.check()).with([why.to_owned()]));
    }
    for field in fields.fields.iter().filter(|field| !field.ok) {
        let name = format!("--lead-field {}={}", field.name, field.id);
        let what = format!("{name}: {}", field.what);
        let values = [name, field.what.clone()];
        let unwritten = todo(FindingKind::LeadFields, what, status.check());
        found.push(unwritten.with_code("lead_field", values));
    }
}

fn books(status: &Status, found: &mut Vec<Todo>) {
    if !status.books.balance() {
        let what = "the books do not add up: a fault of this program; report it with this";
        found.push(todo(FindingKind::Books, what, status.command("status --json")).with([]));
    }
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
