//! Tests that each query of the dashboard, and each alert, agrees with `/metrics`. A real
//! Prometheus scrapes a running program and evaluates them.

use crate::e2e::operations::monitoring::{address, get};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::prometheus::{Labels, Prometheus, Series};
use callbridge_testbed::calls::{Call, recording};
use callbridge_testbed::wait::until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Alerts that must be pending because of the calls of this test.
const REASONED: [&str; 3] = [
    "CallbridgeDeadLetters",
    "CallbridgeCallsWithoutLead",
    "CallbridgeNoTrunk",
];
/// With few samples, Prometheus overestimates a growth up to this factor, because it extrapolates
/// by an interval at each end.
const EXTRAPOLATED_MAX: f64 = 3.0;
/// Samples of each series that the test waits for.
const SAMPLES: usize = 3;

const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";

/// A panel's query: title, legend, expression.
struct Query {
    title: String,
    legend: String,
    expression: String,
}

/// The value that a query must have.
enum Worth {
    /// Exactly these series.
    Is(Series),
    /// The growth of a counter in its window, by these labels and multiplied by `per`.
    Growth {
        counter: &'static str,
        only: Option<(&'static str, &'static str)>,
        by: &'static [&'static str],
        per: f64,
    },
    /// The quantile of a histogram at this share.
    Quantile(&'static str, f64),
}

fn deployed(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name)
}

fn queries() -> Vec<Query> {
    let text = std::fs::read(deployed("grafana/callbridge.json")).expect("a dashboard");
    let board: Value = serde_json::from_slice(&text).expect("JSON");
    let word = |of: &Value, name: &str| of[name].as_str().unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for panel in board["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            all.push(Query {
                title: word(panel, "title"),
                legend: word(target, "legendFormat"),
                expression: word(target, "expr").replace("$instance", ".*"),
            });
        }
    }
    all
}

/// The metrics of one scrape: the series of each name.
struct Scrape(BTreeMap<String, Series>);

impl Scrape {
    fn read(text: &str) -> Self {
        let mut all: BTreeMap<String, Series> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.trim_end_matches('}').split("\",");
            let labels = labels.filter(|it| !it.is_empty()).map(|label| {
                let (name, value) = label.split_once("=\"").expect("a label");
                (name.to_owned(), value.trim_end_matches('"').to_owned())
            });
            let value = value.parse().expect("a number");
            all.entry(name.to_owned())
                .or_default()
                .insert(labels.collect(), value);
        }
        Self(all)
    }

    fn of(&self, name: &str) -> Series {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// Returns the sum of the series whose label has one of these values.
    fn sum(&self, name: &str, label: &str, words: &[&str]) -> f64 {
        let all = self.of(name);
        let own = all
            .iter()
            .filter(|(labels, _)| words.contains(&&*labels[label]));
        own.map(|(_, value)| value).sum()
    }

    /// Returns the value that a panel must show at this second.
    fn worth(&self, query: &Query, at: i64) -> Option<Worth> {
        let all = |name: &str| self.of(name).into_values();
        let one = |value: f64| Worth::Is(Series::from([(Labels::new(), value)]));
        let max = |name: &str| all(name).fold(f64::MIN, f64::max);
        let growth = |counter, by, per| Worth::Growth {
            counter,
            only: None,
            by,
            per,
        };
        let books = "callbridge_calls";
        let on_their_way = ["ready", "sending", "submitted"];
        let request = "callbridge_request_duration_seconds_bucket";
        let commit = "callbridge_commit_duration_seconds_bucket";
        Some(match (&*query.title, &*query.legend) {
            ("In the journal", _) => one(self.sum(books, "book", &["journaled"])),
            ("On their way", _) => one(self.sum(books, "book", &on_their_way)),
            ("Dead letters and waiting calls", "dead letters") => {
                one(all("callbridge_dead_letters").sum())
            }
            ("Dead letters and waiting calls", "waiting calls") => {
                one(all("callbridge_waiting_calls").sum())
            }
            ("Paused", _) => one(max("callbridge_paused")),
            ("Sources that are down", _) => {
                one(all("callbridge_source_up").map(|up| 1.0 - up).sum())
            }
            ("Token ends", _) => {
                let ends = all("callbridge_token_expiry_timestamp_seconds");
                one(ends.fold(f64::MAX, f64::min) * 1000.0)
            }
            ("Calls journaled an hour", _) => Worth::Growth {
                counter: books,
                only: Some(("book", "journaled")),
                by: &[],
                per: 1.0,
            },
            ("Where calls stand", _) => {
                let mut shown = self.of(books);
                let words = ["ready", "sending", "submitted", "dead", "waiting"];
                shown.retain(|labels, _| words.contains(&&*labels["book"]));
                Worth::Is(shown)
            }
            ("Dead letters and waiting calls by reason", legend) => {
                let metric = match legend.starts_with("waiting") {
                    true => "callbridge_waiting_calls",
                    false => "callbridge_dead_letters",
                };
                let mut shown = self.of(metric);
                shown.retain(|_, letters| *letters > 0.0);
                Worth::Is(shown)
            }
            ("Backlog drains in", _) => one(max("callbridge_backlog_drain_seconds")),
            ("Requests a minute", _) => {
                growth("callbridge_requests_total", &["verdict"], 60.0 / 300.0)
            }
            ("Budget of the minute", _) => Worth::Is(self.of("callbridge_budget_slots")),
            ("Answers of the CRM", "median") => Worth::Quantile(request, 0.5),
            ("Answers of the CRM", "95 %") => Worth::Quantile(request, 0.95),
            ("Commits", "median") => Worth::Quantile(commit, 0.5),
            ("Commits", "95 %") => Worth::Quantile(commit, 0.95),
            ("Events by source", _) => growth(
                "callbridge_source_events_total",
                &["source", "result"],
                1.0 / 300.0,
            ),
            ("Since the last event", _) => {
                let mut shown = self.of("callbridge_source_last_event_timestamp_seconds");
                shown
                    .values_mut()
                    .for_each(|last| *last = at as f64 - *last);
                Worth::Is(shown)
            }
            ("Gaps a day", _) => growth("callbridge_gaps_total", &["source"], 1.0),
            ("Channels that match no trunk", _) => {
                growth("callbridge_unmatched_channels_total", &["prefix"], 1.0)
            }
            _ => return None,
        })
    }
}

