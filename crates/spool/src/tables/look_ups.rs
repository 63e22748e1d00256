//! Calls that FAILED in the CRM: how they continue automatically, how their leads are looked up,
//! and the messages of their dead letters.

use super::{calls, directory, step, unknown_employees};
use crate::db::Asked;
use crate::{CallFailure, DROPPED, Db, Done, Error, Json, RowId, Step, Store, TO_SURVIVOR};
use callbridge_call::EventTime;
use callbridge_leads::directory::ledger::Ledger as _;
use callbridge_leads::directory::{ChangeKind, FirstPhone, LeadNews};
use callbridge_leads::lead_request::Finding;
use callbridge_leads::lead_request::failed;
use callbridge_leads::lead_request::failed::{
    FailedCall, FailedCallDecision, Reroute, RerouteHistory,
};
use callbridge_leads::lead_request::lead::REST;
use callbridge_model::{CallRecord, LeadId, Reason};
use std::time::Duration;

/// How long a lookup's result is reused for further failed calls with the same lead, which then
/// don't need a lookup of their own.
const FRESH: Duration = Duration::from_secs(600);
/// Maximum number of a lead's dead letters to which a single lookup result or merge is applied.
const LETTERS_MAX: u32 = 1_000;
/// Maximum number of leads queued for a lookup. With any more, dead letters don't say anything
/// about their lead.
const WAITING_MAX: i64 = 10_000;
/// Maximum number of attempts per lookup (§7.7: 3 to 5).
const TRIES_MAX: u32 = 4;

/// Reads a call that was sent and FAILED, along with what's known about its lead, or returns `None`
/// if the call has been settled in the meantime.
fn failed_call(store: &Store, row: RowId, at: EventTime) -> Result<Option<FailedCall>, Error> {
    let sent = "SELECT 1 FROM calls WHERE id = ?1 AND state IN ('ready', 'sending', 'submitted')";
    if !store.exists(sent, [row.0])? {
        return Ok(None);
    }
    let (record, history) = record_and_history(store, row)?;
    let mut survivor = None;
    let mut finding = None;
    if let Some(lead) = record.lead_id {
        survivor = directory::survivor(store, lead)?;
        finding = fresh_finding(store, lead, at)?;
    }
    Ok(Some(FailedCall {
        record,
        history,
        survivor,
        look_up: store.settings.look_up,
        finding,
        drop_employee: store.settings.drop_employee,
    }))
}

/// Handles a call that FAILED, choosing its next step by what's currently known about its lead.
pub(crate) fn call_failed(store: &mut Store, failure: &CallFailure) -> Result<Done, Error> {
    let row = failure.row;
    let at = failure.at;
    let message = failure.message.as_str();
    let Some(call) = failed_call(store, row, at)? else {
        return step::step(store, row, &died_step(failure, message), at);
    };
    let step = match call.decide(message) {
        FailedCallDecision::ToSurvivor(on) => {
            store.tally.count(TO_SURVIVOR, 1);
            Step::moved(on, message)
        }
        FailedCallDecision::WithoutEmployee(on) => {
            let found = Finding::LeadExists;
            unknown_employees::note_unknown_employee(store, &call.record, found, at)?;
            store.tally.count(DROPPED, 1);
            Step::moved(on, message)
        }
        FailedCallDecision::Letter { message, finding } => {
            if let Some(found) = finding {
                unknown_employees::note_unknown_employee(store, &call.record, found, at)?;
                let text = "UPDATE calls SET finding = ?2 WHERE id = ?1";
                store.run(text, (row.0, found.word()))?;
            }
            died_step(failure, &message)
        }
        FailedCallDecision::LookUp(lead) => {
            want_look_up(store, lead, at)?;
            died_step(failure, message)
        }
    };
    step::step(store, row, &step, at)
}

fn died_step(failure: &CallFailure, message: &str) -> Step {
    Step::Died {
        reason: Reason::Failed,
        message: message.to_owned(),
        errors: failure.errors.clone(),
    }
}

