//! Compares the books (the counts of calls by state) with the rows.

use crate::tally::Tally;
use crate::{Book, Db, Error, State, Store};
use callbridge_model::Reason;

/// A book that doesn't match the rows: its name, its count, and the number of rows.
type WrongBook = (&'static str, i64, i64);

/// Counts all rows, returning the books that don't match. Reads the whole table of calls.
pub fn recount(store: &Store) -> Result<Vec<WrongBook>, Error> {
    recount_of(store, &store.tally)
}

/// Runs [`recount`] for a database that isn't a [`Store`].
pub(crate) fn recount_of(db: &Db, tally: &Tally) -> Result<Vec<WrongBook>, Error> {
    let mut rows = [0_i64; Book::ALL.len()];
    let text = "SELECT state, count(*) FROM calls GROUP BY state";
    for (state, count) in db.query_all(text, ())? {
        rows[Book::for_state(state) as usize] = count;
    }
    let books = &tally.counts;
    for (state, purged) in [
        (State::Journaled, Book::PurgedJournaled),
        (State::Discarded, Book::PurgedDiscarded),
        (State::Forwarded, Book::PurgedForwarded),
    ] {
        rows[Book::for_state(state) as usize] += books[purged as usize];
    }
    let states = State::ALL.len();
    rows[Book::Finished as usize] = rows[..states].iter().sum();
    let text = "SELECT count(*), CAST(coalesce(sum(length(bytes)), 0) AS BIGINT) FROM unreadable";
    let (kept, bytes) = db.query_one(text, ())?;
    rows[Book::UnreadableKept as usize] = kept;
    rows[Book::UnreadableBytes as usize] = bytes;
    let unread = [Book::UnreadableKept, Book::UnreadableBytes];
    let counted = (0..=states).chain(unread.map(|book| book as usize));
    let all = counted.map(|at| (Book::ALL[at].word(), books[at], rows[at]));
    let mut wrong: Vec<_> = all.filter(|(_, book, rows)| book != rows).collect();
    let text = "SELECT reason, CAST(sum(kept) AS BIGINT), CAST(sum(found) AS BIGINT) FROM (
             SELECT state, reason, count AS kept, 0 AS found FROM reason_counts
             UNION ALL
             SELECT state, reason, 0, count(*) FROM calls
             WHERE state IN ('dead', 'waiting') GROUP BY state, reason) AS counted
         GROUP BY state, reason HAVING sum(kept) <> sum(found)";
    for (reason, book, rows) in db.query_all::<(Reason, i64, i64)>(text, ())? {
        wrong.push((reason.word(), book, rows));
    }
    Ok(wrong)
}
