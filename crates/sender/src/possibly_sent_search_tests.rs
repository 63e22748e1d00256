//! The search over a made-up journal, and the books of a made-up spool.

use super::*;
use callbridge_call::EventTime;
use callbridge_model::CallUuid;
use std::collections::BTreeSet;

fn at(seconds: u64) -> Now {
    Now {
        boot: Duration::from_secs(seconds),
        wall: EventTime::from_seconds(1_795_151_000 + i64::try_from(seconds).expect("soon")),
    }
}

/// Between two calls: more than clocks may be apart.
const APART: i64 = 700;

/// Calls from 0, the oldest, and the journal.
struct SearchScene {
    search: PossiblySentSearch,
    /// Calls that wait to be looked for.
    targets: BTreeSet<u32>,
    released: Vec<u32>,
    /// The journal's records, oldest first; what is no call of ours is a stranger's.
    journal: Vec<u32>,
    newest_first: bool,
    found: u64,
    taken: u64,
    pages: u32,
}

const STRANGER: u32 = 1_000_000;

impl SearchScene {
    fn new(calls: u32, journal: impl IntoIterator<Item = u32>, newest_first: bool) -> Self {
        Self {
            search: PossiblySentSearch::default(),
            targets: (0..calls).collect(),
            released: Vec::new(),
            journal: journal.into_iter().collect(),
            newest_first,
            found: 0,
            taken: calls.into(),
            pages: 0,
        }
    }

    fn calls(&self) -> PossiblySentCalls {
        PossiblySentCalls {
            waiting: u64::try_from(self.targets.len()).expect("few"),
            is_searching: !self.targets.is_empty(),
            taken: self.taken,
            found: self.found,
            ..PossiblySentCalls::default()
        }
    }

    fn segment(&self, depth: u32) -> Option<Segment> {
        let newest: Vec<u32> = self
            .targets
            .iter()
            .rev()
            .take(depth as usize)
            .copied()
            .collect();
        Some(Segment {
            calls: u32::try_from(newest.len()).expect("few"),
            since: EpochSeconds::new(i64::from(*newest.last()?) * APART),
            more: newest.len() < self.targets.len(),
        })
    }

