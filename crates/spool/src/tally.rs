//! The books: kept in memory, written in the transaction that changes them.

use crate::lead_log::{self, LeadWarning};
use crate::{RowId, State};
use rusqlite::Connection;
use std::collections::BTreeMap;

/// A number of the books. The words are stored: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Book {
    Finished,
    Of(State),
    Internal,
    Skipped,
    Unreadable,
    /// Rows that the purge took; the book of their state still counts them.
    PurgedJournaled,
    PurgedDiscarded,
    PurgedForwarded,
    /// Unreadable letters that are kept; no more than the limit.
    UnreadableKept,
}

pub(crate) const NAMES: [&str; 16] = [
    "ready",
    "sending",
    "submitted",
    "journaled",
    "dead",
    "parked",
    "discarded",
    "forwarded",
    "finished",
    "internal",
    "skipped",
    "unreadable",
    "purged_journaled",
    "purged_discarded",
    "unreadable_kept",
    "purged_forwarded",
];

/// The words of the books, in the order of their places.
pub(crate) fn words() -> Vec<String> {
    NAMES.map(str::to_owned).to_vec()
}

impl Book {
    pub(crate) const fn place(self) -> usize {
        match self {
            Self::Of(state) => state as usize,
            Self::Finished => 8,
            Self::Internal => 9,
            Self::Skipped => 10,
            Self::Unreadable => 11,
            Self::PurgedJournaled => 12,
            Self::PurgedDiscarded => 13,
            Self::UnreadableKept => 14,
            Self::PurgedForwarded => 15,
        }
    }
}

/// Books and counters as of the running transaction, and how to get back: to a point of it by
/// a copy that was made there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counts: [i64; NAMES.len()],
    stored: [i64; NAMES.len()],
    pub(crate) named: BTreeMap<String, i64>,
    /// What the running transaction added to `named`, oldest first.
    added: Vec<(String, i64)>,
    /// Letters that the running transaction made, oldest first.
    letters: Vec<RowId>,
    /// Calls that came to be or changed their state in it, oldest first.
    moved: Vec<RowId>,
    /// For the log, once it is committed.
    warnings: Vec<LeadWarning>,
}

impl Tally {
    pub(crate) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut tally = Self::default();
        let mut all = db.prepare("SELECT name, count FROM books")?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            if let Some(place) = NAMES.iter().position(|known| *known == name) {
                tally.counts[place] = row.get(1)?;
            }
        }
        tally.stored = tally.counts;
        let mut all = db.prepare("SELECT name, count FROM counters")?;
        let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        tally.named = rows.collect::<Result<_, _>>()?;
        Ok(tally)
    }

    pub(crate) fn get(&self, book: Book) -> i64 {
        self.counts[book.place()]
    }

    /// How many unreadable messages there are.
    pub(crate) fn unreadable_kept(&self) -> u64 {
        u64::try_from(self.get(Book::UnreadableKept)).unwrap_or(0)
    }

    pub(crate) fn add(&mut self, book: Book, by: i64) {
        self.counts[book.place()] += by;
    }

    pub(crate) fn count(&mut self, name: &str, by: u64) {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        let count = match self.named.get_mut(name) {
            Some(count) => count,
            None => self.named.entry(name.to_owned()).or_default(),
        };
        let by = by.min(i64::MAX - *count);
        *count += by;
        self.added.push((name.to_owned(), by));
    }

    /// Writes what has changed, inside the transaction.
    pub(crate) fn write(&self, db: &Connection) -> rusqlite::Result<()> {
        for (place, count) in self.counts.iter().enumerate() {
            if *count != self.stored[place] {
                db.prepare_cached("INSERT OR REPLACE INTO books VALUES (?1, ?2)")?
                    .execute((NAMES[place], count))?;
            }
        }
        let mut changed: Vec<&str> = self.added.iter().map(|(name, _)| name.as_str()).collect();
        changed.sort_unstable();
        changed.dedup();
        for name in changed {
            db.prepare_cached("INSERT OR REPLACE INTO counters VALUES (?1, ?2)")?
                .execute((name, self.named.get(name)))?;
        }
        Ok(())
    }

    pub(crate) fn letter(&mut self, row: RowId) {
        self.letters.push(row);
    }

    pub(crate) fn moved(&mut self, row: RowId) {
        self.moved.push(row);
    }

    pub(crate) fn warn(&mut self, warning: LeadWarning) {
        self.warnings.push(warning);
    }

    /// The transaction is committed, and the log told of it: the letters it made, and the calls
    /// that it moved.
    pub(crate) fn committed(&mut self) -> (Vec<RowId>, Vec<RowId>) {
        self.stored = self.counts;
        lead_log::counted(&self.added);
        self.warnings.drain(..).for_each(|it| it.log());
        self.added.clear();
        let letters = std::mem::take(&mut self.letters);
        (letters, std::mem::take(&mut self.moved))
    }

    /// The transaction is gone.
    pub(crate) fn rolled_back(&mut self) {
        self.counts = self.stored;
        for (name, by) in self.added.drain(..) {
            if let Some(count) = self.named.get_mut(&name) {
                *count -= by;
            }
        }
        self.letters.clear();
        self.moved.clear();
        self.warnings.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_own_place_and_word() {
        for (at, state) in State::ALL.iter().copied().enumerate() {
            assert_eq!(Book::Of(state).place(), at);
            assert_eq!(NAMES[at], state.word());
        }
    }
}
