//! The settings that mark a state which no process may use, because it's an unfinished copy or was
//! moved away.

use crate::db::Asked;
use crate::{Db, Error};

/// Setting in a state that is an unfinished copy of another state.
pub(crate) const UNFINISHED: &str = "spool.unfinished";
/// Setting in a state that was moved away. Its value is a [`MovedMark`].
pub(crate) const MOVED: &str = "spool.moved";
/// Setting in a state that was moved here from another place. Its value is the ID of that move.
pub(crate) const MOVED_HERE: &str = "spool.moved_here";

/// Query for the marks of an unusable state.
pub(crate) struct Marks(Asked<(String, String)>);

impl Marks {
    pub(crate) fn ask(db: &Db) -> Result<Self, Error> {
        let text = "SELECT key, value FROM meta WHERE key IN (?1, ?2) ORDER BY key";
        db.ask(text, [MOVED, UNFINISHED]).map(Self)
    }

    /// Returns an error if the state is an unfinished copy, or was moved away.
    pub(crate) fn refuse(self, db: &Db) -> Result<(), Error> {
        match self.0.first(db)? {
            None => Ok(()),
            Some((key, value)) if key == MOVED => {
                let moved = MovedMark::parse(&value);
                Err(Error::Moved(db.path.clone(), moved.to))
            }
            Some(_) => Err(Error::Unfinished(db.path.clone())),
        }
    }
}

/// Returns an error if the state is an unfinished copy, or was moved away.
pub(crate) fn refuse_unusable(db: &Db) -> Result<(), Error> {
    Marks::ask(db)?.refuse(db)
}

/// The mark of a state that was moved away: `ID PLACE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MovedMark {
    /// ID of the move. The state in the new place has the same ID ([`MOVED_HERE`]).
    pub(crate) id: String,
    /// The new place.
    pub(crate) to: String,
}

impl MovedMark {
    pub(crate) fn parse(value: &str) -> Self {
        let (id, to) = value.split_once(' ').unwrap_or((value, ""));
        Self {
            id: id.to_owned(),
            to: to.to_owned(),
        }
    }

    pub(crate) fn value(&self) -> String {
        format!("{} {}", self.id, self.to)
    }
}
