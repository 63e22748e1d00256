//! Reconciliations: a page of the journal (`POST call-history/filter`, §4.5) confirms as many calls
//! as it shows, for one request.
//!
//! ```text
//!  targets (spool) ─▶ begin ─▶ page ─▶ shown ──▶ found: they are journaled
//!                               ▲        │
//!                               └─ more ─┴─▶ end: no page showed them: confirmable ones are absent
//! ```
//! Pages hold everybody's records. The order is not published (§4.7): the first page is read; where
//! it shows none of ours, the last one, and from then on the end that showed some. A reconciliation
//! never proves a failure.

pub mod page_strategy;

use crate::Bar;
use callbridge_call::{EpochSeconds, EventTime};
use callbridge_crm::{FilterPage, Page};
use callbridge_model::{CallUuid, TokenFingerprint};
use callbridge_spool::{HELD_MAX, Unconfirmed};
use page_strategy::{End, PageStrategy, Range, unread};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// On an idle line, this many calls are cheaper to reconcile than to poll.
pub const WORTH: u32 = 3;

/// Maximum pages of one reconciliation.
const PAGES_MAX: usize = 12;

/// Maximum pages of one reconciliation while they show none of our calls, and polls can confirm all
/// that it looks for.
const FRUITLESS_MAX: usize = 4;

/// After this many answers in a row that are not pages, reconciliations are off for an hour.
const FAULTS_MAX: u32 = 3;

/// Pages over which the yield is measured, and the calls that each page must show at least.
const YIELD: (u32, u32) = (4, 2);

/// After two reconciliations missed this many calls that the journal held, another range is tried.
const MISSED_MAX: u32 = 2;

/// A call that was accepted this long after it was first sent was sent more than once. The journal
/// can hold it since the first time.
const ONE_TRY: Duration = Duration::from_secs(40);

/// A reconciliation between its first page and its last.
#[derive(Clone, Debug)]
struct Running {
    targets: BTreeMap<CallUuid, ReconcileTarget>,
    since: Option<EpochSeconds>,
    page: u32,
    read: BTreeSet<u32>,
    found: u32,
    at: EventTime,
    /// All targets are unresolved calls, and either no range is proven or their times are
    /// unreliable. The whole journal is then searched, and this earlier strategy is restored
    /// afterwards.
    before: Option<PageStrategy>,
}

#[derive(Clone, Debug)]
struct ReconcileTarget {
    call: Unconfirmed,
    /// The journal should hold it by now. If no page shows it, it is absent.
    confirmable: bool,
    /// No valid token can read its requestId. Only a reconciliation finds it.
    unresolved: bool,
}

/// Results of one page. After the last page, also those of the whole reconciliation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Findings {
    /// Calls that this page shows, so the journal holds them.
    pub found: Vec<Unconfirmed>,
    /// Calls that no page showed before the reconciliation ended.
    pub absent: Vec<Unconfirmed>,
    /// Every page of the range was read.
    pub complete: bool,
    /// Absence counts: most of the targets were found, or the whole journal was read.
    pub conclusive: bool,
    /// More calls were missed than found: either they are not written yet, or the journal cannot be
    /// read in this way. The outcome of this call shows which.
    pub probe: Option<Unconfirmed>,
}

/// State of the reconciliations: the running one, and results of earlier ones.
#[derive(Clone, Debug, Default)]
pub struct JournalReconciliation {
    /// How pages are read. Kept over restarts.
    pub page_strategy: PageStrategy,
    /// Polls fail: only pages can confirm calls, so cost does not matter.
    pub only_way: bool,
    running: Option<Running>,
    pages: u32,
    shown: u32,
    faults: u32,
    missed: u32,
}

impl JournalReconciliation {
    /// Starts without a running reconciliation, with the strategy of an earlier run.
    pub fn new(page_strategy: PageStrategy) -> Self {
        Self {
            page_strategy,
            ..Self::default()
        }
    }

    /// Number of confirmable calls that are worth a page while others wait to be submitted. It is a
    /// page minus the overlap with the previous one.
    pub fn worth_under_load(&self) -> u32 {
        self.page_strategy.size.get() * 9 / 10
    }

