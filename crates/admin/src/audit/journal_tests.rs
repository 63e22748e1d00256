//! Tests that the audit reports a call as missing only if it read the whole journal, and the pages
//! do not contradict each other.

use super::*;
use callbridge_call::Direction;
use callbridge_model::LeadId;

const T0: i64 = 1_795_151_317;

fn uuid(n: u32) -> CallUuid {
    CallUuid(uuid::Uuid::from_u128(u128::from(n) + 1))
}

fn now() -> EventTime {
    EventTime::from_seconds(T0 + 100_000)
}

/// Returns our call `n`, which began `n` minutes after [`T0`].
fn call(n: u32) -> JournaledCall {
    let started = T0 + 60 * i64::from(n);
    JournaledCall {
        uuid: uuid(n),
        started: EpochSeconds::new(started),
        since: Some(EventTime::from_seconds(started + 90)),
        sent: Some(SentValues {
            leads: vec![LeadId::new(4001).expect("positive")],
            duration_sec: 61,
            answered: true,
            direction: Direction::Inbound,
        }),
    }
}

fn row(n: u32) -> ShownCall {
    ShownCall {
        uuid: uuid(n),
        leads: vec![4001],
        duration_sec: Some(61),
        answered: Some(true),
        direction: Some(Direction::Inbound),
    }
}

/// A simulated journal of the CRM.
struct Journal {
    calls: Vec<u32>,
    /// Maximum number of rows on a page.
    size_max: u32,
    counts: bool,
    ranges: bool,
    /// Numbers of the calls that the state has as journaled.
    ours: std::ops::Range<u32>,
    asked: Vec<FilterPage>,
}

impl Journal {
    fn with_calls(calls: impl IntoIterator<Item = u32>) -> Self {
        Self {
            calls: calls.into_iter().collect(),
            size_max: 100,
            counts: true,
            ranges: true,
            ours: 0..1000,
            asked: Vec::new(),
        }
    }

    fn answer(&mut self, query: FilterPage) -> JournalAnswer {
        self.asked.push(query);
        let reason = "400".to_owned();
        if query.size.get() > self.size_max {
            return JournalAnswer::TooLarge { reason };
        }
        if query.since.is_some() && !self.ranges {
            return JournalAnswer::Refused { reason };
        }
        let from = query.since.map_or(i64::MIN, EpochSeconds::get);
        let mut in_range = Vec::new();
        for n in &self.calls {
            if T0 + 60 * i64::from(*n) >= from {
                in_range.push(*n);
            }
        }
        let size = query.size.get() as usize;
        let total = u32::try_from(in_range.len().div_ceil(size)).expect("few");
        let skipped = (query.page as usize - 1) * size;
        let rows: Vec<u32> = in_range.into_iter().skip(skipped).take(size).collect();
        let ours = rows.iter().filter(|n| self.ours.contains(n)).count();
        JournalAnswer::Page {
            page: page(&rows, query.page, self.counts.then_some(total)),
            ours: u32::try_from(ours).expect("few"),
        }
    }
}

fn page(calls: &[u32], current: u32, total: Option<u32>) -> Page {
    Page {
        rows: u32::try_from(calls.len()).expect("few"),
        uuids: calls.iter().map(|n| uuid(*n)).collect(),
        shown: calls.iter().map(|n| row(*n)).collect(),
        current: Some(current),
        total,
    }
}

fn search(calls: u32) -> JournalSearch {
    let all = (0..calls).map(|n| (n as usize, call(n)));
    JournalSearch::new(all, now())
}

fn read(mut search: JournalSearch, journal: &mut Journal) -> JournalFindings {
    while let Some(query) = search.next() {
        assert!(journal.asked.len() < 60, "it ends: {:?}", journal.asked);
        let answer = journal.answer(query);
        search.on_answer(answer);
    }
    search.findings()
}

/// Returns the indices of the missing calls. The journal must have been read to its end.
fn missing_indices(findings: &JournalFindings) -> Vec<usize> {
    assert!(findings.reading.read, "{:?}", findings.reading);
    findings.missing.keys().copied().collect()
}

fn reason(findings: &JournalFindings) -> &str {
    assert!(!findings.reading.read && findings.missing.is_empty());
    findings.reading.reason.as_deref().expect("a reason")
}

