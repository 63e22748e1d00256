//! Calls that another may have sent are looked for with pages of the journal before they are sent:
//! one request settles up to a page of them.
//!
//! ```text
//!  quiet ─▶ segment (spool) ─▶ page ─▶ its uuids are settled (spool) ─▶ how many were ours?
//!               ▲                ▲                                          │
//!               │                └──────────── more pages ──────────────────┤
//!               └── the next, four times as large ◀── looked for: the rest may be sent
//! ```
//! A segment is the newest of the calls that are left; its pages begin before the oldest of them.
//! The filter has no upper bound, so a later segment reads the pages of those before it once more:
//! growing by four, all together cost a third more than the last one alone. The order of records is
//! not published (§4.7), and none is needed: every page is compared with all calls.

use crate::End;
use crate::reconciliation::page_strategy::unread;
use callbridge_call::EpochSeconds;
use callbridge_crm::{FilterPage, Page, PageSize};
use callbridge_model::Now;
use callbridge_spool::{Op, PeerOutcome, PossiblySentCalls, Segment, Settlement};
use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

/// Nothing begins before so long nothing more came from the stream: what it tells at its end makes
/// pages needless.
const QUIET: Duration = Duration::from_secs(3);

/// But begins so long after the first of them.
const PATIENCE: Duration = Duration::from_secs(120);

/// Each segment is so many times as large as the one before it.
const GROWTH: u32 = 4;

/// The clocks of PBXs may be so much ahead of the service's.
const MARGIN: i64 = 600;

/// So many pages that show fewer of ours than they are end a segment: to send is cheaper.
const FRUITLESS: usize = 5;

/// Progress of the search, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SearchNews {
    /// So many calls are to be looked for.
    Begun(u64),
    /// A segment was looked for.
    Segment {
        /// Calls found since the search began.
        found: u64,
        /// Pages read since the search began.
        pages: u32,
        /// Calls that still wait to be looked for.
        waiting: u64,
    },
    /// The journal cannot be read: so many calls are sent without being looked for.
    Unreadable(u64),
}

/// Next step of the search.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum SearchStep {
    /// No call is to be looked for, or a page is under way.
    Nothing,
    /// To look again then, since boot.
    Wait(Duration),
    /// To ask for a page; of a new segment of so many calls.
    Page(Option<u32>),
    /// Commit these operations, and ask again.
    Commit(Vec<Op>),
}

/// State of the search, between its pages.
#[derive(Debug, Default)]
pub(super) struct PossiblySentSearch {
    /// Counts of calls taken and settled at the last check, by which it is noticed that
    /// the stream brings no more.
    brought: (u64, u64),
    quiet_since: Duration,
    waiting_since: Option<Duration>,
    /// Calls of the next segment.
    depth: Option<u32>,
    running: Option<RunningSegment>,
    /// The last request that left was a page of ours: others may go before the next.
    pub(super) had_turn: bool,
    /// Calls that had been found when this search began; `None` while none is under way.
    found_before: Option<u64>,
    pages: u32,
    news: Vec<SearchNews>,
}

/// A segment between its first page and its last.
#[derive(Debug)]
struct RunningSegment {
    segment: Segment,
    page: u32,
    /// End from which pages are read.
    end: End,
    read: BTreeSet<u32>,
    /// Calls of ours on each of the last pages.
    showed: VecDeque<u64>,
    /// A page was answered, of so many in all: what it showed is known after the commit.
    answered: Option<u32>,
    found: u64,
}

impl PossiblySentSearch {
    /// Takes the progress made since the last call, for the log.
    pub(super) fn take_news(&mut self) -> Vec<SearchNews> {
        std::mem::take(&mut self.news)
    }

    /// Chooses the next step; `readable`: the journal can be read, as far as is known.
    pub(super) fn next(
        &mut self,
        now: Now,
        calls: &PossiblySentCalls,
        readable: bool,
    ) -> SearchStep {
        if !calls.is_searching {
            self.over();
            return SearchStep::Nothing;
        }
        if !readable {
            self.over();
            self.news.push(SearchNews::Unreadable(calls.waiting));
            return SearchStep::Commit(vec![round_is_over()]);
        }
        if let Some(run) = self.running.take() {
            return self.goes_on(run, calls);
        }
        if self.found_before.is_none() {
            if let Some(from) = self.waits_for_quiet(now, calls) {
                return SearchStep::Wait(from);
            }
            self.found_before = Some(calls.found);
            self.news.push(SearchNews::Begun(calls.waiting));
        }
        SearchStep::Page(Some(self.depth.unwrap_or(PageSize::LARGEST.get())))
    }

