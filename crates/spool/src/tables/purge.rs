//! Forgetting what is old, a bounded part at a time.

use super::{audited, deliveries, lead_requests, listed, look_ups, meta, missed};
use super::{shows, trunk_calls};
use crate::{Book, Db, Error, PurgeCounts, State, Store};
use callbridge_call::EventTime;

/// Rows a purge takes at most: some milliseconds.
const CALLS_MAX: u32 = 500;
/// Tombstones that one purge reads.
const SEEN_CALLS_MAX: i64 = 2_000;
/// Name that comes after every PBX's.
const BEHIND_ALL: &str = "\u{10ffff}";
/// Pages that may lie empty in the file, to be used again.
const FREE_PAGES_MAX: i64 = 4_096;
/// Pages a purge gives back to the disk when more do.
const FREED_PAGES: u32 = 1_024;

pub(crate) fn purge(store: &mut Store, now: EventTime) -> Result<PurgeCounts, Error> {
    let before = now.minus(store.settings.retention);
    let calls = purge_calls(store, before)?;
    let seen_calls = purge_seen_calls(store, before)?;
    let deliveries = deliveries::purge_deliveries(store, now)?;
    look_ups::purge_look_ups(store, now)?;
    lead_requests::check_claims(store, now)?;
    shows::purge_shows(store, now)?;
    listed::purge_internal(store, now)?;
    missed::purge_missed(store, now)?;
    trunk_calls::purge_quarters(store, now)?;
    audited::purge_summaries(store, now)?;
    give_pages_back(store)?;
    Ok(PurgeCounts {
        calls,
        seen_calls,
        more: calls >= u64::from(CALLS_MAX) || seen_calls > 0 || deliveries,
    })
}

fn purge_calls(store: &mut Store, before: EventTime) -> Result<u64, Error> {
    let old = "SELECT id FROM calls WHERE state IN ('journaled', 'discarded') AND since < ?1
         ORDER BY since LIMIT ?2";
    let values = (before.micros(), CALLS_MAX);
    audited::summarize(store, old, values)?;
    let text = format!("DELETE FROM calls WHERE id IN ({old}) RETURNING state");
    let states: Vec<State> = store.query_all(&text, values)?;
    let calls = states.len() as u64;
    for state in states {
        let book = match state {
            State::Journaled => Book::PurgedJournaled,
            _ => Book::PurgedDiscarded,
        };
        store.tally.add(book, 1);
    }
    if calls > 0 {
        meta::remember_highest_id(store)?;
    }
    Ok(calls)
}

fn give_pages_back(db: &Db) -> Result<(), Error> {
    let free: i64 = db.query_one("PRAGMA freelist_count", [])?;
    if free > FREE_PAGES_MAX {
        // A page for each row of the answer: they have to be asked for.
        let mut freed = db.prepare(&format!("PRAGMA incremental_vacuum({FREED_PAGES})"))?;
        let mut pages = db.sql(freed.query([]))?;
        while db.sql(pages.next())?.is_some() {}
    }
    Ok(())
}

/// Tombstones have no index by age, which every call would have to pay for: the whole table
/// is walked round and round, a stretch each time.
fn purge_seen_calls(store: &mut Store, before: EventTime) -> Result<u64, Error> {
    let (pbx, id) = store.seen_calls_cursor.clone();
    let text = "SELECT pbx, id FROM seen_calls WHERE (pbx, id) > (?1, ?2)
         ORDER BY pbx, id LIMIT 1 OFFSET ?3";
    let end: Option<(String, String)> = store.query_first(text, (&pbx, &id, SEEN_CALLS_MAX - 1))?;
    let to = end.as_ref();
    let to = to.map_or((BEHIND_ALL, ""), |(pbx, id)| (pbx.as_str(), id.as_str()));
    audited::summarize_counted(store, (&pbx, &id), to, before)?;
    let text = "DELETE FROM seen_calls
         WHERE (pbx, id) > (?1, ?2) AND (pbx, id) <= (?3, ?4) AND at < ?5";
    let gone = store.execute(text, (&pbx, &id, to.0, to.1, before.micros()))?;
    store.seen_calls_cursor = end.unwrap_or_default();
    Ok(gone as u64)
}