    /// Returns `true` if another page of the same reconciliation is wanted.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The running reconciliation looks for the call.
    pub fn seeks(&self, call: &Unconfirmed) -> bool {
        let run = self.running.as_ref();
        run.is_some_and(|run| run.targets.contains_key(&call.uuid))
    }

    /// The call is polled individually. Its outcome must not come from two answers.
    pub fn asked_for(&mut self, call: &Unconfirmed) {
        if let Some(run) = &mut self.running {
            run.targets.remove(&call.uuid);
        }
    }

    /// Handles another token. Refusals of the old one say nothing about it.
    pub fn renewed(&mut self) {
        self.running = None;
        self.granted();
    }

    /// Handles a new right to read the journal.
    pub fn granted(&mut self) {
        self.page_strategy.off_until = None;
        self.faults = 0;
    }

    /// The page to request: of the running reconciliation, or the first of a new one for these
    /// calls. `None` if none of them was accepted before `confirmable_before` and is due.
    pub fn page(
        &mut self,
        now: EventTime,
        confirmable_before: EventTime,
        tokens: &[TokenFingerprint],
        targets: Vec<Unconfirmed>,
    ) -> Option<FilterPage> {
        let due = |call: &Unconfirmed| {
            let waits = call.next_poll > now && call.next_poll <= now.plus(HELD_MAX);
            (call.submitted_at <= confirmable_before || call.is_ahead(now)) && !waits
        };
        let target = |call: Unconfirmed| ReconcileTarget {
            confirmable: due(&call),
            unresolved: !tokens.contains(&call.token),
            call,
        };
        if self.running.is_none() {
            let targets = targets.into_iter().map(|call| (call.uuid, target(call)));
            self.begin(now, targets.collect());
        }
        let run = self.running.as_ref()?;
        Some(FilterPage {
            page: run.page,
            size: self.page_strategy.size,
            since: run.since,
        })
    }

    fn begin(&mut self, now: EventTime, targets: BTreeMap<CallUuid, ReconcileTarget>) {
        let ways = &self.page_strategy;
        let confirmable = || targets.values().filter(|it| it.confirmable);
        let first = match ways.range {
            Range::Sent | Range::SentMinute | Range::SentMinutes => {
                // a call that was sent long before it was accepted would widen the range for all
                // others
                let narrow = confirmable().filter(|it| it.unresolved || sent_once(&it.call));
                let narrow = narrow.map(|it| it.call.first_sent).min();
                let any = || confirmable().map(|it| it.call.first_sent).min();
                narrow.or_else(any).map(EventTime::floor_seconds)
            }
            Range::Started | Range::Whole => confirmable().map(|it| it.call.started).min(),
        };
        let Some(first) = first else { return };
        let since = EpochSeconds::new(first.get() - ways.range.margin_seconds());
        let page = match ways.end {
            End::First => 1,
            End::Last => ways.pages.max(1),
        };
        let unresolved_alone = confirmable().all(|it| it.unresolved);
        let timeless = confirmable().any(|it| it.call.is_ahead(now));
        let whole = timeless || unresolved_alone && !ways.proven;
        let before = whole.then(|| ways.clone());
        let ranged = ways.range != Range::Whole && before.is_none();
        self.running = Some(Running {
            since: ranged.then_some(since),
            before,
            targets,
            page,
            read: BTreeSet::new(),
            found: 0,
            at: now,
        });
    }

