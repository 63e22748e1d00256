//! What each trunk took: in all, when last, and in the quarters of an hour of the last days, so
//! that a day can be counted in any zone. Calls between extensions stand under no trunk's name.

use crate::{Db, Error, Finished, TrunkCalls};
use callbridge_call::EventTime;
use callbridge_model::Outcome;
use std::time::Duration;

/// Seconds of a quarter of an hour. Days begin at one in every time zone.
const QUARTER: i64 = 900;
/// Time for which quarters are kept.
const KEPT: Duration = Duration::from_secs(8 * 24 * 3600);
/// Rows that one purge deletes at most.
const PURGED_MAX: u32 = 500;

/// Counts a call that was not known before.
pub(crate) fn note(db: &Db, new: &Finished) -> Result<(), Error> {
    let record = &new.judged.record;
    let (pbx, trunk, at) = (&record.pbx, new.trunk(), record.started_at.get());
    let by_people = new.judged.outcome != Outcome::Skipped;
    let text = "INSERT INTO trunks (pbx, trunk, calls, last_at) VALUES (?1, ?2, 1, ?3)
         ON CONFLICT (pbx, trunk) DO UPDATE SET calls = trunks.calls + 1,
             last_at = CASE WHEN ?3 > trunks.last_at THEN ?3 ELSE trunks.last_at END";
    db.run(text, (pbx, trunk, at))?;
    let text = "INSERT INTO trunk_quarters (pbx, trunk, quarter, calls, extensions, employees)
         VALUES (?1, ?2, ?3, 1, ?4, ?5)
         ON CONFLICT (pbx, trunk, quarter) DO UPDATE SET
             calls = trunk_quarters.calls + 1,
             extensions = trunk_quarters.extensions + ?4,
             employees = trunk_quarters.employees + ?5";
    let values = (
        pbx,
        trunk,
        at - at.rem_euclid(QUARTER),
        by_people && record.employee.is_some(),
        record.employee_id.is_some(),
    );
    db.run(text, values)
}

/// Counts the calls of each trunk since `from`, by whole quarters of an hour, and ever. Calls
/// between extensions have an empty name.
pub fn trunk_calls(db: &Db, from: i64) -> Result<Vec<TrunkCalls>, Error> {
    let text = "SELECT t.pbx, t.trunk, t.calls AS ever, t.last_at,
                CAST(coalesce(sum(q.calls), 0) AS BIGINT) AS calls,
                CAST(coalesce(sum(q.extensions), 0) AS BIGINT) AS with_extension,
                CAST(coalesce(sum(q.employees), 0) AS BIGINT) AS with_employee
         FROM trunks t LEFT JOIN trunk_quarters q
              ON q.pbx = t.pbx AND q.trunk = t.trunk AND q.quarter >= ?1
         GROUP BY t.pbx, t.trunk";
    db.query_all(text, [from - from.rem_euclid(QUARTER)])
}

/// Deletes old quarters, a bounded number at a time.
pub(crate) fn purge_quarters(db: &Db, now: EventTime) -> Result<(), Error> {
    let before = now.minus(KEPT).floor_seconds().get();
    let text = "DELETE FROM trunk_quarters WHERE (pbx, trunk, quarter) IN
             (SELECT pbx, trunk, quarter FROM trunk_quarters WHERE quarter < ?1
              ORDER BY quarter LIMIT ?2)";
    db.run(text, (before, PURGED_MAX))
}