/// Returns the growth of a counter between Prometheus's first sample and this scrape, by these
/// labels. Returns `None` while a series has too few samples.
async fn growth(
    prometheus: &Prometheus,
    scrape: &Scrape,
    counter: &str,
    only: Option<(&str, &str)>,
    by: &[&str],
    at: i64,
) -> Option<Series> {
    let first = prometheus.first_samples(counter, at).await;
    let mut grown = Series::new();
    for (labels, last) in scrape.of(counter) {
        let (first, samples) = *first.get(&labels)?;
        if samples < SAMPLES {
            return None;
        }
        if only.is_some_and(|(name, value)| labels[name] != value) {
            continue;
        }
        let kept = labels
            .into_iter()
            .filter(|(name, _)| by.contains(&name.as_str()));
        *grown.entry(kept.collect()).or_default() += last - first;
    }
    Some(grown)
}

/// Returns the bounds of a quantile of these cumulative buckets, whatever each was extrapolated to.
/// Returns `None` without an observation.
fn quantile(grown: &Series, share: f64) -> Option<(f64, f64)> {
    let le = |labels: &Labels| labels["le"].parse::<f64>().expect("a bound");
    let mut buckets: Vec<(f64, f64)> = grown.iter().map(|(it, n)| (le(it), *n)).collect();
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let all = buckets.last().map(|last| last.1).filter(|all| *all > 0.0)?;
    let place = |rank: f64| {
        let found = buckets.iter().position(|(_, n)| *n >= rank);
        // Beyond the last bound, Prometheus returns the last bound.
        found.unwrap_or(buckets.len() - 1).min(buckets.len() - 2)
    };
    let low = place(share * all / EXTRAPOLATED_MAX);
    let high = place(share * all * EXTRAPOLATED_MAX);
    let begin = low.checked_sub(1).map_or(0.0, |before| buckets[before].0);
    Some((begin, buckets[high].0))
}

/// Returns the error of a query, if any.
async fn fault(prometheus: &Prometheus, scrape: &Scrape, query: &Query, at: i64) -> Option<String> {
    let name = format!("{} ({})", query.title, query.legend);
    let worth = scrape.worth(query, at);
    let worth = worth.unwrap_or_else(|| panic!("{name}: say here what it must show"));
    let shown = prometheus.value(&query.expression, at).await;
    let holds = match &worth {
        Worth::Is(expected) => *expected == shown,
        Worth::Growth {
            counter,
            only,
            by,
            per,
        } => {
            let grown = growth(prometheus, scrape, counter, *only, by, at).await;
            grown.is_some_and(|grown| is_growth(&grown, &shown, *per))
        }
        Worth::Quantile(buckets, share) => {
            let grown = growth(prometheus, scrape, buckets, None, &["le"], at).await;
            let shown = shown.get(&Labels::new()).copied();
            match grown.map(|grown| quantile(&grown, *share)) {
                Some(Some((low, high))) => shown.is_some_and(|it| low <= it && it <= high),
                // Without observations there is no median.
                Some(None) => shown.is_none_or(f64::is_nan),
                None => false,
            }
        }
    };
    (!holds).then(|| format!("{name}: {shown:?}"))
}

