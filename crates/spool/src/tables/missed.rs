//! Customers who called, got nobody, and were not talked to since: who waits for a call back.
//!
//! A call is weighed by its own times, in whatever order calls come: somebody waits since the first
//! try that no talk ended after. In the usual order a call changes one row; what comes late is
//! weighed against all kept calls of its number.

use crate::{Db, Error, Finished, MissedCustomer, count, rang};
use callbridge_call::{Direction, EventTime};
use callbridge_model::{Judged, LeadId, Phone, Reason};
use serde::Deserialize;
use std::time::Duration;

/// Time without a call after which somebody does not wait any more.
const WAITS_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// No call lasts longer: one that began before cannot have ended after.
const CALL_SECONDS_MAX: i64 = 12 * 3600;
/// Newest calls of a number that are weighed.
const WEIGHED_MAX: usize = 1_000;
/// Kept calls that `unanswered=no` leaves out of the journal.
const KEPT_OUT_MAX: i64 = 100_000;
/// Rows that a purge takes at most.
const PURGED_MAX: u32 = 500;

impl Finished {
    /// Returns the second at which it ended.
    fn end(&self) -> i64 {
        let duration = i64::from(self.judged.record.duration_sec);
        self.started().saturating_add(duration)
    }
}

/// Weighs a call that was not known before.
pub(crate) fn note(db: &Db, new: &Finished) -> Result<(), Error> {
    let Judged { record, reason, .. } = &new.judged;
    let kept_out = new.judged.kept_out_unanswered;
    if kept_out {
        keep_out(db, new)?;
    }
    // A start that cannot be says nothing of before and after.
    let is_weighed = *reason != Some(Reason::InvalidEpoch);
    let Some(phone) = new.phone().filter(|_| is_weighed) else {
        return Ok(());
    };
    // Of an incomplete one it is not known whether it was missed.
    let is_known = *reason != Some(Reason::Incomplete);
    match record.direction {
        Direction::Inbound | Direction::Outbound if record.answered => talked(db, new, phone),
        Direction::Inbound if is_known && (kept_out || new.judged.outcome.is_kept()) => {
            missed(db, new, phone)
        }
        Direction::Internal | Direction::Inbound | Direction::Outbound => Ok(()),
    }
}

fn keep_out(db: &Db, new: &Finished) -> Result<(), Error> {
    let text =
        "INSERT INTO unanswered (pbx, trunk, phone, started, rang) VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = (
        &new.judged.record.pbx,
        new.trunk(),
        new.phone(),
        new.started(),
        rang(new.call.timeline.as_ref()).join(" "),
    );
    db.execute(text, values)?;
    let text = "DELETE FROM unanswered WHERE id <= (SELECT max(id) FROM unanswered) - ?1";
    db.run(text, [KEPT_OUT_MAX])
}

fn missed(db: &Db, new: &Finished, phone: &str) -> Result<(), Error> {
    let oldest = new.judged.judged_at.minus(WAITS_MAX).floor_seconds().get();
    if new.started() < oldest || was_talked_to(db, phone, new.started())? {
        return Ok(());
    }
    let text = "INSERT INTO missed (phone, pbx, trunk, lead, first_at, last_at, tries)
         VALUES (?1, ?2, ?3, ?4, ?5, ?5, 1)
         ON CONFLICT (phone) DO UPDATE SET
             pbx = iif(?5 >= last_at, ?2, pbx), trunk = iif(?5 >= last_at, ?3, trunk),
             lead = iif(?5 >= last_at, ?4, lead), tries = tries + 1,
             first_at = min(first_at, ?5), last_at = max(last_at, ?5)";
    let values = (
        phone,
        &new.judged.record.pbx,
        new.trunk(),
        new.judged.record.lead_id.map(LeadId::get),
        new.started(),
    );
    db.run(text, values)
}

/// A kept talk with this number ended after this second.
fn was_talked_to(db: &Db, phone: &str, since: i64) -> Result<bool, Error> {
    let text = "SELECT 1 FROM calls
         WHERE substr(phone, -4) = substr(?1, -4) AND phone = ?1 AND started > ?3
           AND json_extract(record, '$.answered')
           AND started + json_extract(record, '$.durationSec') > ?2
           AND NOT (state = 'discarded' AND reason IS 'incomplete')
         LIMIT 1";
    db.exists(text, (phone, since, since - CALL_SECONDS_MAX))
}

fn talked(db: &Db, new: &Finished, phone: &str) -> Result<(), Error> {
    let text = "SELECT first_at, last_at FROM missed WHERE phone = ?1";
    match db.query_first(text, [phone])? {
        Some((_, last)) if new.end() > last => gone(db, phone),
        Some((first, _)) if new.end() > first => anew(db, phone, new.judged.judged_at),
        Some(_) | None => Ok(()),
    }
}

