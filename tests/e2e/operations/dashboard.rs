//! Tests that each of the dashboard's queries, and each alert, agrees with `/metrics`. A real
//! Prometheus scrapes a running program and evaluates the queries and the alerts.

use crate::e2e::operations::monitoring::{address, get};
use crate::support::crm::{self, RATE_FLAG};
use crate::support::program::{Place, Program};
use crate::support::prometheus::{Labels, Prometheus, Series};
use callbridge_testbed::calls::{Call, recording};
use callbridge_testbed::wait::until;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Alerts that must become pending because of this test's calls.
const EXPECTED_ALERTS: [&str; 3] = [
    "CallbridgeDeadLetters",
    "CallbridgeCallsWithoutLead",
    "CallbridgeNoTrunk",
];
/// With few samples, Prometheus overestimates a counter's growth by up to this factor, because it
/// extrapolates by one interval at each end.
const MAX_EXTRAPOLATION: f64 = 3.0;
/// Number of samples that Prometheus must have of a series before the test compares values.
const MIN_SAMPLES: usize = 3;

const TRUNK: &str = "--trunk=city=PJSIP/city,country=UZ,strip=9,lead=var:LEAD_ID";

/// A query in one of the dashboard's panels.
struct Query {
    title: String,
    legend: String,
    expression: String,
}

/// The value that a query must have.
enum ExpectedValue {
    /// The query must have exactly these series.
    Exact(Series),
    /// The growth of `counter` multiplied by `per`, with the labels `by`. `only` is a label and the
    /// value that a series must have to count.
    Growth {
        counter: &'static str,
        only: Option<(&'static str, &'static str)>,
        by: &'static [&'static str],
        per: f64,
    },
    /// The quantile of the buckets with this name. The number is a fraction from 0 to 1.
    Quantile(&'static str, f64),
}

/// Returns the path of a file in the `deploy` directory.
fn deploy_path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name)
}

/// Returns all of the Grafana dashboard's queries, for every instance.
fn queries() -> Vec<Query> {
    let text = std::fs::read(deploy_path("grafana/callbridge.json")).expect("a dashboard");
    let board: Value = serde_json::from_slice(&text).expect("JSON");
    let mut all = Vec::new();
    for panel in board["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            all.push(Query {
                title: text_field(panel, "title"),
                legend: text_field(target, "legendFormat"),
                expression: text_field(target, "expr").replace("$instance", ".*"),
            });
        }
    }
    all
}

/// Returns the text in a JSON object's field, or an empty text if the object doesn't have such a
/// text.
fn text_field(object: &Value, name: &str) -> String {
    object[name].as_str().unwrap_or_default().to_owned()
}

/// Returns the expected value of a query that has one series without labels.
fn single_value(value: f64) -> ExpectedValue {
    ExpectedValue::Exact(Series::from([(Labels::new(), value)]))
}

