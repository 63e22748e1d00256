//! Shows dead letters to people: one line for each, all details of one, or CSV for a spreadsheet.

use crate::explain::line::cut;
use callbridge_call::EventTime;
use callbridge_model::{CallRecord, Zone, safe};
use serde_json::Value;
use std::fmt::Write as _;

/// The columns of `dead export --format csv`.
pub const CSV_COLUMNS: &str = "id,reason,since,message,uuid,linkedid,trunk,direction,answered,\
                               clientPhone,leadId,employee,startedAt,durationSec,talkTimeSec,\
                               employeeId,state";

/// Returns a JSON value as plain text. Arrays and objects stay JSON. A missing value is empty text.
fn plain_text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// Returns the field `name` of the dead letter. If the dead letter lacks the field, returns the
/// field of its call.
fn field(letter: &Value, name: &str) -> String {
    let own = letter.get(name).filter(|value| !value.is_null());
    plain_text(own.or_else(|| letter.get("call").and_then(|call| call.get(name))))
}

fn seconds(letter: &Value, name: &str) -> Option<i64> {
    field(letter, name).parse().ok()
}

fn time(letter: &Value, name: &str, zone: &Zone) -> String {
    seconds(letter, name).map_or_else(String::new, |at| zone.second(at))
}

/// Returns one dead letter as a row of [`CSV_COLUMNS`]. Values are not changed here. Values that a
/// spreadsheet would take as a formula are guarded when the row is written.
pub fn csv_row(letter: &Value) -> impl Iterator<Item = String> {
    CSV_COLUMNS.split(',').map(|name| field(letter, name))
}

/// Terminal width below which times in a list have no year and no seconds.
const NARROW: usize = 120;

fn columns(id: &str, reason: &str, since: &str, phone: &str, why: &str, width: usize) -> String {
    let line = if width < NARROW {
        format!("{id:>5} {reason:<21} {since:<11} {phone:<13} {why}")
    } else {
        format!("{id:>6}  {reason:<21}  {since:<24}  {phone:<16}  {why}")
    };
    cut(&line, width)
}

/// Returns the header of the list. If times are shown without a zone, the header names the zone of
/// the time in `first`.
pub fn list_head(first: &Value, width: usize, zone: &Zone) -> String {
    let at = EventTime::from_seconds(seconds(first, "since").unwrap_or_default());
    let since = if width < NARROW {
        format!("since ({})", zone.abbreviation(at))
    } else {
        "since".to_owned()
    };
    columns("id", "reason", &since, "phone", "why", width)
}

/// Returns one dead letter as a line of the list, at most `width` columns wide.
pub fn list_line(letter: &Value, width: usize, zone: &Zone) -> String {
    let since = if width < NARROW {
        seconds(letter, "since").map_or_else(String::new, |at| zone.short(at))
    } else {
        time(letter, "since", zone)
    };
    columns(
        &field(letter, "id"),
        &field(letter, "reason"),
        &since,
        &safe(&field(letter, "clientPhone")),
        &safe(&field(letter, "message")),
        width,
    )
}

/// Returns the extension and the CRM's id of the employee: `101, in the CRM 777`.
fn employee(letter: &Value) -> String {
    match (field(letter, "employee"), field(letter, "employeeId")) {
        (extension, id) if id.is_empty() => extension,
        (extension, id) if extension.is_empty() => format!("in the CRM {id}"),
        (extension, id) => format!("{extension}, in the CRM {id}"),
    }
}

/// Returns the values of the call that a person corrected, as text. Returns `None` if no value was
/// corrected.
fn values_by_hand(letter: &Value) -> Option<String> {
    let call: CallRecord = serde_json::from_value(letter.get("call")?.clone()).ok()?;
    call.by_hand_message()
}

/// The column at which values begin.
const INDENT: usize = 15;

