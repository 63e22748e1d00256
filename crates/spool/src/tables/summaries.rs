//! What became of calls that are long over: a short row each, kept for the audit when the call and
//! the memory of its ids are purged.

use crate::db::Columns as _;
use crate::{Db, Error, State};
use callbridge_call::EventTime;
use callbridge_model::CallUuid;
use rusqlite::Params;
use std::time::Duration;

/// A summary is kept so long after its call began.
pub const SUMMARIES_KEPT_FOR: Duration = Duration::from_secs(2 * 365 * 24 * 3600);
/// Summaries that one purge forgets at most.
const FORGOTTEN_MAX: u32 = 500;
/// Stands where a call's state would: it was between extensions, or skipped by a flag.
const COUNTED: &str = "counted";

/// Keeps what became of the calls that this question finds: their rows go.
pub(crate) fn keep(db: &Db, calls: &str, values: impl Params) -> Result<(), Error> {
    let text = format!(
        "INSERT INTO summaries (pbx, id, uuid, state, started)
         SELECT json_extract(record, '$.pbx'), json_extract(record, '$.linkedid'), uuid, state,
                started
         FROM calls WHERE id IN ({calls}) ON CONFLICT DO NOTHING"
    );
    db.run(&text, values)
}

/// Keeps, of the tombstones from one place to another that are to go, those of calls that were
/// counted only.
pub(crate) fn keep_counted(
    db: &Db,
    from: (&str, &str),
    to: (&str, &str),
    before: EventTime,
) -> Result<(), Error> {
    db.run(
        "INSERT INTO summaries (pbx, id, uuid, state, started)
         SELECT pbx, id, NULL, ?1, started FROM tombstones
         WHERE uuid IS NULL AND own = 1 AND at < ?2 AND (pbx, id) > (?3, ?4)
             AND (pbx, id) <= (?5, ?6) ON CONFLICT DO NOTHING",
        (COUNTED, before.micros(), from.0, from.1, to.0, to.1),
    )
}

/// Row that outlives a purged call.
pub(crate) struct SummaryRow {
    /// State in which it ended; `None`: it was counted only.
    pub(crate) state: Option<State>,
    pub(crate) uuid: Option<CallUuid>,
    /// Start of the call, in epoch seconds.
    pub(crate) started: i64,
}

/// Reads the summary of a call by its own id.
pub(crate) fn summary(db: &Db, pbx: &str, id: &str) -> Result<Option<SummaryRow>, Error> {
    db.query_first(
        "SELECT state, uuid, started FROM summaries WHERE pbx = ?1 AND id = ?2",
        (pbx, id),
        |row| {
            Ok(SummaryRow {
                state: State::from_word(&row.get::<_, String>(0)?),
                uuid: row.maybe_uuid(1)?,
                started: row.get(2)?,
            })
        },
    )
}

pub(crate) fn purge_summaries(db: &Db, now: EventTime) -> Result<(), Error> {
    let before = now.minus(SUMMARIES_KEPT_FOR).floor_seconds().get();
    db.run(
        "DELETE FROM summaries WHERE (pbx, id) IN (
             SELECT pbx, id FROM summaries WHERE started < ?1 ORDER BY started LIMIT ?2)",
        (before, FORGOTTEN_MAX),
    )
}
