//! Finds out whether an accepted call is journaled: by a webhook, a page of the journal, or a poll.
//! In: answers and webhooks. Out: the next question about which calls, and their steps.
//!
//! There are two modes. With pages, one request confirms up to a hundred calls. Without pages, each
//! call is polled. A call that a page does not show can still be in the journal.

pub mod reader;
mod step;

use crate::confirm::reader::JournalReader;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{FilterPage, Page, PageSize};
use callbridge_model::{CallUuid, Now, TokenFingerprint};
use callbridge_spool::{Unconfirmed, WebhookPace};
use std::collections::BTreeMap;
use std::time::Duration;

pub use step::{REQUEST_ID_LIFE, dead_step, found_step, give_up, next_poll};

/// Age from which an accepted call should be in the journal.
pub const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// Time after its acceptance in which a call is left to webhooks: it is neither polled nor searched
/// on pages.
const WEBHOOK_WAIT: Duration = Duration::from_secs(120);

/// Number of calls that no webhook confirmed in time, after which the sender does not wait for
/// webhooks.
const WEBHOOKS_MISSED_MAX: u32 = 3;

/// Time for which pages are not read after the CRM refused a page, or pages showed none of our
/// calls.
const PAGES_OFF: Duration = Duration::from_secs(3600);

/// Maximum pages of one reading.
const PAGES_MAX: u32 = 10;

/// A query starts this many seconds before the oldest wanted call, because the clocks of the CRM
/// and this machine differ a little.
const MARGIN_SECONDS: i64 = 20;

/// 2000-01-01, the earliest start of a query. The CRM refuses much earlier times (§2.6), which only
/// come from a wrong clock.
const EARLIEST: i64 = 946_684_800;

/// Minimum time for which a 403 counts, whatever `token/info` shows (§7.7).
const REFUSED_AT_LEAST: Duration = Duration::from_secs(60);

/// An endpoint that answered 403. It is not asked again before `token/info` is read, once an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotGranted {
    /// The CRM's message.
    pub reason: String,
    pub since: EventTime,
    since_boot: Duration,
}

/// One reading of the journal, and the calls that it looks for.
#[derive(Clone, Debug)]
struct Reading {
    reader: JournalReader,
    targets: BTreeMap<CallUuid, Unconfirmed>,
    /// All targets are calls whose requestId is lost. It is normal if pages show none of them.
    only_lost: bool,
    found: u32,
}

/// Calls that a page shows, and at the end of a reading the calls that no page showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageFindings {
    pub found: Vec<Unconfirmed>,
    pub absent: Vec<Unconfirmed>,
    /// All pages of the query were read.
    pub is_complete: bool,
}

/// The three ways to confirm calls, and whether each of them works.
#[derive(Debug)]
pub struct Confirm {
    /// Kept over restarts: pages are not read before this time.
    pub pages_off_until: Option<EventTime>,
    /// Records per page. Kept over restarts.
    pub page_size: PageSize,
    /// The 403 to a page.
    pub pages_refused: Option<NotGranted>,
    /// The 403 to a poll.
    pub polls_refused: Option<NotGranted>,
    reading: Option<Reading>,
    webhook: Option<WebhookPace>,
    webhooks_missed: u32,
    /// The latest acceptance time of a journaled call.
    journaled_to: EventTime,
}

impl Confirm {
    pub fn new(pages_off_until: Option<EventTime>, page_size: PageSize) -> Self {
        Self {
            pages_off_until,
            page_size,
            pages_refused: None,
            polls_refused: None,
            reading: None,
            webhook: None,
            webhooks_missed: 0,
            journaled_to: EventTime::default(),
        }
    }

    /// Returns `true` if pages can be read. A rest that ends more than an hour ahead does not
    /// count, because it was stored before the clock was set back.
    pub fn reads_pages(&self, now: EventTime) -> bool {
        let rests = match self.pages_off_until {
            Some(until) => now < until && until <= now.plus(PAGES_OFF),
            None => false,
        };
        self.pages_refused.is_none() && !rests
    }