/// Returns `true` if each shown series is within this growth.
fn is_growth(grown: &Series, shown: &Series, per: f64) -> bool {
    let rounded = 1e-9;
    let within = |(labels, grown): (&Labels, &f64)| {
        let (least, most) = (grown * per, grown * per * EXTRAPOLATED_MAX);
        let value = shown.get(labels);
        value.is_some_and(|it| (least - rounded..=most + rounded).contains(it))
    };
    grown.len() == shown.len() && grown.iter().all(within)
}

/// Returns four calls: one to be journaled, one without a lead, one with a lead that the CRM does
/// not have, and one over a trunk that no flag names.
fn told(from: u32) -> Vec<u8> {
    let calls = [
        Call::new(from, 4001),
        Call::new(from + 1, 4002),
        Call::without_lead(from + 2),
        Call::new(from + 3, 9_001),
    ];
    let other = Call::new(from + 4, 4001).ami();
    let other = other.replace("PJSIP/city", "PJSIP/other");
    format!("{}{other}", recording(&calls)).into_bytes()
}

async fn until_told(program: &mut Program, times: u64) {
    let all = |it: &callbridge_model::Status| {
        let books = &it.books;
        (books.journaled, books.waiting, books.dead) == (2 * times, times, times)
            && books.internal == times
    };
    program.until("each call in its book", all).await;
}

#[tokio::test]
async fn dashboard_queries_agree_with_the_metrics() {
    let (place, (crm, _)) = (Place::new(), crm::start_expiring().await);
    place.append("calls.ami", &told(1));
    let source = place.file("calls.ami", "ami");
    let listen = "--listen=127.0.0.1:0";
    let mut program = place.run(&crm.url(), &[&source, TRUNK, RATE_FLAG, listen]);
    until_told(&mut program, 1).await;
    let target = address(&program).await;
    let rules = deployed("prometheus/callbridge.rules.yml");
    let rules = rules.to_str().expect("UTF-8");
    let Some(prometheus) = Prometheus::start(target, rules).await else {
        program.terminate().await;
        return;
    };
    let now = callbridge_testbed::calls::now;
    until("a first scrape", async || {
        !prometheus
            .value("callbridge_build_info", now())
            .await
            .is_empty()
    })
    .await;
    place.append("calls.ami", &told(11));
    until_told(&mut program, 2).await;
    let queries = queries();
    assert!(queries.len() >= 20, "the dashboard has lost its queries");
    let mut faults = Vec::new();
    let agrees = async {
        let mut looks = tokio::time::interval(std::time::Duration::from_millis(500));
        loop {
            looks.tick().await;
            let scrape = Scrape::read(&get(target, "/metrics").await.1);
            faults.clear();
            for query in &queries {
                faults.extend(fault(&prometheus, &scrape, query, now()).await);
            }
            if faults.is_empty() {
                return;
            }
        }
    };
    let waited = tokio::time::timeout(callbridge_testbed::wait::DEADLINE, agrees).await;
    assert!(waited.is_ok(), "{}", faults.join("\n"));
    let variable = [("match[]", "callbridge_build_info")];
    let instances = prometheus.ask("label/instance/values", &variable).await;
    assert_eq!(instances, serde_json::json!([target.to_string()]));
    alerts_have_their_reasons(&prometheus).await;
    program.terminate().await;
}

/// Checks that every rule is evaluated without an error, and that exactly the expected alerts are
/// active.
async fn alerts_have_their_reasons(prometheus: &Prometheus) {
    let mut rules = Vec::new();
    until("each rule evaluated", async || {
        let data = prometheus.ask("rules", &[]).await;
        let groups = data["groups"].as_array().cloned().expect("groups");
        let each = groups.iter().flat_map(|it| it["rules"].as_array().cloned());
        rules = each.flatten().collect::<Vec<Value>>();
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown")
    })
    .await;
    let faulty: Vec<&Value> = rules.iter().filter(|it| it["health"] != "ok").collect();
    assert!(faulty.is_empty(), "{faulty:?}");
    for rule in &rules {
        let (name, query) = (&rule["name"], rule["query"].as_str().expect("a query"));
        let found = prometheus
            .value(query, callbridge_testbed::calls::now())
            .await;
        let reasoned = REASONED.iter().any(|reasoned| name == reasoned);
        assert_eq!(!found.is_empty(), reasoned, "{name}: {found:?}");
    }
}