    /// Handles a page. `loaded`: calls wait to be submitted, so a few missing calls can wait for
    /// the next reconciliation.
    pub fn on_page(&mut self, now: EventTime, page: &Page, loaded: bool) -> Findings {
        self.faults = 0;
        let Some(mut run) = self.running.take() else {
            return Findings::default();
        };
        let found = self.shown(&mut run, page);
        // a page beyond the end is empty, and its number shows that
        run.read.insert(run.page);
        self.page_strategy.pages = page.total.unwrap_or(0);
        if !found.is_empty() {
            self.page_strategy.proven = true;
            run.found += u32::try_from(found.len()).unwrap_or(u32::MAX);
        }
        if run.before.is_none() && !self.only_way {
            self.judge_yield(now, page, found.len());
        }
        let confirmable = || run.targets.values().filter(|it| it.confirmable);
        let left = u32::try_from(confirmable().count()).unwrap_or(u32::MAX);
        let third = self.page_strategy.size.get() / 3;
        let few = left < WORTH || loaded && is_oldest_first(&found) && left < third;
        let unresolved = self.only_way || confirmable().any(|it| it.unresolved);
        let pages_max = match run.found {
            0 if !unresolved => FRUITLESS_MAX,
            _ => PAGES_MAX,
        };
        let next = self.next_page(&run, page, found.is_empty());
        // for unresolved calls every page is worth a request
        let goes_on =
            self.page_strategy.is_on(now) || unresolved && self.page_strategy.is_readable(now);
        let any = !found.is_empty();
        let mut findings = Findings {
            found,
            ..Findings::default()
        };
        match next {
            _ if left == 0 => {
                self.missed = 0;
                self.end(run, true, &mut findings);
            }
            Some(_) if any && few && !unresolved => passed_by(run, &mut findings),
            Some(next) if run.read.len() < pages_max && goes_on => {
                run.page = next;
                self.running = Some(run);
            }
            Some(_) | None => self.end(run, next.is_none(), &mut findings),
        }
        findings
    }

    /// The call whose outcome shows why so much was missed.
    fn probe(&self, run: &Running) -> Option<Unconfirmed> {
        let is_missed =
            |it: &&ReconcileTarget| it.confirmable && !it.unresolved && sent_once(&it.call);
        let missed: Vec<_> = run.targets.values().filter(is_missed).collect();
        let count = u32::try_from(missed.len()).unwrap_or(u32::MAX);
        let most = count > run.found && (count >= WORTH || !self.page_strategy.proven);
        let oldest = missed.into_iter().min_by_key(|it| it.call.submitted_at);
        oldest.filter(|_| most).map(|it| it.call.clone())
    }

    /// Removes the targets that the page shows from those left, and returns them.
    fn shown(&mut self, run: &mut Running, page: &Page) -> Vec<Unconfirmed> {
        let found = page
            .uuids
            .iter()
            .filter_map(|uuid| run.targets.remove(uuid));
        let found: Vec<Unconfirmed> = found.map(|target| target.call).collect();
        for call in found
            .iter()
            .filter(|it| sent_once(it) && it.request_id.is_some())
        {
            let at_first = call.absent == 0 && call.polls == 0;
            self.page_strategy.persisted(call.age(run.at), at_first);
        }
        found
    }

    /// The next page that can show more. `None` if all were read.
    fn next_page(&mut self, run: &Running, page: &Page, empty: bool) -> Option<u32> {
        let Some(total) = page.total else {
            // without a page count: read forwards while pages are full
            let full = page.rows >= self.page_strategy.size.get();
            let next = full.then_some(run.page + 1);
            return next.filter(|number| !run.read.contains(number));
        };
        if run.read.len() == 1 && empty && run.page == 1 && total > 1 {
            self.page_strategy.end = End::Last;
            return Some(total);
        }
        if run.read.len() == 1 && self.page_strategy.end == End::Last && total > run.page {
            return Some(total); // it grew meanwhile
        }
        unread(total, self.page_strategy.end, &run.read)
    }

    fn end(&mut self, run: Running, complete: bool, findings: &mut Findings) {
        if run.found == 0 && !self.page_strategy.proven {
            self.page_strategy.end = End::First;
        }
        findings.probe = self.probe(&run);
        let absent = run.targets.values().filter(|it| it.confirmable);
        findings.absent = absent.map(|it| it.call.clone()).collect();
        findings.complete = complete;
        findings.conclusive =
            findings.probe.is_none() && (self.page_strategy.proven || run.since.is_none());
        if let Some(before) = run.before {
            let read = std::mem::replace(&mut self.page_strategy, before);
            self.page_strategy.persisting = read.persisting;
        }
    }