#[test]
fn journal_with_all_250_calls_needs_three_requests() {
    let mut journal = Journal::with_calls(0..250);
    let findings = read(search(250), &mut journal);
    assert!(missing_indices(&findings).is_empty());
    let JournalReading {
        asked, requests, ..
    } = findings.reading;
    assert_eq!((asked, requests, journal.asked.len()), (250, 3, 3));
    let first = journal.asked[0].since.expect("a range");
    assert_eq!(first.get(), T0 - MARGIN_SEC, "clocks may differ");
    assert_eq!(findings.changed, BTreeMap::new());
}

#[test]
fn journal_search_ends_at_the_last_wanted_call() {
    let mut journal = Journal::with_calls(0..1000);
    let findings = read(search(100), &mut journal);
    assert_eq!(
        (missing_indices(&findings), journal.asked.len()),
        (vec![], 1)
    );
}

#[test]
fn call_absent_from_all_pages_in_two_passes_is_missing() {
    let mut journal = Journal::with_calls((0..250).filter(|n| *n != 240 && *n != 7));
    let findings = read(search(250), &mut journal);
    assert_eq!(missing_indices(&findings), [7, 240]);
    assert_eq!(findings.reading.missing, 2);
    assert_eq!(journal.asked.len(), 6, "each page twice");
    // The second pass begins with the oldest missing call.
    let mut journal = Journal::with_calls(0..249);
    let findings = read(search(250), &mut journal);
    assert_eq!(missing_indices(&findings), [249]);
    let second = journal.asked[3].since.expect("a range").get();
    assert_eq!(second, T0 + 60 * 249 - MARGIN_SEC);
    assert_eq!(
        journal.asked.len(),
        5,
        "a full last page is the last: {:?}",
        journal.asked
    );
}

#[test]
fn full_last_page_is_last_only_if_next_page_is_empty() {
    let mut few = Journal::with_calls([0, 2]);
    assert_eq!(missing_indices(&read(search(3), &mut few)), [1]);
    assert_eq!(few.asked.len(), 1);
    let mut full = Journal::with_calls((0..101).filter(|n| *n != 1));
    assert_eq!(missing_indices(&read(search(101), &mut full)), [1]);
    assert_eq!(full.asked.len(), 2, "the page beyond is empty");
    let mut lies = search(150);
    for at in 0..4 {
        let query = lies.next().expect("a page");
        assert_eq!(query.page, 1 + at % 2, "once more from the start");
        let first = (query.page - 1) * 100;
        let rows: Vec<u32> = (first..first + 100).filter(|n| *n < 149).collect();
        lies.on_answer(JournalAnswer::Page {
            page: page(&rows, query.page, Some(1)),
            ours: 1,
        });
    }
    assert!(lies.next().is_none());
    let findings = lies.findings();
    let expected = "it reports page 1 as its last, but page 2 holds records";
    assert!(
        reason(&findings).ends_with(expected),
        "{}",
        reason(&findings)
    );
}

#[test]
fn call_moved_between_pages_is_found_on_second_read() {
    let mut journal = Journal::with_calls(0..250);
    let mut search = search(250);
    let first = journal.answer(search.next().expect("a page"));
    search.on_answer(first);
    // A row of the first page is deleted, so the first row of the second page moves to the first
    // page.
    journal.calls.remove(3);
    let findings = read(search, &mut journal);
    // The first pass has shown the deleted call, but not call 100, which moved.
    assert!(missing_indices(&findings).is_empty());
}

fn hundred_calls(first: u32) -> Vec<u32> {
    (first..first + 100).collect()
}

#[test]
fn contradictory_pages_report_no_call_as_missing() {
    let after_the_first: [(Page, &str); 6] = [
        (
            page(&hundred_calls(300), 1, Some(3)),
            "page 2 was requested, but page 1 came",
        ),
        (
            page(&hundred_calls(200), 2, Some(3)),
            "page 2 repeats page 1",
        ),
        (
            page(&hundred_calls(300)[..40], 2, Some(3)),
            "page 2 of 3 holds 40 records, and page 1 held 100",
        ),
        (
            page(&hundred_calls(300), 2, Some(2)),
            "it had 3 pages, and then 2",
        ),
        (
            page(&[], 2, Some(3)),
            "page 2 of 3 holds 0 records, and page 1 held 100",
        ),
        (
            page(&(300..420).collect::<Vec<_>>(), 2, Some(3)),
            "page 2 holds 120 records, and page 1 held 100",
        ),
    ];
    for (second, expected) in after_the_first {
        let mut search = search(10);
        for _ in 0..2 {
            for page in [page(&hundred_calls(200), 1, Some(3)), second.clone()] {
                assert!(search.next().is_some(), "{expected}");
                search.on_answer(JournalAnswer::Page { page, ours: 9 });
            }
        }
        assert!(search.next().is_none(), "{expected}");
        let findings = search.findings();
        assert!(
            reason(&findings).ends_with(expected),
            "{}",
            reason(&findings)
        );
        assert_eq!((findings.reading.asked, findings.reading.requests), (10, 4));
    }
}

