//! What the spool alone knows of how everything stands: with a daemon and without.

use super::{Employees, Status, UnknownEmployee};
use crate::intake::gap_log::{self, GapLog};
use crate::intake::unmatched::{self, UnmatchedLog};
use crate::spool::{Error, Store};

impl Status {
    /// What is kept, at this second, in this state folder.
    ///
    /// # Errors
    /// When the spool cannot be read.
    pub fn kept(store: &Store, at: i64, state: &str) -> Result<Self, Error> {
        let letters = store.letters_by_reason()?;
        let letters = letters.into_iter().filter(|(_, count)| *count > 0);
        // What cannot be read is told of by the daemon's start, which begins it anew.
        let gaps = GapLog::stored(store.meta(gap_log::KEY)?.as_deref()).unwrap_or_default();
        let unmatched = UnmatchedLog::stored(store.meta(unmatched::KEY)?.as_deref());
        let unknown = UnknownEmployee::all(store)?;
        let employees = (!unknown.is_empty()).then(|| Employees {
            unknown,
            ..Employees::default()
        });
        Ok(Self {
            employees,
            books: store.books(),
            version: format!("{} ({})", crate::VERSION, crate::COMMIT),
            at,
            state: state.to_owned(),
            last_call_at: store.newest_start(at)?,
            letters: letters
                .map(|(reason, count)| (reason.word().to_owned(), count))
                .collect(),
            gaps: gaps.listed(),
            unmatched: unmatched.unwrap_or_default().listed(),
            ..Self::default()
        })
    }
}
