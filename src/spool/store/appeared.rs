//! The last letters that came to be, for those who watch.

use super::Store;
use crate::spool::{Error, Letter, RowId};
use std::collections::{BTreeSet, VecDeque};

/// Letters that are remembered: who looks twice a second misses none.
const REMEMBERED: usize = 65_536;

/// Ids of letters in the order of their commits.
#[derive(Debug, Default)]
pub(super) struct Appeared {
    /// How many there were before the first that is remembered.
    before: u64,
    last: VecDeque<RowId>,
}

impl Appeared {
    pub(super) fn add(&mut self, letters: Vec<RowId>) {
        self.last.extend(letters);
        while self.last.len() > REMEMBERED {
            self.last.pop_front();
            self.before += 1;
        }
    }

    fn count(&self) -> u64 {
        self.before + self.last.len() as u64
    }
}

impl Store {
    /// How many letters came to be since the start of the process, the same one counted anew each
    /// time it dies. From here [`Store::letters_since`] goes on.
    pub fn letters_so_far(&self) -> u64 {
        self.appeared.count()
    }

    /// Letters that came to be after the first `seen`, at most `limit`, and how many are seen
    /// then. One that has left again is not among them. `None` when they are forgotten: there
    /// were more than 65,536 meanwhile.
    ///
    /// # Errors
    /// The disk, or a damaged file.
    pub fn letters_since(
        &self,
        seen: u64,
        limit: usize,
    ) -> Result<Option<(Vec<Letter>, u64)>, Error> {
        let Some(skip) = seen.checked_sub(self.appeared.before) else {
            return Ok(None);
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let ids: Vec<RowId> = self
            .appeared
            .last
            .iter()
            .skip(skip)
            .take(limit)
            .copied()
            .collect();
        let mut told = BTreeSet::new();
        let mut letters = Vec::new();
        for id in &ids {
            if told.insert(*id) {
                letters.extend(self.letter(*id)?);
            }
        }
        Ok(Some((letters, seen + ids.len() as u64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_letters_are_remembered_and_all_are_counted() {
        let mut appeared = Appeared::default();
        let n = i64::try_from(REMEMBERED).expect("small");
        appeared.add((1..=n + 3).map(RowId).collect());
        assert_eq!((appeared.before, appeared.last.len()), (3, REMEMBERED));
        assert_eq!(appeared.count(), REMEMBERED as u64 + 3);
        assert_eq!(appeared.last[0], RowId(4));
    }
}
