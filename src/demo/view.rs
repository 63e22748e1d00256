//! What the demo shows: a live table on a terminal, a line an event elsewhere, or JSON lines.

use crate::cli::dispatch::print;
use crate::cli::exit::Failure;
use crate::ops::Status;
use crate::spool::{Row, RowId, State};
use callbridge_call::Direction;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A table drawn anew, with colour.
    Live {
        /// The terminal's width.
        width: usize,
    },
    /// A line an event, without escapes.
    Plain,
    /// A JSON line an event.
    Json,
}

/// Remembers what was shown.
pub struct View {
    form: Form,
    shown: BTreeMap<RowId, State>,
    lines_drawn: usize,
}

fn direction(row: &Row) -> &'static str {
    match row.record.direction {
        Direction::Inbound => "in",
        Direction::Outbound => "out",
        Direction::Internal => "internal",
    }
}

/// `journaled`, `failed: dead letter`, `no_lead: parked`
fn stand(row: &Row) -> String {
    match (row.state, row.reason) {
        (State::Dead, Some(reason)) => format!("{reason}: dead letter"),
        (State::Parked, Some(reason)) => format!("{reason}: parked"),
        (state, _) => state.word().to_owned(),
    }
}

const fn colour(state: State) -> &'static str {
    match state {
        State::Journaled => "32",
        State::Dead => "31",
        State::Parked => "33",
        State::Ready | State::Sending | State::Submitted | State::Discarded => "36",
    }
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

fn columns(row: &Row) -> String {
    let record = &row.record;
    let phone = record
        .client_phone
        .as_ref()
        .map_or("hidden", |phone| phone.as_str());
    let lead = record
        .lead_id
        .map_or_else(|| "-".to_owned(), |lead| lead.to_string());
    let who = match (&record.employee, record.answered) {
        (Some(employee), true) => format!("{employee} talked {} s", record.talk_time_sec),
        (Some(employee), false) => format!("missed by {employee}"),
        (None, true) => format!("talked {} s", record.talk_time_sec),
        (None, false) => "missed".to_owned(),
    };
    format!("{:<4} {phone:<14} lead {lead:<5} {who:<16}", direction(row))
}

impl View {
    /// Nothing shown yet.
    pub const fn new(form: Form) -> Self {
        Self {
            form,
            shown: BTreeMap::new(),
            lines_drawn: 0,
        }
    }

    /// A word on what goes on.
    ///
    /// # Errors
    /// When stdout is broken.
    pub fn say(&self, words: &str) -> Result<(), Failure> {
        match self.form {
            Form::Live { .. } | Form::Plain => print(format!("{words}\n").as_bytes()),
            Form::Json => print(format!("{}\n", json!({ "say": words })).as_bytes()),
        }
    }

    /// The calls and the books as they stand now.
    ///
    /// # Errors
    /// When stdout is broken.
    pub fn update(&mut self, rows: &[Row], status: &Status, left_sec: i64) -> Result<(), Failure> {
        match self.form {
            Form::Live { width } => self.draw(rows, status, left_sec, width),
            Form::Plain | Form::Json => self.tell(rows),
        }
    }

    fn tell(&mut self, rows: &[Row]) -> Result<(), Failure> {
        for row in rows {
            if self.shown.insert(row.id, row.state) == Some(row.state) {
                continue;
            }
            let text = match self.form {
                Form::Json => json!({
                    "id": row.id, "state": row.state, "reason": row.reason, "call": row.record,
                })
                .to_string(),
                Form::Live { .. } | Form::Plain => format!("{} {}", columns(row), stand(row)),
            };
            print(format!("{text}\n").as_bytes())?;
        }
        Ok(())
    }

    fn draw(
        &mut self,
        rows: &[Row],
        status: &Status,
        left_sec: i64,
        width: usize,
    ) -> Result<(), Failure> {
        let mut text = String::new();
        if self.lines_drawn > 0 {
            let _ = write!(text, "\x1b[{}A", self.lines_drawn);
        }
        let mut lines = 0;
        let mut line = |plain: String, code: &str| {
            lines += 1;
            let _ = writeln!(text, "\x1b[2K\x1b[{code}m{}\x1b[0m", cut(&plain, width));
        };
        for row in rows {
            line(
                format!("  {} {}", columns(row), stand(row)),
                colour(row.state),
            );
        }
        let playing = if left_sec > 0 {
            format!("  the PBX tells its calls, {left_sec} s to go")
        } else {
            "  the PBX has told all its calls".to_owned()
        };
        line(playing, "2");
        let (books, budget) = (&status.books, &status.budget);
        line(
            format!(
                "  books: {} = {} waiting + {} journaled + {} dead + {} parked; {} of {} requests",
                books.finished,
                books.ready + books.sending + books.submitted,
                books.journaled,
                books.dead,
                books.parked,
                budget.used,
                budget.limit
            ),
            "1",
        );
        self.lines_drawn = lines;
        print(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_to_the_terminal() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
    }
}
