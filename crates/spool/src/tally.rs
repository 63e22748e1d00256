//! The books (call counts by state) and other counters, which are kept in memory and written in the
//! same transaction that changes them. Warnings about leads are collected here too, and logged
//! after the commit.

use crate::db::Asked;
use crate::{Db, Error, RowId, State};
use callbridge_leads::lead_field;
use callbridge_leads::lead_request::RequestKind;
use callbridge_model::status::Books;
use std::collections::BTreeMap;
use tracing::{info, warn};

/// Name of the counter for calls sent with the lead that their own lead was merged into.
pub(crate) const TO_SURVIVOR: &str = "calls_to_survivor";
/// Name of the counter for calls sent without an employee that the CRM doesn't know.
pub(crate) const DROPPED: &str = "employees_dropped";
/// Name of the counter for lead field values that were refused, FAILED, or never settled.
pub(crate) const GIVEN_UP: &str = "lead_fields_given_up";

/// A count in the books. The variants start with the states, in the same order as in [`State`].
/// Their names are stored, so they must never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Book {
    Ready,
    Sending,
    Submitted,
    Journaled,
    Dead,
    Waiting,
    Discarded,
    Forwarded,
    Finished,
    Internal,
    Skipped,
    Unreadable,
    /// Rows deleted by the purge. The books still count their calls under the state they were in.
    PurgedJournaled,
    PurgedDiscarded,
    PurgedForwarded,
    /// Unreadable dead letters that are currently kept.
    UnreadableKept,
    /// Total size in bytes of the unreadable dead letters that are kept.
    UnreadableBytes,
}

impl Book {
    pub(crate) const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    pub(crate) const fn for_state(state: State) -> Self {
        Self::ALL[state as usize]
    }

    pub(crate) fn word(self) -> &'static str {
        self.into()
    }
}

/// The books and counters as of the running transaction. A copy made before the transaction is used
/// to restore them on a rollback, and to tell what the transaction changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) counts: [i64; Book::ALL.len()],
    pub(crate) named: BTreeMap<String, i64>,
    /// Calls that became dead letters or waiting calls in the running transaction, oldest first.
    pub(crate) letters: Vec<RowId>,
    /// New calls and state changes in the running transaction, oldest first.
    pub(crate) moved: Vec<RowId>,
    /// Warnings to log once the transaction is committed.
    pub(crate) warnings: Vec<LeadWarning>,
}

/// Queries for the stored books and counters, whose results are read later.
pub(crate) struct TallyQuestions {
    books: Asked<(String, i64)>,
    counters: Asked<(String, i64)>,
}

impl TallyQuestions {
    pub(crate) fn read(self, db: &Db) -> Result<Tally, Error> {
        let mut tally = Tally::default();
        for (name, count) in self.books.all(db)? {
            if let Some(book) = Book::ALL.iter().find(|book| book.word() == name) {
                tally.counts[*book as usize] = count;
            }
        }
        tally.named = self.counters.all(db)?.into_iter().collect();
        Ok(tally)
    }
}

impl Tally {
    pub(crate) fn ask(db: &Db) -> Result<TallyQuestions, Error> {
        Ok(TallyQuestions {
            books: db.ask("SELECT name, count FROM books", ())?,
            counters: db.ask("SELECT name, count FROM counters", ())?,
        })
    }

    pub(crate) fn get(&self, book: Book) -> u64 {
        u64::try_from(self.counts[book as usize]).unwrap_or(0)
    }

    /// Returns the books, in which `finished` always equals the sum of the states.
    pub(crate) fn books(&self) -> Books {
        Books {
            finished: self.get(Book::Finished),
            ready: self.get(Book::Ready),
            sending: self.get(Book::Sending),
            submitted: self.get(Book::Submitted),
            journaled: self.get(Book::Journaled),
            dead: self.get(Book::Dead),
            waiting: self.get(Book::Waiting),
            discarded: self.get(Book::Discarded),
            forwarded: self.get(Book::Forwarded),
            internal: self.get(Book::Internal),
            skipped: self.get(Book::Skipped),
            unreadable: self.get(Book::Unreadable),
        }
    }

    pub(crate) fn add(&mut self, book: Book, by: i64) {
        self.counts[book as usize] += by;
    }

    pub(crate) fn shift(&mut self, from: State, to: State) {
        self.add(Book::for_state(from), -1);
        self.add(Book::for_state(to), 1);
    }

    pub(crate) fn count(&mut self, name: &str, by: u64) {
        let count = self.named.entry(name.to_owned()).or_default();
        *count = count.saturating_add_unsigned(by);
    }

    /// Writes the books and counters that have changed since the copy `before`, within the
    /// transaction.
    pub(crate) fn write(&self, db: &Db, before: &Self) -> Result<(), Error> {
        for book in Book::ALL {
            let count = self.counts[*book as usize];
            if count != before.counts[*book as usize] {
                let text = "INSERT INTO books (name, count) VALUES (?1, ?2)
                     ON CONFLICT (name) DO UPDATE SET count = excluded.count";
                db.run(text, (book.word(), count))?;
            }
        }
        for (name, count) in &self.named {
            if before.named.get(name) != Some(count) {
                let text = "INSERT INTO counters (name, count) VALUES (?1, ?2)
                     ON CONFLICT (name) DO UPDATE SET count = excluded.count";
                db.run(text, (name, count))?;
            }
        }
        Ok(())
    }

    /// Logs what the operator should know about a committed transaction: the increase in some of
    /// the counters since the copy `before`, and any warnings.
    pub(crate) fn log(&mut self, before: &Self) {
        if let Some(calls) = self.growth(before, TO_SURVIVOR) {
            info!(
                calls,
                "sent calls with the lead that their lead was merged into"
            );
        }
        if let Some(calls) = self.growth(before, DROPPED) {
            warn!(
                calls,
                "sent calls without an employee whom the CRM does not know"
            );
        }
        if let Some(values) = self.growth(before, GIVEN_UP) {
            warn!(
                values,
                "gave up values of lead fields, because the CRM did not accept them"
            );
        }
        for warning in self.warnings.drain(..) {
            warning.log();
        }
    }

    /// Returns how much a counter has grown since the copy `before`, or `None` if it hasn't.
    fn growth(&self, before: &Self, name: &str) -> Option<i64> {
        let grown = self.named_count(name) - before.named_count(name);
        if grown > 0 { Some(grown) } else { None }
    }

    fn named_count(&self, name: &str) -> i64 {
        self.named.get(name).copied().unwrap_or(0)
    }
}

/// A warning to log about lead-related requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LeadWarning {
    /// Requests of this kind are paused for the given reason.
    Rest(RequestKind, String),
    /// A field in `--lead-field` (`last_call=11`) might not be a lead field in the CRM.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn book_index_and_word_match_each_state() {
        for (at, state) in State::ALL.iter().copied().enumerate() {
            assert_eq!(Book::for_state(state) as usize, at);
            assert_eq!(Book::ALL[at].word(), state.word());
        }
    }
}
