//! Finds problems in the status, with one function for each part.
//!
//! A new finding needs a [`FindingKind`] with its own word, a function here, and a line in
//! `FINDERS`.

use super::text::by_reason;
use super::verdict::{count_with_noun, first_five};
use super::{FindingKind, Problem, Status, Unmatched};
use crate::Reason;
use crate::status::PAUSES;
use crate::status::other_reader::Effect;
pub use callbridge_call::shell::quoted;

/// Seconds after its end for which a gap is reported as a problem. `status` lists it for longer.
const GAP_SECONDS: i64 = 24 * 3600;
/// Minimum length of a reported gap in seconds. Shorter gaps come from restarts.
const GAP_SECONDS_MIN: i64 = 30;
/// A token that cannot be renewed here is reported this many seconds before it expires.
const TOKEN_SECONDS: i64 = 14 * 24 * 3600;
/// The value of [`super::Pause::reason`] if no daemon runs.
pub const NO_DAEMON: &str = "no daemon runs";

/// A check of one part of the status, which adds its findings to the list.
type Finder = fn(&Status, &mut Vec<Problem>);

const FINDERS: &[Finder] = &[
    pause,
    sources,
    super::silent_sources::silent_sources,
    super::free_space::full_directories,
    super::hub::hub,
    super::leadership::leadership,
    formats,
    daemons,
    trunks,
    super::trunks::silent_trunks,
    super::trunks::trunks_without_employees,
    token,
    degraded_parts,
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
    super::journal::foreign_calls,
    books,
];

/// Returns all problems that need a person.
pub fn findings(status: &Status) -> Vec<Problem> {
    let mut found = Vec::new();
    for find in FINDERS {
        find(status, &mut found);
    }
    found
}

impl Status {
    /// Adds all problems that need a person, and the verdict.
    pub fn judged(mut self) -> Self {
        self.problems = findings(&self);
        self.problems.sort_by_key(|problem| problem.kind);
        let worst = self
            .problems
            .iter()
            .map(|problem| problem.kind.verdict())
            .max();
        self.verdict = worst.unwrap_or_default();
        self
    }

    /// Returns a callbridge command on this state: `callbridge dead list --state DIR`.
    pub fn command(&self, arguments: &str) -> String {
        match self.state.as_str() {
            "" => format!("callbridge {arguments}"),
            state => format!("callbridge {arguments} --state {}", quoted(state)),
        }
    }

    /// Returns the number of calls that wait for this reason.
    pub fn waiting_count(&self, reason: Reason) -> u64 {
        self.waiting.get(reason.word()).copied().unwrap_or(0)
    }

    /// Returns the number of dead letters as in `dead list`: calls that need a decision, and
    /// unreadable messages.
    pub fn dead_letter_count(&self) -> u64 {
        self.dead_letters.values().sum()
    }

    /// Returns the command that tests everything the daemon is configured with.
    pub fn check(&self) -> String {
        let known = self.check_command.clone();
        known.unwrap_or_else(|| "callbridge check @FILE (with the flags of run)".to_owned())
    }
}

fn pause(status: &Status, found: &mut Vec<Problem>) {
    let Some(pause) = &status.pause else { return };
    if pause.reason == NO_DAEMON {
        let message = "no daemon runs: no call is received and none is sent";
        found.push(
            Problem::new(FindingKind::NoDaemon, message, status.command("run @FILE"))
                .with_values([]),
        );
        return;
    }
    let message = format!("paused ({}): {}", pause.reason, pause.fix);
    let command = match pause.reason.as_str() {
        "reconnect" => status.command("connect"),
        "calls_refused" => status.command("dead list"),
        "disk" => format!("df -h {}", quoted(&status.state)),
        "clock" => "timedatectl status".to_owned(),
        "takeover" => status.command("status --watch"),
        "split_database" => status.command("sending resume"),
        // All other reasons concern the CRM, its token, or the flags.
        _ => status.check(),
    };
    let paused = Problem::new(FindingKind::Paused, message, command);
    found.push(match PAUSES.iter().find(|code| **code == pause.reason) {
        Some(reason) => paused.with_code(reason, []),
        None => paused,
    });
}

fn sources(status: &Status, found: &mut Vec<Problem>) {
    if status.sources.is_empty() {
        return;
    }
    let mut live = status.sources.iter().filter(|source| !source.catch_up);
    let has_live = live.clone().next().is_some();
    let all_live_down = has_live && live.all(|source| !source.state.is_up());
    for source in status.sources.iter().filter(|source| !source.state.is_up()) {
        let kind = if all_live_down && !source.catch_up {
            FindingKind::NoSource
        } else {
            FindingKind::SourceDown
        };
        let reason = source.reason.as_deref().unwrap_or("not reached yet");
        let message = format!("source {} is down: {reason}", source.name());
        let values = [
            source.name().to_owned(),
            source.reason.clone().unwrap_or_default(),
        ];
        found.push(Problem::new(kind, message, status.check()).with_code("source_down", values));
    }
}

