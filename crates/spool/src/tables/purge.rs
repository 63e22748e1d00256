//! Forgetting what is old, a bounded part at a time.

use crate::Error;
use crate::op::{Done, Purged};
use crate::store::{Store, sql};
use crate::tables::books::Book;
use callbridge_call::EventTime;
use rusqlite::OptionalExtension as _;

/// Rows a purge takes at most: some milliseconds.
const CALLS_MAX: u32 = 500;
/// Tombstones a purge looks at.
const TOMBSTONES_MAX: i64 = 2_000;
/// Pages that may lie empty in the file, to be used again.
const FREE_PAGES_MAX: i64 = 4_096;
/// Pages a purge gives back to the disk when more do.
const FREED_PAGES: u32 = 1_024;

impl Store {
    pub(crate) fn purge(&mut self, now: EventTime) -> Result<Done, Error> {
        let before = now.minus(self.settings.retention);
        let calls = self.purge_calls(before)?;
        let tombstones = self.purge_tombstones(before)?;
        let deliveries = self.purge_deliveries(now)?;
        self.purge_look_ups(now)?;
        self.purge_shows(now)?;
        self.purge_internal(now)?;
        self.give_pages_back()?;
        Ok(Done::Purged(Purged {
            calls,
            tombstones,
            more: calls == u64::from(CALLS_MAX) || tombstones > 0 || deliveries,
        }))
    }

    fn purge_calls(&mut self, before: EventTime) -> Result<u64, Error> {
        let mut calls = 0;
        let mut gone = self.prepare(
            "DELETE FROM calls WHERE id IN (
                 SELECT id FROM calls WHERE state IN ('journaled', 'discarded')
                 AND since < ?1 ORDER BY since LIMIT ?2)
             RETURNING state = 'journaled'",
        )?;
        let rows = gone.query_map((before.micros(), CALLS_MAX), |row| row.get(0));
        let rows: Vec<bool> = sql(self, rows.and_then(Iterator::collect))?;
        drop(gone);
        for journaled in rows {
            let book = match journaled {
                true => Book::PurgedJournaled,
                false => Book::PurgedDiscarded,
            };
            self.tally.add(book, 1);
            calls += 1;
        }
        if calls > 0 {
            self.remember_highest_id()?;
        }
        Ok(calls)
    }

    fn give_pages_back(&self) -> Result<(), Error> {
        let mut found = self.prepare("PRAGMA freelist_count")?;
        let free: i64 = sql(self, found.query_row([], |row| row.get(0)))?;
        if free > FREE_PAGES_MAX {
            // A page for each row of the answer: they have to be asked for.
            let mut freed = self.prepare(&format!("PRAGMA incremental_vacuum({FREED_PAGES})"))?;
            let mut pages = sql(self, freed.query([]))?;
            while sql(self, pages.next())?.is_some() {}
        }
        Ok(())
    }

    /// Tombstones have no index by age, which every call would have to pay for: the whole table
    /// is walked round and round, a stretch each time.
    fn purge_tombstones(&mut self, before: EventTime) -> Result<u64, Error> {
        let (pbx, id) = self.tombstone_cursor.clone();
        let mut found = self.prepare(
            "SELECT pbx, id FROM tombstones WHERE (pbx, id) > (?1, ?2)
             ORDER BY pbx, id LIMIT 1 OFFSET ?3",
        )?;
        let end = found.query_row((&pbx, &id, TOMBSTONES_MAX - 1), |row| {
            Ok((row.get(0)?, row.get(1)?))
        });
        let end: Option<(String, String)> = sql(self, end.optional())?;
        drop(found);
        let gone = match &end {
            Some((pbx_end, id_end)) => self.execute(
                "DELETE FROM tombstones
                 WHERE (pbx, id) > (?1, ?2) AND (pbx, id) <= (?3, ?4) AND at < ?5",
                (&pbx, &id, pbx_end, id_end, before.micros()),
            )?,
            None => self.execute(
                "DELETE FROM tombstones WHERE (pbx, id) > (?1, ?2) AND at < ?3",
                (&pbx, &id, before.micros()),
            )?,
        };
        self.tombstone_cursor = end.unwrap_or_default();
        Ok(u64::try_from(gone).unwrap_or(0))
    }
}