    fn commit(&mut self, op: Op) {
        match op {
            Op::PeerOutcome(PeerOutcome::SearchedFor(since)) => {
                let since = since.map_or(0, |it| u32::try_from(it.get() / APART).expect("a call"));
                let rest = self.targets.split_off(&since);
                self.released.extend(rest.into_iter().rev());
            }
            Op::PeerOutcome(PeerOutcome::Settled(told)) => {
                for uuid in told.outcomes.journaled {
                    let n = u32::try_from(uuid.as_u128()).expect("a number");
                    self.found += u64::from(self.targets.remove(&n));
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn answer(&self, asked: &FilterPage) -> Page {
        let since = asked.since.map_or(0, |it| it.get());
        let of_range = |n: &&u32| i64::from(**n % STRANGER) * APART >= since;
        let mut rows: Vec<u32> = self.journal.iter().filter(of_range).copied().collect();
        if self.newest_first {
            rows.reverse();
        }
        let size = asked.size.get() as usize;
        let page = rows.chunks(size).nth(asked.page as usize - 1);
        let page = page.unwrap_or_default();
        Page {
            rows: u32::try_from(page.len()).expect("few"),
            uuids: page
                .iter()
                .map(|n| CallUuid(uuid::Uuid::from_u128((*n).into())))
                .collect(),
            shown: Vec::new(),
            current: Some(asked.page),
            total: Some(u32::try_from(rows.chunks(size).count()).expect("few")),
        }
    }

    /// Until nothing is looked for; the pages it took.
    fn run(&mut self) -> u32 {
        for step in 0..10_000 {
            match self.search.next(at(10 + step), &self.calls(), true) {
                SearchStep::Nothing => return self.pages,
                SearchStep::Wait(_) => {}
                SearchStep::Commit(ops) => ops.into_iter().for_each(|op| self.commit(op)),
                SearchStep::Page(depth) => {
                    let segment = depth.and_then(|depth| self.segment(depth));
                    let size = PageSize::LARGEST;
                    match self.search.page(segment, self.found, size, true) {
                        None => self.commit(round_is_over()),
                        Some(asked) => {
                            self.pages += 1;
                            let page = self.answer(&asked);
                            let op = self.search.on_page(at(10 + step), &page, size);
                            self.commit(op.expect("a page of ours"));
                        }
                    }
                }
            }
        }
        panic!("it never ends");
    }
}

#[test]
fn all_that_the_journal_holds_is_found_and_the_rest_goes_newest_first() {
    for newest_first in [true, false] {
        // Every third call had not been sent.
        let journal = (0..5_000).filter(|n| n % 3 != 0);
        let mut world = SearchScene::new(5_000, journal, newest_first);
        let pages = world.run();
        assert_eq!(world.found, 3_333);
        let mut rest: Vec<u32> = (0..5_000).filter(|n| n % 3 == 0).collect();
        rest.reverse();
        assert_eq!(world.released, rest);
        // 34 pages hold all; segments before the last cost a third more, and whole pages.
        assert!(pages <= 55, "{pages}");
    }
}

#[test]
fn newer_calls_are_released_before_older_ones_are_looked_for() {
    let mut world = SearchScene::new(1_000, 0..900, true);
    world.run();
    assert_eq!(world.released.len(), 100);
    assert_eq!(world.released.first(), Some(&999));
    let news = world.search.take_news();
    let SearchNews::Begun(1_000) = news[0] else {
        panic!("{news:?}")
    };
    let first = SearchNews::Segment {
        found: 0,
        pages: 1,
        waiting: 1_000,
    };
    assert!(news.contains(&first), "the newest hundred: {news:?}");
}

#[test]
fn an_empty_journal_costs_a_page_a_segment_and_no_call_costs_none() {
    let mut world = SearchScene::new(2_000, [], true);
    assert!(world.run() <= 4, "{}", world.pages);
    assert_eq!(world.released.len(), 2_000);
    let mut nothing = SearchScene::new(0, 0..10, true);
    assert_eq!(nothing.run(), 0);
}

#[test]
fn a_journal_full_of_strangers_is_left_alone() {
    let mut strangers: Vec<u32> = (0..50_000).map(|n| STRANGER + n % 900).collect();
    strangers.push(5);
    let mut world = SearchScene::new(900, strangers, true);
    let pages = world.run();
    assert!(pages <= 10, "{pages}");
    assert_eq!(
        world.released.len() + usize::try_from(world.found).expect("few"),
        900
    );
}

#[test]
fn it_begins_when_the_stream_is_silent_and_does_not_wait_for_ever() {
    let mut world = SearchScene::new(10, [], true);
    let mut step = |seconds, more: u64| {
        world.taken += more;
        let calls = world.calls();
        world.search.next(at(seconds), &calls, true)
    };
    let until = |seconds| SearchStep::Wait(at(seconds).boot);
    assert_eq!(step(0, 0), until(3));
    assert_eq!(step(2, 1), until(5));
    assert_eq!(step(5, 1), until(8), "more came");
    assert_eq!(step(8, 0), SearchStep::Page(Some(100)));
    let mut busy = SearchScene::new(10, [], true);
    let mut begun = 0;
    for seconds in 0..200 {
        busy.taken += 1;
        let calls = busy.calls();
        if matches!(
            busy.search.next(at(seconds), &calls, true),
            SearchStep::Page(_)
        ) {
            begun = seconds;
            break;
        }
    }
    assert_eq!(begun, 120);
}

#[test]
fn where_the_journal_cannot_be_read_all_are_sent_and_that_is_said() {
    let mut world = SearchScene::new(10, 0..10, true);
    let calls = world.calls();
    let SearchStep::Commit(ops) = world.search.next(at(0), &calls, false) else {
        panic!("nothing is read")
    };
    ops.into_iter().for_each(|op| world.commit(op));
    assert_eq!(world.released.len(), 10);
    let news = world.search.take_news();
    assert_eq!(news, [SearchNews::Unreadable(10)]);
}

#[test]
fn a_page_that_was_not_answered_is_asked_for_again() {
    let mut world = SearchScene::new(300, 0..300, true);
    let size = PageSize::LARGEST;
    let calls = world.calls();
    world.search.next(at(0), &calls, true);
    let step = world.search.next(at(3), &calls, true);
    assert_eq!(step, SearchStep::Page(Some(100)));
    let segment = world.segment(100);
    let asked = world.search.page(segment, 0, size, true).expect("a page");
    // Its request was lost.
    assert_eq!(
        world.search.next(at(4), &calls, true),
        SearchStep::Page(None)
    );
    assert_eq!(world.search.page(None, 0, size, true), Some(asked));
    assert_eq!(world.run() + 1, world.pages + 1);
    assert_eq!(world.found, 300);
}