#[test]
fn search_falls_back_when_sizes_or_ranges_are_refused() {
    let mut journal = Journal {
        size_max: 30,
        ranges: false,
        ..Journal::with_calls(0..40)
    };
    assert_eq!(missing_indices(&read(search(41), &mut journal)), [40]);
    let sizes: Vec<u32> = journal.asked.iter().map(|query| query.size.get()).collect();
    assert_eq!(sizes[..4], [100, 50, 30, 30]);
    assert!(journal.asked[3..].iter().all(|query| query.since.is_none()));
    let mut uncounted = Journal {
        counts: false,
        ..Journal::with_calls(0..200)
    };
    assert_eq!(missing_indices(&read(search(201), &mut uncounted)), [200]);
    let pages: Vec<u32> = uncounted.asked.iter().map(|query| query.page).collect();
    assert_eq!(pages, [1, 2, 3, 1, 2], "until a page is empty or shorter");
}

#[test]
fn barred_or_failing_search_reports_its_reason() {
    let mut barred = search(10);
    barred.on_answer(JournalAnswer::Barred {
        reason: "no daemon runs here".to_owned(),
        asked: false,
    });
    let findings = barred.findings();
    assert_eq!(reason(&findings), "no daemon runs here");
    assert_eq!((findings.reading.asked, findings.reading.requests), (10, 0));
    let mut failing = search(10);
    let mut rests = Vec::new();
    while failing.next().is_some() {
        rests.push(failing.pause().as_secs());
        let reason = "503".to_owned();
        failing.on_answer(JournalAnswer::Failed { reason });
    }
    assert_eq!(rests, [0, 2, 4, 8]);
    assert!(reason(&failing.findings()).contains("503"));
    let mut large = search(10);
    large.on_answer(JournalAnswer::Page {
        page: page(&(200..300).collect::<Vec<_>>(), 1, Some(PAGES_MAX + 1)),
        ours: 100,
    });
    assert!(reason(&large.findings()).contains("more than 3600 pages"));
}

#[test]
fn journal_without_our_calls_is_inconclusive() {
    // No row of the journal has a uuid of our calls, as if it belonged to another company.
    let mut others = Journal {
        ours: 0..0,
        ..Journal::with_calls(300..500)
    };
    let findings = read(search(3), &mut others);
    assert!(
        reason(&findings).starts_with("it shows none of the 3 calls"),
        "{}",
        reason(&findings)
    );
    let proofs: Vec<(u32, bool)> = others
        .asked
        .iter()
        .map(|query| (query.page, query.since.is_some()))
        .collect();
    assert_eq!(proofs[proofs.len() - 2..], [(1, false), (2, false)]);
    // All calls of a day are gone, and the journal shows our calls of other days.
    let mut emptied = Journal::with_calls(300..500);
    assert_eq!(missing_indices(&read(search(3), &mut emptied)), [0, 1, 2]);
    // The range hides the calls. Pages without a range show them.
    let mut hidden = search(3);
    hidden.on_answer(JournalAnswer::Page {
        page: page(&[], 1, Some(0)),
        ours: 0,
    });
    let mut journal = Journal::with_calls(0..3);
    assert!(missing_indices(&read(hidden, &mut journal)).is_empty());
    assert!(journal.asked.iter().all(|query| query.since.is_none()));
}

/// Returns call `n`, which was journaled this long ago.
fn call_with_age(n: u32, age: Duration) -> JournaledCall {
    JournaledCall {
        since: Some(now().minus(age)),
        ..call(n)
    }
}

