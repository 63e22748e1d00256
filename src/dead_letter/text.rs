//! Letters for people: a line each, all of one, or CSV for a spreadsheet.

use serde_json::Value;
use std::fmt::Write as _;

/// The columns of `dead export --format csv`.
pub const CSV_COLUMNS: [&str; 15] = [
    "id",
    "reason",
    "since",
    "message",
    "uuid",
    "linkedid",
    "trunk",
    "direction",
    "answered",
    "clientPhone",
    "leadId",
    "employee",
    "startedAt",
    "durationSec",
    "talkTimeSec",
];

/// A value of a letter as plain text; nested ones as JSON, missing ones empty.
fn plain(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// A field of the letter, or of its call.
fn field(letter: &Value, name: &str) -> String {
    let own = letter.get(name).filter(|value| !value.is_null());
    plain(own.or_else(|| letter.get("call").and_then(|call| call.get(name))))
}

fn time(letter: &Value, name: &str) -> String {
    let seconds = field(letter, name).parse().ok();
    let at = seconds.and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    at.map_or_else(String::new, |at| at.to_string())
}

/// One letter as a row of [`CSV_COLUMNS`]. A cell that a spreadsheet would take for a formula
/// gets an apostrophe: its text came from outside.
pub fn csv_row(letter: &Value) -> Vec<String> {
    let cell = |name: &&str| {
        let text = field(letter, name);
        let phone = *name == "clientPhone";
        let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']) && !phone;
        if formula { format!("'{text}") } else { text }
    };
    CSV_COLUMNS.iter().map(cell).collect()
}

/// The head of the list for people.
pub fn list_head() -> String {
    format!(
        "{:>6}  {:<20}  {:<20}  {:<16}  why",
        "id", "reason", "since", "phone"
    )
}

/// One letter as a line of the list, at most `width` columns wide.
pub fn list_line(letter: &Value, width: usize) -> String {
    let line = format!(
        "{:>6}  {:<20}  {:<20}  {:<16}  {}",
        field(letter, "id"),
        field(letter, "reason"),
        time(letter, "since"),
        field(letter, "clientPhone"),
        field(letter, "message").replace(['\n', '\r', '\u{1b}'], " "),
    );
    if line.chars().count() <= width {
        return line;
    }
    let mut cut: String = line.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Everything about one letter.
pub fn show(letter: &Value) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "letter {}: {}",
        field(letter, "id"),
        field(letter, "reason")
    );
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {name:<12} {value}");
        }
    };
    line("since", time(letter, "since"));
    line("message", field(letter, "message"));
    line("errors", field(letter, "errors"));
    line("uuid", field(letter, "uuid"));
    line("linkedid", field(letter, "linkedid"));
    line("trunk", field(letter, "trunk"));
    line("direction", field(letter, "direction"));
    line("answered", field(letter, "answered"));
    line("phone", field(letter, "clientPhone"));
    line("lead", field(letter, "leadId"));
    line("employee", field(letter, "employee"));
    line("started", time(letter, "startedAt"));
    line("seconds", field(letter, "durationSec"));
    line("talk", field(letter, "talkTimeSec"));
    line("source", field(letter, "source"));
    line("bytes", field(letter, "bytes"));
    for attempt in letter
        .get("attempts")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        line(
            "attempt",
            format!("{} {}", time(attempt, "at"), field(attempt, "words")),
        );
    }
    line("what to do", field(letter, "hint"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn letter() -> Value {
        json!({
            "id": 7, "reason": "failed", "since": 1_795_151_317, "message": "=no\nsuch lead",
            "uuid": "u", "linkedid": "1.2", "errors": null, "hint": "choose another",
            "attempts": [{"at": 1_795_151_317, "words": "FAILED"}],
            "call": {"leadId": 4001, "clientPhone": "+998901110001", "answered": true},
        })
    }

    #[test]
    fn a_row_has_every_column_and_no_formula() {
        let row = csv_row(&letter());
        assert_eq!(row.len(), CSV_COLUMNS.len());
        assert_eq!(row[3], "'=no\nsuch lead");
        assert_eq!(row[9], "+998901110001");
        assert_eq!(row[10], "4001");
    }

    #[test]
    fn a_line_stays_within_the_terminal() {
        let line = list_line(&letter(), 60);
        assert_eq!(line.chars().count(), 60);
        assert!(line.ends_with('…') && !line.contains('\n'));
    }

    #[test]
    fn everything_is_shown_with_what_to_do() {
        insta::assert_snapshot!(show(&letter()), @r"
        letter 7: failed
          since        2026-11-20T05:08:37Z
          message      =no
        such lead
          uuid         u
          linkedid     1.2
          answered     true
          phone        +998901110001
          lead         4001
          attempt      2026-11-20T05:08:37Z FAILED
          what to do   choose another
        ");
    }
}
