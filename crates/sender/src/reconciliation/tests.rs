//! Against journals of every kind that the document leaves open.

use super::*;
use callbridge_spool::{IfAbsent, RowId};

const T0: EventTime = EventTime::from_seconds(1_795_151_000);

fn after(seconds: u64) -> EventTime {
    T0.plus(Duration::from_secs(seconds))
}

fn token() -> TokenFingerprint {
    TokenFingerprint::of("svc_pat_one")
}

fn uuid(n: u64) -> CallUuid {
    CallUuid(uuid::Uuid::from_u128(u128::from(n)))
}

/// The n-th call, accepted n seconds after the beginning.
fn call(n: u64) -> Unconfirmed {
    Unconfirmed {
        row: RowId(i64::try_from(n).expect("small")),
        uuid: uuid(n),
        linkedid: n.to_string(),
        trunk: None,
        started: after(n).minus(Duration::from_secs(3600)).floor_seconds(),
        request_id: Some(n.to_string()),
        token: token(),
        submitted_at: after(n),
        first_sent: after(n),
        polls: 0,
        next_poll: after(n + 2),
        absent: 0,
        absent_at: None,
        resubmits: 0,
        if_absent: IfAbsent::Resubmit,
        message: String::new(),
    }
}

fn calls(count: u64) -> Vec<Unconfirmed> {
    (0..count).map(call).collect()
}

/// A journal: when each record was registered, by the service's clock.
#[derive(Clone, Default)]
struct Journal {
    records: Vec<(i64, CallUuid)>,
    ignores_range: bool,
    newest_first: bool,
    counts_no_pages: bool,
}

impl Journal {
    fn holding(calls: &[Unconfirmed], registered: impl Fn(&Unconfirmed) -> i64) -> Self {
        let records = calls.iter().map(|call| (registered(call), call.uuid));
        Self {
            records: records.collect(),
            ..Self::default()
        }
    }

    /// So many records of others, a second apart, before ours.
    fn with_strangers(mut self, count: u64) -> Self {
        let first = T0.floor_seconds().get() - i64::try_from(count).expect("small") - 100;
        let strangers = (0..count).map(|n| {
            (
                first + i64::try_from(n).expect("small"),
                uuid(1_000_000 + n),
            )
        });
        let mut records: Vec<_> = strangers.collect();
        records.append(&mut self.records);
        self.records = records;
        self
    }

    fn page(&self, asked: &FilterPage) -> Page {
        let since = asked.since.filter(|_| !self.ignores_range);
        let in_range = |(at, _): &&(i64, CallUuid)| since.is_none_or(|since| *at >= since.get());
        let mut rows: Vec<CallUuid> = self
            .records
            .iter()
            .filter(in_range)
            .map(|it| it.1)
            .collect();
        if self.newest_first {
            rows.reverse();
        }
        let size = usize::try_from(asked.size.get()).expect("small");
        let total = u32::try_from(rows.len().div_ceil(size)).expect("few");
        let skipped = usize::try_from(asked.page - 1).expect("small") * size;
        let shown: Vec<CallUuid> = rows.into_iter().skip(skipped).take(size).collect();
        Page {
            rows: u32::try_from(shown.len()).expect("few"),
            uuids: shown,
            shown: Vec::new(),
            current: (!self.counts_no_pages).then_some(asked.page),
            total: (!self.counts_no_pages).then_some(total),
        }
    }
}

/// What a whole reconciliation came to, and how many pages it read.
fn sweep(
    reconciliation: &mut JournalReconciliation,
    journal: &Journal,
    targets: &[Unconfirmed],
) -> (Findings, u32) {
    let now = after(1000);
    let mut all = Findings::default();
    for pages in 1..=20 {
        let asked = reconciliation.page(now, now, &[token()], targets.to_vec());
        let asked = asked.expect("something is ripe");
        let findings = reconciliation.on_page(now, &journal.page(&asked), false);
        all.found.extend(findings.found);
        all.absent.extend(findings.absent);
        all.complete |= findings.complete;
        all.probe = all.probe.or(findings.probe);
        if !reconciliation.is_running() {
            return (all, pages);
        }
    }
    panic!("a sweep without an end");
}

fn registered_at_once(call: &Unconfirmed) -> i64 {
    call.submitted_at.floor_seconds().get()
}

#[test]
fn a_page_confirms_as_many_calls_as_it_shows() {
    let targets = calls(95);
    let journal = Journal::holding(&targets, registered_at_once).with_strangers(5000);
    let mut reconciliation = JournalReconciliation::default();
    let (findings, pages) = sweep(&mut reconciliation, &journal, &targets);
    assert_eq!(
        (findings.found.len(), findings.absent.len(), pages),
        (95, 0, 1)
    );
    assert!(reconciliation.page_strategy.proven);
}

