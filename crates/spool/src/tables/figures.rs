//! Figures of a span of time: what became of its calls, and how long it took.

use crate::{Db, Error, State};
use std::collections::BTreeMap;
use std::time::Duration;

/// The newest confirmed calls whose delays are returned.
const DELAYS_MAX: u32 = 2_000;

/// Counts calls that began from this second on, and before the other, by their state.
pub fn outcomes(db: &Db, from: i64, until: i64) -> Result<BTreeMap<State, u64>, Error> {
    db.query_all(
        "SELECT state, count(*) FROM calls WHERE started >= ?1 AND started < ?2 GROUP BY state",
        (from, until),
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// Returns the time from hang-up to the journal of each call that began from this second on, and
/// before the other; of the newest 2,000 that are there.
pub fn confirmation_delays(db: &Db, from: i64, until: i64) -> Result<Vec<Duration>, Error> {
    let micros: Vec<i64> = db.values(
        "SELECT since - 1000000 *
            (started + ifnull(json_extract(record, '$.durationSec'), 0))
         FROM calls WHERE started >= ?1 AND started < ?2 AND state = 'journaled'
         ORDER BY started DESC LIMIT ?3",
        (from, until, DELAYS_MAX),
    )?;
    // Whole seconds are told of a call; it may be confirmed within the last of them.
    let micros = micros.into_iter().map(|it| u64::try_from(it).unwrap_or(0));
    Ok(micros.map(Duration::from_micros).collect())
}