    /// Time since boot at which to begin; `None` for now.
    fn waits_for_quiet(&mut self, now: Now, calls: &PossiblySentCalls) -> Option<Duration> {
        let brought = (calls.taken, calls.settled);
        if self.brought != brought || self.waiting_since.is_none() {
            self.brought = brought;
            self.quiet_since = now.boot;
        }
        let first = *self.waiting_since.get_or_insert(now.boot);
        let from = (self.quiet_since + QUIET).min(first + PATIENCE);
        (from > now.boot).then_some(from)
    }

    fn over(&mut self) {
        *self = Self {
            news: self.take_news(),
            had_turn: self.had_turn,
            ..Self::default()
        };
    }

    fn goes_on(&mut self, mut run: RunningSegment, calls: &PossiblySentCalls) -> SearchStep {
        let Some(total) = run.answered.take() else {
            self.running = Some(run);
            return SearchStep::Page(None);
        };
        let showed = calls.found.saturating_sub(run.found);
        run.found = calls.found;
        run.read.insert(run.page);
        run.showed.push_back(showed);
        match next_page(&mut run, total, showed) {
            Some(page) => {
                run.page = page;
                self.running = Some(run);
                SearchStep::Page(None)
            }
            None => {
                self.depth = Some(run.segment.calls.saturating_mul(GROWTH));
                let before = self.found_before.unwrap_or(calls.found);
                self.news.push(SearchNews::Segment {
                    found: calls.found.saturating_sub(before),
                    pages: self.pages,
                    waiting: calls.waiting,
                });
                let since = run.segment.more.then_some(run.segment.since);
                SearchStep::Commit(vec![searched(since)])
            }
        }
    }

    /// The page to ask for; of a new segment where one is given. Where there is none nothing of
    /// this round is left: [`round_is_over`] is to be committed.
    pub(super) fn page(
        &mut self,
        segment: Option<Segment>,
        found: u64,
        size: PageSize,
        ranged: bool,
    ) -> Option<FilterPage> {
        if self.running.is_none() {
            let segment = segment?;
            self.running = Some(RunningSegment {
                segment,
                page: 1,
                end: End::First,
                read: BTreeSet::new(),
                showed: VecDeque::new(),
                answered: None,
                found,
            });
        }
        let run = self.running.as_ref()?;
        let since = EpochSeconds::new(run.segment.since.get() - MARGIN);
        Some(FilterPage {
            page: run.page,
            size,
            since: ranged.then_some(since),
        })
    }

    /// Takes in a page: the operation settles the calls that it shows. `None` for one that no
    /// segment asked for.
    pub(super) fn on_page(&mut self, now: Now, page: &Page, size: PageSize) -> Option<Op> {
        let run = self.running.as_mut()?;
        self.pages += 1;
        // no count of pages: forwards while they are full
        let full = page.rows >= size.get();
        run.answered = page.total.or(Some(run.page + u32::from(full)));
        let settlement = Settlement::by_page(&page.uuids, now.wall);
        Some(Op::PeerOutcome(PeerOutcome::Settled(settlement)))
    }

    /// Pages are of another size or range now: the segment begins anew.
    pub(super) fn begin_anew(&mut self) {
        self.running = None;
    }
}

/// `None` when the segment has been looked for.
fn next_page(run: &mut RunningSegment, total: u32, showed: u64) -> Option<u32> {
    if run.read.len() == 1 && showed == 0 && total > 1 {
        run.end = End::Last;
        return Some(total);
    }
    if run.showed.len() > FRUITLESS {
        run.showed.pop_front();
    }
    let few = run.showed.iter().sum::<u64>() < FRUITLESS as u64;
    // neither end shows ours, or hardly any page does
    let fruitless = run.read.len() == 2 && run.end == End::Last && showed == 0
        || run.showed.len() == FRUITLESS && few;
    unread(total, run.end, &run.read).filter(|_| !fruitless)
}

/// All calls of this round have been looked for.
pub(super) fn round_is_over() -> Op {
    searched(None)
}

fn searched(since: Option<EpochSeconds>) -> Op {
    Op::PeerOutcome(PeerOutcome::SearchedFor(since))
}

#[cfg(test)]
#[path = "possibly_sent_search_tests.rs"]
mod tests;
