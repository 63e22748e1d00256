//! The status as Prometheus metrics: in OpenMetrics text for clients that ask for it, as Prometheus
//! does, and in the older text format for all others.

use crate::Release;
use crate::hub_metrics;
use crate::metric_families::{Labels, counters, gauge, gauges, label, labels, signed, text_of};
use crate::source_metrics;
use callbridge_model::Reason;
use callbridge_model::status::{DEGRADED_PARTS, LOSS_COUNTERS, PAUSES, Requests, Status};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::{collections::BTreeMap, fmt::Write as _, sync::atomic::AtomicU64};

/// Histograms of durations that are measured where they occur. Clones share their counts.
#[derive(Clone, Debug)]
pub struct Durations {
    /// Seconds from a request's first byte to its answer.
    pub request: Histogram,
    /// Seconds from the spool's `BEGIN` to the end of its sync.
    pub commit: Histogram,
    /// Seconds from a dialplan's complete question to its answer.
    pub lookup: Histogram,
}

impl Default for Durations {
    fn default() -> Self {
        let request = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
        let commit = [
            0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0,
        ];
        let lookup = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];
        Self {
            lookup: Histogram::new(lookup),
            request: Histogram::new(request),
            commit: Histogram::new(commit),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The status as in `status --json`.
    pub status: Status,
    /// Number of requests sent to the CRM, by endpoint and verdict.
    pub requests: Requests,
    /// Counters that are kept across restarts.
    pub counters: BTreeMap<String, u64>,
    /// Number of log lines lost because stderr did not accept them.
    pub log_lines_lost: u64,
    /// Number of open sessions of the page. `None` without a page.
    pub page_sessions: Option<usize>,
    /// Calls that the last audit left unexplained. `None` before the first audit.
    pub audit_unexplained: Option<u64>,
    /// Calls that the last audit found with other values. `None` before the first audit.
    pub audit_different: Option<u64>,
    /// Events received, by kind and result. `None` without a webhook listener.
    pub webhooks: Option<callbridge_webhook::tally::Events>,
    /// Refused requests and lines of branches. `None` without `--collect`.
    pub branch_refusals: Option<callbridge_hub::tally::Refusals>,
    /// Lookups of dialplans, by their answer. `None` without a lookup listener.
    pub lookups: Option<Vec<(&'static str, u64)>>,
    /// Durations, shared with the code that measures them.
    pub durations: Durations,
    /// The build in `callbridge_build_info`.
    pub release: Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0, for scrapers that ask for it.
    Open,
    /// Prometheus text 0.0.4, for `promtool check metrics` and older scrapers.
    Classic,
}

impl Format {
    /// Returns the format that this `Accept` header asks for.
    pub fn from_accept(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::Open
        } else {
            Self::Classic
        }
    }

    /// Returns the media type of the text from [`render`].
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Classic => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

fn counter(all: &mut Registry, name: &str, help: &str, count: u64) {
    let counter = Counter::<u64, AtomicU64>::default();
    counter.inc_by(count);
    all.register(name, help, counter);
}

/// Returns the whole text of a scrape.
pub fn render(seen: &Observed, format: Format) -> String {
    let mut all = Registry::with_prefix("callbridge");
    calls(&mut all, seen);
    budget(&mut all, seen);
    source_metrics::sources(&mut all, &seen.status);
    losses(&mut all, seen);
    source_metrics::unmatched_channels(&mut all, &seen.status);
    trunks(&mut all, seen);
    token(&mut all, seen);
    hub_metrics::hub(&mut all, &seen.status, seen.branch_refusals.as_ref());
    hub_metrics::forward(&mut all, &seen.status);
    hub_metrics::leadership(&mut all, &seen.status);
    webhooks(&mut all, seen);
    journal(&mut all, seen);
    lookups(&mut all, seen);
    leads(&mut all, seen);
    single_metrics(&mut all, seen);
    let Release { version, commit } = seen.release;
    let build = labels([("version", version), ("commit", commit)]);
    let help = "Version and commit, always 1";
    gauges(&mut all, "build_info", help, [(build, 1)]);
    match format {
        Format::Open => text_of(&all),
        Format::Classic => classic(&text_of(&all)),
    }
}

fn calls(all: &mut Registry, seen: &Observed) {
    let mut books = Vec::new();
    for (book, count) in seen.status.books.counts_by_name() {
        books.push((label("book", book), signed(count)));
    }
    gauges(all, "calls", "Calls by state", books);
    let mut dead = Vec::new();
    let mut waiting = Vec::new();
    for &reason in Reason::ALL {
        let count = seen.status.dead_letters.get(reason.word()).copied();
        dead.push((label("reason", reason.word()), signed(count.unwrap_or(0))));
        if reason.is_waiting() {
            let count = seen.status.waiting_count(reason);
            waiting.push((label("reason", reason.word()), signed(count)));
        }
    }
    gauges(all, "dead_letters", "Dead letters by reason", dead);
    let help = "Calls that wait for a lead or employee, by reason";
    gauges(all, "waiting_calls", help, waiting);
    outboxes(all, seen);
    let help = "Duration of spool commits, including the sync to disk";
    let commit = seen.durations.commit.clone();
    all.register("commit_duration_seconds", help, commit);
}

/// Registers the messages that wait for a broker, and the broker's reason for refusing them.
fn outboxes(all: &mut Registry, seen: &Observed) {
    let outboxes = &seen.status.outboxes;
    let waiting = outboxes.iter().map(|outbox| {
        let labels = label("outbox", &outbox.name);
        (labels, signed(outbox.messages))
    });
    let help = "Messages that the broker has not confirmed";
    gauges(all, "outbox_messages", help, waiting);
    let problems = outboxes.iter().filter_map(|outbox| {
        let reason = &outbox.problem.as_ref()?.reason;
        Some((labels([("outbox", &*outbox.name), ("reason", reason)]), 1))
    });
    let help = "1 while the broker accepts no messages, by its reason";
    gauges(all, "outbox_blocked", help, problems);
}

fn budget(all: &mut Registry, seen: &Observed) {
    let requests = seen.requests.iter().map(|((endpoint, verdict), count)| {
        let labels = labels([("endpoint", endpoint), ("verdict", verdict)]);
        (labels, *count)
    });
    counters(all, "requests", "Requests to the CRM", requests);
    let budget = &seen.status.budget;
    let free = budget.limit.saturating_sub(budget.used);
    let slots = [
        (label("state", "used"), i64::from(budget.used)),
        (label("state", "free"), i64::from(free)),
    ];
    let help = "Requests of the current window of the rate limit";
    gauges(all, "budget_slots", help, slots);
    let help = "Time until the backlog is confirmed";
    let drain = seen.status.backlog.drain_sec;
    gauge(all, "backlog_drain_seconds", help, signed(drain));
    let request = seen.durations.request.clone();
    let help = "Time from a request's first byte to its answer";
    all.register("request_duration_seconds", help, request);
    // Causes that do not apply are shown as 0, because a series that comes and goes is hard to
    // watch.
    let mut pauses = Vec::new();
    for reason in PAUSES {
        pauses.push((label("reason", reason), 0));
    }
    if let Some(pause) = &seen.status.pause {
        pauses.push((label("reason", &pause.reason), 1));
    }
    gauges(all, "paused", "1 while nothing is sent, by reason", pauses);
    let failing = DEGRADED_PARTS.iter().map(|part| {
        let fails = seen
            .status
            .degraded
            .iter()
            .any(|degraded| degraded.part == *part);
        (label("part", part), i64::from(fails))
    });
    let help = "1 while an endpoint of the CRM fails and a fallback is used";
    gauges(all, "degraded", help, failing);
}

/// Registers the durable counters that can mean a lost call, even if they are 0.
fn losses(all: &mut Registry, seen: &Observed) {
    let counts = LOSS_COUNTERS.iter().map(|(name, _)| {
        let count = seen.counters.get(*name).copied().unwrap_or(0);
        (label("cause", name), count)
    });
    let help = "Events that can mean a lost call, by cause";
    counters(all, "losses", help, counts);
}

/// Registers the comparison of the CRM's journal with the values that were sent. There is no series
/// before a call was compared.
fn journal(all: &mut Registry, seen: &Observed) {
    let mut fields = Vec::new();
    for field in &seen.status.journal_fields {
        let right = field
            .compared
            .saturating_sub(field.missing + field.different);
        for (verdict, count) in [
            ("right", right),
            ("missing", field.missing),
            ("different", field.different),
        ] {
            let labels = labels([("field", field.field.word()), ("verdict", verdict)]);
            fields.push((labels, count));
        }
    }
    let help = "Values of calls compared with the CRM's journal, by result";
    counters(all, "journal_fields", help, fields);
}

fn lookups(all: &mut Registry, seen: &Observed) {
    let Some(answers) = &seen.lookups else {
        return;
    };
    let counts = answers
        .iter()
        .map(|(answer, count)| (label("answer", answer), *count));
    let help = "Lookups of dialplans, by answer";
    counters(all, "lookups", help, counts);
    let duration = seen.durations.lookup.clone();
    let help = "Time from a dialplan's complete request to its answer";
    all.register("lookup_duration_seconds", help, duration);
}

/// Registers the size of the lead directory, the failed calls that were sent again automatically,
/// and the values of lead fields.
fn leads(all: &mut Registry, seen: &Observed) {
    let directory = seen.status.directory.clone().unwrap_or_default();
    let help = "Numbers in the directory of leads";
    gauge(all, "directory_phones", help, signed(directory.phones));
    let help = "Leads in the directory that are neither deleted nor merged";
    gauge(all, "directory_leads", help, signed(directory.leads));
    let help = "Events of leads that changed something";
    counter(all, "directory_updates", help, directory.learned);
    let moved = [
        ("survivor", "calls_to_survivor"),
        ("without_employee", "employees_dropped"),
    ];
    let help = "Calls that continued automatically: with the surviving lead of a merge, or without \
                an employee";
    counters(all, "calls_rerouted", help, kept_counts(seen, &moved));
    let Some(fields) = &seen.status.lead_fields else {
        return;
    };
    let values = [
        ("written", "lead_fields_written"),
        ("given_up", "lead_fields_given_up"),
        ("left_out", "lead_fields_left_out"),
    ];
    let help = "Values of lead fields by result";
    counters(all, "lead_fields", help, kept_counts(seen, &values));
    let help = "Leads that wait to show their newest call";
    gauge(all, "lead_fields_pending", help, signed(fields.waiting));
}

/// Returns the kept counters of these results. Each result comes with the name of its counter.
fn kept_counts(seen: &Observed, results: &[(&str, &str)]) -> Vec<(Labels<1>, u64)> {
    let mut counts = Vec::new();
    for (result, counter) in results {
        let count = seen.counters.get(*counter).copied().unwrap_or(0);
        counts.push((label("result", result), count));
    }
    counts
}

fn webhooks(all: &mut Registry, seen: &Observed) {
    let Some(seen_events) = &seen.webhooks else {
        return;
    };
    let events = (seen_events.iter())
        .map(|((event, result), count)| (labels([("event", event), ("result", result)]), *count));
    let help = "Events from the CRM, by result";
    counters(all, "webhooks", help, events);
    let webhooks = seen.status.webhooks.as_ref();
    if let Some(at) = webhooks.and_then(|webhooks| webhooks.last_event_at) {
        let help = "Arrival of the last event with a valid signature";
        gauge(all, "webhook_last_event_timestamp_seconds", help, at);
    }
}

fn token(all: &mut Registry, seen: &Observed) {
    let name = "token_expiry_timestamp_seconds";
    let help = "When the token expires, +Inf for never";
    let token = &seen.status.token;
    match token.expires_at {
        Some(at) => gauge(all, name, help, at),
        None if token.state == "ok" => {
            let expiry = Gauge::<f64, AtomicU64>::default();
            expiry.set(f64::INFINITY);
            all.register(name, help, expiry);
        }
        // The expiry is not known before the CRM's first answer about the token.
        None => {}
    }
}

/// Registers the calls of each trunk, and the customers who wait for a callback. Each trunk of the
/// flags has a series, even if it is 0.
fn trunks(all: &mut Registry, seen: &Observed) {
    let trunks = &seen.status.trunks;
    let calls = trunks
        .iter()
        .map(|trunk| (label("trunk", &trunk.name), trunk.calls));
    counters(all, "trunk_calls", "Calls of a trunk", calls);
    let mut missed = BTreeMap::new();
    for trunk in trunks {
        *missed.entry(&trunk.name).or_default() += signed(trunk.missed_customers);
    }
    let missed = (missed.into_iter()).map(|(name, count)| (label("trunk", name), count));
    let help = "Customers who called, reached no one, and were not talked to since, by the trunk \
                of their last try";
    gauges(all, "missed_customers", help, missed);
}

fn single_metrics(all: &mut Registry, seen: &Observed) {
    let help = "Lines of the log that stderr did not accept";
    counter(all, "log_lines_lost", help, seen.log_lines_lost);
    if let Some(open) = seen.page_sessions {
        let help = "Open sessions of the page";
        gauge(all, "page_sessions", help, signed(open as u64));
    }
    if let Some(calls) = seen.audit_unexplained {
        let help = "Calls of the PBX's file that the last audit left unexplained";
        gauge(all, "audit_unexplained", help, signed(calls));
    }
    if let Some(calls) = seen.audit_different {
        let help = "Calls that the last audit found with other values than the PBX's file";
        gauge(all, "audit_different", help, signed(calls));
    }
}

/// Converts to the older format: counters have their full name, and there is no end mark.
fn classic(open: &str) -> String {
    let counters: Vec<&str> = (open.lines())
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF") {
        match metadata(line) {
            Some((mark, name, tail)) if counters.contains(&name) => {
                let _ = writeln!(text, "{mark}{name}_total {tail}");
            }
            _ => {
                let _ = writeln!(text, "{line}");
            }
        }
    }
    text
}

/// Splits a line about a metric into its mark, the name, and the rest.
fn metadata(line: &str) -> Option<(&'static str, &str, &str)> {
    for mark in ["# HELP ", "# TYPE "] {
        if let Some(rest) = line.strip_prefix(mark) {
            let (name, tail) = rest.split_once(' ')?;
            return Some((mark, name, tail));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::status;
    use callbridge_model::status::TrunkStatus;
    use std::collections::BTreeSet;

    /// Every name that dashboards and the alert rules use.
    const PROMISED: [&str; 23] = [
        "callbridge_calls{book=\"journaled\"} 3",
        "callbridge_requests_total{endpoint=\"submit\",verdict=\"submitted\"} 4",
        "callbridge_budget_slots{state=\"free\"} 48",
        "callbridge_backlog_drain_seconds 9",
        "callbridge_source_up{source=\"hq/ami\"} 0",
        "callbridge_source_events_total{source=\"hq/ami\",result=\"read\"} 7",
        "callbridge_source_last_event_timestamp_seconds{source=\"hq/ami\"} 1795151317",
        "callbridge_source_clock_ahead_seconds{source=\"hq/ami\"} -12",
        "callbridge_gaps_total{source=\"hq/ami\"} 2",
        "callbridge_last_gap_timestamp_seconds{source=\"hq/ami\"} 1795151300",
        "callbridge_dead_letters{reason=\"failed\"} 1",
        "callbridge_token_expiry_timestamp_seconds 1800000000",
        "callbridge_paused{reason=\"no_grant\"} 1",
        "callbridge_request_duration_seconds_count 1",
        "callbridge_commit_duration_seconds_bucket",
        "callbridge_build_info{version=",
        "callbridge_source_receiving{source=\"hq/ami\"} 0",
        "callbridge_unmatched_channels_total{source=\"hq/ami\",prefix=\"PJSIP/citty\"} 5",
        "callbridge_outbox_messages{outbox=\"dead_letters\"} 20",
        "callbridge_outbox_blocked{outbox=\"dead_letters\",reason=\"low on memory\"} 1",
        "callbridge_journal_fields_total{field=\"talk\",verdict=\"right\"} 4",
        "callbridge_journal_fields_total{field=\"talk\",verdict=\"missing\"} 2",
        "callbridge_journal_fields_total{field=\"talk\",verdict=\"different\"} 1",
    ];

    #[test]
    fn promised_metrics_are_rendered_with_their_labels() {
        let mut seen = Observed::default();
        seen.status.books.journaled = 3;
        seen.status.budget = status::BudgetStatus {
            limit: 60,
            used: 12,
            ..Default::default()
        };
        seen.status.backlog.drain_sec = 9;
        seen.status.sources = vec![status::SourceStatus {
            url: "ami://b@pbx".into(),
            label: "hq/ami".into(),
            read: 7,
            pbx: "hq".into(),
            gaps: 2,
            last_event_at: Some(1_795_151_317),
            clock_ahead_ms: Some(-12_300),
            ..Default::default()
        }];
        seen.status.unmatched = vec![status::Unmatched {
            pbx: "hq/branch".into(),
            prefix: "PJSIP/citty".into(),
            calls: 5,
            ..Default::default()
        }];
        seen.status.gaps = [1_795_151_300, 1_795_151_200]
            .map(|to| status::SourceGap {
                source: "ami://b@pbx".into(),
                to,
                ..Default::default()
            })
            .to_vec();
        seen.status.journal_fields = vec![status::JournalField {
            compared: 7,
            missing: 2,
            different: 1,
            ..Default::default()
        }];
        seen.status.outboxes = vec![status::OutboxStatus {
            name: "dead_letters".into(),
            messages: 20,
            problem: Some(status::OutboxProblem {
                reason: "low on memory".into(),
                ..Default::default()
            }),
        }];
        seen.status.token.expires_at = Some(1_800_000_000);
        seen.status.pause = Some(status::Pause {
            reason: "no_grant".into(),
            fix: "grant it".into(),
        });
        seen.status.degraded = vec![status::DegradedPart {
            part: "polls".into(),
            ..Default::default()
        }];
        seen.requests
            .insert(("submit".into(), "submitted".into()), 4);
        seen.status.dead_letters.insert("failed".into(), 1);
        seen.status.waiting.insert("no_lead".into(), 2);
        seen.durations.request.observe(0.02);
        let text = render(&seen, Format::Open);
        for name in PROMISED {
            assert!(text.contains(name), "{name} is missing in\n{text}");
        }
        assert!(text.contains("callbridge_dead_letters{reason=\"failed\"} 1"));
        assert!(text.contains("callbridge_dead_letters{reason=\"rejected\"} 0"));
        assert!(text.contains("callbridge_waiting_calls{reason=\"no_lead\"} 2"));
        assert!(text.contains("callbridge_paused{reason=\"unreachable\"} 0"));
        assert!(text.contains("callbridge_degraded{part=\"polls\"} 1"));
        assert!(text.contains("callbridge_degraded{part=\"pages\"} 0"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn token_expiry_is_inf_without_date_and_absent_if_unknown() {
        let mut seen = Observed::default();
        assert!(!render(&seen, Format::Open).contains("token_expiry"));
        seen.status.token.state = "ok".into();
        let line = "callbridge_token_expiry_timestamp_seconds inf\n";
        let text = render(&seen, Format::Open);
        assert!(text.contains(line), "{text}");
    }

    fn samples(text: &str) -> BTreeSet<&str> {
        let lines = text.lines();
        lines.filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn classic_format_is_default_and_has_same_samples() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        assert_eq!(Format::from_accept(prometheus), Format::Open);
        assert_eq!(Format::from_accept("*/*"), Format::Classic);
        let mut seen = Observed::default();
        seen.requests
            .insert(("submit".into(), "submitted".into()), 4);
        let [open, old] = [Format::Open, Format::Classic].map(|format| render(&seen, format));
        assert!(
            old.contains("# TYPE callbridge_requests_total counter\n"),
            "{old}"
        );
        assert!(old.contains("# HELP callbridge_requests_total "), "{old}");
        assert!(!old.contains("# EOF"), "{old}");
        assert_eq!(samples(&old), samples(&open));
    }

    fn trunk(name: &str, pbx: &str, calls: u64) -> TrunkStatus {
        TrunkStatus {
            name: name.to_owned(),
            pbx: Some(pbx.to_owned()),
            calls,
            missed_customers: calls / 2,
            ..TrunkStatus::default()
        }
    }

    #[test]
    fn each_trunk_has_metrics_of_calls_and_missed_customers() {
        let mut seen = Observed::default();
        seen.status.trunks = vec![
            trunk("city", "a", 4),
            trunk("city", "b", 2),
            trunk("gsm", "a", 0),
        ];
        let text = render(&seen, Format::Open);
        for line in [
            "callbridge_trunk_calls_total{trunk=\"city\"} 6\n",
            "callbridge_trunk_calls_total{trunk=\"gsm\"} 0\n",
            "callbridge_missed_customers{trunk=\"city\"} 3\n",
            "callbridge_missed_customers{trunk=\"gsm\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