fn record_and_history(db: &Db, row: RowId) -> Result<(CallRecord, RerouteHistory), Error> {
    let text = "SELECT record, reroute_history, id FROM calls WHERE id = ?1";
    let (Json(record), Json::<Option<_>>(history)) = db.query_one(text, [row.0])?;
    Ok((record, history.unwrap_or_default()))
}

/// Returns the values for sending a call with the surviving lead, or `None` unless its lead is
/// known to have been merged.
pub fn find_reroute(db: &Db, row: RowId) -> Result<Option<Reroute>, Error> {
    let (record, history) = record_and_history(db, row)?;
    let Some(lead) = record.lead_id else {
        return Ok(None);
    };
    let survivor = directory::survivor(db, lead)?;
    Ok(survivor.and_then(|survivor| failed::to_survivor(&record, survivor, &history)))
}

/// Stores news about a lead, and sends `failed` dead letters of merged leads with the surviving
/// lead. Returns `true` if the news contained a new fact.
pub(crate) fn learn(store: &mut Store, news: &LeadNews) -> Result<bool, Error> {
    if !directory::take_in(store, news)? {
        return Ok(false);
    }
    let at = EventTime::from_seconds(news.at.get());
    for lead in &news.merged {
        for (row, since) in failed_letters(store, *lead, EventTime::from_micros(0))? {
            if let Some(on) = find_reroute(store, row)? {
                store.tally.count(TO_SURVIVOR, 1);
                // The event may be older than the dead letter.
                step::step(store, row, &Step::moved(on, ""), at.max(since))?;
            }
        }
    }
    Ok(true)
}

fn failed_letters(
    db: &Db,
    lead: LeadId,
    since: EventTime,
) -> Result<Vec<(RowId, EventTime)>, Error> {
    let values = (lead.get(), since.micros(), LETTERS_MAX);
    let text = "SELECT id, since FROM calls WHERE state = 'dead' AND reason = 'failed'
         AND lead = ?1 AND since >= ?2 ORDER BY id LIMIT ?3";
    db.query_all(text, values)
}

/// Reads the result of looking up this lead, provided it's no more than ten minutes old.
fn fresh_finding(db: &Db, lead: LeadId, at: EventTime) -> Result<Option<Finding>, Error> {
    let values = (lead.get(), at.minus(FRESH).micros());
    let text = "SELECT finding FROM lead_lookups WHERE lead = ?1 AND answered >= ?2";
    let word = db.query_first::<String>(text, values)?;
    Ok(word.and_then(|word| Finding::from_word(&word)))
}

/// Queues a lookup of the lead, unless one is already queued or the queue is full.
fn want_look_up(db: &Db, lead: LeadId, at: EventTime) -> Result<(), Error> {
    let waiting: i64 = db.query_one(
        "SELECT count(*) FROM lead_lookups WHERE due IS NOT NULL",
        (),
    )?;
    if waiting >= WAITING_MAX {
        return Ok(());
    }
    let text = "INSERT INTO lead_lookups (lead, asked, due, tries) VALUES (?1, ?2, ?2, 0)
         ON CONFLICT (lead) DO UPDATE SET asked = ?2, due = ?2, tries = 0, finding = NULL,
            answered = NULL WHERE lead_lookups.due IS NULL";
    db.run(text, (lead.get(), at.micros()))
}

pub(super) fn ask_next_look_up(db: &Db) -> Result<Asked<(LeadId, EventTime)>, Error> {
    let text = "SELECT lead, due FROM lead_lookups WHERE due IS NOT NULL ORDER BY due LIMIT 1";
    db.ask(text, ())
}

/// Reschedules a queued lookup for `due`.
pub(crate) fn look_up_at(db: &Db, lead: LeadId, due: EventTime) -> Result<(), Error> {
    let text = "UPDATE lead_lookups SET due = ?2 WHERE lead = ?1 AND due IS NOT NULL";
    db.run(text, (lead.get(), due.micros()))
}

