//! The backfill (`--lead-directory`), which chooses the next page of `lead/filter` to read and
//! extracts the news from each response. Since the CRM doesn't repeat events (§6.1.8), this is how
//! missed changes are found.
//!
//! **By range** is how it starts. Leads come in the order they were last changed. Each request asks
//! for leads changed since the newest second read so far, which means that the leads of that second
//! are read again. The next page is only requested if a single second fills a page, so changes made
//! during a round do no harm. A round ends with a page that isn't full. The next round starts
//! [`OVERLAP`] before the newest second, because changes may be written late.
//!
//! **By page** is used if the CRM rejects or ignores the range. It reads from the last page
//! backward until a page contains a change that an earlier round has already read (reading
//! [`OVERLAP`] again). Leads that change during the round move to the last page, and all others
//! move toward the first, so a lead may be read twice, but none is missed.
//!
//! Leads without an `updatedTimestamp` (§2.5) aren't in any range, and come first or last. That's
//! why the second round reads by page, which reaches those that come last.
//!
//! If the response doesn't match these assumptions, or if none of the leads in a whole round has a
//! time, the backfill pauses until the next startup.

use super::news::LeadNews;
use super::rows::{LeadRow, page};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{ApiError, ApiReply, ApiResult, LeadsPage};
use callbridge_model::Country;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Number of leads per page (§4.7).
pub const SIZE: u32 = 50;
/// How far before the newest second a new round starts, because changes may be written late.
pub const OVERLAP: Duration = Duration::from_secs(300);
/// How long to wait before trying again if the token isn't allowed to read leads.
const NO_GRANT: Duration = Duration::from_secs(3600);
/// How long to wait after a failure. This doubles with each further failure, up to [`NO_GRANT`].
const FAILED: Duration = Duration::from_secs(60);

/// The settings for the backfill, which `--lead-directory` turns on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLeads {
    /// The country of numbers without a country code.
    pub country: Option<Country>,
    /// Time from the end of one round until the next.
    pub every: Duration,
}

/// The backfill's progress. Stored in the spool as JSON, so fields may be added but never renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backfill {
    /// Everything that changed before this second has been read.
    read_to: Option<i64>,
    /// The newest second that this round has seen.
    newest: Option<i64>,
    /// Whether the CRM rejects or ignores the range, so that all rounds read by page.
    by_page: bool,
    /// Whether a round by page has read the leads that come last.
    #[serde(default)]
    last_read: bool,
    /// Whether this round has read a lead with a time.
    #[serde(default)]
    timed: bool,
    /// Number of leads without a time that this round has read.
    #[serde(default)]
    untimed: u64,
    /// The next page to read, or `None` between two rounds and for a round by page that first has
    /// to find out how many pages there are.
    page: Option<u32>,
    reading: bool,
    /// Number of rounds completed so far, whether by range or by page.
    pub rounds: u64,
    /// Number of rows read, including those read again.
    pub rows: u64,
    /// Number of consecutive failures, each of which doubles the wait before the next attempt.
    failures: u32,
    /// Earliest time of the next read, in microseconds since the epoch.
    not_before: i64,
    /// Whether any row so far had a field for phones.
    phones_seen: bool,
    /// Whether the token isn't allowed to read leads.
    pub no_grant: bool,
    /// Why the backfill is paused until the next startup, or `None` while it's running.
    pub left: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Read(LeadsPage),
    /// Nothing is due before this time.
    At(EventTime),
    /// Nothing is due before the next startup.
    Never,
}

impl Backfill {
    /// Returns the page to read now, or the earliest time of the next read. `begun` is `true` if
    /// this process has already read a page. Each process starts its first round right away.
    pub fn next(&self, now: EventTime, begun: bool) -> Next {
        if begun && self.left.is_some() {
            return Next::Never;
        }
        let not_before = EventTime::from_micros(self.not_before);
        if begun && now < not_before {
            return Next::At(not_before);
        }
        let since = match (self.reads_by_page(), self.reading) {
            (true, _) => None,
            (false, true) => self.newest,
            (false, false) => self.read_from().map(|at| at.max(0)),
        };
        let page = match self.page {
            Some(page) if self.reading => page,
            Some(_) | None => 1,
        };
        Next::Read(LeadsPage {
            page,
            size: SIZE,
            since: since.map(EpochSeconds::new),
        })
    }

