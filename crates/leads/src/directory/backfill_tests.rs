//! Tests of the backfill, which reads the CRM's leads into the directory.

use super::super::memory::Remembered;
use super::*;
use callbridge_model::Phone;
use proptest::prelude::*;
use serde_json::{Value, json};

const HOW: ReadLeads = ReadLeads {
    country: None,
    every: Duration::from_secs(600),
};

fn time_at(seconds: i64) -> EventTime {
    EventTime::from_seconds(seconds)
}

/// Stands for the time of a lead that has none.
const NO_TIME: i64 = i64::MIN;

/// A CRM, in which each lead has an ID and the second when it was last changed.
#[derive(Clone, Debug)]
struct Service {
    leads: Vec<(i64, i64)>,
    /// Whether leads without a time come last rather than first.
    untimed_last: bool,
    /// How the CRM treats a request's `since` range.
    range: Range,
    /// Whether the CRM's responses have `totalPages`.
    has_page_count: bool,
    /// Number of requests so far.
    requests: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Taken,
    Refused,
    Ignored,
}

fn phone(id: i64) -> String {
    format!("+99890{id:07}")
}

impl Service {
    fn new(leads: Vec<(i64, i64)>, range: Range) -> Self {
        Self {
            leads,
            untimed_last: false,
            range,
            has_page_count: true,
            requests: 0,
        }
    }

    /// Returns the CRM's response to a request for a page of leads.
    fn answer(&mut self, request: &LeadsPage) -> ApiResult {
        self.requests += 1;
        if self.range == Range::Refused && request.since.is_some() {
            return Err(ApiError::Rejected {
                status: 400,
                message: String::new(),
                errors: Value::Null,
            });
        }
        let since = if self.range == Range::Taken {
            request.since
        } else {
            None
        };
        let since = since.map_or(i64::MIN, EpochSeconds::get);
        let mut all: Vec<_> = self.leads.iter().filter(|(_, at)| *at >= since).collect();
        let untimed_last = self.untimed_last;
        all.sort_by_key(|(id, at)| (untimed_last && *at == NO_TIME, *at, *id));
        let pages: Vec<_> = all.chunks(request.size as usize).collect();
        let leads = pages
            .get(request.page as usize - 1)
            .copied()
            .unwrap_or_default();
        let rows: Vec<Value> = leads
            .iter()
            .map(|(id, at)| {
                let at = (*at != NO_TIME).then_some(at);
                json!({"id": id, "updatedTimestamp": at, "phone": phone(*id)})
            })
            .collect();
        let mut data = json!({"currentPage": request.page, "leads": rows});
        if self.has_page_count {
            data["totalPages"] = json!(pages.len());
        }
        Ok(ApiReply::Data(json!({"data": data})))
    }
}

/// A program with a backfill and a directory.
#[derive(Default)]
struct Reader {
    backfill: Backfill,
    known: Remembered,
    begun: bool,
}

impl Reader {
    /// Reads pages until a round has ended or no page is due at `now`. Calls `meanwhile` after each
    /// page.
    fn run_round(
        &mut self,
        service: &mut Service,
        now: EventTime,
        mut meanwhile: impl FnMut(&mut Service),
    ) {
        let rounds = self.backfill.rounds;
        for _ in 0..10_000 {
            if self.backfill.rounds > rounds {
                return;
            }
            let Next::Read(page) = self.backfill.next(now, self.begun) else {
                return;
            };
            let heard = service.answer(&page);
            for news in self.backfill.process_answer(&page, &heard, now, HOW) {
                self.known.learn(&news);
            }
            // The state is stored and read again, as if the program were restarted.
            let kept = serde_json::to_string(&self.backfill).expect("JSON");
            self.backfill = serde_json::from_str(&kept).expect("what was written");
            self.begun = true;
            meanwhile(service);
        }
        panic!("the backfill reads without end: {:?}", self.backfill);
    }

    fn has_lead(&self, id: i64) -> bool {
        let phone = Phone::from_e164(&phone(id)).expect("a number");
        !self.known.find(&phone).leads().is_empty()
    }
}