/// Returns the expected value of a query for the growth of all series of `counter`.
fn counter_growth(counter: &'static str, by: &'static [&'static str], per: f64) -> ExpectedValue {
    ExpectedValue::Growth {
        counter,
        only: None,
        by,
        per,
    }
}

/// One scrape's series by metric name.
struct Scrape(BTreeMap<String, Series>);

impl Scrape {
    /// Parses the text of `/metrics`.
    fn parse(text: &str) -> Self {
        let mut metrics: BTreeMap<String, Series> = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let labels = labels.trim_end_matches('}').split("\",");
            let labels = labels.filter(|label| !label.is_empty()).map(|label| {
                let (name, value) = label.split_once("=\"").expect("a label");
                (name.to_owned(), value.trim_end_matches('"').to_owned())
            });
            let value = value.parse().expect("a number");
            metrics
                .entry(name.to_owned())
                .or_default()
                .insert(labels.collect(), value);
        }
        Self(metrics)
    }

    fn series(&self, name: &str) -> Series {
        self.0.get(name).cloned().unwrap_or_default()
    }

    /// Returns the values of all of a metric's series.
    fn values(&self, name: &str) -> impl Iterator<Item = f64> {
        self.series(name).into_values()
    }

    fn max(&self, name: &str) -> f64 {
        self.values(name).fold(f64::MIN, f64::max)
    }

    /// Returns the sum of a metric's series whose `label` has one of these values.
    fn sum(&self, name: &str, label: &str, label_values: &[&str]) -> f64 {
        let all = self.series(name);
        let matching = all
            .iter()
            .filter(|(labels, _)| label_values.contains(&&*labels[label]));
        matching.map(|(_, value)| value).sum()
    }

    /// Returns the value that a query must have at the time `at`, in seconds since the epoch, or
    /// `None` for a query that the test doesn't know.
    fn expected_value(&self, query: &Query, at: i64) -> Option<ExpectedValue> {
        let books = "callbridge_calls";
        let on_their_way = ["ready", "sending", "submitted"];
        let request = "callbridge_request_duration_seconds_bucket";
        let commit = "callbridge_commit_duration_seconds_bucket";
        Some(match (&*query.title, &*query.legend) {
            ("In the journal", _) => single_value(self.sum(books, "book", &["journaled"])),
            ("On their way", _) => single_value(self.sum(books, "book", &on_their_way)),
            ("Dead letters and waiting calls", "dead letters") => {
                single_value(self.values("callbridge_dead_letters").sum())
            }
            ("Dead letters and waiting calls", "waiting calls") => {
                single_value(self.values("callbridge_waiting_calls").sum())
            }
            ("Paused", _) => single_value(self.max("callbridge_paused")),
            ("Sources that are down", _) => {
                let ups = self.values("callbridge_source_up");
                single_value(ups.map(|up| 1.0 - up).sum())
            }
            ("Token ends", _) => {
                let ends = self.values("callbridge_token_expiry_timestamp_seconds");
                single_value(ends.fold(f64::MAX, f64::min) * 1000.0)
            }
            ("Calls journaled an hour", _) => ExpectedValue::Growth {
                counter: books,
                only: Some(("book", "journaled")),
                by: &[],
                per: 1.0,
            },
            ("Where calls stand", _) => {
                let mut shown = self.series(books);
                let shown_books = ["ready", "sending", "submitted", "dead", "waiting"];
                shown.retain(|labels, _| shown_books.contains(&&*labels["book"]));
                ExpectedValue::Exact(shown)
            }
            ("Dead letters and waiting calls by reason", legend) => {
                let metric = if legend.starts_with("waiting") {
                    "callbridge_waiting_calls"
                } else {
                    "callbridge_dead_letters"
                };
                let mut shown = self.series(metric);
                shown.retain(|_, letters| *letters > 0.0);
                ExpectedValue::Exact(shown)
            }
            ("Backlog drains in", _) => single_value(self.max("callbridge_backlog_drain_seconds")),
            ("Requests a minute", _) => {
                counter_growth("callbridge_requests_total", &["verdict"], 60.0 / 300.0)
            }
            ("Budget of the minute", _) => {
                ExpectedValue::Exact(self.series("callbridge_budget_slots"))
            }
            ("Answers of the CRM", "median") => ExpectedValue::Quantile(request, 0.5),
            ("Answers of the CRM", "95 %") => ExpectedValue::Quantile(request, 0.95),
            ("Commits", "median") => ExpectedValue::Quantile(commit, 0.5),
            ("Commits", "95 %") => ExpectedValue::Quantile(commit, 0.95),
            ("Events by source", _) => counter_growth(
                "callbridge_source_events_total",
                &["source", "result"],
                1.0 / 300.0,
            ),
            ("Since the last event", _) => {
                let mut shown = self.series("callbridge_source_last_event_timestamp_seconds");
                shown
                    .values_mut()
                    .for_each(|last| *last = at as f64 - *last);
                ExpectedValue::Exact(shown)
            }
            ("Gaps a day", _) => counter_growth("callbridge_gaps_total", &["source"], 1.0),
            ("Channels that match no trunk", _) => {
                counter_growth("callbridge_unmatched_channels_total", &["prefix"], 1.0)
            }
            _ => return None,
        })
    }
}