    /// Returns `true` if no webhook, no page, and no poll can show a call.
    pub fn is_impossible(&self) -> bool {
        self.pages_refused.is_some() && self.polls_refused.is_some() && !self.awaits_webhooks()
    }

    /// Returns `true` if webhooks confirm calls, as far as is known.
    pub fn awaits_webhooks(&self) -> bool {
        self.webhook.is_some() && self.webhooks_missed < WEBHOOKS_MISSED_MAX
    }

    /// Returns the time after its acceptance in which a call is left to webhooks. Zero if webhooks
    /// confirm no calls.
    pub fn webhook_wait(&self) -> Duration {
        if self.awaits_webhooks() {
            WEBHOOK_WAIT
        } else {
            Duration::ZERO
        }
    }

    /// Returns the acceptance time before which a call should be journaled by now.
    pub fn written_before(&self, now: EventTime) -> EventTime {
        now.minus(WRITTEN_WITHIN.max(self.webhook_wait()))
    }

    /// Notes the newest confirmation by a webhook, from the spool. Returns `true` if that
    /// confirmation is new.
    pub fn note_webhook(&mut self, newest: Option<WebhookPace>) -> bool {
        if newest == self.webhook {
            return false;
        }
        self.webhook = newest;
        self.webhooks_missed = 0;
        true
    }

    /// Notes that a poll or a page has found this call in the journal.
    pub fn note_journaled(&mut self, now: EventTime, call: &Unconfirmed) {
        self.journaled_to = self.journaled_to.max(call.submitted_at.min(now));
        if self.awaits_webhooks() && call.age(now) >= WEBHOOK_WAIT {
            self.webhooks_missed += 1;
        }
    }

    /// Returns `true` if a call that the CRM accepted after this call is journaled.
    pub fn is_passed_by(&self, call: &Unconfirmed) -> bool {
        call.submitted_at < self.journaled_to
    }

    /// Forgets all 403s, and ends the reading, because there is another token. A 403 to the old
    /// token says nothing about the new token.
    pub fn forget_refusals(&mut self) {
        self.pages_refused = None;
        self.polls_refused = None;
        self.reading = None;
    }

    /// Notes that `token/info` was read, so refused endpoints are tried again.
    pub fn token_read(&mut self, now: Duration) {
        for refused in [&mut self.pages_refused, &mut self.polls_refused] {
            refused.take_if(|refused| now >= refused.since_boot + REFUSED_AT_LEAST);
        }
    }

    /// Notes that the CRM refused a poll with 403. The first refusal is kept.
    pub fn refuse_polls(&mut self, now: Now, reason: &str) {
        self.polls_refused.get_or_insert(not_granted(now, reason));
    }

    /// Notes that a page was answered 403.
    pub fn refuse_pages(&mut self, now: Now, reason: &str) {
        self.reading = None;
        self.pages_refused.get_or_insert(not_granted(now, reason));
    }

    /// Stops reading pages for an hour, because pages cannot be read or show none of our calls.
    pub fn rest_pages(&mut self, now: EventTime) {
        self.reading = None;
        self.pages_off_until = Some(now.plus(PAGES_OFF));
    }

    /// Uses smaller pages, because a page was too large (400 `MAX`, §7.5).
    pub fn shrink_pages(&mut self, now: EventTime) {
        let Some(reading) = &mut self.reading else {
            return;
        };
        if reading.reader.use_smaller_pages() {
            self.page_size = reading.reader.size;
        } else {
            self.page_size = PageSize::LARGEST;
            self.rest_pages(now);
        }
    }

    /// Ends the reading because a request for a page failed. The next reading begins again.
    pub fn drop_reading(&mut self) {
        self.reading = None;
    }

    /// Returns `true` if another page of the same reading is wanted.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Removes a polled call from the reading, because its outcome must not come from two answers.
    pub fn is_polled(&mut self, call: &Unconfirmed) {
        if let Some(reading) = &mut self.reading {
            reading.targets.remove(&call.uuid);
        }
    }

