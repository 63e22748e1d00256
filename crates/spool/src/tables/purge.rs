//! Deletes old rows, a limited number at a time.

use super::{audited, deliveries, lead_requests, listed, look_ups, meta, missed};
use super::{shows, trunk_calls};
use crate::{Book, Error, FORWARDED_KEPT, PurgeCounts, State, Store};
use callbridge_call::EventTime;

/// Maximum number of calls of each kind that a purge deletes, which takes a few milliseconds.
const CALLS_MAX: u32 = 500;
/// Number of seen-call rows that a purge reads.
const SEEN_CALLS_MAX: i64 = 2_000;
/// A string that sorts after the name of any PBX.
const BEHIND_ALL: &str = "\u{10ffff}";
/// Number of free pages that the file keeps for reuse.
const FREE_PAGES_MAX: i64 = 4_096;
/// Maximum number of free pages that a purge gives back to the file system.
const FREED_PAGES: u32 = 1_024;

pub(crate) fn purge(store: &mut Store, now: EventTime) -> Result<PurgeCounts, Error> {
    let before = now.minus(store.settings.retention);
    let forwarded_before = now.minus(store.settings.retention.max(FORWARDED_KEPT));
    let calls = purge_calls(store, "state IN ('journaled', 'discarded')", before)?
        + purge_calls(store, "state = 'forwarded'", forwarded_before)?;
    let seen_calls = purge_seen_calls(store, before)?;
    let deliveries = deliveries::purge_deliveries(store, now)?;
    look_ups::purge_look_ups(store, now)?;
    lead_requests::check_claims(store, now)?;
    shows::purge_shows(store, now)?;
    listed::purge_internal(store, now)?;
    missed::purge_missed(store, now)?;
    trunk_calls::purge_quarters(store, now)?;
    audited::purge_summaries(store, now)?;
    store.give_pages_back(FREE_PAGES_MAX, FREED_PAGES)?;
    Ok(PurgeCounts {
        calls,
        seen_calls,
        more: calls >= u64::from(CALLS_MAX) || seen_calls > 0 || deliveries,
    })
}

/// Deletes calls that entered their state before `before`. `ended` is an SQL condition on the
/// state, and needs an index over `since` that matches it.
fn purge_calls(store: &mut Store, ended: &str, before: EventTime) -> Result<u64, Error> {
    let old = format!("SELECT id FROM calls WHERE {ended} AND since < ?1 ORDER BY since LIMIT ?2");
    let values = (before.micros(), CALLS_MAX);
    audited::summarize(store, &old, values)?;
    let text = format!("DELETE FROM calls WHERE id IN ({old}) RETURNING state");
    let states: Vec<State> = store.query_all(&text, values)?;
    let calls = states.len() as u64;
    for state in states {
        let book = match state {
            State::Journaled => Book::PurgedJournaled,
            State::Forwarded => Book::PurgedForwarded,
            _ => Book::PurgedDiscarded,
        };
        store.tally.add(book, 1);
    }
    if calls > 0 {
        meta::remember_highest_id(store)?;
    }
    Ok(calls)
}

/// Deletes seen calls from before `before`. An index by age would slow down every call, so the
/// table doesn't have one. Instead, each purge scans another section of the table.
fn purge_seen_calls(store: &mut Store, before: EventTime) -> Result<u64, Error> {
    let (pbx, id) = store.seen_calls_cursor.clone();
    let text = "SELECT pbx, id FROM seen_calls WHERE (pbx, id) > (?1, ?2)
         ORDER BY pbx, id LIMIT 1 OFFSET ?3";
    let end: Option<(String, String)> = store.query_first(text, (&pbx, &id, SEEN_CALLS_MAX - 1))?;
    let to = match &end {
        Some((pbx, id)) => (pbx.as_str(), id.as_str()),
        None => (BEHIND_ALL, ""),
    };
    audited::summarize_counted(store, (&pbx, &id), to, before)?;
    let text = "DELETE FROM seen_calls
         WHERE (pbx, id) > (?1, ?2) AND (pbx, id) <= (?3, ?4) AND at < ?5";
    let gone = store.execute(text, (&pbx, &id, to.0, to.1, before.micros()))?;
    store.seen_calls_cursor = end.unwrap_or_default();
    Ok(gone as u64)
}
