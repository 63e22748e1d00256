//! The backfill (`--lead-directory`): the choice of the next page of `lead/filter`, and the news in
//! each answer. The CRM does not repeat events (§6.1.8), so this is how missed changes are found.
//!
//! **By range** is the initial way. Leads come in the order of their last change. Each request asks
//! for leads that changed since the newest second read so far, so the leads of that second are read
//! again. The next page is only requested if one second fills a page. So changes during the round
//! do no harm. A round ends with a page that is not full. The next round begins [`OVERLAP`] before
//! the newest second, because changes can be written late.
//!
//! **By page** is used if the CRM refuses or ignores the range. It reads from the last page down,
//! until a page contains a change that an earlier round has read ([`OVERLAP`] is read again). Leads
//! that change during the round move to the last page, and all others move toward the first. So a
//! lead can be read twice, but none is missed.
//!
//! Leads without an `updatedTimestamp` (§2.5) are in no range, and come first or last. So the
//! second round reads by page, which reaches those that come last.
//!
//! If the payload does not match these assumptions, or a whole round of leads has no time, the
//! backfill pauses until the next start.

use super::news::LeadNews;
use super::rows::{LeadRow, page};
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{ApiError, ApiReply, ApiResult, LeadsPage};
use callbridge_model::Country;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Leads per page (§4.7).
pub const SIZE: u32 = 50;
/// Time before the newest second that a new round reads again, for changes written late.
pub const OVERLAP: Duration = Duration::from_secs(300);
/// Wait until the next try if the token has no right to read leads.
const NO_GRANT: Duration = Duration::from_secs(3600);
/// Wait after a failure. It doubles with each further failure, up to [`NO_GRANT`].
const FAILED: Duration = Duration::from_secs(60);

/// Settings of the backfill, which `--lead-directory` turns on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLeads {
    /// Country of numbers without a country code.
    pub country: Option<Country>,
    /// Time from the end of a round to the next.
    pub every: Duration,
}

/// Progress of the backfill. Stored in the spool as JSON: fields can be added, never renamed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backfill {
    /// Everything that changed before this second is read.
    read_to: Option<i64>,
    /// The newest second that this round has seen.
    newest: Option<i64>,
    /// The CRM refuses or ignores the range, so all rounds read by page.
    by_page: bool,
    /// A round by page has read the leads that come last.
    #[serde(default)]
    last_read: bool,
    /// This round has read a lead with a time.
    #[serde(default)]
    timed: bool,
    /// Number of leads without a time that this round has read.
    #[serde(default)]
    untimed: u64,
    /// The page to read next. `None` between two rounds, and for a round by page that must first
    /// learn how many pages there are.
    page: Option<u32>,
    reading: bool,
    /// Rounds completed so far, by range or by page.
    pub rounds: u64,
    /// Rows read, including those read again.
    pub rows: u64,
    /// Failures in a row, each of which doubles the wait for the next try.
    failures: u32,
    /// Earliest time of the next read, in microseconds since the epoch.
    not_before: i64,
    /// At least one row so far had a field for phones.
    phones_seen: bool,
    /// The token has no right to read leads.
    pub no_grant: bool,
    /// Why the backfill is paused until the next start. `None` while it runs.
    pub left: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Read(LeadsPage),
    /// Nothing is due before this time.
    At(EventTime),
    /// Nothing is due before the next start.
    Never,
}

impl Backfill {
    /// Returns the page to read now, or the earliest time of the next read. `begun` is `true` if
    /// this process has already read a page. The first round of each process begins at once.
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

    /// Returns `true` if this round reads by page, not by range.
    fn reads_by_page(&self) -> bool {
        self.by_page || self.read_to.is_some() && !self.last_read
    }

    /// Returns the second from which changes are read again: [`OVERLAP`] before the newest second
    /// read. `None` until a whole round is done.
    fn read_from(&self) -> Option<i64> {
        let back = i64::try_from(OVERLAP.as_secs()).unwrap_or(0);
        Some(self.read_to?.saturating_sub(back))
    }

    /// Processes the answer for the page `asked`: moves on to the next page, and returns the news
    /// of the leads on the answered page.
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
            // This includes a 404 from a proxy, which can be temporary.
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

    /// Notes that the token can read leads now.
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

    /// Continues by range: from the newest second, or with the next page if one second fills this
    /// page.
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

    /// Continues by page, from the last page down.
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
        // The first answer of a round only shows how many pages there are.
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

    /// Returns the word for people: `reading`, `waiting`, `no_grant` or `left`.
    pub fn state(&self) -> &'static str {
        match (&self.left, self.no_grant, self.reading) {
            (Some(_), _, _) => "left",
            (None, true, _) => "no_grant",
            (None, false, true) => "reading",
            (None, false, false) => "waiting",
        }
    }

    /// Returns the second of the newest change that a whole round has read.
    pub fn read_to(&self) -> Option<EpochSeconds> {
        self.read_to.map(EpochSeconds::new)
    }

    /// Returns `true` if a round has reached every lead of the CRM, and later ones still find new
    /// leads.
    pub fn has_read_all(&self) -> bool {
        self.last_read && self.left.is_none() && !self.no_grant
    }
}

/// Returns the reason why a page cannot be used. `None` if the page can be used.
fn differs(rows: &[LeadRow], phones_seen: bool) -> Option<&'static str> {
    if rows.is_empty() {
        return None;
    }
    if rows.iter().all(|row| row.lead.is_none()) {
        return Some("its rows have no ids");
    }
    // A few leads can have no phones and leave out null fields.
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
