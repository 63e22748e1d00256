//! Shows `status` to people: the verdict first, then a few aligned lines.

use super::verdict::{count_with_noun, if_any};
use super::{
    Directory, Employees, ForwardStatus, HubStatus, LOSS_COUNTERS, LeadField, LeadFields,
    LeadershipStatus, OverallState, Role, SourceState, SourceStatus, Status, Webhooks,
};
use crate::safe::safe;
use crate::{Reason, Zone};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum number of gaps in the text. The newest are shown.
const GAPS_MAX: usize = 5;

/// Color and time zone of the text.
#[derive(Clone, Debug)]
pub struct TextStyle {
    pub color: bool,
    pub zone: Zone,
}

impl TextStyle {
    /// Colors the text with this ANSI code, if colors are on.
    pub fn paint(&self, code: &str, text: &str) -> String {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Formats a span: `2 h 05 min`, `3 min 20 s`, `12 s`.
pub fn seconds_in_words(seconds: u64) -> String {
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s} s"),
        (0, m, s) => format!("{m} min {s:02} s"),
        (h, m, _) => format!("{h} h {m:02} min"),
    }
}

impl Status {
    /// Returns the status for people: the verdict, the problems with their commands, then all
    /// figures.
    pub fn to_text(&self, style: &TextStyle) -> String {
        let mut text = self.head(style);
        if let Some(leadership) = &self.leadership {
            leadership.to_text(&mut text, style);
            if leadership.is_unknown() {
                return text;
            }
        }
        self.calls_to_text(&mut text, style);
        self.pace_to_text(&mut text);
        if self.forward.is_none() {
            self.token_to_text(&mut text, style);
        }
        if let Some(forward) = &self.forward {
            forward.to_text(&mut text, style);
        }
        if let Some(hub) = &self.hub {
            hub.to_text(&mut text, style);
        }
        if let Some(webhooks) = &self.webhooks {
            webhooks.to_text(&mut text, style);
        }
        if let Some(directory) = &self.directory {
            directory.to_text(&mut text);
        }
        if let Some(fields) = &self.lead_fields {
            fields.to_text(&mut text);
        }
        if let Some(line) = self.employees.as_ref().and_then(Employees::to_line) {
            let _ = writeln!(text, "{}", safe(&line));
        }
        for list in &self.lists {
            let file = safe(&list.file);
            let rows = list.rows;
            let kind = safe(&list.kind);
            let bad = if_any(list.bad, |bad| format!(", {bad} bad"));
            let _ = writeln!(text, "list     {file}: {rows} {kind}{bad}");
        }
        for source in &self.sources {
            source.to_text(&mut text, style);
        }
        self.losses_to_text(&mut text);
        self.gaps_to_text(&mut text, style);
        if !self.version.is_empty() {
            let version = safe(&self.version);
            let state = safe(&self.state);
            let _ = writeln!(text, "version  {version}, state {state}");
        }
        text
    }

    fn has_no_leader(&self) -> bool {
        let leadership = self.leadership.as_ref();
        leadership.is_some_and(|leadership| leadership.leader.is_none() && !leadership.is_unknown())
    }

    /// Returns the verdict and the problems, each with its command.
    fn head(&self, style: &TextStyle) -> String {
        let message = match self.verdict {
            OverallState::Ok => style.paint("1;32", "no problem found"),
            OverallState::Attention => match self.problems.len() {
                1 => style.paint("1;33", "1 problem needs attention"),
                many => style.paint("1;33", &format!("{many} problems need attention")),
            },
            OverallState::Down => match self.pause {
                Some(_) if self.forward.is_some() => style.paint("1;31", "nothing reaches the hub"),
                Some(_) => style.paint("1;31", "nothing reaches the CRM"),
                None if self.has_no_leader() => style.paint("1;31", "no process leads"),
                None => style.paint("1;31", "no source is up"),
            },
        };
        let mut text = format!("{message}\n");
        for problem in &self.problems {
            let code = match problem.kind.verdict() {
                OverallState::Down => "31",
                OverallState::Attention | OverallState::Ok => "33",
            };
            let _ = writeln!(
                text,
                "  {} {}",
                style.paint(code, "-"),
                safe(&problem.message)
            );
            let _ = writeln!(text, "      {}", style.paint("1", &safe(&problem.command)));
        }
        text
    }

