//! Customers who called without reaching anyone, and who haven't been talked to since. They're
//! waiting for a callback.
//!
//! Since calls may arrive in any order, each one is judged by its own times. A customer has been
//! waiting since the first missed call that started at or after the end of their last conversation.
//! A number's conversations and missed calls have an index each (`TALKS` and `MISSED`), so handling
//! a call doesn't take longer as earlier calls accumulate.

use crate::{Db, Error, Finished, MissedCustomer, called_extensions, count};
use callbridge_call::{Direction, EventTime};
use callbridge_model::{Judged, LeadId, Phone, Reason};
use serde::Deserialize;
use std::time::Duration;

/// How long after their last call a waiting customer is forgotten.
const WAITS_MAX: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum number of calls to keep among those that `unanswered=no` leaves out of the journal.
pub(super) const KEPT_OUT_MAX: i64 = 100_000;
/// Maximum number of rows that a purge deletes from each table.
const PURGED_MAX: u32 = 500;

/// SQL for a number's calls that prove a conversation, using the `calls_talks` index's condition.
/// Discarded incomplete calls, calls between extensions, and calls with an impossible start time
/// prove nothing.
pub(super) const TALKS: &str = "calls WHERE phone = ?1 AND answered = 1 AND direction <> 'INTERNAL'
    AND coalesce(reason, '') <> 'invalid_epoch'
    AND NOT (state = 'discarded' AND coalesce(reason, '') = 'incomplete')";
/// SQL for a number's missed calls in `calls`, using the `calls_missed` index's condition.
/// Incomplete calls are excluded, since there's no telling whether they were missed.
const MISSED: &str = "calls WHERE phone = ?1 AND answered = 0 AND direction = 'INBOUND'
    AND coalesce(reason, '') NOT IN ('invalid_epoch', 'incomplete')";
/// SQL for a number's missed calls that `unanswered=no` leaves out of the journal.
const LEFT_OUT: &str = "left_out_calls WHERE phone = ?1";

/// What a call proves about its customer: either an employee talked to them, or the call was
/// missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contact {
    Talked,
    Missed,
}

/// Returns the customer's number and what the call proves, or `None` if it proves nothing.
pub(super) fn contact(new: &Finished) -> Option<(&str, Contact)> {
    let Judged { record, reason, .. } = &new.judged;
    // An impossible start time can't be compared with those of other calls.
    if *reason == Some(Reason::InvalidEpoch) {
        return None;
    }
    let phone = new.phone()?;
    // There's no telling whether an incomplete call was missed.
    let is_known = *reason != Some(Reason::Incomplete);
    let is_kept = new.judged.kept_out_unanswered || new.judged.outcome.is_kept();
    match record.direction {
        Direction::Inbound | Direction::Outbound | Direction::Unknown if record.answered => {
            Some((phone, Contact::Talked))
        }
        Direction::Inbound if is_known && is_kept => {
            let oldest = new.judged.judged_at.minus(WAITS_MAX).floor_seconds().get();
            if new.started() < oldest {
                return None;
            }
            Some((phone, Contact::Missed))
        }
        Direction::Internal | Direction::Inbound | Direction::Outbound | Direction::Unknown => None,
    }
}

/// Counts a call that hasn't been seen before.
pub(crate) fn note(db: &Db, new: &Finished) -> Result<(), Error> {
    if new.judged.kept_out_unanswered {
        keep_out(db, new)?;
    }
    apply(db, new)
}

/// Updates how long the call's customer has been waiting. The call must not have been counted yet.
pub(crate) fn apply(db: &Db, new: &Finished) -> Result<(), Error> {
    match contact(new) {
        Some((phone, Contact::Talked)) => note_talk(db, new, phone),
        Some((phone, Contact::Missed)) => note_missed(db, new, phone),
        None => Ok(()),
    }
}

fn keep_out(db: &Db, new: &Finished) -> Result<(), Error> {
    let text =
        "INSERT INTO left_out_calls (pbx, trunk, phone, started, rang) VALUES (?1, ?2, ?3, ?4, ?5)";
    let values = (
        &new.judged.record.pbx,
        new.trunk(),
        new.phone(),
        new.started(),
        called_extensions(new.call.timeline.as_ref()).join(" "),
    );
    db.run(text, values)?;
    let text = "DELETE FROM left_out_calls WHERE id <= (SELECT max(id) FROM left_out_calls) - ?1";
    db.run(text, [KEPT_OUT_MAX])
}

