//! The books: kept in memory, written in the transaction that changes them. And what the log is
//! told about leads once that is committed, whoever asked.

use crate::{RowId, State};
use callbridge_leads::lead_field;
use callbridge_leads::lead_request::RequestKind;
use rusqlite::Connection;
use std::collections::BTreeMap;
use tracing::{info, warn};

/// Counter: calls that went to the lead that theirs was merged into.
pub(crate) const TO_SURVIVOR: &str = "calls_to_survivor";
/// Counter: calls that went on without their employee.
pub(crate) const DROPPED: &str = "employees_dropped";
/// Counter: values that were refused, FAILED or not settled in the end.
pub(crate) const GIVEN_UP: &str = "lead_fields_given_up";

/// A number of the books, in the order of their places. The words are stored: never change one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Book {
    Ready,
    Sending,
    Submitted,
    Journaled,
    Dead,
    Parked,
    Discarded,
    Forwarded,
    Finished,
    Internal,
    Skipped,
    Unreadable,
    /// Rows that the purge took; the book of their state still counts them.
    PurgedJournaled,
    PurgedDiscarded,
    /// Unreadable letters that are kept; no more than the limit.
    UnreadableKept,
    PurgedForwarded,
}

impl Book {
    pub(crate) const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the book of the calls in this state.
    pub(crate) const fn of(state: State) -> Self {
        Self::ALL[state as usize]
    }

    pub(crate) fn word(self) -> &'static str {
        self.into()
    }
}

/// Books and counters as of the running transaction, and how to get back: to a point of it by
/// a copy that was made there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counts: [i64; Book::ALL.len()],
    stored: [i64; Book::ALL.len()],
    pub(crate) named: BTreeMap<String, i64>,
    /// Amounts that the running transaction added to `named`, oldest first.
    added: Vec<(String, i64)>,
    /// Letters that the running transaction made, oldest first.
    letters: Vec<RowId>,
    /// Calls that came to be or changed their state in it, oldest first.
    moved: Vec<RowId>,
    /// Warnings for the log, once the transaction is committed.
    warnings: Vec<LeadWarning>,
}

impl Tally {
    pub(crate) fn load(db: &Connection) -> rusqlite::Result<Self> {
        let mut tally = Self::default();
        let mut all = db.prepare("SELECT name, count FROM books")?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(0)?;
            if let Some(book) = Book::ALL.iter().find(|book| book.word() == name) {
                tally.counts[*book as usize] = row.get(1)?;
            }
        }
        tally.stored = tally.counts;
        let mut all = db.prepare("SELECT name, count FROM counters")?;
        let rows = all.query_map([], |row| row.try_into())?;
        tally.named = rows.collect::<Result<_, _>>()?;
        Ok(tally)
    }

    pub(crate) fn get(&self, book: Book) -> i64 {
        self.counts[book as usize]
    }

    /// Unreadable messages that are kept as letters.
    pub(crate) fn unreadable_kept(&self) -> u64 {
        u64::try_from(self.get(Book::UnreadableKept)).unwrap_or(0)
    }

    pub(crate) fn add(&mut self, book: Book, by: i64) {
        self.counts[book as usize] += by;
    }

    /// Moves a call from one state's book to another's.
    pub(crate) fn shift(&mut self, from: State, to: State) {
        self.add(Book::of(from), -1);
        self.add(Book::of(to), 1);
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
        let changed = Book::ALL.iter().zip(self.counts).zip(self.stored);
        for ((book, count), _) in changed.filter(|((_, count), stored)| count != stored) {
            db.prepare_cached("INSERT OR REPLACE INTO books VALUES (?1, ?2)")?
                .execute((book.word(), count))?;
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

    /// Notes that the transaction is committed, and logs what it counted; returns the letters it
    /// made, and the calls that it moved.
    pub(crate) fn committed(&mut self) -> (Vec<RowId>, Vec<RowId>) {
        self.stored = self.counts;
        log_counted(&self.added);
        self.warnings.drain(..).for_each(|it| it.log());
        self.added.clear();
        let letters = std::mem::take(&mut self.letters);
        (letters, std::mem::take(&mut self.moved))
    }

    /// Takes back what the lost transaction has counted.
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

/// Warning for the log, on requests about leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeadWarning {
    /// Requests of this kind rest, for this reason.
    Rest(RequestKind, String),
    /// A field of `--lead-field` (`last_call=11`) is not sure to be a field of leads.
    Field(String, lead_field::Fit),
}

impl LeadWarning {
    pub(crate) fn log(&self) {
        match self {
            Self::Rest(RequestKind::LookUps, why) => {
                warn!(reason = %why, "leads of failed calls are not looked up for an hour");
            }
            Self::Rest(RequestKind::Fields, why) => {
                warn!(reason = %why, "fields of leads are not written for an hour");
            }
            Self::Field(field, fit) => warn!(field, reason = %fit, "--lead-field"),
        }
    }
}

/// Logs those of the counters that a person should see.
fn log_counted(added: &[(String, i64)]) {
    let grown = |name: &str| {
        let of = added.iter().filter(|(counter, _)| counter == name);
        let by: i64 = of.map(|(_, by)| by).sum();
        (by > 0).then_some(by)
    };
    if let Some(calls) = grown(TO_SURVIVOR) {
        info!(calls, "went on to the lead that theirs was merged into");
    }
    if let Some(calls) = grown(DROPPED) {
        warn!(
            calls,
            "went on without an employee whom the CRM does not know"
        );
    }
    if let Some(values) = grown(GIVEN_UP) {
        warn!(
            values,
            "of lead fields were given up: the CRM did not take them"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_has_its_own_place_and_word() {
        for (at, state) in State::ALL.iter().copied().enumerate() {
            assert_eq!(Book::of(state) as usize, at);
            assert_eq!(Book::ALL[at].word(), state.word());
        }
    }
}
