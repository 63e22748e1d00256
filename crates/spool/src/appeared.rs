//! The ids of the last letters that came to be, and of the last calls that moved.

use crate::RowId;
use std::collections::VecDeque;

/// Letters that are remembered: who looks twice a second misses none.
const REMEMBERED: usize = 65_536;

/// Moves of calls that are remembered: a call makes some four of them.
const MOVES_REMEMBERED: usize = 16_384;

/// Ids of rows in the order of their commits.
#[derive(Debug)]
pub(crate) struct Appeared {
    /// How many there were before the first that is remembered.
    before: u64,
    last: VecDeque<RowId>,
    most: usize,
}

impl Appeared {
    const fn new(most: usize) -> Self {
        Self {
            before: 0,
            last: VecDeque::new(),
            most,
        }
    }

    /// For letters.
    pub(crate) const fn letters() -> Self {
        Self::new(REMEMBERED)
    }

    /// For moves of calls.
    pub(crate) const fn moves() -> Self {
        Self::new(MOVES_REMEMBERED)
    }

    pub(crate) fn add(&mut self, rows: Vec<RowId>) {
        self.last.extend(rows);
        while self.last.len() > self.most {
            self.last.pop_front();
            self.before += 1;
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.before + self.last.len() as u64
    }

    /// At most `limit` after the first `seen`; `None` when they are forgotten.
    pub(crate) fn since(&self, seen: u64, limit: usize) -> Option<Vec<RowId>> {
        let skip = usize::try_from(seen.checked_sub(self.before)?).unwrap_or(usize::MAX);
        Some(self.last.iter().skip(skip).take(limit).copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_letters_are_remembered_and_all_are_counted() {
        let mut appeared = Appeared::letters();
        let n = i64::try_from(REMEMBERED).expect("small");
        appeared.add((1..=n + 3).map(RowId).collect());
        assert_eq!((appeared.before, appeared.last.len()), (3, REMEMBERED));
        assert_eq!(appeared.count(), REMEMBERED as u64 + 3);
        assert_eq!(appeared.last[0], RowId(4));
    }
}