/// Records that a lookup got no response. It's either scheduled again or, after several attempts,
/// abandoned with the result [`Finding::Unclear`].
pub(crate) fn look_up_again(store: &mut Store, lead: LeadId, at: EventTime) -> Result<(), Error> {
    let text = "UPDATE lead_lookups SET tries = tries + 1 WHERE lead = ?1 AND due IS NOT NULL
         RETURNING tries";
    let tries = store.query_first::<u32>(text, [lead.get()])?;
    match tries {
        None => Ok(()),
        Some(tries @ 0..TRIES_MAX) => {
            let wait = [15, 15, 60, 300][tries.min(3) as usize];
            look_up_at(store, lead, at.plus(Duration::from_secs(wait)))
        }
        Some(_) => store_finding(store, lead, Finding::Unclear, at).map(drop),
    }
}

/// Stores the result of a lookup. The lead's `failed` dead letters either get a message about it,
/// or are sent without their employee.
pub(crate) fn store_finding(
    store: &mut Store,
    lead: LeadId,
    found: Finding,
    at: EventTime,
) -> Result<Done, Error> {
    let values = (lead.get(), found.word(), at.micros());
    let text = "UPDATE lead_lookups SET due = NULL, finding = ?2, answered = ?3 WHERE lead = ?1
         RETURNING asked";
    let asked = store.query_first(text, values)?;
    // If the directory still lists a lead that no longer exists in the CRM, mark it as deleted.
    if found == Finding::LeadMissing && store.life(lead)?.living.is_some() {
        let news = LeadNews::new(
            lead,
            at.floor_seconds(),
            ChangeKind::Deleted,
            FirstPhone::Unchanged,
        );
        directory::take_in(store, &news)?;
    }
    let mut updated = 0;
    let mut left = 0;
    // Dead letters from before the lookup was queued are left for someone to decide.
    for (row, _) in failed_letters(store, lead, asked.unwrap_or(at))? {
        let (record, history) = record_and_history(store, row)?;
        unknown_employees::note_unknown_employee(store, &record, found, at)?;
        if store.settings.drop_employee
            && let Some(on) = failed::without_employee(&record, found, &history)
        {
            store.tally.count(DROPPED, 1);
            step::step(store, row, &Step::moved(on, ""), at)?;
            left += 1;
        } else {
            updated += u64::from(explain(store, row, &record, found, at)?);
        }
    }
    Ok(Done::LookupDone { updated, left })
}

fn explain(
    db: &Db,
    row: RowId,
    record: &CallRecord,
    found: Finding,
    at: EventTime,
) -> Result<bool, Error> {
    let Some(mut progress) = calls::progress(db, row)? else {
        return Ok(false);
    };
    let Some(message) = failed::message(record, found, &progress.message) else {
        return Ok(false);
    };
    progress.note_attempt(at, &message);
    progress.message = message;
    progress.finding = Some(found.word().to_owned());
    step::set_progress(db, row, &progress)?;
    Ok(true)
}

/// Deletes lookups that were answered more than [`REST`] ago, and lookups that have been due for a
/// day without a `failed` dead letter needing them. A lookup that is only waiting for a permission
/// of the token is therefore kept.
pub(crate) fn purge_look_ups(db: &Db, now: EventTime) -> Result<(), Error> {
    const VAIN: Duration = Duration::from_secs(24 * 3600);
    let text = "DELETE FROM lead_lookups WHERE lead IN (
             SELECT lead FROM lead_lookups WHERE due IS NULL AND answered < ?1 LIMIT 500)";
    db.run(text, [now.minus(REST).micros()])?;
    let text = "DELETE FROM lead_lookups WHERE lead IN (
             SELECT lead FROM lead_lookups WHERE due IS NOT NULL AND due < ?1
             AND NOT EXISTS (
                 SELECT 1 FROM calls WHERE state = 'dead' AND reason = 'failed'
                 AND calls.lead = lead_lookups.lead)
             ORDER BY due LIMIT 500)";
    db.run(text, [now.minus(VAIN).micros()])
}
