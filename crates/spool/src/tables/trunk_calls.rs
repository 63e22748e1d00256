//! Call counts for each trunk: the total, the last call, and the calls in each quarter-hour of the
//! last few days, from which a day can be counted in any time zone. Calls between extensions have
//! an empty trunk name.

use crate::value::Columns;
use crate::{Db, Error, Finished, TrunkCalls};
use callbridge_call::EventTime;
use callbridge_model::Outcome;
use std::collections::BTreeMap;
use std::time::Duration;

/// Seconds in a quarter-hour. Days start at a multiple of this in every time zone.
const QUARTER: i64 = 900;
/// How long quarter-hours are kept.
const KEPT: Duration = Duration::from_secs(8 * 24 * 3600);
/// Maximum number of rows that a purge deletes.
const PURGED_MAX: u32 = 500;

/// Counts a call that hasn't been seen before.
pub(crate) fn note(db: &Db, new: &Finished) -> Result<(), Error> {
    let record = &new.judged.record;
    let pbx = &record.pbx;
    let trunk = new.trunk();
    let at = record.started_at.get();
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
    let quarter = at - at.rem_euclid(QUARTER);
    let extensions = has_extension(new);
    let employees = record.employee_id.is_some();
    db.run(text, (pbx, trunk, quarter, extensions, employees))
}

fn has_extension(new: &Finished) -> bool {
    new.judged.outcome != Outcome::Skipped && new.judged.record.employee.is_some()
}

/// The sums of a group's calls that haven't been seen before.
#[derive(Debug, Default)]
pub(super) struct TrunkSums {
    /// The number of calls and the start of the last one, by PBX and trunk.
    trunks: BTreeMap<(String, String), (i64, i64)>,
    quarters: BTreeMap<(String, String, i64), QuarterSum>,
}

#[derive(Debug, Default)]
struct QuarterSum {
    calls: i64,
    extensions: i64,
    employees: i64,
}

impl TrunkSums {
    pub(super) fn add(&mut self, new: &Finished) {
        let record = &new.judged.record;
        let pbx = record.pbx.clone();
        let trunk = new.trunk().to_owned();
        let at = record.started_at.get();
        let quarter = at - at.rem_euclid(QUARTER);
        let of_trunk = self.trunks.entry((pbx.clone(), trunk.clone()));
        let (calls, last_at) = of_trunk.or_insert((0, at));
        *calls += 1;
        *last_at = at.max(*last_at);
        let sum = self.quarters.entry((pbx, trunk, quarter)).or_default();
        sum.calls += 1;
        sum.extensions += i64::from(has_extension(new));
        sum.employees += i64::from(record.employee_id.is_some());
    }

    /// Writes the sums to PostgreSQL.
    pub(super) fn store(self, db: &Db) -> Result<(), Error> {
        let mut trunks = Columns::default();
        for ((pbx, trunk), (calls, last_at)) in self.trunks {
            trunks.push((pbx, trunk, calls, last_at));
        }
        if trunks.is_empty() {
            return Ok(());
        }
        let text = "INSERT INTO trunks (pbx, trunk, calls, last_at)
             SELECT * FROM unnest(?1::text[], ?2::text[], ?3::bigint[], ?4::bigint[])
             ON CONFLICT (pbx, trunk) DO UPDATE SET calls = trunks.calls + excluded.calls,
                 last_at = greatest(trunks.last_at, excluded.last_at)";
        db.run_many(text, trunks, None)?;
        let mut quarters = Columns::default();
        for ((pbx, trunk, quarter), sum) in self.quarters {
            let QuarterSum {
                calls,
                extensions,
                employees,
            } = sum;
            quarters.push((pbx, trunk, quarter, calls, extensions, employees));
        }
        let text = "INSERT INTO trunk_quarters (pbx, trunk, quarter, calls, extensions, employees)
             SELECT * FROM unnest(?1::text[], ?2::text[], ?3::bigint[], ?4::bigint[], ?5::bigint[],
                 ?6::bigint[])
             ON CONFLICT (pbx, trunk, quarter) DO UPDATE SET
                 calls = trunk_quarters.calls + excluded.calls,
                 extensions = trunk_quarters.extensions + excluded.extensions,
                 employees = trunk_quarters.employees + excluded.employees";
        db.run_many(text, quarters, None)
    }
}

/// Counts each trunk's calls since `from` (in epoch seconds, rounded down to a quarter-hour) and
/// since the state was created. Calls between extensions have an empty trunk name.
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

/// Deletes old quarter-hours, a limited number at a time.
pub(crate) fn purge_quarters(db: &Db, now: EventTime) -> Result<(), Error> {
    let before = now.minus(KEPT).floor_seconds().get();
    let text = "DELETE FROM trunk_quarters WHERE (pbx, trunk, quarter) IN
             (SELECT pbx, trunk, quarter FROM trunk_quarters WHERE quarter < ?1
              ORDER BY quarter LIMIT ?2)";
    db.run(text, (before, PURGED_MAX))
}