    /// Returns `true` if this round reads by page rather than by range.
    fn reads_by_page(&self) -> bool {
        self.by_page || self.read_to.is_some() && !self.last_read
    }

    /// Returns the second from which changes are read again, which is [`OVERLAP`] before the newest
    /// second read, or `None` until a whole round is done.
    fn read_from(&self) -> Option<i64> {
        let back = i64::try_from(OVERLAP.as_secs()).unwrap_or(0);
        Some(self.read_to?.saturating_sub(back))
    }

    /// Processes the response for the page `asked`, which means moving on to the next page and
    /// returning the news about the leads on this one.
    pub fn process_answer(
        &mut self,
        asked: &LeadsPage,
        answer: &ApiResult,
        now: EventTime,
        how: ReadLeads,
    ) -> Vec<LeadNews> {
        self.left = None;
        self.no_grant = false;
        let mut learned = Vec::new();
        let mut not_before = None;
        match answer {
            Ok(ApiReply::Data(body)) => match page(body, how.country) {
                None => self.leave("the answer has no list of leads in it"),
                Some(read) => {
                    self.failures = 0;
                    learned = self.turn(asked, read.rows, read.total);
                }
            },
            Err(ApiError::Forbidden(..)) => {
                self.no_grant = true;
                not_before = Some(now.plus(NO_GRANT).micros());
            }
            Err(ApiError::Rejected { status: 400, .. }) if asked.since.is_some() => {
                self.by_page = true;
                self.restart();
                not_before = Some(0);
            }
            Err(
                error @ ApiError::Rejected {
                    status: 400,
                    errors,
                    ..
                },
            ) => self.leave(&format!("the CRM refuses the order: {error} {errors}")),
            Err(
                error @ (ApiError::NotFound { own: true, .. }
                | ApiError::WrongAddress { .. }
                | ApiError::Rejected { .. }),
            ) => self.leave(&format!("the CRM has no lead/filter: {error}")),
            // This includes a 404 from a proxy, which may be temporary.
            Ok(_)
            | Err(
                ApiError::NotFound { own: false, .. }
                | ApiError::TokenRefused { .. }
                | ApiError::TooMany(..)
                | ApiError::Server { .. }
                | ApiError::Unreadable(..)
                | ApiError::TimedOut
                | ApiError::Lost(..)
                | ApiError::NotConnected(..)
                | ApiError::TlsRefused(..)
                | ApiError::TooLate,
            ) => {
                let wait = (FAILED * (1_u32 << self.failures.min(6))).min(NO_GRANT);
                self.failures = self.failures.saturating_add(1);
                not_before = Some(now.plus(wait).micros());
            }
        }
        self.not_before = match not_before {
            Some(not_before) => not_before,
            None if self.reading => 0,
            None => now.plus(how.every).micros(),
        };
        learned
    }

    /// Records that the token is now allowed to read leads.
    pub fn note_grant(&mut self) {
        self.no_grant = false;
        self.not_before = 0;
    }

    fn leave(&mut self, why: &str) {
        let why: String = why.chars().take(300).collect();
        self.left = Some(format!("{why}; tried again at the next start"));
        self.restart();
    }

    fn restart(&mut self) {
        self.page = None;
        self.newest = None;
        self.timed = false;
        self.untimed = 0;
        self.reading = false;
    }