#[test]
fn an_order_that_nobody_publishes_is_found_out() {
    let targets = calls(95);
    let holding = || Journal::holding(&targets, registered_at_once);
    for (journal, first, then) in [
        (holding(), 1, 1),
        (
            Journal {
                newest_first: true,
                ..holding()
            },
            1,
            1,
        ),
        // its oldest records are a stranger's
        (
            Journal {
                ignores_range: true,
                ..holding().with_strangers(3000)
            },
            2,
            1,
        ),
        (
            Journal {
                ignores_range: true,
                newest_first: true,
                ..holding().with_strangers(3000)
            },
            1,
            1,
        ),
    ] {
        let mut reconciliation = JournalReconciliation::default();
        let (findings, pages) = sweep(&mut reconciliation, &journal, &targets);
        assert_eq!((findings.found.len(), pages), (95, first));
        let (findings, pages) = sweep(&mut reconciliation, &journal, &targets);
        assert_eq!(
            (findings.found.len(), pages),
            (95, then),
            "once it is known"
        );
    }
}

#[test]
fn pages_that_are_not_counted_are_read_while_they_are_full() {
    let targets = calls(250);
    let journal = Journal::holding(&targets, registered_at_once);
    let journal = Journal {
        counts_no_pages: true,
        ..journal
    };
    let (findings, pages) = sweep(&mut JournalReconciliation::default(), &journal, &targets);
    assert_eq!(
        (findings.found.len(), findings.absent.len(), pages),
        (250, 0, 3)
    );
}

#[test]
fn what_no_page_shows_is_absent_and_what_is_young_is_not() {
    let mut targets = calls(10);
    let journal = Journal::holding(&targets[..6], registered_at_once);
    targets[9].submitted_at = after(1001);
    let (findings, _) = sweep(&mut JournalReconciliation::default(), &journal, &targets);
    let absent: Vec<_> = findings.absent.iter().map(|call| call.row.0).collect();
    assert_eq!((findings.found.len(), absent), (6, vec![6, 7, 8]));
    assert!(findings.complete && findings.probe.is_none());
}

#[test]
fn a_journal_that_goes_by_other_clocks_is_found_by_wider_ranges() {
    let targets = calls(5);
    for (range, behind) in [
        (Range::SentMinute, 30),
        (Range::SentMinutes, 500),
        (Range::Started, 3600),
        (Range::Whole, 90_000),
    ] {
        let journal = Journal::holding(&targets, |call| registered_at_once(call) - behind);
        let mut reconciliation = JournalReconciliation::default();
        let found = (0..5).find_map(|_| {
            let (findings, pages) = sweep(&mut reconciliation, &journal, &targets);
            if findings.found.len() == targets.len() {
                return Some(pages);
            }
            let probe = findings.probe.expect("a poll that tells");
            assert_eq!(probe.row, RowId(0), "the oldest");
            reconciliation.probe_was_written(after(1000));
            None
        });
        assert_eq!(
            (found, reconciliation.page_strategy.range),
            (Some(1), range),
            "{behind} s behind"
        );
    }
}

#[test]
fn pages_full_of_strangers_end_the_sweeps_for_an_hour() {
    let targets = calls(1);
    let mut journal = Journal::holding(&targets, registered_at_once);
    let strangers = (0..99).map(|n| (T0.floor_seconds().get() + 1, uuid(5_000_000 + n)));
    journal.records.extend(strangers);
    let mut reconciliation = JournalReconciliation::default();
    for _ in 0..4 {
        assert!(reconciliation.page_strategy.is_on(after(1000)));
        sweep(&mut reconciliation, &journal, &targets);
    }
    assert!(!reconciliation.page_strategy.is_on(after(1000)));
    assert!(
        reconciliation.page_strategy.is_readable(after(1000)),
        "for what nothing else can find"
    );
    assert!(reconciliation.page_strategy.is_on(after(1000 + 3600)));
    reconciliation.page_strategy.off(after(1000));
    reconciliation.renewed();
    assert!(
        reconciliation.page_strategy.is_on(after(1000)),
        "another token may do more"
    );
}

#[test]
fn unresolved_call_among_many_foreign_calls_is_found() {
    let unresolved = Unconfirmed {
        token: TokenFingerprint::none(),
        ..call(1)
    };
    let targets = [call(0), unresolved];
    let mut journal = Journal::holding(&targets, registered_at_once);
    let at = T0.floor_seconds().get();
    let strangers = (0..549).map(|n| (at, uuid(5_000_000 + n)));
    journal.records.splice(1..1, strangers);
    let mut reconciliation = JournalReconciliation::default();
    let (findings, pages) = sweep(&mut reconciliation, &journal, &targets);
    assert_eq!((findings.found.len(), pages), (2, 6));
    assert!(!reconciliation.page_strategy.is_on(after(1000)));
}