#[test]
fn call_journaled_just_now_is_not_searched_for() {
    let ahead = JournaledCall {
        since: Some(now().plus(TOO_NEW)),
        ..call(2)
    };
    let purged = JournaledCall {
        since: None,
        sent: None,
        ..call(3)
    };
    let less = TOO_NEW - Duration::from_secs(1);
    let calls = [
        call_with_age(0, less),
        call_with_age(1, TOO_NEW),
        ahead,
        purged,
    ];
    let search = JournalSearch::new(calls.into_iter().enumerate(), now());
    let findings = read(search, &mut Journal::with_calls([5]));
    assert_eq!(missing_indices(&findings), [1, 3]);
    assert_eq!((findings.reading.asked, findings.reading.too_new), (2, 2));
    let nothing = JournalSearch::new([], now());
    assert!(nothing.next().is_none());
    assert!(reason(&nothing.findings()).starts_with("the file has no call"));
}

#[test]
fn fields_that_a_row_does_not_show_are_not_compared() {
    let sent = call(0).sent.expect("stored");
    assert_eq!(differences(&sent, &row(0)), []);
    let silent = ShownCall {
        leads: Vec::new(),
        duration_sec: None,
        answered: None,
        direction: None,
        ..row(0)
    };
    assert_eq!(differences(&sent, &silent), []);
    let other = ShownCall {
        leads: vec![4009],
        duration_sec: Some(6),
        answered: Some(false),
        direction: Some(Direction::Outbound),
        ..row(0)
    };
    let fields: Vec<&str> = differences(&sent, &other)
        .iter()
        .map(|difference| difference.field)
        .collect();
    assert_eq!(fields, ["leadId", "durationSec", "answered", "direction"]);
    let merged = SentValues {
        leads: [4001, 4009].into_iter().filter_map(LeadId::new).collect(),
        ..sent
    };
    let moved = ShownCall {
        leads: vec![4009],
        ..row(0)
    };
    assert_eq!(
        differences(&merged, &moved),
        [],
        "its lead was merged into that one"
    );
}

#[test]
fn remaining_time_is_estimated_with_half_of_the_budget() {
    let budget = BudgetStatus {
        limit: 60,
        window_sec: 60,
        ..BudgetStatus::default()
    };
    let text = progress(240, 250, Some(budget));
    assert_eq!(
        text,
        "the CRM's journal: 240 of 250 pages left, about 8 min; calls are sent first"
    );
    assert!(progress(5, 250, Some(budget)).contains("about a minute"));
    let unknown = progress(5, 250, None);
    assert_eq!(
        unknown,
        "the CRM's journal: 5 of 250 pages left; calls are sent first"
    );
}

fn rejection(errors: serde_json::Value) -> callbridge_crm::ApiError {
    callbridge_crm::ApiError::Rejected {
        status: 400,
        message: String::new(),
        errors,
    }
}

#[test]
fn crm_error_becomes_too_large_refused_barred_or_failed() {
    use callbridge_crm::ApiError;
    let message = String::new;
    let max = serde_json::json!([{"field": "size", "reason": "MAX"}]);
    let large = JournalAnswer::from_error(&rejection(max));
    assert!(matches!(large, JournalAnswer::TooLarge { .. }), "{large:?}");
    let epoch = serde_json::json!([{"field": "registeredTimestampFrom", "reason": "MAX"}]);
    for errors in [epoch, serde_json::Value::Null] {
        let refused = JournalAnswer::from_error(&rejection(errors));
        assert!(
            matches!(refused, JournalAnswer::Refused { .. }),
            "{refused:?}"
        );
    }
    let barred = [
        ApiError::Forbidden(message()),
        ApiError::WrongAddress {
            status: 405,
            own: true,
        },
        ApiError::NotFound {
            own: false,
            message: message(),
        },
    ];
    for error in barred {
        let barred = JournalAnswer::from_error(&error);
        assert!(
            matches!(barred, JournalAnswer::Barred { asked: true, .. }),
            "{barred:?}"
        );
    }
    for error in [
        ApiError::TooMany(true),
        ApiError::TimedOut,
        ApiError::UNAUTHORIZED,
    ] {
        let failed = JournalAnswer::from_error(&error);
        assert!(matches!(failed, JournalAnswer::Failed { .. }), "{failed:?}");
        // The daemon sends the findings to the command as a line of JSON.
        let line = serde_json::to_string(&failed).expect("a line");
        assert_eq!(
            serde_json::from_str::<JournalAnswer>(&line).expect("an answer"),
            failed
        );
    }
}
