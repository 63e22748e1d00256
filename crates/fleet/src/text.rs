//! The table for people: who is silent first, in red.

use callbridge_model::status::fleet::{FleetMember, FleetRole, FleetTable, FleetToken, Liveness};
use callbridge_model::{safe, status::seconds_in_words, status::text::TextStyle};
use std::fmt::Write as _;

/// Most characters of a cell; longer ones are cut.
const CELL_CHARACTERS_MAX: usize = 28;
/// The longest trouble, which ends a line.
const TROUBLE_CHARACTERS_MAX: usize = 100;
const RED: &str = "31";
const YELLOW: &str = "33";

const HEAD: [&str; 11] = [
    "WHO", "NAME", "HOST", "VERSION", "LAST", "FINISHED", "SENT", "WAITING", "LETTERS", "GAPS",
    "SOURCES",
];

/// Renders the whole table, with the faults of the fleet before it.
pub fn render(table: &FleetTable, style: &TextStyle) -> String {
    let mut text = String::new();
    for trouble in &table.troubles {
        let _ = writeln!(text, "{}", style.paint(RED, &safe(&trouble.what)));
    }
    let rows: Vec<[String; 11]> = table.members.iter().map(|it| row(it, table.at)).collect();
    let mut widths = HEAD.map(str::len);
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    if !rows.is_empty() {
        let head = line(&HEAD.map(str::to_owned), &widths);
        let _ = writeln!(text, "{}", head.trim_end());
    }
    for (member, row) in table.members.iter().zip(&rows) {
        let what = member.trouble.as_ref().map(|it| safe(&it.what));
        let what = cut(&what.unwrap_or_default(), TROUBLE_CHARACTERS_MAX);
        let line = line(row, &widths) + &what;
        let line = line.trim_end();
        let painted = match (member.speech, &member.trouble) {
            (Liveness::Silent, _) => style.paint(RED, line),
            (_, Some(_)) => style.paint(YELLOW, line),
            (Liveness::Stopped | Liveness::Speaking, None) => line.to_owned(),
        };
        let _ = writeln!(text, "{painted}");
    }
    for token in &table.tokens {
        let _ = writeln!(text, "token    {}", of_token(token));
    }
    let _ = writeln!(text, "total    {}", total(table));
    if !table.skipped.is_empty() {
        let each = table.skipped.iter();
        let each = each.map(|(why, count)| format!("{count} {why}"));
        let each = Vec::from_iter(each).join(", ");
        let _ = writeln!(text, "skipped  messages that are no status reports: {each}");
    }
    text
}

fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Words to the left, numbers to the right.
fn line(cells: &[String; 11], widths: &[usize; 11]) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let _ = match (5..10).contains(&at) {
            true => write!(line, "{cell:>width$}  "),
            false => write!(line, "{cell:<width$}  "),
        };
    }
    line
}

fn row(member: &FleetMember, now: i64) -> [String; 11] {
    let word = &member.word;
    let out = match word.role {
        FleetRole::Collector => word.books.forwarded,
        FleetRole::Sender => word.books.journaled,
    };
    let role = match &word.lease {
        Some(lease) if lease.held => "sender*",
        Some(_) => "standby",
        None => word.role.word(),
    };
    let up = word.sources.iter().filter(|it| it.state.is_up()).count();
    let age = now.saturating_sub(member.heard_at).max(0).unsigned_abs();
    [
        role.to_owned(),
        cut(&safe(&word.instance), CELL_CHARACTERS_MAX),
        cut(&safe(&word.hostname), CELL_CHARACTERS_MAX),
        cut(&safe(&word.version), CELL_CHARACTERS_MAX),
        seconds_in_words(age),
        word.books.finished.to_string(),
        out.to_string(),
        word.backlog.calls.to_string(),
        word.letters.to_string(),
        word.gaps.count.to_string(),
        format!("{up}/{}", word.sources.len()),
    ]
}

fn of_token(it: &FleetToken) -> String {
    let company = it.token.company.as_deref();
    let company = company.unwrap_or("a company not known yet");
    let lease = match it.holder.as_deref() {
        None => String::new(),
        Some("") => ", nobody holds the lease".to_owned(),
        Some(host) => format!(", held by {}", cut(&safe(host), CELL_CHARACTERS_MAX)),
    };
    let senders = counted(it.senders, "sender");
    let drain = seconds_in_words(it.backlog.drain_sec);
    let waiting = match it.backlog.calls {
        0 => "nothing waits".to_owned(),
        calls => format!("{calls} wait, sent in {drain}"),
    };
    format!(
        "{} ({}): {senders}{lease}, {waiting}, {} letters",
        cut(&safe(company), CELL_CHARACTERS_MAX),
        safe(&it.token.print),
        it.letters
    )
}

/// The count with its noun: `1 sender`, `2 senders`.
fn counted(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

fn total(table: &FleetTable) -> String {
    let it = &table.totals;
    let silent = match (it.silent, it.stopped) {
        (0, 0) => "all report".to_owned(),
        (silent, 0) => format!("{silent} silent"),
        (0, stopped) => format!("{stopped} stopped"),
        (silent, stopped) => format!("{silent} silent, {stopped} stopped"),
    };
    format!(
        "{}, {}: {silent}; {} forwarded, {} journaled, {} wait, {} gaps, {} letters",
        counted(it.collectors, "collector"),
        counted(it.senders, "sender"),
        it.forwarded,
        it.journaled,
        it.waiting,
        it.gaps,
        it.letters
    )
}

#[cfg(test)]
#[path = "text_tests.rs"]
mod tests;