#[test]
fn orphans_behind_many_pages_of_others_are_found() {
    let unresolved = |call| Unconfirmed {
        token: TokenFingerprint::none(),
        ..call
    };
    let targets: Vec<_> = calls(4).into_iter().map(unresolved).collect();
    let at = after(10).floor_seconds().get();
    let mut journal = Journal::holding(&targets, registered_at_once);
    let strangers = (0..200).map(|n| (at, uuid(5_000_000 + n)));
    journal.records.extend(strangers);
    let mut page_strategy = PageStrategy {
        end: End::Last,
        pages: 7,
        proven: true,
        ..PageStrategy::default()
    };
    while page_strategy.size.get() > 30 {
        page_strategy.smaller(T0);
    }
    let mut reconciliation = JournalReconciliation::new(page_strategy);
    let (findings, pages) = sweep(&mut reconciliation, &journal, &targets);
    assert_eq!(
        (findings.found.len(), findings.absent.len(), pages),
        (4, 0, 7)
    );
}

#[test]
fn reconciliation_under_load_defers_calls_on_next_page() {
    let targets = calls(120);
    let journal = Journal::holding(&targets, registered_at_once);
    let mut reconciliation = JournalReconciliation::default();
    let asked = reconciliation.page(after(1000), after(1000), &[token()], targets.clone());
    let page = journal.page(&asked.expect("a page"));
    let findings = reconciliation.on_page(after(1000), &page, true);
    assert_eq!((findings.found.len(), findings.absent.len()), (100, 0));
    assert!(!reconciliation.is_running());
}

#[test]
fn missing_call_before_found_calls_is_absent_on_early_end() {
    let targets = calls(120);
    let mut journal = Journal::holding(&targets, registered_at_once);
    journal.records.remove(7);
    let mut reconciliation = JournalReconciliation::default();
    let asked = reconciliation.page(after(1000), after(1000), &[token()], targets.clone());
    let page = journal.page(&asked.expect("a page"));
    let findings = reconciliation.on_page(after(1000), &page, true);
    let absent: Vec<_> = findings.absent.iter().map(|call| call.row.0).collect();
    assert_eq!((findings.found.len(), absent), (100, vec![7]));
}

#[test]
fn resubmitted_call_keeps_range_but_unresolved_widens_it() {
    let since = |change: fn(&mut Unconfirmed)| {
        let mut targets = calls(5);
        change(&mut targets[4]);
        let page =
            JournalReconciliation::default().page(after(1000), after(1000), &[token()], targets);
        let since = page.expect("a page").since.expect("a range");
        T0.floor_seconds().get() - since.get()
    };
    assert_eq!(since(|_| {}), 3);
    assert_eq!(
        since(|call| call.first_sent = T0.minus(Duration::from_secs(900))),
        3
    );
    let unresolved = |call: &mut Unconfirmed| {
        call.first_sent = T0.minus(Duration::from_secs(900));
        call.token = TokenFingerprint::none();
    };
    assert_eq!(since(unresolved), 903);
}

#[test]
fn three_answers_that_are_no_page_are_enough() {
    let mut reconciliation = JournalReconciliation::default();
    for _ in 0..3 {
        assert!(reconciliation.page_strategy.is_on(after(0)));
        reconciliation.failed(after(0));
    }
    assert!(!reconciliation.page_strategy.is_on(after(0)));
}

#[test]
fn calls_that_sweeps_miss_time_and_again_change_the_range() {
    let missed = Unconfirmed {
        absent: 2,
        absent_at: Some(after(100)),
        ..call(1)
    };
    let mut reconciliation = JournalReconciliation::default();
    reconciliation.page_strategy.proven = true;
    for _ in 0..2 {
        assert_eq!(reconciliation.page_strategy.range, Range::Sent);
        reconciliation.polled(after(101), &missed);
    }
    assert_eq!(reconciliation.page_strategy.range, Range::SentMinute);
}

#[test]
fn unresolved_call_after_clock_set_back_needs_whole_journal() {
    let years = Duration::from_secs(20 * 365 * 24 * 3600);
    let unresolved = Unconfirmed {
        token: TokenFingerprint::none(),
        submitted_at: T0.plus(years),
        first_sent: T0.plus(years),
        ..call(1)
    };
    let mut reconciliation = JournalReconciliation::default();
    reconciliation.page_strategy.proven = true;
    let page = reconciliation.page(
        after(1000),
        after(998),
        &[token()],
        vec![unresolved.clone()],
    );
    assert_eq!(page.expect("it is sought").since, None);
    assert!(unresolved.age(after(1000)) > Duration::from_secs(600));
}
