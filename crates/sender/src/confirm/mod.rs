//! Finds out whether an accepted call has been journaled, by webhook, journal page, or poll. Based
//! on responses and webhooks, it decides what to ask next about which calls, and which steps those
//! calls take.
//!
//! There are two modes. With pages, one request confirms up to a hundred calls. Without them, calls
//! are polled one by one. A call that's missing from a page may still be in the journal.

pub mod reader;
mod step;

use crate::confirm::reader::JournalReader;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{FilterPage, Page, PageSize};
use callbridge_model::{CallUuid, Now, TokenFingerprint};
use callbridge_spool::{Unconfirmed, WebhookPace};
use std::collections::BTreeMap;
use std::time::Duration;

pub use step::{
    ENDS_SOON, REQUEST_ID_LIFE, RequestIdEnd, dead_step, found_step, give_up, next_poll,
};

/// Age at which an accepted call should have reached the journal.
pub const WRITTEN_WITHIN: Duration = Duration::from_secs(10);

/// How long after its acceptance a call is left to webhooks, neither polled nor looked for on
/// pages.
const WEBHOOK_WAIT: Duration = Duration::from_secs(120);

/// Number of calls not confirmed by webhook in time after which the sender stops waiting for
/// webhooks.
const WEBHOOKS_MISSED_MAX: u32 = 3;

/// How long to stop reading pages after the CRM refused one, or after they showed none of our
/// calls.
const PAGES_OFF: Duration = Duration::from_secs(3600);

/// Maximum number of pages per reading.
const PAGES_MAX: u32 = 10;

/// A query starts this many seconds before the oldest call that it looks for, because the CRM's
/// clock and ours differ a little.
const MARGIN_SECONDS: i64 = 20;

/// 2000-01-01, the earliest start of a query. The CRM rejects much earlier times (§2.6), which can
/// only result from a wrong clock.
const EARLIEST: i64 = 946_684_800;

/// Minimum time for which a 403 counts, whatever `token/info` shows (§7.7).
const REFUSED_AT_LEAST: Duration = Duration::from_secs(60);

/// An endpoint that returned a 403. It isn't used again until `token/info` is read, once an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotGranted {
    /// The CRM's message.
    pub reason: String,
    pub since: EventTime,
    since_boot: Duration,
}

/// One reading of the journal, with the calls that it looks for.
#[derive(Clone, Debug)]
struct Reading {
    reader: JournalReader,
    targets: BTreeMap<CallUuid, Unconfirmed>,
    /// Whether all targets are calls with a lost requestId, in which case pages may well show none
    /// of them.
    only_lost: bool,
    found: u32,
}

/// The calls that a page shows and, at the end of a reading, those that no page showed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageFindings {
    pub found: Vec<Unconfirmed>,
    pub absent: Vec<Unconfirmed>,
    /// Whether all of the query's pages were read.
    pub is_complete: bool,
}

/// The three ways to confirm calls, and whether each of them works.
#[derive(Debug)]
pub struct Confirm {
    /// No pages are read before this time. Kept across restarts.
    pub pages_off_until: Option<EventTime>,
    /// Records per page. Kept across restarts.
    pub page_size: PageSize,
    /// The 403 for a page.
    pub pages_refused: Option<NotGranted>,
    /// The 403 for a poll.
    pub polls_refused: Option<NotGranted>,
    reading: Option<Reading>,
    webhook: Option<WebhookPace>,
    webhooks_missed: u32,
    /// The latest acceptance time of any journaled call.
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

    /// Returns `true` if pages can be read. A break that lasts for more than another hour is
    /// ignored, since it was stored before the clock was set back.
    pub fn reads_pages(&self, now: EventTime) -> bool {
        let rests = match self.pages_off_until {
            Some(until) => now < until && until <= now.plus(PAGES_OFF),
            None => false,
        };
        self.pages_refused.is_none() && !rests
    }

    /// Returns `true` if neither a webhook nor a page nor a poll can show a call.
    pub fn is_impossible(&self) -> bool {
        self.pages_refused.is_some() && self.polls_refused.is_some() && !self.awaits_webhooks()
    }