fn note_missed(db: &Db, new: &Finished, phone: &str) -> Result<(), Error> {
    let talked_after = format!("SELECT ended FROM {TALKS} AND ended > ?2 LIMIT 1");
    if db.exists(&talked_after, (phone, new.started()))? {
        return Ok(());
    }
    let text = "INSERT INTO missed_customers AS m
             (phone, pbx, trunk, lead, first_at, last_at, tries)
         VALUES (?1, ?2, ?3, ?4, ?5, ?5, 1)
         ON CONFLICT (phone) DO UPDATE SET
             pbx = CASE WHEN ?5 >= m.last_at THEN ?2 ELSE m.pbx END,
             trunk = CASE WHEN ?5 >= m.last_at THEN ?3 ELSE m.trunk END,
             lead = CASE WHEN ?5 >= m.last_at THEN ?4 ELSE m.lead END,
             first_at = CASE WHEN ?5 < m.first_at THEN ?5 ELSE m.first_at END,
             last_at = CASE WHEN ?5 > m.last_at THEN ?5 ELSE m.last_at END,
             tries = m.tries + 1";
    let values = (
        phone,
        &new.judged.record.pbx,
        new.trunk(),
        new.judged.record.lead_id.map(LeadId::get),
        new.started(),
    );
    db.run(text, values)
}

fn note_talk(db: &Db, new: &Finished, phone: &str) -> Result<(), Error> {
    // The first and last missed calls, if the customer is waiting.
    let text = "SELECT first_at, last_at FROM missed_customers WHERE phone = ?1";
    match db.query_first(text, [phone])? {
        Some((_, last)) if new.end() > last => forget(db, phone),
        Some((first, last)) if new.end() > first => wait_since(db, phone, first, new.end(), last),
        Some(_) | None => Ok(()),
    }
}

/// Removes the missed calls that started in `first..talk_end` from a customer's wait, since a
/// conversation followed them. `last` is when the last missed call started.
///
/// Only the removed calls are read, so each missed call is read once, even if many conversations
/// arrive late.
fn wait_since(db: &Db, phone: &str, first: i64, talk_end: i64, last: i64) -> Result<(), Error> {
    let mut talked_about = 0_i64;
    let mut first_after = last;
    for calls in [MISSED, LEFT_OUT] {
        let text = format!("SELECT count(*) FROM {calls} AND started >= ?2 AND started < ?3");
        talked_about += db.query_one::<i64>(&text, (phone, first, talk_end))?;
        let text =
            format!("SELECT started FROM {calls} AND started >= ?2 ORDER BY started LIMIT 1");
        if let Some(started) = db.query_first::<i64>(&text, (phone, talk_end))? {
            first_after = first_after.min(started);
        }
    }
    let text = "UPDATE missed_customers SET first_at = ?2,
             tries = CASE WHEN tries > ?3 THEN tries - ?3 ELSE 1 END
         WHERE phone = ?1";
    db.run(text, (phone, first_after, talked_about))
}

/// Returns how many of this customer's calls were missed since the last conversation, or 0 if they
/// aren't waiting for a callback.
pub(crate) fn count_tries(db: &Db, phone: &str) -> Result<u64, Error> {
    Ok(db
        .query_first(
            "SELECT tries FROM missed_customers WHERE phone = ?1",
            [phone],
        )?
        .unwrap_or(0))
}

fn forget(db: &Db, phone: &str) -> Result<(), Error> {
    db.run("DELETE FROM missed_customers WHERE phone = ?1", [phone])
}

/// A number's newest missed call.
#[derive(Deserialize)]
struct NewestMissed {
    started: i64,
    pbx: String,
    trunk: String,
    lead: Option<i64>,
}

