//! The values beneath the lanes, each with the event that decided it.

use super::canvas::Canvas;
use super::{MARGIN, WIDTH};
use crate::explain::story::{Times, short};
use crate::explain::text::Explained;

/// Columns: name, value, time, channel, words; and how many characters each may hold.
const COLUMNS: [f64; 5] = [MARGIN, 150.0, 415.0, 592.0, 822.0];
const MOST: [usize; 5] = [20, 40, 26, 34, 70];
const ROW: f64 = 21.0;

/// The table; returns where it ends.
pub(super) fn draw(canvas: &mut Canvas, of: &Explained<'_>, times: &Times, top: f64) -> f64 {
    let mut y = top;
    canvas.text("h3", MARGIN, y, "The values, and what decided each");
    if !of.judged.message.is_empty() {
        y += ROW;
        canvas.text("dim", MARGIN, y, &short(&of.judged.message, 190));
    }
    for row in of.rows() {
        canvas.line("rule", (MARGIN, y + 6.5), (WIDTH - MARGIN, y + 6.5));
        y += ROW;
        let (when, channel) = match &row.by {
            Some((at, channel)) => (
                format!("{}  {}", times.clock(*at), times.after(*at)),
                channel.clone(),
            ),
            None => (String::new(), String::new()),
        };
        let cells = [row.name.to_owned(), row.value, when, channel, row.words];
        let classes = ["dim", "value", "mono dim", "mono", "words"];
        for (i, cell) in cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| !cell.is_empty())
        {
            canvas.text(classes[i], COLUMNS[i], y, &short(cell, MOST[i]));
        }
    }
    for remark in &of.judged.remarks {
        y += ROW;
        canvas.text("dim", MARGIN, y, &short(remark, 190));
    }
    y + 8.0
}
