//! Columns showing calls by outcome, which the template draws as SVG. The drawing is stretched to
//! the available width, so text is placed outside of it.

use crate::backend::{Bar, Outcomes};

/// The height of the drawing and the distance between two columns, in the drawing's units.
const HEIGHT: u64 = 1000;
const STEP: usize = 10;

/// The part of a column for one outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The outcome's style class, which is `journaled`, `forwarded`, `queued`, `waiting`,
    /// `letters`, or `discarded`.
    pub(crate) class: &'static str,
    pub(crate) y: u64,
    pub(crate) height: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) x: usize,
    pub(crate) from: i64,
    pub(crate) outcomes: Outcomes,
    pub(crate) pieces: Vec<Piece>,
}

/// The columns, along with their common scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chart {
    pub(crate) columns: Vec<Column>,
    /// Number of calls at full height.
    pub(crate) top: u64,
    pub(crate) width: usize,
    pub(crate) total: u64,
    /// Whether a hub has stored some of the calls.
    pub(crate) forwards: bool,
}

impl Chart {
    pub(crate) fn from_bars(bars: &[Bar]) -> Self {
        let most = bars.iter().map(|bar| bar.outcomes.total()).max();
        let top = round_up(most.unwrap_or(0));
        let columns = bars.iter().enumerate().map(|(at, bar)| Column {
            x: at * STEP + 1,
            from: bar.from,
            outcomes: bar.outcomes,
            pieces: pieces(&bar.outcomes, top),
        });
        Self {
            columns: columns.collect(),
            top,
            width: bars.len().max(1) * STEP,
            total: bars.iter().map(|bar| bar.outcomes.total()).sum(),
            forwards: bars.iter().any(|bar| bar.outcomes.forwarded > 0),
        }
    }
}

fn pieces(outcomes: &Outcomes, top: u64) -> Vec<Piece> {
    let parts = [
        ("journaled", outcomes.journaled),
        ("forwarded", outcomes.forwarded),
        ("queued", outcomes.queued),
        ("waiting", outcomes.waiting),
        ("letters", outcomes.letters),
        ("discarded", outcomes.discarded),
    ];
    let mut pieces = Vec::new();
    let mut sum = 0;
    for (class, calls) in parts.into_iter().filter(|(_, calls)| *calls > 0) {
        let below = level(sum, top);
        sum += calls;
        // Even small values must be visible.
        let y = level(sum, top).min(below.saturating_sub(HEIGHT / 100));
        let height = below - y;
        pieces.push(Piece { class, y, height });
    }
    pieces
}

/// Returns the y coordinate for this number of calls, which ranges from `HEIGHT` for none to 0 for
/// `top` calls.
fn level(calls: u64, top: u64) -> u64 {
    HEIGHT - (calls.saturating_mul(HEIGHT) / top).min(HEIGHT)
}

/// Returns the smallest of 4, 8, 10, 20, 40, 80, 100, and so on that's at least `most`. Half of
/// each of these is a whole number.
fn round_up(most: u64) -> u64 {
    let mut scale: u64 = 1;
    loop {
        for step in [4, 8, 10, 20] {
            let top = scale.saturating_mul(step);
            if top >= most || top == u64::MAX {
                return top;
            }
        }
        scale = scale.saturating_mul(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_column_shows_total_calls_split_by_outcome() {
        let outcomes = Outcomes {
            journaled: 6,
            queued: 0,
            waiting: 0,
            letters: 2,
            discarded: 0,
            forwarded: 0,
        };
        let bars = [outcomes, Outcomes::default()].map(|outcomes| Bar { from: 0, outcomes });
        let chart = Chart::from_bars(&bars);
        assert_eq!((chart.top, chart.total, chart.width), (8, 8, 20));
        let pieces: Vec<_> = chart.columns[0]
            .pieces
            .iter()
            .map(|piece| (piece.class, piece.y, piece.height))
            .collect();
        assert_eq!(pieces, [("journaled", 250, 750), ("letters", 0, 250)]);
        assert!(chart.columns[1].pieces.is_empty());
    }

    #[test]
    fn single_call_among_thousands_is_visible_without_overflow() {
        let outcomes = Outcomes {
            journaled: 100_000,
            letters: 1,
            ..Outcomes::default()
        };
        let chart = Chart::from_bars(&[Bar { from: 0, outcomes }]);
        assert!(chart.columns[0].pieces[1].height >= 10);
        let endless = Outcomes {
            journaled: u64::MAX,
            ..Outcomes::default()
        };
        let bar = Bar {
            from: 0,
            outcomes: endless,
        };
        assert_eq!(Chart::from_bars(&[bar]).columns[0].pieces.len(), 1);
        assert_eq!(Chart::from_bars(&[]).top, 4);
    }
}