    /// Returns the name of the source with this URL. For an unknown source, the URL.
    pub fn name_of<'a>(&'a self, url: &'a str) -> &'a str {
        let source = self.sources.iter().find(|source| source.url == url);
        source.map_or(url, SourceStatus::name)
    }

    fn calls_to_text(&self, text: &mut String, style: &TextStyle) {
        let b = &self.books;
        let balance = if b.balance() { "" } else { " (unbalanced!)" };
        let _ = writeln!(text, "books    {} finished{balance}", b.finished);
        let letters = self.dead_letter_count();
        // The other figures count calls. Without the messages, the sum equals the finished calls.
        let messages = if_any(letters.saturating_sub(b.dead), |messages| {
            format!(" (of which unreadable messages: {messages})")
        });
        let forwarded = if_any(b.forwarded, |forwarded| format!(", {forwarded} forwarded"));
        let _ = writeln!(
            text,
            "         {} ready, {} sending, {} submitted, {} journaled{forwarded}\n         \
             {letters} dead letters{messages}, {} waiting, {} discarded",
            b.ready, b.sending, b.submitted, b.journaled, b.waiting, b.discarded
        );
        let _ = writeln!(
            text,
            "         not among them: {} internal, {} left out by a flag, {} unreadable",
            b.internal, b.skipped, b.unreadable
        );
        if letters > 0 {
            let _ = writeln!(
                text,
                "dead     {letters}: {}",
                by_reason(&self.dead_letters)
            );
        }
        if b.waiting > 0 {
            let _ = writeln!(text, "waiting  {}: {}", b.waiting, by_reason(&self.waiting));
        }
        if let Some(at) = self.last_call_at {
            let _ = writeln!(text, "last     call of {}", style.zone.second(at));
        }
    }

    fn pace_to_text(&self, text: &mut String) {
        let budget = &self.budget;
        // Without a daemon there is no budget.
        if budget.limit > 0 {
            let next = if_any(budget.next_free_in_ms, |ms| {
                format!(", next free in {}.{} s", ms / 1000, ms % 1000 / 100)
            });
            let _ = writeln!(
                text,
                "budget   {} of {} requests used in {} s{next}",
                budget.used, budget.limit, budget.window_sec
            );
        }
        let waiting = match self.backlog.calls {
            0 => "empty".to_owned(),
            1 => "1 call".to_owned(),
            calls => format!("{calls} calls"),
        };
        // While sending is paused, this time does not run.
        let then = if self.pause.is_some() {
            " once it goes on"
        } else {
            ""
        };
        let drain = if_any(self.backlog.drain_sec, |seconds| {
            format!(", confirmed in about {}{then}", seconds_in_words(seconds))
        });
        let _ = writeln!(text, "backlog  {waiting}{drain}");
    }

    fn token_to_text(&self, text: &mut String, style: &TextStyle) {
        let token = &self.token;
        let _ = write!(text, "token    {}", safe(&token.state));
        if let Some(company) = &token.company {
            let _ = write!(text, ", company {}", safe(company));
        }
        if let Some(application) = &token.application {
            let _ = write!(text, ", application {}", safe(application));
        }
        if let Some(at) = token.expires_at {
            let _ = write!(text, ", expires {}", style.zone.second(at));
        }
        text.push('\n');
    }

    /// Adds the counters that can mean a lost call and are not 0.
    fn losses_to_text(&self, text: &mut String) {
        for (name, meaning) in LOSS_COUNTERS {
            if let Some(count) = self.losses.get(name) {
                let _ = writeln!(text, "counted  {count} {meaning} ({name})");
            }
        }
    }

    fn gaps_to_text(&self, text: &mut String, style: &TextStyle) {
        let skipped = self.gaps.len().saturating_sub(GAPS_MAX);
        for gap in self.gaps.iter().skip(skipped) {
            let seconds = seconds_in_words((gap.to - gap.from).max(0).unsigned_abs());
            let from = style.zone.second(gap.from);
            let to = style.zone.second(gap.to);
            let filled = if gap.filled {
                style.paint("32", "filled")
            } else {
                style.paint("33", "not filled")
            };
            let _ = writeln!(
                text,
                "gap      {from} to {to} ({seconds}), {filled}\n         of {}",
                safe(self.name_of(&gap.source))
            );
        }
        if skipped > 0 {
            let _ = writeln!(text, "         and {skipped} before them: see --json");
        }
    }
}

