//! Bytes of a source that nobody could read.

use crate::op::{Done, RowId};
use crate::state::{Refused, State, Step};
use crate::store::Store;
use crate::tables::books::Book;
use crate::{Error, Left, UNREADABLE_BYTES_MAX, UNREADABLE_LETTERS_MAX};
use callbridge_call::EventTime;

impl Store {
    pub(crate) fn keep_unreadable(
        &mut self,
        source: &str,
        pbx: &str,
        bytes: &[u8],
        why: &str,
        at: EventTime,
    ) -> Result<Done, Error> {
        self.tally.add(Book::Unreadable, 1);
        if self.unreadable_kept() >= UNREADABLE_LETTERS_MAX {
            return Ok(Done::Unreadable(None));
        }
        let id = self.new_id();
        let length = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        let first = &bytes[..bytes.len().min(UNREADABLE_BYTES_MAX)];
        self.execute(
            "INSERT INTO unreadable (id, source, pbx, why, at, length, bytes)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            (id.0, source, pbx, why, at.micros(), length, first),
        )?;
        self.tally.add(Book::UnreadableKept, 1);
        self.queue_notice(id)?;
        Ok(Done::Unreadable(Some(id)))
    }

    /// How many of them there are.
    pub(crate) fn unreadable_kept(&self) -> u64 {
        u64::try_from(self.tally.get(Book::UnreadableKept)).unwrap_or(0)
    }

    /// Only `Discard` exists for such a letter: it is forgotten.
    pub(crate) fn step_unreadable(
        &mut self,
        row: RowId,
        step: &Step,
        at: EventTime,
    ) -> Result<Done, Error> {
        let discard = matches!(step, Step::Discard);
        if !discard {
            let mut found = self.prepare("SELECT 1 FROM unreadable WHERE id = ?1")?;
            if crate::store::sql(self, found.exists([row.0]))? {
                let state = State::Dead;
                let step = step.name();
                let refused = Refused { state, step };
                return Err(Error::Refused { row, refused });
            }
            return Err(Error::NoRow { row });
        }
        let letter = self.before_it_leaves(row)?;
        if self.execute("DELETE FROM unreadable WHERE id = ?1", [row.0])? == 0 {
            return Err(Error::NoRow { row });
        }
        self.remember_highest_id()?;
        self.tally.add(Book::UnreadableKept, -1);
        if let Some(letter) = letter {
            self.queue_leave(&letter, Left::Discarded, at)?;
        }
        Ok(Done::Stepped(State::Discarded))
    }
}