fn formats(status: &Status, found: &mut Vec<Problem>) {
    for source in &status.sources {
        if source.state.is_up()
            && source.read == 0
            && let Some(reason) = &source.reason
        {
            let message = format!("source {}: {reason}", source.name());
            let values = [source.name().to_owned(), reason.clone()];
            found.push(
                Problem::new(FindingKind::OtherFormat, message, status.check()).with_values(values),
            );
        }
    }
}

fn daemons(status: &Status, found: &mut Vec<Problem>) {
    for source in &status.sources {
        let harmful = source
            .others
            .iter()
            .filter(|other| other.effect == Effect::Torn);
        for other in harmful {
            let message = format!("source {}: {other}", source.name());
            let command = match other.pid {
                Some(pid) => format!("ps -fp {pid}"),
                None => status.command("status"),
            };
            let values = [source.name().to_owned(), other.to_string()];
            found
                .push(Problem::new(FindingKind::OtherDaemon, message, command).with_values(values));
        }
    }
}

fn trunks(status: &Status, found: &mut Vec<Problem>) {
    let channels = with_calls(&status.unmatched);
    if !channels.is_empty() {
        let named = first_five(&channels);
        let message = format!(
            "outside numbers appeared on {named}, which no --trunk includes, so these calls count \
             as internal and aren't journaled: add the channels to a --trunk, or to --employees if \
             they're phones"
        );
        let problem = Problem::new(FindingKind::NoTrunk, message, status.check());
        found.push(problem.with_values([named]));
    }
    let channels = with_calls(&status.unknown_channels);
    if !channels.is_empty() {
        let named = first_five(&channels);
        let message = format!(
            "channels of an unknown technology took part in calls without being dialed, so \
             callbridge can't tell whether they're phones, and calls connected only with them are \
             incomplete: {named}; if customers call over them, add them to a --trunk"
        );
        let problem = Problem::new(FindingKind::UnknownTechnology, message, status.check());
        found.push(problem.with_values([named]));
    }
}

/// Returns each prefix with its number of calls: `PJSIP/citty (3 calls)`.
fn with_calls(channels: &[Unmatched]) -> Vec<String> {
    let channels = channels.iter().map(|channels| {
        let calls = count_with_noun(channels.calls, "call", "calls");
        format!("{} ({calls})", channels.prefix)
    });
    channels.collect()
}