impl LeadershipStatus {
    fn to_text(&self, text: &mut String, style: &TextStyle) {
        match &self.leader {
            Some(leader) => {
                let name = safe(&leader.name);
                let since = style.zone.second(leader.since);
                let version = safe(&leader.version);
                let _ = writeln!(text, "leader   {name} since {since} (callbridge {version})");
            }
            None if self.is_unknown() => {
                let _ = writeln!(text, "leader   not known");
            }
            None => {
                let _ = writeln!(text, "leader   none");
            }
        }
        if let Some(micros) = self.round_trip_us {
            let _ = write!(text, "database {} per round trip", milliseconds(micros));
            if let Some(micros) = self.slowest_commit_us {
                let slowest = milliseconds(micros);
                let _ = write!(text, ", slowest commit of the last minute {slowest}");
            }
            text.push('\n');
        }
        if let Some(last) = &self.last_lost_session {
            let sessions = count_with_noun(self.lost_sessions, "session", "sessions");
            let at = style.zone.second(last.at);
            let reason = safe(&last.reason);
            let _ = writeln!(
                text,
                "         this process lost {sessions} with the database, the last one {at}: \
                 {reason}"
            );
        }
        for standby in &self.standbys {
            let name = safe(&standby.name);
            let since = style.zone.second(standby.since);
            let version = safe(&standby.version);
            let _ = writeln!(text, "standby  {name} since {since} (callbridge {version})");
        }
        if self.role == Role::Standby {
            let _ = writeln!(text, "         This process is a standby.");
        }
    }
}

/// Formats microseconds as milliseconds with one digit after the point.
fn milliseconds(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}

impl ForwardStatus {
    fn to_text(&self, text: &mut String, style: &TextStyle) {
        let hub = safe(&self.hub);
        let forwarded = self.forwarded;
        let ready = self.ready;
        let _ = writeln!(text, "hub      {hub}: {forwarded} forwarded, {ready} ready");
        if let Some(at) = self.answered_at {
            let _ = writeln!(text, "         last answer {}", style.zone.second(at));
        }
        if let Some(reason) = &self.reason {
            let _ = writeln!(text, "         not forwarded: {}", safe(reason));
        }
    }
}

impl HubStatus {
    fn to_text(&self, text: &mut String, style: &TextStyle) {
        let how = if self.tls { "HTTPS" } else { "HTTP" };
        let address = safe(&self.address);
        let branches = self.branches.len();
        let _ = writeln!(text, "hub      {address} ({how}), {branches} branches");
        for branch in &self.branches {
            if let (Some(at), Some(error)) = (branch.refused_at, &branch.refusal) {
                let (name, error) = (safe(&branch.branch), safe(error));
                let (lines, at) = (branch.refused, style.zone.second(at));
                let lines = count_with_noun(lines, "line", "lines");
                let _ = writeln!(text, "         {name}: {lines} refused, last {at}: {error}");
            }
        }
        if let Some(until) = self.silent_until {
            let until = style.zone.second(until);
            let _ = writeln!(
                text,
                "         stored calls were lost: nothing is sent to the CRM before {until}"
            );
        }
    }
}

impl Directory {
    fn to_text(&self, text: &mut String) {
        let Self { phones, leads, .. } = self;
        let _ = write!(text, "leads    {phones} numbers of {leads} leads");
        if let Some(state) = &self.backfill {
            let _ = write!(text, ", backfill {}", safe(state));
        }
        let _ = match &self.reason {
            Some(reason) => writeln!(text, ": {}", safe(reason)),
            None => writeln!(text),
        };
    }
}

impl LeadFields {
    fn to_text(&self, text: &mut String) {
        let state = safe(&self.state);
        let reason = match &self.reason {
            Some(reason) => format!(": {}", safe(reason)),
            None => String::new(),
        };
        let waiting = self.waiting;
        let _ = writeln!(text, "fields   {state}{reason}; {waiting} leads wait");
        for field in &self.fields {
            let mark = if field.ok { "" } else { ", left out" };
            let LeadField {
                name, id, message, ..
            } = field;
            let _ = writeln!(
                text,
                "         {} {id}: {}{mark}",
                safe(name),
                safe(message)
            );
        }
    }
}

