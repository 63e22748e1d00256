//! The books against the rows.

use crate::{Book, Db, Error, State, Store};
use callbridge_model::Reason;

/// Differences between the books and the rows, each as `(name, book, rows)`; empty when they agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recount {
    /// Books that disagree with the rows.
    pub wrong: Vec<(&'static str, i64, i64)>,
}

/// Counts all rows and compares with the books. Reads the whole table.
pub fn recount(store: &Store) -> Result<Recount, Error> {
    let mut rows = [0_i64; Book::ALL.len()];
    let text = "SELECT state, count(*) FROM calls GROUP BY state";
    for (state, count) in store.query_all(text, [])? {
        rows[Book::of(state) as usize] = count;
    }
    let purged = [
        (State::Journaled, Book::PurgedJournaled),
        (State::Discarded, Book::PurgedDiscarded),
        (State::Forwarded, Book::PurgedForwarded),
    ];
    for (state, purged) in purged {
        rows[Book::of(state) as usize] += store.tally.counts[purged as usize];
    }
    rows[Book::Finished as usize] = rows[..8].iter().sum();
    let kept = store.query_one("SELECT count(*) FROM unreadable", [])?;
    rows[Book::UnreadableKept as usize] = kept;
    let counted = (0..9).chain([Book::UnreadableKept as usize]);
    let all = counted.map(|place| {
        (
            Book::ALL[place].word(),
            store.tally.counts[place],
            rows[place],
        )
    });
    let mut wrong: Vec<_> = all.filter(|(_, book, rows)| book != rows).collect();
    wrong.extend(recount_letters(store)?);
    Ok(Recount { wrong })
}

/// Reasons whose letters are not as many as was kept.
fn recount_letters(db: &Db) -> Result<Vec<(&'static str, i64, i64)>, Error> {
    let text = "SELECT reason, sum(kept), sum(found) FROM (
             SELECT reason, count AS kept, 0 AS found FROM letters
             UNION ALL
             SELECT reason, 0, count(*) FROM calls
             WHERE state IN ('dead', 'parked') GROUP BY reason)
         GROUP BY reason HAVING sum(kept) != sum(found)";
    db.query_known(text, [], |(reason, kept, found): (Reason, i64, i64)| {
        Some((reason.word(), kept, found))
    })
}