/// Recalculates the wait of the customer with this number after a counted call has changed. Only
/// reads index entries of the calls that matter for it.
pub(crate) fn recount(db: &Db, phone: &str, now: EventTime) -> Result<(), Error> {
    forget(db, phone)?;
    let text = format!("SELECT ended FROM {TALKS} ORDER BY ended DESC LIMIT 1");
    let talk_end: Option<i64> = db.query_first(&text, [phone])?;
    let oldest = now.minus(WAITS_MAX).floor_seconds().get();
    let since = talk_end.map_or(oldest, |end| end.max(oldest));
    let mut first = None;
    let mut tries = 0_i64;
    for calls in [MISSED, LEFT_OUT] {
        let text = format!("SELECT min(started), count(*) FROM {calls} AND started >= ?2");
        let (started, count): (Option<i64>, i64) = db.query_one(&text, (phone, since))?;
        first = first.into_iter().chain(started).min();
        tries += count;
    }
    let text = format!(
        "SELECT started, pbx, coalesce(trunk, '') AS trunk, lead
         FROM {MISSED} AND started >= ?2 ORDER BY started DESC LIMIT 1"
    );
    let kept: Option<NewestMissed> = db.query_first(&text, (phone, since))?;
    let text = format!(
        "SELECT started, pbx, trunk, NULL AS lead
         FROM {LEFT_OUT} AND started >= ?2 ORDER BY started DESC LIMIT 1"
    );
    let left_out: Option<NewestMissed> = db.query_first(&text, (phone, since))?;
    let newest = kept.into_iter().chain(left_out);
    let Some(last) = newest.max_by_key(|call| call.started) else {
        return Ok(());
    };
    let text = "INSERT INTO missed_customers (phone, pbx, trunk, lead, first_at, last_at, tries)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    let values = (
        phone,
        &last.pbx,
        &last.trunk,
        last.lead,
        first,
        last.started,
        tries,
    );
    db.run(text, values)
}

/// Reads up to `limit` customers waiting for a callback, longest wait first, starting after the
/// customer `after`. With `since`, only reads those whose last missed call started at that second
/// or later.
pub fn missed_waiting(
    db: &Db,
    since: Option<i64>,
    after: Option<&MissedCustomer>,
    limit: usize,
) -> Result<Vec<MissedCustomer>, Error> {
    let (at, phone) = match after {
        Some(customer) => (customer.first_at.get(), customer.phone.as_str()),
        None => (i64::MIN, ""),
    };
    let text = "SELECT phone, pbx, trunk, lead, first_at, last_at, tries FROM missed_customers
         WHERE (first_at, phone) > (?1, ?2) AND last_at >= ?3
         ORDER BY first_at, phone LIMIT ?4";
    let values = (at, phone, since.unwrap_or(i64::MIN), count(limit));
    db.query_known(
        text,
        values,
        |(phone, pbx, trunk, lead, first_at, last_at, tries): (String, _, _, _, _, _, _)| {
            Some(MissedCustomer {
                phone: Phone::from_e164(&phone)?,
                pbx,
                trunk,
                lead_id: Option::and_then(lead, LeadId::new),
                first_at,
                last_at,
                tries,
            })
        },
    )
}

/// Counts the customers waiting for a callback, by the trunk of their last missed call.
pub fn missed_by_trunk(db: &Db) -> Result<Vec<(String, u64)>, Error> {
    let text = "SELECT trunk, count(*) FROM missed_customers GROUP BY trunk";
    db.query_all(text, ())
}

/// Forgets customers whose last missed call is older than [`WAITS_MAX`], along with left-out calls
/// of that age, a limited number at a time.
pub(crate) fn purge_missed(db: &Db, now: EventTime) -> Result<(), Error> {
    let before = now.minus(WAITS_MAX).floor_seconds().get();
    let text = "DELETE FROM missed_customers WHERE phone IN
             (SELECT phone FROM missed_customers WHERE last_at < ?1 ORDER BY last_at LIMIT ?2)";
    db.run(text, (before, PURGED_MAX))?;
    let text = "DELETE FROM left_out_calls WHERE id IN
             (SELECT id FROM left_out_calls WHERE started < ?1 ORDER BY started LIMIT ?2)";
    db.run(text, (before, PURGED_MAX))
}