/// Returns the growth of `counter` from Prometheus's first sample to `scrape`, summed by the labels
/// `by`, or `None` as long as a series has too few samples. `only` is a label and the value that a
/// series must have to count.
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
    for (labels, last) in scrape.series(counter) {
        let (first, samples) = *first.get(&labels)?;
        if samples < MIN_SAMPLES {
            return None;
        }
        if only.is_some_and(|(name, value)| labels[name] != value) {
            continue;
        }
        let kept_labels = labels
            .into_iter()
            .filter(|(name, _)| by.contains(&name.as_str()));
        *grown.entry(kept_labels.collect()).or_default() += last - first;
    }
    Some(grown)
}

/// Returns the lowest and the highest value that Prometheus may report for a quantile, or `None` if
/// there are no observations. `grown` is the growth of cumulative buckets, and `share` is from 0 to
/// 1.
fn quantile(grown: &Series, share: f64) -> Option<(f64, f64)> {
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    for (labels, n) in grown {
        let bound = labels["le"].parse().expect("a bound");
        buckets.push((bound, *n));
    }
    buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total = buckets
        .last()
        .map(|last| last.1)
        .filter(|total| *total > 0.0)?;
    let low = bucket_at(&buckets, share * total / MAX_EXTRAPOLATION);
    let high = bucket_at(&buckets, share * total * MAX_EXTRAPOLATION);
    let begin = low.checked_sub(1).map_or(0.0, |before| buckets[before].0);
    Some((begin, buckets[high].0))
}

/// Returns the index of the bucket that contains the observation with this rank.
fn bucket_at(buckets: &[(f64, f64)], rank: f64) -> usize {
    let index = buckets.iter().position(|(_, n)| *n >= rank);
    // For the `+Inf` bucket, Prometheus returns the largest finite bound.
    index.unwrap_or(buckets.len() - 1).min(buckets.len() - 2)
}

/// Returns a message with the query's wrong value, or `None` if the value is right.
async fn query_error(
    prometheus: &Prometheus,
    scrape: &Scrape,
    query: &Query,
    at: i64,
) -> Option<String> {
    let query_name = format!("{} ({})", query.title, query.legend);
    let expected_value = scrape
        .expected_value(query, at)
        .unwrap_or_else(|| panic!("{query_name}: add the query to `expected_value`"));
    let shown = prometheus.value(&query.expression, at).await;
    let is_equal = match &expected_value {
        ExpectedValue::Exact(expected) => *expected == shown,
        ExpectedValue::Growth {
            counter,
            only,
            by,
            per,
        } => {
            let grown = growth(prometheus, scrape, counter, *only, by, at).await;
            grown.is_some_and(|grown| is_growth(&grown, &shown, *per))
        }
        ExpectedValue::Quantile(buckets, share) => {
            let grown = growth(prometheus, scrape, buckets, None, &["le"], at).await;
            let shown = shown.get(&Labels::new()).copied();
            match grown.map(|grown| quantile(&grown, *share)) {
                Some(Some((low, high))) => shown.is_some_and(|value| low <= value && value <= high),
                // A histogram without any observations has no quantile.
                Some(None) => shown.is_none_or(f64::is_nan),
                None => false,
            }
        }
    };
    (!is_equal).then(|| format!("{query_name}: {shown:?}"))
}

/// Returns `true` if `shown` has exactly the series of `grown`, each of which is at least `per`
/// times the growth and at most `MAX_EXTRAPOLATION` times that.
fn is_growth(grown: &Series, shown: &Series, per: f64) -> bool {
    let tolerance = 1e-9;
    grown.len() == shown.len()
        && grown.iter().all(|(labels, increase)| {
            let (least, most) = (increase * per, increase * per * MAX_EXTRAPOLATION);
            let value = shown.get(labels);
            value.is_some_and(|value| (least - tolerance..=most + tolerance).contains(value))
        })
}

