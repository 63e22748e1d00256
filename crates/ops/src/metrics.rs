//! The status as Prometheus metrics: in OpenMetrics text for who asks for it, as Prometheus does,
//! and in the older text format for all others.

mod format;
mod single;
mod sources;
mod trunks;

pub use format::Format;

use crate::Release;
use callbridge_fleet::metrics::{Labels, counters, gauge, gauges, signed};
use callbridge_model::Reason;
use callbridge_model::status::{PAUSES, Requests, Status, TROUBLES};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

/// Times that have to be counted where they happen. Cheap to clone; clones share their counts.
#[derive(Clone, Debug)]
pub struct Durations {
    /// From a request's first byte to its answer, in seconds.
    pub request: Histogram,
    /// From the spool's `BEGIN` to the end of its sync, in seconds.
    pub commit: Histogram,
    /// From a dialplan's whole question to its answer, in seconds.
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

/// What a scrape shows.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// As `status --json` has it.
    pub status: Status,
    /// Requests sent, by endpoint and verdict.
    pub requests: Requests,
    /// Counters that outlive the process.
    pub counters: BTreeMap<String, u64>,
    /// Dead and parked letters, by reason.
    pub dead_letters: BTreeMap<String, u64>,
    /// Lines of the log that nobody will read: stderr did not take them.
    pub log_lines_lost: u64,
    /// Sessions open at the page; `None` without one.
    pub page_sessions: Option<usize>,
    /// Calls that the last audit left unexplained; `None` before the first.
    pub audit_unexplained: Option<u64>,
    /// Events that came to us, by kind and result; `None` where none are taken.
    pub webhooks: Option<callbridge_webhook::tally::Events>,
    /// Look-ups of dialplans, by what was answered; `None` where none are taken.
    pub lookups: Option<Vec<(&'static str, u64)>>,
    /// Shared with where they are counted.
    pub durations: Durations,
    /// Which build this is.
    pub release: Release,
}

/// One label.
fn label(name: &'static str, value: &str) -> Labels<1> {
    [(name, value.to_owned())]
}

fn counter(all: &mut Registry, name: &str, help: &str, count: u64) {
    let counter = Counter::<u64, AtomicU64>::default();
    counter.inc_by(count);
    all.register(name, help, counter);
}

/// The whole text of a scrape.
pub fn render(seen: &Observed, format: Format) -> String {
    let mut all = Registry::with_prefix("callbridge");
    calls(&mut all, seen);
    budget(&mut all, seen);
    sources::sources(&mut all, seen);
    sources::unmatched(&mut all, seen);
    trunks::trunks(&mut all, seen);
    token(&mut all, seen);
    webhooks(&mut all, seen);
    journal(&mut all, seen);
    lookups(&mut all, seen);
    directory(&mut all, seen);
    leads(&mut all, seen);
    single::single(&mut all, seen);
    let Release { version, commit } = seen.release;
    let build = [("version", version), ("commit", commit)];
    let build = build.map(|(name, word)| (name, word.to_owned()));
    gauges(
        &mut all,
        "build_info",
        "Version and commit, always 1",
        [(build, 1)],
    );
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = encode(&mut text, &all);
    match format {
        Format::Open => text,
        Format::Classic => format::classic(&text),
    }
}

fn calls(all: &mut Registry, seen: &Observed) {
    let books = seen.status.books;
    let rows = (books.named().into_iter()).map(|(book, it)| (label("book", book), signed(it)));
    gauges(all, "calls", "Calls by where they stand", rows);
    counter(
        all,
        "forwarded",
        "Calls that a broker has confirmed",
        books.forwarded,
    );
    let letters = Reason::ALL.iter().map(|reason| {
        let count = seen.dead_letters.get(reason.word()).copied();
        (label("reason", reason.word()), signed(count.unwrap_or(0)))
    });
    gauges(
        all,
        "dead_letters",
        "Dead and parked letters by reason",
        letters,
    );
    let commit = seen.durations.commit.clone();
    all.register(
        "commit_duration_seconds",
        "Spool commits, with their sync",
        commit,
    );
}

fn budget(all: &mut Registry, seen: &Observed) {
    let requests = seen.requests.iter().map(|((endpoint, verdict), count)| {
        let labels = [("endpoint", endpoint), ("verdict", verdict)];
        (labels.map(|(name, word)| (name, word.clone())), *count)
    });
    counters(all, "requests", "Requests to the CRM", requests);
    let budget = &seen.status.budget;
    let free = budget.limit.saturating_sub(budget.used);
    let slots = [("used", budget.used), ("free", free)];
    let slots = slots.map(|(state, slots)| (label("state", state), i64::from(slots)));
    gauges(all, "budget_slots", "Requests of the running window", slots);
    let (drain, help) = (
        seen.status.backlog.drain_sec,
        "Time until the backlog is confirmed",
    );
    gauge(all, "backlog_drain_seconds", help, drain);
    let request = seen.durations.request.clone();
    let help = "From a request's first byte to its answer";
    all.register("request_duration_seconds", help, request);
    // What is not so now is shown as 0: a series that comes and goes is hard to watch.
    let pause = seen.status.pause.as_ref().map(|it| (&*it.reason, 1));
    let paused = PAUSES.iter().map(|reason| (*reason, 0)).chain(pause);
    let paused = paused.map(|(reason, now)| (label("reason", reason), now));
    gauges(all, "paused", "1 while nothing is sent, by reason", paused);
    let failing = TROUBLES.iter().map(|part| {
        let fails = seen.status.troubles.iter().any(|it| it.part == *part);
        (label("part", part), i64::from(fails))
    });
    let help = "1 while a part of the CRM fails and others do its work";
    gauges(all, "failing", help, failing);
}

/// How the CRM's journal shows what was sent; nothing before a call was compared.
fn journal(all: &mut Registry, seen: &Observed) {
    let fields = seen.status.journal_fields.iter().flat_map(|it| {
        let right = it.compared.saturating_sub(it.missing + it.different);
        let verdicts = [
            ("right", right),
            ("missing", it.missing),
            ("different", it.different),
        ];
        let labels = |verdict| [("field", it.field.word()), ("verdict", verdict)];
        verdicts.map(|(verdict, count)| {
            let labels = labels(verdict).map(|(name, word)| (name, word.to_owned()));
            (labels, count)
        })
    });
    let help = "Values of calls, by how the CRM's journal shows them";
    counters(all, "journal_fields", help, fields);
}

fn lookups(all: &mut Registry, seen: &Observed) {
    let Some(answers) = &seen.lookups else {
        return;
    };
    let answers = answers
        .iter()
        .map(|(answer, it)| (label("answer", answer), *it));
    counters(
        all,
        "lookups",
        "Look-ups of dialplans, by what was answered",
        answers,
    );
    let duration = seen.durations.lookup.clone();
    let help = "From a dialplan's whole question to its answer";
    all.register("lookup_duration_seconds", help, duration);
}

fn directory(all: &mut Registry, seen: &Observed) {
    let directory = seen.status.directory.clone().unwrap_or_default();
    let help = "Numbers in the directory of leads";
    gauge(all, "directory_phones", help, directory.phones);
    let help = "Living leads in the directory";
    gauge(all, "directory_leads", help, directory.leads);
    let help = "Events of leads that changed something";
    counter(all, "directory_learned", help, directory.learned);
}

/// What became of failed calls, and what leads show.
fn leads(all: &mut Registry, seen: &Observed) {
    let count = |(result, counter): (&str, &str)| {
        let count = seen.counters.get(counter).copied().unwrap_or(0);
        (label("result", result), count)
    };
    let moved = [
        ("survivor", "calls_to_survivor"),
        ("without_employee", "employees_dropped"),
    ];
    let help = "Calls that went on by themselves: to a merged lead's survivor, or without an \
                employee";
    counters(all, "calls_moved", help, moved.map(count));
    let Some(fields) = &seen.status.lead_fields else {
        return;
    };
    let values = [
        ("written", "lead_fields_written"),
        ("given_up", "lead_fields_given_up"),
        ("left_out", "lead_fields_left_out"),
    ];
    let help = "Values of lead fields by what became of them";
    counters(all, "lead_fields", help, values.map(count));
    let help = "Leads that wait to show their newest call";
    gauge(all, "lead_fields_waiting", help, fields.waiting);
}

fn webhooks(all: &mut Registry, seen: &Observed) {
    let Some(seen_events) = &seen.webhooks else {
        return;
    };
    let events = seen_events.iter().map(|((event, result), count)| {
        let labels = [("event", *event), ("result", *result)];
        (labels.map(|(name, word)| (name, word.to_owned())), *count)
    });
    counters(
        all,
        "webhooks",
        "Events from the CRM, by what became of them",
        events,
    );
    let last = seen
        .status
        .webhooks
        .as_ref()
        .and_then(|it| it.last_event_at);
    if let Some(at) = last {
        let gauge = Gauge::<i64>::default();
        gauge.set(at);
        let help = "Arrival of the last event that was proved";
        all.register("webhook_last_event_timestamp_seconds", help, gauge);
    }
}

fn token(all: &mut Registry, seen: &Observed) {
    let (name, help) = (
        "token_expiry_timestamp_seconds",
        "When the token expires, +Inf for never",
    );
    let token = &seen.status.token;
    match token.expires_at {
        Some(at) => {
            let expiry = Gauge::<i64>::default();
            expiry.set(at);
            all.register(name, help, expiry);
        }
        None if token.state == "ok" => {
            let expiry = Gauge::<f64, AtomicU64>::default();
            expiry.set(f64::INFINITY);
            all.register(name, help, expiry);
        }
        // Not known before the first answer.
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use callbridge_model::status;
    use std::collections::BTreeSet;

    /// Every name that dashboards and the alert rules rely on.
    const PROMISED: [&str; 20] = [
        "callbridge_calls{book=\"journaled\"} 3",
        "callbridge_requests_total{endpoint=\"submit\",verdict=\"submitted\"} 4",
        "callbridge_budget_slots{state=\"free\"} 48",
        "callbridge_backlog_drain_seconds 9",
        "callbridge_source_up{source=\"hq/ami\"} 0",
        "callbridge_source_events_total{source=\"hq/ami\",result=\"read\"} 7",
        "callbridge_source_last_event_timestamp_seconds{source=\"hq/ami\"} 1795151317",
        "callbridge_gaps_total{source=\"hq/ami\"} 2",
        "callbridge_last_gap_timestamp_seconds{source=\"hq/ami\"} 1795151300",
        "callbridge_dead_letters{reason=\"failed\"} 1",
        "callbridge_token_expiry_timestamp_seconds 1800000000",
        "callbridge_paused{reason=\"no_grant\"} 1",
        "callbridge_request_duration_seconds_count 1",
        "callbridge_commit_duration_seconds_bucket",
        "callbridge_build_info{version=",
        "callbridge_source_heard{source=\"hq/ami\"} 0",
        "callbridge_unmatched_channels_total{source=\"hq/ami\",prefix=\"PJSIP/citty\"} 5",
        "callbridge_journal_fields_total{field=\"talk\",verdict=\"right\"} 4",
        "callbridge_journal_fields_total{field=\"talk\",verdict=\"missing\"} 2",
        "callbridge_journal_fields_total{field=\"talk\",verdict=\"different\"} 1",
    ];

    #[test]
    fn every_promised_metric_is_there_with_its_labels() {
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
        seen.status.token.expires_at = Some(1_800_000_000);
        seen.status.pause = Some(status::Pause {
            reason: "no_grant".into(),
            cure: "grant it".into(),
        });
        seen.status.troubles = vec![status::SenderTrouble {
            part: "polls".into(),
            ..Default::default()
        }];
        seen.requests
            .insert(("submit".into(), "submitted".into()), 4);
        seen.dead_letters.insert("failed".into(), 1);
        seen.durations.request.observe(0.02);
        let text = render(&seen, Format::Open);
        for name in PROMISED {
            assert!(text.contains(name), "{name} is missing in\n{text}");
        }
        assert!(text.contains("callbridge_dead_letters{reason=\"rejected\"} 0"));
        assert!(text.contains("callbridge_paused{reason=\"outage\"} 0"));
        assert!(text.contains("callbridge_failing{part=\"polls\"} 1"));
        assert!(text.contains("callbridge_failing{part=\"sweeps\"} 0"));
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn a_token_without_an_expiry_date_expires_never_and_an_unknown_one_says_nothing() {
        let mut seen = Observed::default();
        assert!(!render(&seen, Format::Open).contains("token_expiry"));
        seen.status.token.state = "ok".into();
        let line = "callbridge_token_expiry_timestamp_seconds inf\n";
        let text = render(&seen, Format::Open);
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn who_does_not_ask_for_openmetrics_gets_the_same_in_the_older_format() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        assert_eq!(Format::of(prometheus), Format::Open);
        assert_eq!(Format::of("*/*"), Format::Classic);
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
        let samples = |text: &str| {
            let lines = text.lines().filter(|line| !line.starts_with('#'));
            lines.map(str::to_owned).collect::<BTreeSet<_>>()
        };
        assert_eq!(samples(&old), samples(&open));
    }
}
