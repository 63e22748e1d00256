//! What the stream of the calls is told of those that came to their end here.

use crate::db::{Columns as _, count};
use crate::{Db, Error, OutcomeSource, RowId, State, Step, Store};
use callbridge_formats::message::Outcomes;

/// Outcomes that are kept at most while the stream does not take them: the oldest are forgotten,
/// for a state made anew finds those calls in the journal.
const OUTCOMES_MAX: i64 = 100_000;

/// Queues the outcome of a call that came to its end here for the stream, where there is one. An
/// outcome that came by the stream is in it already.
pub(crate) fn queue_outcome(
    store: &Store,
    row: RowId,
    to: State,
    step: &Step,
) -> Result<(), Error> {
    let by_stream = matches!(
        step,
        Step::Discard { by_peer: true } | Step::Journaled(OutcomeSource::Stream)
    );
    let again = matches!(
        step,
        Step::SendAgain {
            generation: None,
            ..
        }
    );
    let is_news = again || matches!(to, State::Journaled | State::Discarded);
    if !store.settings.outcomes || by_stream || !is_news {
        return Ok(());
    }
    store.run(
        "INSERT INTO outcomes (uuid, journaled, generation, again)
         SELECT uuid, ?2, generation, ?3 FROM calls WHERE id = ?1 AND uuid IS NOT NULL",
        (row.0, to == State::Journaled, again),
    )
}

/// The oldest outcomes that are to go into the stream, at most `limit`, and the place of their last
/// one in the outbox; `None` where it is empty.
pub fn outcomes(db: &Db, limit: usize) -> Result<Option<(Outcomes, i64)>, Error> {
    let (mut outcomes, mut through) = (Outcomes::default(), None);
    db.query_all::<_, ()>(
        "SELECT id, uuid, journaled, generation, again FROM outcomes ORDER BY id LIMIT ?1",
        [count(limit)],
        |row| {
            let (uuid, generation) = (row.uuid(1)?.0, row.get(3)?);
            match (row.get(4)?, row.get(2)?) {
                (true, _) => drop(outcomes.again.insert(uuid, generation)),
                (false, true) => outcomes.journaled.push(uuid),
                (false, false) => outcomes.discarded.push(uuid),
            }
            if generation > 0 && !row.get::<_, bool>(4)? {
                outcomes.generations.insert(uuid, generation);
            }
            through = Some(row.get(0)?);
            Ok(())
        },
    )?;
    Ok(through.map(|through| (outcomes, through)))
}

/// Forgets the oldest outcomes beyond their number.
pub(crate) fn purge_outcomes(db: &Db) -> Result<(), Error> {
    db.run(
        "DELETE FROM outcomes WHERE id <= (SELECT max(id) FROM outcomes) - ?1",
        [OUTCOMES_MAX],
    )
}

/// A call is no letter any more: whatever it waits for now, it is not to be looked for.
pub(crate) fn letter_left(db: &Db, row: RowId) -> Result<(), Error> {
    db.run("DELETE FROM remade WHERE row = ?1", [row.0])
}