    fn turn(&mut self, asked: &LeadsPage, rows: Vec<LeadRow>, total: Option<u32>) -> Vec<LeadNews> {
        self.phones_seen |= rows.iter().any(|row| row.has_phones);
        if let Some(why) = differs(&rows, self.phones_seen) {
            self.leave(why);
            return Vec::new();
        }
        self.rows += rows.len() as u64;
        let seconds = rows.iter().filter_map(|row| row.updated);
        let oldest = seconds.clone().min().map(EpochSeconds::get);
        let newest = seconds.max().map(EpochSeconds::get);
        let range = asked.since.map(EpochSeconds::get).zip(oldest);
        let ignored = range.is_some_and(|(since, oldest)| oldest < since);
        if ignored && !self.by_page {
            self.by_page = true;
            self.restart();
        }
        self.newest = self.newest.max(newest);
        self.timed |= rows.iter().any(|row| row.has_time);
        self.untimed += rows.iter().filter(|row| !row.has_time).count() as u64;
        if self.reads_by_page() {
            self.turn_down(asked, oldest, total);
        } else {
            self.turn_on(asked, rows.len(), newest, total);
        }
        rows.into_iter().filter_map(|row| row.news).collect()
    }

    /// Continues by range, either from the newest second or with the next page if a single second
    /// fills this one.
    fn turn_on(&mut self, asked: &LeadsPage, rows: usize, newest: Option<i64>, total: Option<u32>) {
        let last = match total {
            Some(total) => asked.page >= total,
            None => rows < SIZE as usize,
        };
        if last || rows == 0 {
            return self.end();
        }
        let on = newest > asked.since.map(EpochSeconds::get);
        self.page = Some(if on { 1 } else { asked.page.saturating_add(1) });
        self.reading = true;
    }

    /// Continues by page, from the last page backward.
    fn turn_down(&mut self, asked: &LeadsPage, oldest: Option<i64>, total: Option<u32>) {
        let total = match total {
            Some(total) => total,
            None if oldest.is_none() || !self.by_page => 0,
            None => return self.leave("the CRM accepts no range and returns no totalPages"),
        };
        let known = oldest.is_some() && oldest < self.read_from();
        let began = self.reading;
        if total == 0 || (began && (asked.page <= 1 || known)) {
            return self.end();
        }
        self.reading = true;
        // A round's first response only shows how many pages there are.
        self.page = Some(if began { asked.page - 1 } else { total });
        if !began && total == 1 {
            self.end();
        }
    }

    fn end(&mut self) {
        if !self.timed && self.untimed >= u64::from(SIZE) {
            return self.leave("no lead has an updatedTimestamp or createdTimestamp");
        }
        self.last_read |= self.reads_by_page();
        self.read_to = self.read_to.max(self.newest);
        self.rounds += 1;
        self.restart();
    }

    /// Returns the displayed name of the state, which is `reading`, `waiting`, `no_grant`, or
    /// `left`.
    pub fn state(&self) -> &'static str {
        match (&self.left, self.no_grant, self.reading) {
            (Some(_), _, _) => "left",
            (None, true, _) => "no_grant",
            (None, false, true) => "reading",
            (None, false, false) => "waiting",
        }
    }

    /// Returns the second of the newest change read by a whole round.
    pub fn read_to(&self) -> Option<EpochSeconds> {
        self.read_to.map(EpochSeconds::new)
    }

    /// Returns `true` if a round has reached every lead of the CRM, and later ones still find new
    /// leads.
    pub fn has_read_all(&self) -> bool {
        self.last_read && self.left.is_none() && !self.no_grant
    }
}

/// Returns why a page can't be used, or `None` if it can.
fn differs(rows: &[LeadRow], phones_seen: bool) -> Option<&'static str> {
    if rows.is_empty() {
        return None;
    }
    if rows.iter().all(|row| row.lead.is_none()) {
        return Some("its rows have no ids");
    }
    // A few leads may have no phones, with null fields omitted.
    if !phones_seen && rows.len() >= SIZE as usize {
        return Some("its rows have no phones");
    }
    if rows.iter().filter_map(|row| row.updated).is_sorted() {
        None
    } else {
        Some("its rows are not in the order of updatedTimestamp")
    }
}

#[cfg(test)]
#[path = "backfill_tests.rs"]
mod tests;
