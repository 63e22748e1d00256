//! What the spool alone knows of how everything stands: with a daemon and without.

use super::Status;
use crate::spool::{Error, Store};

impl Status {
    /// What is kept, at this second, in this state folder.
    ///
    /// # Errors
    /// When the spool cannot be read.
    pub fn kept(store: &Store, at: i64, state: &str) -> Result<Self, Error> {
        let letters = store.letters_by_reason()?;
        let letters = letters.into_iter().filter(|(_, count)| *count > 0);
        Ok(Self {
            books: store.books(),
            version: format!("{} ({})", crate::VERSION, crate::COMMIT),
            at,
            state: state.to_owned(),
            last_call_at: store.newest_start()?,
            letters: letters
                .map(|(reason, count)| (reason.word().to_owned(), count))
                .collect(),
            ..Self::default()
        })
    }
}