/// Breaks a value into lines that fit a terminal of `width` columns.
fn wrap(value: &str, width: usize) -> String {
    let room = width.saturating_sub(INDENT).max(20);
    let mut lines: Vec<String> = Vec::new();
    for paragraph in value.trim_end().split('\n') {
        let mut line = String::new();
        for word in safe(paragraph).split(' ') {
            let length = line.chars().count();
            if length > 0 && length + 1 + word.chars().count() > room {
                lines.push(std::mem::take(&mut line));
            } else if length > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join(&format!("\n{}", " ".repeat(INDENT)))
}

/// Returns all details of one dead letter, wrapped at `width` columns.
pub fn show(letter: &Value, width: usize, zone: &Zone) -> String {
    let mut text = String::new();
    let waits = match field(letter, "state").as_str() {
        "waiting" => ", waiting: it is sent automatically",
        _ => "",
    };
    let id = field(letter, "id");
    let reason = field(letter, "reason");
    let _ = writeln!(text, "dead letter {id}: {reason}{waits}");
    let mut line = |name: &str, value: String| {
        if !value.is_empty() {
            let _ = writeln!(text, "  {name:<12} {}", wrap(&value, width));
        }
    };
    line("since", time(letter, "since", zone));
    line("message", field(letter, "message"));
    line("errors", field(letter, "errors"));
    line("uuid", field(letter, "uuid"));
    line("linkedid", field(letter, "linkedid"));
    line("trunk", field(letter, "trunk"));
    line("direction", field(letter, "direction"));
    line("answered", field(letter, "answered"));
    line("phone", field(letter, "clientPhone"));
    line("lead", field(letter, "leadId"));
    line("employee", employee(letter));
    line("started", time(letter, "startedAt", zone));
    line("seconds", field(letter, "durationSec"));
    line("talk", field(letter, "talkTimeSec"));
    line("by hand", values_by_hand(letter).unwrap_or_default());
    line("source", field(letter, "source"));
    line("file", field(letter, "file"));
    line("bytes", field(letter, "length"));
    line("text", field(letter, "text").replace('\r', ""));
    for attempt in letter["attempts"].as_array().into_iter().flatten() {
        let message = format!(
            "{} {}",
            time(attempt, "at", zone),
            field(attempt, "message")
        );
        line("attempt", message);
    }
    for action in letter["actions"].as_array().into_iter().flatten() {
        let at = time(action, "at", zone);
        let who = field(action, "who");
        line("action", format!("{at} {who}: {}", field(action, "action")));
    }
    line("fix", field(letter, "fix"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::is_hostile;
    use serde_json::json;

    fn zone() -> Zone {
        Zone::from_name("Asia/Tashkent").expect("a zone")
    }

    fn letter() -> Value {
        json!({
            "id": 7, "reason": "failed", "since": 1_795_151_317, "message": "=no\nsuch lead",
            "uuid": "u", "linkedid": "1.2", "errors": null, "fix": "choose another",
            "attempts": [{"at": 1_795_151_317, "message": "FAILED"}],
            "actions": [{"at": 1_795_151_317, "who": "ana\u{7}", "action": "retry with lead 4002"}],
            "call": {"leadId": 4001, "clientPhone": "+998901110001", "answered": true},
        })
    }

    #[test]
    fn csv_row_has_every_column() {
        let row: Vec<String> = csv_row(&letter()).collect();
        assert_eq!(row.len(), CSV_COLUMNS.split(',').count());
        assert_eq!(row[3], "=no\nsuch lead");
        assert_eq!(row[9], "+998901110001");
        assert_eq!(row[10], "4001");
    }

    #[test]
    fn list_line_is_cut_to_the_terminal_width() {
        let line = list_line(&letter(), 60, &zone());
        assert_eq!(line.chars().count(), 60);
        assert!(line.ends_with('…') && !line.contains('\n'));
    }

    #[test]
    fn list_on_80_columns_shows_the_full_reason() {
        let mut letter = letter();
        letter["reason"] = "talk_exceeds_duration".into();
        letter["message"] = "5.600 s of talk in a call of 4.400 s".into();
        let list = format!(
            "{}\n{}",
            list_head(&letter, 80, &zone()),
            list_line(&letter, 80, &zone())
        );
        insta::assert_snapshot!(list, @r"
           id reason                since (+05) phone         why
            7 talk_exceeds_duration 11-20 10:08 +998901110001 5.600 s of talk in a call…
        ");
    }

    #[test]
    fn external_text_sends_no_control_codes_to_the_terminal() {
        let mut letter = letter();
        letter["message"] = "a\u{1b}[2J\u{9b}31m\u{7}b\u{202e}c\nd".into();
        for text in [show(&letter, 80, &zone()), list_line(&letter, 200, &zone())] {
            let order = text.chars().find(|c| is_hostile(*c) && *c != '\n');
            assert_eq!(order, None, "{text:?}");
            assert!(
                text.contains(r"a\u{1b}[2J\u{9b}31m\u{7}b\u{202e}c"),
                "{text}"
            );
        }
    }

    #[test]
    fn unreadable_text_is_shown_with_its_lines_aligned() {
        let letter = json!({
            "id": 8, "reason": "unreadable", "since": 1_795_151_317, "message": "no JSON",
            "fix": "mend the source", "source": "ws://pbx/", "length": 12,
            "text": "Event: x\r\ny\r\n",
        });
        insta::assert_snapshot!(show(&letter, 80, &zone()), @r"
        dead letter 8: unreadable
          since        2026-11-20 10:08:37 +05
          message      no JSON
          source       ws://pbx/
          bytes        12
          text         Event: x
                       y
          fix          mend the source
        ");
    }

    #[test]
    fn dead_letter_is_shown_in_full_with_its_fix() {
        insta::assert_snapshot!(show(&letter(), 80, &zone()), @r"
        dead letter 7: failed
          since        2026-11-20 10:08:37 +05
          message      =no
                       such lead
          uuid         u
          linkedid     1.2
          answered     true
          phone        +998901110001
          lead         4001
          attempt      2026-11-20 10:08:37 +05 FAILED
          action       2026-11-20 10:08:37 +05 ana\u{7}: retry with lead 4002
          fix          choose another
        ");
    }

    #[test]
    fn wide_list_shows_full_times_with_their_zone() {
        let line = list_line(&letter(), usize::MAX, &zone());
        assert!(line.contains("  2026-11-20 10:08:37 +05  "), "{line}");
        assert!(!list_head(&letter(), usize::MAX, &zone()).contains('('));
    }
}