    /// Turns reconciliations off for an hour if their pages show mostly records of others.
    fn judge_yield(&mut self, now: EventTime, page: &Page, found: usize) {
        let strangers = usize::try_from(page.rows).unwrap_or(0) > found;
        if found == 0 && !strangers {
            return;
        }
        self.pages += 1;
        self.shown += u32::try_from(found).unwrap_or(u32::MAX);
        let (pages, least) = YIELD;
        if self.pages >= pages {
            if self.page_strategy.proven && self.shown < least * self.pages {
                // they show too few of our calls to be worth their cost, but can be read
                self.page_strategy.off(now);
                self.page_strategy.poor = true;
            }
            (self.pages, self.shown) = (self.pages / 2, self.shown / 2);
        }
    }

    /// Changes the strategy after the CRM has refused a page, and restarts.
    pub fn unswept(&mut self, now: EventTime, bar: Bar) {
        self.running = None;
        match bar {
            Bar::TooLarge => self.page_strategy.smaller(now),
            Bar::Refused => self.page_strategy.no_range(now),
            Bar::Barred => self.page_strategy.off(now),
        }
    }

    /// The request failed, or its answer was not a page. Restarts the reconciliation.
    pub fn failed(&mut self, now: EventTime) {
        self.running = None;
        self.faults += 1;
        if self.faults >= FAULTS_MAX {
            self.faults = 0;
            self.page_strategy.off(now);
        }
    }

    /// The request was not sent, or its outcome is not known. Restarts the reconciliation.
    pub fn dropped(&mut self) {
        self.running = None;
    }

    /// The probe is written, so the journal cannot be read in this way. If this way worked before,
    /// the call may have been written only now, so it is tried again.
    pub fn probe_was_written(&mut self, now: EventTime) {
        let proven = self.page_strategy.proven;
        self.missed += if proven { 1 } else { MISSED_MAX };
        self.next_range_if_missed(now);
    }

    /// The probe is not written yet: persisting takes longer than estimated.
    pub fn probe_was_not(&mut self, now: EventTime, probe: &Unconfirmed) {
        self.missed = 0;
        let age = probe.age(now);
        self.page_strategy.persisted(age + age / 2, false);
    }

    fn next_range_if_missed(&mut self, now: EventTime) {
        if self.missed >= MISSED_MAX {
            self.missed = 0;
            self.page_strategy.next_range(now);
        }
    }

    /// A poll found this call in the journal.
    pub fn polled(&mut self, now: EventTime, call: &Unconfirmed) {
        if !sent_once(call) {
            return;
        }
        let age = call.age(now);
        let at_first = call.absent == 0 && call.polls == 0;
        // a call that was found at once was there for a while, or has just been written
        self.page_strategy.persisted(age, at_first);
        let missed = call.absent >= 2 && call.absent_at.is_some_and(|at| now.since(at) < ONE_TRY);
        if missed && self.page_strategy.proven {
            self.missed += 1;
            self.next_range_if_missed(now);
        }
    }
}

/// A reconciliation stops before the last page because few calls are left. If the oldest record
/// comes first, calls that belong before the found ones are absent. Otherwise this is not known,
/// and all are looked for again.
fn passed_by(run: Running, findings: &mut Findings) {
    let newest = findings.found.iter().map(|call| call.submitted_at).max();
    let in_order = is_oldest_first(&findings.found);
    let passed = |it: &ReconcileTarget| !in_order || Some(it.call.submitted_at) < newest;
    let targets = run.targets.into_values();
    let absent = targets.filter(|it| it.confirmable && passed(it));
    findings.absent = absent.map(|it| it.call).collect();
    findings.conclusive = true;
}

fn sent_once(call: &Unconfirmed) -> bool {
    call.submitted_at.since(call.first_sent) <= ONE_TRY
}

/// Returns `true` if a page that shows these calls has the oldest record first.
fn is_oldest_first(found: &[Unconfirmed]) -> bool {
    match (found.first(), found.last()) {
        (Some(first), Some(last)) => first.submitted_at <= last.submitted_at,
        (None, _) | (_, None) => false,
    }
}

#[cfg(test)]
mod tests;