/// Returns the AMI events for five calls, of which two are journaled, one has no lead, one has a
/// lead that the CRM doesn't have, and one uses a trunk that isn't given by any flag. `from` is the
/// number of the first call.
fn events_of_five_calls(from: u32) -> Vec<u8> {
    let calls = [
        Call::new(from, 4001),
        Call::new(from + 1, 4002),
        Call::without_lead(from + 2),
        Call::new(from + 3, 9_001),
    ];
    let unmatched = Call::new(from + 4, 4001).ami();
    let unmatched = unmatched.replace("PJSIP/city", "PJSIP/other");
    format!("{}{unmatched}", recording(&calls)).into_bytes()
}

/// Waits until all calls in `groups` groups from `events_of_five_calls` are in the expected books.
async fn wait_for_books(program: &mut Program, groups: u64) {
    program
        .until("every call in the expected book", |status| {
            let books = &status.books;
            (books.journaled, books.waiting, books.dead) == (2 * groups, groups, groups)
                && books.internal == groups
        })
        .await;
}

#[tokio::test]
async fn dashboard_queries_agree_with_the_metrics() {
    let (place, (crm, _)) = (Place::new(), crm::start_expiring().await);
    place.append("calls.ami", &events_of_five_calls(1));
    let source = place.file("calls.ami", "ami");
    let listen = "--listen=127.0.0.1:0";
    let mut program = place.run(&crm.url(), &[&source, TRUNK, RATE_FLAG, listen]);
    wait_for_books(&mut program, 1).await;
    let target = address(&program).await;
    let rules = deploy_path("prometheus/callbridge.rules.yml");
    let rules = rules.to_str().expect("UTF-8");
    let prometheus = Prometheus::start(target, rules).await;
    let now = callbridge_testbed::calls::now;
    until("a first scrape", async || {
        !prometheus
            .value("callbridge_build_info", now())
            .await
            .is_empty()
    })
    .await;
    place.append("calls.ami", &events_of_five_calls(11));
    wait_for_books(&mut program, 2).await;
    let queries = queries();
    assert!(queries.len() >= 20, "the dashboard has lost its queries");
    let mut errors = Vec::new();
    let agreement = async {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(500));
        loop {
            ticks.tick().await;
            let scrape = Scrape::parse(&get(target, "/metrics").await.1);
            errors.clear();
            for query in &queries {
                errors.extend(query_error(&prometheus, &scrape, query, now()).await);
            }
            if errors.is_empty() {
                return;
            }
        }
    };
    let waited = tokio::time::timeout(callbridge_testbed::wait::DEADLINE, agreement).await;
    assert!(waited.is_ok(), "{}", errors.join("\n"));
    let variable = [("match[]", "callbridge_build_info")];
    let instances = prometheus.ask("label/instance/values", &variable).await;
    assert_eq!(instances, serde_json::json!([target.to_string()]));
    check_alerts(&prometheus).await;
    program.terminate().await;
}

/// Checks that every rule is evaluated without an error, and that exactly the expected alerts are
/// active.
async fn check_alerts(prometheus: &Prometheus) {
    let mut rules = Vec::new();
    until("each rule evaluated", async || {
        let data = prometheus.ask("rules", &[]).await;
        let groups = data["groups"].as_array().cloned().expect("groups");
        let all = groups
            .iter()
            .flat_map(|group| group["rules"].as_array().cloned());
        rules = all.flatten().collect::<Vec<Value>>();
        !rules.is_empty() && rules.iter().all(|rule| rule["health"] != "unknown")
    })
    .await;
    let faulty: Vec<&Value> = rules.iter().filter(|rule| rule["health"] != "ok").collect();
    assert!(faulty.is_empty(), "{faulty:?}");
    for rule in &rules {
        let (name, query) = (&rule["name"], rule["query"].as_str().expect("a query"));
        let found = prometheus
            .value(query, callbridge_testbed::calls::now())
            .await;
        let is_expected = EXPECTED_ALERTS.iter().any(|alert| name == alert);
        assert_eq!(!found.is_empty(), is_expected, "{name}: {found:?}");
    }
}