/// Counts the calls in vain of this customer since somebody talked with them; 0 where nobody waits.
pub(crate) fn tries(db: &Db, phone: &str) -> Result<u64, Error> {
    Ok(db
        .query_first("SELECT tries FROM missed WHERE phone = ?1", [phone])?
        .unwrap_or(0))
}

fn gone(db: &Db, phone: &str) -> Result<(), Error> {
    db.run("DELETE FROM missed WHERE phone = ?1", [phone])
}

/// A kept call, as far as it counts here.
#[derive(Deserialize)]
struct CountedCall {
    started: i64,
    /// Second at which a talk ended; `None` of a call that was missed.
    talked_until: Option<i64>,
    pbx: String,
    trunk: String,
    lead: Option<i64>,
}

/// Weighs all kept calls of a number: one of them came late, or has other facts now.
pub(crate) fn anew(db: &Db, phone: &str, now: EventTime) -> Result<(), Error> {
    let oldest = now.minus(WAITS_MAX).floor_seconds().get();
    let text = "SELECT started, iif(json_extract(record, '$.answered'),
                    started + json_extract(record, '$.durationSec'), NULL) AS talked_until,
                json_extract(record, '$.pbx') AS pbx,
                ifnull(json_extract(record, '$.trunk'), '') AS trunk,
                json_extract(record, '$.leadId') AS lead
         FROM calls
         WHERE substr(phone, -4) = substr(?1, -4) AND phone = ?1 AND started >= ?2
           AND (json_extract(record, '$.answered')
                OR json_extract(record, '$.direction') = 'INBOUND')
           AND NOT (reason IS 'incomplete'
                    AND (state = 'discarded' OR NOT json_extract(record, '$.answered')))
           AND reason IS NOT 'invalid_epoch'
         ORDER BY started DESC LIMIT ?3";
    let values = (phone, oldest, count(WEIGHED_MAX));
    let mut calls: Vec<CountedCall> = db.query_all(text, values)?;
    let text = "SELECT started, pbx, trunk FROM unanswered WHERE phone = ?1 AND started >= ?2
         ORDER BY started DESC LIMIT ?3";
    calls.extend(db.query_all::<CountedCall>(text, values)?);
    gone(db, phone)?;
    let talked_until = calls.iter().filter_map(|call| call.talked_until).max();
    calls.retain(|call| call.talked_until.is_none() && Some(call.started) >= talked_until);
    let Some(last) = calls.iter().max_by_key(|call| call.started) else {
        return Ok(());
    };
    let first_at = calls.iter().map(|call| call.started).min();
    let text = "INSERT INTO missed (phone, pbx, trunk, lead, first_at, last_at, tries)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = (
        phone,
        &last.pbx,
        &last.trunk,
        last.lead,
        first_at,
        last.started,
        count(calls.len()),
    );
    db.run(text, values)
}

/// Reads the customers who wait for a call back, longest waiting first, a page at a time after
/// `after`; with `since` only those who tried at that second or later.
pub fn missed_waiting(
    db: &Db,
    since: Option<i64>,
    after: Option<&MissedCustomer>,
    limit: usize,
) -> Result<Vec<MissedCustomer>, Error> {
    let (at, phone) = after.map_or((i64::MIN, ""), |it| (it.first_at.get(), it.phone.as_str()));
    let text = "SELECT phone, pbx, trunk, lead, first_at, last_at, tries FROM missed
         WHERE (first_at, phone) > (?1, ?2) AND last_at >= ?3
         ORDER BY first_at, phone LIMIT ?4";
    let values = (at, phone, since.unwrap_or(i64::MIN), count(limit));
    let known =
        |(phone, pbx, trunk, lead, first_at, last_at, tries): (String, _, _, _, _, _, _)| {
            Some(MissedCustomer {
                phone: Phone::from_e164(&phone)?,
                pbx,
                trunk,
                lead: Option::and_then(lead, LeadId::new),
                first_at,
                last_at,
                tries,
            })
        };
    db.query_known(text, values, known)
}

/// Counts the customers who wait, by the trunk of their last try.
pub fn missed_by_trunk(db: &Db) -> Result<Vec<(String, u64)>, Error> {
    let text = "SELECT trunk, count(*) FROM missed GROUP BY trunk";
    db.query_all(text, [])
}

/// Forgets, a bounded part at a time, those who have waited in vain.
pub(crate) fn purge_missed(db: &Db, now: EventTime) -> Result<(), Error> {
    let before = now.minus(WAITS_MAX).floor_seconds().get();
    let text = "DELETE FROM missed WHERE phone IN
             (SELECT phone FROM missed WHERE last_at < ?1 ORDER BY last_at LIMIT ?2)";
    db.execute(text, (before, PURGED_MAX))?;
    let text = "DELETE FROM unanswered WHERE id IN
             (SELECT id FROM unanswered WHERE started < ?1 ORDER BY started LIMIT ?2)";
    db.run(text, (before, PURGED_MAX))
}