    /// Returns `true` if webhooks confirm calls, as far as we know.
    pub fn awaits_webhooks(&self) -> bool {
        self.webhook.is_some() && self.webhooks_missed < WEBHOOKS_MISSED_MAX
    }

    /// Returns how long after its acceptance a call is left to webhooks, or zero if they confirm no
    /// calls.
    pub fn webhook_wait(&self) -> Duration {
        if self.awaits_webhooks() {
            WEBHOOK_WAIT
        } else {
            Duration::ZERO
        }
    }

    /// Returns the time before which a call must have been accepted to be in the journal by now.
    pub fn written_before(&self, now: EventTime) -> EventTime {
        now.minus(WRITTEN_WITHIN.max(self.webhook_wait()))
    }

    /// Notes the newest confirmation by webhook, from the spool, returning `true` if it's new.
    pub fn note_webhook(&mut self, newest: Option<WebhookPace>) -> bool {
        if newest == self.webhook {
            return false;
        }
        self.webhook = newest;
        self.webhooks_missed = 0;
        true
    }

    /// Notes that a poll or a page showed this call in the journal.
    pub fn note_journaled(&mut self, now: EventTime, call: &Unconfirmed) {
        self.journaled_to = self.journaled_to.max(call.submitted_at.min(now));
        if self.awaits_webhooks() && call.age(now) >= WEBHOOK_WAIT {
            self.webhooks_missed += 1;
        }
    }

    /// Returns `true` if a call that the CRM accepted after this one is already in the journal.
    pub fn is_passed_by(&self, call: &Unconfirmed) -> bool {
        call.submitted_at < self.journaled_to
    }

    /// Forgets all 403s and ends the reading after the token was replaced, since a 403 for the old
    /// token says nothing about the new one.
    pub fn forget_refusals(&mut self) {
        self.pages_refused = None;
        self.polls_refused = None;
        self.reading = None;
    }

    /// Notes that `token/info` was read, so that refused endpoints are tried again.
    pub fn token_read(&mut self, now: Duration) {
        for refused in [&mut self.pages_refused, &mut self.polls_refused] {
            refused.take_if(|refused| now >= refused.since_boot + REFUSED_AT_LEAST);
        }
    }

    /// Notes that the CRM refused a poll with a 403. The first refusal is kept.
    pub fn refuse_polls(&mut self, now: Now, reason: &str) {
        self.polls_refused.get_or_insert(not_granted(now, reason));
    }

    /// Notes that the CRM refused a page with a 403.
    pub fn refuse_pages(&mut self, now: Now, reason: &str) {
        self.reading = None;
        self.pages_refused.get_or_insert(not_granted(now, reason));
    }

    /// Stops reading pages for an hour, because they can't be read or show none of our calls.
    pub fn rest_pages(&mut self, now: EventTime) {
        self.reading = None;
        self.pages_off_until = Some(now.plus(PAGES_OFF));
    }

    /// Switches to smaller pages, because one was too large (400 `MAX`, §7.5).
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

    /// Ends the reading because a page request failed. The next reading starts over.
    pub fn drop_reading(&mut self) {
        self.reading = None;
    }

    /// Returns `true` if the current reading needs another page.
    pub fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// Removes a polled call from the reading, because its outcome must not come from two
    /// responses.
    pub fn is_polled(&mut self, call: &Unconfirmed) {
        if let Some(reading) = &mut self.reading {
            reading.targets.remove(&call.uuid);
        }
    }

    /// Returns the page to request, either the next one of the current reading or the first one of
    /// a new reading for `calls`, or `None` if there's no call to look for. `living` are the valid
    /// tokens. Calls of other tokens have lost their requestIds, and get a reading of their own.
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

    /// Looks for the reading's calls on a page. After the last page, calls that should have
    /// appeared are absent. If none of them did, no pages are read for an hour, unless the reading
    /// was for lost requestIds.
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

/// Returns the start of a query for these calls, or `None` if all of them are ahead of the clock
/// because it has been set back. In that case, the whole journal is read.
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

/// Returns `true` if the call's next poll is due, or so far ahead that the clock must have been set
/// back.
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