fn token(status: &Status, found: &mut Vec<Problem>) {
    let token = &status.token;
    // A pause already reports this.
    if status.pause.is_none() {
        let state = token.state.as_str();
        let (code, message) = match state {
            "reconnect" => {
                let message = "the consent in the CRM has ended: calls are sent until the last \
                    token expires";
                ("token_consent", message)
            }
            "client_refused" => {
                let message = "the CRM refuses to refresh the token (company blocked, or client \
                            secret wrong): calls are sent until the last token expires";
                ("token_not_refreshed", message)
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
        if !message.is_empty() {
            found.push(Problem::new(FindingKind::Token, message, command).with_code(code, []));
        }
    }
    // A token by consent is renewed automatically, long before it expires.
    let lasts = token.kind.as_deref() == Some("PAT") && token.state == "ok";
    let left = token.expires_at.map(|end| end - status.at);
    if let Some(left) = left
        && lasts
        && left <= TOKEN_SECONDS
    {
        let days = (left / 86_400).max(0).unsigned_abs();
        let place = status.token_place.as_deref().unwrap_or("--token-file");
        let message = format!(
            "the token ends in {}: issue a new one in the CRM and put it into {place}",
            count_with_noun(days, "day", "days"),
        );
        let values = [days.to_string(), place.to_owned()];
        found.push(
            Problem::new(FindingKind::TokenEnds, message, status.check()).with_values(values),
        );
    }
}

fn degraded_parts(status: &Status, found: &mut Vec<Problem>) {
    for failure in &status.degraded {
        let part = &failure.part;
        let reason = &failure.reason;
        let message = format!("the CRM's {part} fail ({reason}): {}", failure.fallback);
        let command = status.command("status");
        found.push(
            Problem::new(FindingKind::CrmDegraded, message, command).with_values([reason.clone()]),
        );
    }
}

fn gaps(status: &Status, found: &mut Vec<Problem>) {
    let open = status.gaps.iter().filter(|gap| {
        let long = gap.to - gap.from >= GAP_SECONDS_MIN;
        !gap.filled && long && status.at - gap.to <= GAP_SECONDS
    });
    let mut count = 0;
    let mut seconds = 0;
    let mut last = None;
    for gap in open {
        count += 1;
        seconds += (gap.to - gap.from).unsigned_abs();
        last = Some(gap);
    }
    let Some(gap) = last else { return };
    let message = format!(
        "{} of {} ({} in a day): whole calls may be missing; compare with the PBX's own records, \
         and give their file with --catch-up",
        count_with_noun(count, "gap", "gaps"),
        status.name_of(&gap.source),
        super::seconds_in_words(seconds),
    );
    // Only the PBX's own records show a call that callbridge never heard of.
    let is_freeswitch = gap.source.starts_with("esl") || gap.source.contains("format=freeswitch");
    let records = if is_freeswitch {
        "audit --cdr FOLDER"
    } else {
        "audit --cel FILE"
    };
    let command = status.command(records);
    let values = [count.to_string(), status.name_of(&gap.source).to_owned()];
    found.push(Problem::new(FindingKind::Gap, message, command).with_values(values));
}

fn letters(status: &Status, found: &mut Vec<Problem>) {
    let count = status.dead_letter_count();
    if count > 0 {
        let letters = count_with_noun(count, "dead letter", "dead letters");
        let message = format!("{letters}: {}", by_reason(&status.dead_letters));
        let command = status.command("dead list");
        found.push(
            Problem::new(FindingKind::DeadLetters, message, command)
                .with_values([count.to_string()]),
        );
    }
    let no_lead = status.waiting_count(Reason::NoLead);
    let no_employee = status.waiting_count(Reason::NoEmployee);
    if no_lead > 0 {
        let calls = count_with_noun(no_lead, "call waits", "calls wait");
        let message = format!("{calls} for a lead");
        let command = status.command("lead missing");
        found.push(
            Problem::new(FindingKind::NoLead, message, command).with_values([no_lead.to_string()]),
        );
    }
    if no_employee > 0 {
        let calls = count_with_noun(no_employee, "call waits", "calls wait");
        let message = format!("{calls} for an employee: add the extension to --employees");
        let command = status.command("dead list --waiting --reason no_employee");
        found.push(
            Problem::new(FindingKind::NoEmployee, message, command)
                .with_values([no_employee.to_string()]),
        );
    }
}

fn webhooks(status: &Status, found: &mut Vec<Problem>) {
    let Some(webhooks) = &status.webhooks else {
        return;
    };
    if let Some(mismatch) = &webhooks.mismatch {
        let (installation, fix) = (&mismatch.installation, &mismatch.fix);
        let message = format!(
            "a webhook for installation {installation} isn't signed with a known secret. The CRM \
             retries it for 35 minutes. If its secret was regenerated in the CRM, {fix}"
        );
        let values = [installation.clone(), fix.clone()];
        let mismatched = Problem::new(FindingKind::Webhooks, message, status.check());
        found.push(mismatched.with_code("webhook_mismatch", values));
    }
    if webhooks.state == "no_secret" {
        let message = "signatures of webhooks cannot be checked: no signing secret is known; give \
                    --webhook-secret-file";
        found.push(Problem::new(FindingKind::Webhooks, message, status.check()).with_values([]));
    }
}

fn directory(status: &Status, found: &mut Vec<Problem>) {
    let Some(directory) = &status.directory else {
        return;
    };
    let reason = directory.reason.as_deref().unwrap_or("no reason is known");
    let (code, message, values) = match directory.backfill.as_deref() {
        Some("no_grant") => {
            let message = "leads cannot be read: grant PERMISSION_OPEN_API_LEAD:READ, or leave \
                        --lead-directory out";
            ("leads_barred", message.to_owned(), vec![])
        }
        Some("left") => {
            let message = format!("reading leads has stopped: {reason}");
            ("leads_unread", message, vec![reason.to_owned()])
        }
        Some(_) | None => return,
    };
    found.push(
        Problem::new(FindingKind::LeadDirectory, message, status.check()).with_code(code, values),
    );
}

fn lead_fields(status: &Status, found: &mut Vec<Problem>) {
    let Some(fields) = &status.lead_fields else {
        return;
    };
    if fields.state == "off" {
        let reason = fields.reason.as_deref().unwrap_or("no reason is known");
        let message = format!("fields of leads are not written: {reason}");
        found.push(
            Problem::new(FindingKind::LeadFields, message, status.check())
                .with_values([reason.to_owned()]),
        );
    }
    for field in fields.fields.iter().filter(|field| !field.ok) {
        let name = format!("--lead-field {}={}", field.name, field.id);
        let message = format!("{name}: {}", field.message);
        let values = [name, field.message.clone()];
        let unwritten = Problem::new(FindingKind::LeadFields, message, status.check());
        found.push(unwritten.with_code("lead_field", values));
    }
}

fn books(status: &Status, found: &mut Vec<Problem>) {
    if !status.books.balance() {
        let message = "the books do not add up. This is a bug of callbridge: report it with this";
        found.push(
            Problem::new(FindingKind::Books, message, status.command("status --json"))
                .with_values([]),
        );
    }
}

#[cfg(test)]
#[path = "findings_tests.rs"]
mod tests;
