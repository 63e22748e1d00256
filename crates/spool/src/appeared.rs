//! The last letters that came to be, and the last calls that moved, for those who watch.

use crate::Store;
use crate::tables::letters;
use crate::tables::listed;
use crate::tables::listed::Listed;
use crate::{Error, Letter, RowId};
use std::collections::{BTreeSet, VecDeque};

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
    fn since(&self, seen: u64, limit: usize) -> Option<Vec<RowId>> {
        let skip = usize::try_from(seen.checked_sub(self.before)?).unwrap_or(usize::MAX);
        Some(self.last.iter().skip(skip).take(limit).copied().collect())
    }
}

/// Letters that came to be after the first `seen`, at most `limit`, and how many are seen
/// then. One that has left again is not among them. `None` when they are forgotten: there
/// were more than 65,536 meanwhile.
pub fn letters_since(
    store: &Store,
    seen: u64,
    limit: usize,
) -> Result<Option<(Vec<Letter>, u64)>, Error> {
    let Some(ids) = store.appeared.since(seen, limit) else {
        return Ok(None);
    };
    let mut told = BTreeSet::new();
    let mut letters = Vec::new();
    for id in &ids {
        if told.insert(*id) {
            letters.extend(letters::letter(store, *id)?);
        }
    }
    Ok(Some((letters, seen + ids.len() as u64)))
}

/// Calls that moved after the first `seen` moves, each once and as it stands now, and how many
/// moves are seen then. `None` when they are forgotten: there were more than 16,384 meanwhile.
pub fn moved_since(
    store: &Store,
    seen: u64,
    limit: usize,
) -> Result<Option<(Vec<Listed>, u64)>, Error> {
    let Some(ids) = store.moved.since(seen, limit) else {
        return Ok(None);
    };
    let mut told = BTreeSet::new();
    let mut calls = Vec::new();
    for id in ids.iter().filter(|id| told.insert(**id)) {
        calls.extend(listed::listed_call(store, *id)?);
    }
    Ok(Some((calls, seen + ids.len() as u64)))
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
