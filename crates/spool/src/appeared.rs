//! The ids of the last letters that came to be, and of the last calls that moved.

use crate::{Error, RowId};
use std::collections::{BTreeSet, VecDeque};

/// Letters that are remembered: who looks twice a second misses none.
pub(crate) const LETTERS: usize = 65_536;

/// Moves of calls that are remembered: a call makes some four of them.
pub(crate) const MOVES: usize = 16_384;

/// Ids of rows in the order of their commits.
#[derive(Debug)]
pub(crate) struct Appeared {
    /// Rows before the first that is remembered.
    before: u64,
    last: VecDeque<RowId>,
    most: usize,
}

impl Appeared {
    /// None yet; so many are remembered.
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            before: 0,
            last: VecDeque::new(),
            most,
        }
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

    /// Reads at most `limit` after the first `seen`, each once, and says how many are seen then;
    /// `None` when they are forgotten.
    pub(crate) fn read_since<T>(
        &self,
        seen: u64,
        limit: usize,
        read: impl Fn(RowId) -> Result<Option<T>, Error>,
    ) -> Result<Option<(Vec<T>, u64)>, Error> {
        let Some(skip) = seen.checked_sub(self.before) else {
            return Ok(None);
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let (mut through, mut known, mut found) = (seen, BTreeSet::new(), Vec::new());
        for id in self.last.iter().skip(skip).take(limit) {
            through += 1;
            if known.insert(*id) {
                found.extend(read(*id)?);
            }
        }
        Ok(Some((found, through)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_letters_are_remembered_and_all_are_counted() {
        let mut appeared = Appeared::new(LETTERS);
        let n = i64::try_from(LETTERS).expect("small");
        appeared.add((1..=n + 3).map(RowId).collect());
        assert_eq!((appeared.before, appeared.last.len()), (3, LETTERS));
        assert_eq!(appeared.count(), LETTERS as u64 + 3);
        assert_eq!(appeared.last[0], RowId(4));
    }
}