    /// Returns the page to request: the next page of the running reading, or the first page of a
    /// new reading for `calls`. `living` are the valid tokens. Calls of other tokens have lost
    /// requestIds, and get a reading without other calls. `None` if there is no call to look for.
    pub fn page(
        &mut self,
        now: EventTime,
        calls: Vec<Unconfirmed>,
        living: &[TokenFingerprint],
    ) -> Option<FilterPage> {
        if self.reading.is_none() {
            self.reading = self.begin(now, calls, living);
        }
        let reading = self.reading.as_ref()?;
        Some(reading.reader.next())
    }

    fn begin(
        &self,
        now: EventTime,
        calls: Vec<Unconfirmed>,
        living: &[TokenFingerprint],
    ) -> Option<Reading> {
        let mut lost = BTreeMap::new();
        let mut others = BTreeMap::new();
        for call in calls {
            if living.contains(&call.token) {
                others.insert(call.uuid, call);
            } else if is_due(&call, now) {
                lost.insert(call.uuid, call);
            }
        }
        let only_lost = !lost.is_empty();
        let targets = if only_lost { lost } else { others };
        if targets.is_empty() {
            return None;
        }
        Some(Reading {
            reader: JournalReader::new(start(targets.values(), now), self.page_size),
            targets,
            only_lost,
            found: 0,
        })
    }

    /// Finds the calls of the reading on a page. After the last page, calls that should have been
    /// shown are absent. If no page showed any of them, no pages are read for an hour, except after
    /// a reading for lost requestIds.
    pub fn on_page(&mut self, now: EventTime, page: &Page) -> PageFindings {
        let mut findings = PageFindings::default();
        let Some(mut reading) = self.reading.take() else {
            return findings;
        };
        for uuid in &page.uuids {
            if let Some(call) = reading.targets.remove(uuid) {
                reading.found += 1;
                findings.found.push(call);
            }
        }
        for call in &findings.found {
            self.note_journaled(now, call);
        }
        let more = reading.reader.on_page(page);
        let written_before = self.written_before(now);
        let mut missing = Vec::new();
        for call in reading.targets.values() {
            let should_be_there = call.submitted_at <= written_before || call.is_ahead(now);
            if reading.only_lost || should_be_there && is_due(call, now) {
                missing.push(call.clone());
            }
        }
        if missing.is_empty() {
            return findings;
        }
        if more && reading.reader.read() < PAGES_MAX {
            self.reading = Some(reading);
            return findings;
        }
        if reading.found == 0 && !reading.only_lost {
            self.rest_pages(now);
        }
        findings.absent = missing;
        findings.is_complete = !more;
        findings
    }
}

/// Returns the start of a query for these calls. `None` if all calls are ahead of the clock,
/// because it was set back since. Then the whole journal is read.
fn start<'a>(calls: impl Iterator<Item = &'a Unconfirmed>, now: EventTime) -> Option<EpochSeconds> {
    let mut first: Option<i64> = None;
    for call in calls {
        if call.is_ahead(now) {
            continue;
        }
        let sent = call.first_sent.floor_seconds().get();
        first = Some(first.map_or(sent, |first| first.min(sent)));
    }
    first.map(|sent| EpochSeconds::new((sent - MARGIN_SECONDS).max(EARLIEST)))
}

/// Returns `true` if the next poll of the call is due, or so far ahead that the clock must have
/// been set back.
pub fn is_due(call: &Unconfirmed, now: EventTime) -> bool {
    call.next_poll <= now || call.next_poll > now.plus(callbridge_spool::HELD_MAX)
}

fn not_granted(now: Now, reason: &str) -> NotGranted {
    NotGranted {
        reason: reason.to_owned(),
        since: now.wall,
        since_boot: now.boot,
    }
}

#[cfg(test)]
mod lost_tests;
#[cfg(test)]
mod tests;
