//! What the demo shows: a live table on a terminal, a line an event elsewhere, or JSON lines.

use crate::{Failure, print};
use callbridge_admin::explain::line::{OneLine, cut};
use callbridge_model::Status;
use callbridge_spool::{Row, RowId, State};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// How to show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A table drawn anew, with colour.
    Live { width: usize },
    /// A line an event, without escapes.
    Plain,
    /// A JSON line an event.
    Json,
}

/// Remembers what was shown.
pub(crate) struct View {
    form: Form,
    shown: BTreeMap<RowId, State>,
    lines_drawn: usize,
}

fn line_of(row: &Row) -> OneLine {
    OneLine::of(&row.record, row.state, row.reason)
}

impl View {
    pub(crate) const fn new(form: Form) -> Self {
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
    pub(crate) fn say(&self, words: &str) -> Result<(), Failure> {
        match self.form {
            Form::Live { .. } | Form::Plain => print(format!("{words}\n").as_bytes()),
            Form::Json => print(format!("{}\n", json!({ "say": words })).as_bytes()),
        }
    }

    /// The calls and the books as they stand now.
    ///
    /// # Errors
    /// When stdout is broken.
    pub(crate) fn update(
        &mut self,
        rows: &[Row],
        status: &Status,
        left_sec: i64,
    ) -> Result<(), Failure> {
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
                Form::Live { .. } | Form::Plain => {
                    let line = line_of(row);
                    format!("{} {}", line.columns(), line.stand())
                }
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
            let call = line_of(row);
            line(
                format!("  {} {}", call.columns(), call.stand()),
                call.colour(),
            );
        }
        let playing = if left_sec > 0 {
            format!("  calls are being played, {left_sec} s to go")
        } else {
            "  all calls have been played".to_owned()
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