/// Reads all of a CRM's leads in one round, and returns the reader.
fn read_all(service: &mut Service) -> Reader {
    let mut reader = Reader::default();
    reader.run_round(service, time_at(0), |_| ());
    reader
}

#[test]
fn backfill_of_1000_leads_needs_at_most_24_requests() {
    for range in [Range::Taken, Range::Refused, Range::Ignored] {
        let mut service = Service::new((1..=1_000).map(|id| (id, id * 10)).collect(), range);
        let reader = read_all(&mut service);
        assert!((1..=1_000).all(|id| reader.has_lead(id)), "{range:?}");
        assert!(
            service.requests <= 24,
            "{range:?}: {} requests",
            service.requests
        );
        assert_eq!(reader.backfill.read_to(), Some(EpochSeconds::new(10_000)));
    }
}

#[test]
fn leads_changed_in_same_second_beyond_page_are_all_read() {
    for range in [Range::Taken, Range::Refused, Range::Ignored] {
        let leads = (1..=333)
            .map(|id| (id, if id < 300 { 7 } else { 8 }))
            .collect();
        let reader = read_all(&mut Service::new(leads, range));
        assert!((1..=333).all(|id| reader.has_lead(id)), "{range:?}");
    }
}

#[test]
fn leads_without_a_time_are_read_at_either_end() {
    for range in [Range::Taken, Range::Refused, Range::Ignored] {
        for untimed_last in [false, true] {
            let leads = (1..=240).map(|id| (id, if id % 2 == 0 { id } else { NO_TIME }));
            let mut service = Service::new(leads.collect(), range);
            service.untimed_last = untimed_last;
            let mut reader = read_all(&mut service);
            // The second round reads the last pages.
            reader.run_round(&mut service, time_at(600), |_| ());
            let missing: Vec<i64> = (1..=240).filter(|&id| !reader.has_lead(id)).collect();
            assert_eq!(missing, Vec::<i64>::new(), "{range:?} {untimed_last}");
            assert_eq!(reader.backfill.left, None, "{range:?} {untimed_last}");
            service.requests = 0;
            service.leads.push((999, 9_999));
            reader.run_round(&mut service, time_at(1200), |_| ());
            assert!(reader.has_lead(999), "{range:?} {untimed_last}");
            let few = if range == Range::Taken { 3 } else { 6 };
            assert!(service.requests <= few, "{range:?} {}", service.requests);
        }
    }
}

#[test]
fn round_of_leads_without_any_time_stops_after_all_are_read() {
    for (count, stops) in [(49, false), (120, true)] {
        let leads = (1..=count).map(|id| (id, NO_TIME)).collect();
        let reader = read_all(&mut Service::new(leads, Range::Taken));
        assert!((1..=count).all(|id| reader.has_lead(id)), "{count}");
        let left = reader.backfill.left.unwrap_or_default();
        assert_eq!(
            left.contains("no lead has an updatedTimestamp"),
            stops,
            "{left}"
        );
    }
}

#[test]
fn next_backfill_round_needs_at_most_three_requests() {
    for range in [Range::Taken, Range::Ignored] {
        let mut service = Service::new((1..=1_000).map(|id| (id, id * 10)).collect(), range);
        let mut reader = read_all(&mut service);
        let Next::At(then) = reader.backfill.next(time_at(1), true) else {
            panic!("it waits")
        };
        assert_eq!(then, time_at(600));
        service.leads.push((2_000, 11_000));
        service.leads[3].1 = 11_001;
        service.requests = 0;
        reader.run_round(&mut service, then, |_| ());
        assert!(
            reader.has_lead(2_000) && service.requests <= 3,
            "{range:?}: {}",
            service.requests
        );
    }
}

#[test]
fn process_start_begins_a_backfill_round_at_once() {
    let mut service = Service::new(vec![(1, 10)], Range::Taken);
    let reader = read_all(&mut service);
    assert!(matches!(
        reader.backfill.next(time_at(1), true),
        Next::At(_)
    ));
    assert!(matches!(
        reader.backfill.next(time_at(1), false),
        Next::Read(_)
    ));
}

