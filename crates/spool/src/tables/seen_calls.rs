//! The IDs of finished calls, which keep late events from creating a second call.

use crate::value::Columns;
use crate::{Db, Error, Finished, SeenCall};
use callbridge_call::UniqueId;
use callbridge_model::CallUuid;

const MARK_OWN: &str = "INSERT INTO seen_calls (pbx, id, uuid, is_linkedid, started, at)
     VALUES (?1, ?2, ?3, 1, ?4, ?5)
     ON CONFLICT (pbx, id) DO UPDATE SET uuid = excluded.uuid, is_linkedid = 1,
         started = excluded.started, at = excluded.at
     WHERE seen_calls.is_linkedid = 0";

/// Marks a call as seen under its linkedid and its other channel IDs, returning the start time (in
/// epoch seconds) of an earlier call with the same linkedid.
///
/// A linkedid takes precedence over the same ID on another call's channel, since the second
/// customer in a conference also has a channel in the first customer's call.
pub(crate) fn mark_seen(db: &Db, new: &Finished) -> Result<Option<i64>, Error> {
    let pbx = &new.judged.record.pbx;
    let linkedid = &new.judged.record.linkedid;
    let at = new.judged.judged_at.micros();
    let own = db.execute(MARK_OWN, (pbx, linkedid, new.uuid(), new.started(), at))?;
    if own == 0 {
        let known = seen_call(db, pbx, linkedid)?;
        let started = known.map_or(new.started(), |known| known.started.get());
        return Ok(Some(started));
    }
    mark_aliases_seen(db, new)?;
    Ok(None)
}

/// The IDs of a group's calls that aren't known yet. No two of these calls share an ID.
#[derive(Debug, Default)]
pub(super) struct SeenRows {
    own: Columns,
    aliases: Columns,
}

impl SeenRows {
    pub(super) fn add(&mut self, new: &Finished) {
        let record = &new.judged.record;
        let uuid = new.uuid();
        let started = new.started();
        let at = new.judged.judged_at.micros();
        self.own
            .push((&record.pbx, &record.linkedid, uuid, started, at));
        let aliases = new.call.also_known_as.iter().map(UniqueId::as_str);
        for alias in aliases.filter(|alias| *alias != record.linkedid) {
            self.aliases.push((&record.pbx, alias, uuid, started, at));
        }
    }

    /// Marks the calls as seen in PostgreSQL, like [`mark_seen`].
    pub(super) fn store(self, db: &Db) -> Result<(), Error> {
        const ROWS: &str = "unnest(?1::text[], ?2::text[], ?3::bytea[], ?4::bigint[], ?5::bigint[])
             AS new(pbx, id, uuid, started, at)";
        if self.own.is_empty() {
            return Ok(());
        }
        let text = format!(
            "INSERT INTO seen_calls (pbx, id, uuid, is_linkedid, started, at)
             SELECT pbx, id, uuid, 1, started, at FROM {ROWS}
             ON CONFLICT (pbx, id) DO UPDATE SET uuid = excluded.uuid, is_linkedid = 1,
                 started = excluded.started, at = excluded.at
             WHERE seen_calls.is_linkedid = 0"
        );
        let rows = self.own.rows();
        db.run_many(&text, self.own, Some(rows))?;
        if self.aliases.is_empty() {
            return Ok(());
        }
        let text = format!(
            "INSERT INTO seen_calls (pbx, id, uuid, is_linkedid, started, at)
             SELECT pbx, id, uuid, 0, started, at FROM {ROWS} ON CONFLICT DO NOTHING"
        );
        db.run_many(&text, self.aliases, None)
    }
}

/// Marks a call as seen under its other channel IDs. Its linkedid must already be marked.
pub(crate) fn mark_aliases_seen(db: &Db, new: &Finished) -> Result<(), Error> {
    let record = &new.judged.record;
    let at = new.judged.judged_at.micros();
    let aliases = new.call.also_known_as.iter().map(UniqueId::as_str);
    for alias in aliases.filter(|alias| *alias != record.linkedid) {
        let text = "INSERT INTO seen_calls (pbx, id, uuid, is_linkedid, started, at)
             VALUES (?1, ?2, ?3, 0, ?4, ?5) ON CONFLICT DO NOTHING";
        db.run(text, (&record.pbx, alias, new.uuid(), new.started(), at))?;
    }
    Ok(())
}

/// Returns the UUID of the finished call with this linkedid or channel ID, on any PBX.
pub(crate) fn uuid_by_any_id(db: &Db, id: &str) -> Result<Option<CallUuid>, Error> {
    // This does one lookup per PBX, because scanning the whole table would be slow.
    let text = "WITH RECURSIVE each(pbx) AS (
             SELECT (SELECT pbx FROM seen_calls ORDER BY pbx LIMIT 1)
             UNION ALL
             SELECT (SELECT pbx FROM seen_calls WHERE pbx > each.pbx ORDER BY pbx LIMIT 1)
             FROM each WHERE each.pbx IS NOT NULL)
         SELECT uuid FROM each JOIN seen_calls USING (pbx)
         WHERE id = ?1 AND uuid IS NOT NULL ORDER BY is_linkedid DESC";
    db.query_first(text, [id])
}

/// Returns `true` if any finished call on this PBX is still remembered. Calls are remembered for
/// [`Settings::retention`](crate::Settings::retention), which is 30 days by default.
pub fn knows_pbx(db: &Db, pbx: &str) -> Result<bool, Error> {
    db.exists("SELECT 1 FROM seen_calls WHERE pbx = ?1 LIMIT 1", [pbx])
}

/// Returns the finished call that this PBX's ID belongs to, if it's still remembered (see
/// [`knows_pbx`]).
pub fn seen_call(db: &Db, pbx: &str, id: &str) -> Result<Option<SeenCall>, Error> {
    let text = "SELECT uuid, is_linkedid, started FROM seen_calls WHERE pbx = ?1 AND id = ?2";
    db.query_first(text, (pbx, id))
}