impl Webhooks {
    fn to_text(&self, text: &mut String, style: &TextStyle) {
        let how = if self.tls { "HTTPS" } else { "HTTP" };
        let address = safe(&self.address);
        let state = safe(&self.state);
        let _ = write!(text, "webhooks {address} ({how}) {state}");
        if let Some(at) = self.last_event_at {
            let _ = write!(text, ", last event {}", style.zone.second(at));
        }
        let mut events = Vec::new();
        for (result, count) in &self.events {
            let result = safe(&result.replace('_', " "));
            events.push(format!("{count} {result}"));
        }
        if events.is_empty() {
            events.push("none so far".to_owned());
        }
        let _ = writeln!(text, "\n         {}", events.join(", "));
    }
}

/// Maximum clock difference that is not shown.
const CLOCK_DIFFERENCE_SHOWN_MS: u64 = 5_000;

/// Describes how far the PBX's clock differs from this machine's if it is more than 5 s.
pub fn clock_difference(ahead_ms: i64) -> Option<String> {
    if ahead_ms.unsigned_abs() <= CLOCK_DIFFERENCE_SHOWN_MS {
        return None;
    }
    let seconds = ahead_ms.unsigned_abs().div_ceil(1_000);
    let side = if ahead_ms > 0 { "ahead of" } else { "behind" };
    Some(format!(
        "the PBX's clock is {seconds} s {side} this machine's: calls have the PBX's times"
    ))
}

impl SourceStatus {
    fn to_text(&self, text: &mut String, style: &TextStyle) {
        let state = match self.state {
            SourceState::Up => style.paint("32", "up"),
            SourceState::Connected => style.paint("33", "connected, no event received yet"),
            SourceState::Down => style.paint("31", "down"),
            SourceState::Reading => style.paint("33", "reading"),
            SourceState::Done => style.paint("32", "done"),
        };
        let since = match self.down_since {
            Some(at) if !self.state.is_up() => format!(" since {}", style.zone.second(at)),
            _ => String::new(),
        };
        let name = safe(self.name());
        let url = safe(&self.url);
        let _ = writeln!(text, "source   {name} {state}{since}\n         {url}");
        if let Some(reason) = &self.reason {
            let _ = writeln!(text, "         {}", safe(reason));
        }
        if self.awaited > 0 {
            let calls = count_with_noun(self.awaited, "call waits", "calls wait");
            let _ = writeln!(
                text,
                "         {calls} for this file to fill in missing events"
            );
        }
        for right in &self.missing_rights {
            let _ = writeln!(text, "         {}", safe(&right.message));
        }
        if let Some(difference) = self.clock_ahead_ms.and_then(clock_difference) {
            let _ = writeln!(text, "         {difference}");
        }
        if let [_, _, ..] = self.switches.as_slice() {
            let names: Vec<String> = self
                .switches
                .iter()
                .map(|switch| format!("{} is {}", safe(&switch.name), safe(&switch.pbx)))
                .collect();
            let _ = writeln!(text, "         switches: {}", names.join(", "));
        }
        for other in &self.others {
            let _ = writeln!(text, "         {}", safe(&other.to_string()));
        }
        let last = self.last_event_at.map_or_else(String::new, |at| {
            format!(", last event {}", style.zone.second(at))
        });
        let _ = writeln!(
            text,
            "         events: {} read, {} not needed, {} repaired, {} unreadable\n         \
             gaps: {}{last}",
            self.read, self.skipped, self.repaired, self.unreadable, self.gaps
        );
        if self.too_long + self.dropped > 0 {
            let Self {
                too_long, dropped, ..
            } = self;
            let _ = writeln!(
                text,
                "         {too_long} longer than 1 MiB, {dropped} thrown away"
            );
        }
    }
}

/// Returns counts by reason as `2 failed, 1 conflict`, in the order of [`Reason::ALL`].
pub(super) fn by_reason(counts: &BTreeMap<String, u64>) -> String {
    let each = Reason::ALL.iter().filter_map(|reason| {
        let count = counts.get(reason.word()).filter(|count| **count > 0)?;
        Some(format!("{count} {reason}"))
    });
    each.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