#[test]
fn backfill_without_grant_waits_hour_and_without_list_stops() {
    let mut backfill = Backfill::default();
    let Next::Read(page) = backfill.next(time_at(0), false) else {
        panic!("a page")
    };
    let forbidden = ApiError::Forbidden(String::new());
    backfill.process_answer(&page, &Err(forbidden), time_at(0), HOW);
    assert_eq!(backfill.state(), "no_grant");
    assert_eq!(backfill.next(time_at(1), true), Next::At(time_at(3600)));
    assert!(matches!(backfill.next(time_at(3600), true), Next::Read(_)));
    let no_list = Ok(ApiReply::Data(json!({"data": 7})));
    backfill.process_answer(&page, &no_list, time_at(3600), HOW);
    assert_eq!(backfill.next(time_at(99_999), true), Next::Never);
    insta::assert_snapshot!(
        backfill.left.clone().unwrap_or_default(),
        @"the answer has no list of leads in it; tried again at the next start"
    );
    assert!(matches!(
        backfill.next(time_at(99_999), false),
        Next::Read(_)
    ));
}

/// Returns why a backfill ends if its first response has 50 rows. `row` creates each row from its
/// number, from 1 to 50.
fn end_reason(row: impl Fn(i64) -> Value) -> String {
    let mut backfill = Backfill::default();
    let Next::Read(page) = backfill.next(time_at(0), false) else {
        panic!("a page")
    };
    let rows: Vec<Value> = (1..=50).map(row).collect();
    let answer = Ok(ApiReply::Data(json!({"data": rows})));
    backfill.process_answer(&page, &answer, time_at(0), HOW);
    backfill.left.unwrap_or_default()
}

#[test]
fn rows_without_ids_phones_or_order_are_reported() {
    let no_ids = end_reason(|n| json!({"updatedTimestamp": n, "phone": "x"}));
    assert!(no_ids.contains("no ids"), "{no_ids}");
    let no_phones = end_reason(|n| json!({"id": n, "updatedTimestamp": n}));
    assert!(no_phones.contains("no phones"), "{no_phones}");
    let order = end_reason(|n| json!({"id": n, "updatedTimestamp": -n, "phone": null}));
    assert!(order.contains("not in the order"), "{order}");
}

#[test]
fn wait_after_failures_doubles_up_to_an_hour() {
    let mut backfill = Backfill::default();
    let Next::Read(page) = backfill.next(time_at(0), false) else {
        panic!("a page")
    };
    let mut waits = Vec::new();
    for _ in 0..8 {
        backfill.process_answer(&page, &Err(ApiError::TimedOut), time_at(0), HOW);
        match backfill.next(time_at(0), true) {
            Next::At(then) => waits.push(then.floor_seconds().get()),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3600, 3600]);
}

proptest! {
    #[test]
    fn backfill_misses_no_lead_that_changes_while_it_reads(
        leads in prop::collection::btree_map(1_i64..400, 0_i64..60, 1..300),
        changes in prop::collection::vec((1_i64..420, 0_u32..3), 0..40),
        range in prop_oneof![Just(Range::Taken), Just(Range::Refused), Just(Range::Ignored)],
    ) {
        let mut service = Service::new(leads.into_iter().collect(), range);
        let (mut reader, mut changes, mut second) = (Reader::default(), changes.into_iter(), 60);
        for _ in 0..3 {
            let now = time_at(second * 1_000);
            reader.run_round(&mut service, now, |service| {
                for (id, _) in changes.by_ref().take(3) {
                    second += 1;
                    service.leads.retain(|(lead, _)| *lead != id);
                    service.leads.push((id, second));
                }
            });
        }
        reader.run_round(&mut service, time_at(second * 1_000 + 100_000), |_| ());
        for (id, _) in &service.leads {
            prop_assert!(reader.has_lead(*id), "{id}");
        }
    }
}
