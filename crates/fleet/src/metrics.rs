//! The table as Prometheus metrics, and what metrics are written with.

use callbridge_model::status::fleet::Liveness;
use callbridge_model::status::{Backlog, FleetTable};
use prometheus_client::{
    encoding::text::encode, metrics::counter::Counter, metrics::family::Family,
    metrics::gauge::Gauge, registry::Registry,
};
use std::{collections::BTreeMap, sync::atomic::AtomicU64};

/// A set of labels as names and values.
pub type Labels<const N: usize> = [(&'static str, String); N];

/// Makes labels of borrowed values.
pub fn labels<const N: usize>(words: [(&'static str, &str); N]) -> Labels<N> {
    words.map(|(name, word)| (name, word.to_owned()))
}

/// A gauge for each set of labels; of a set that comes twice the last counts.
pub fn gauges<const N: usize>(
    all: &mut Registry,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (Labels<N>, i64)>,
) {
    let family = Family::<Labels<N>, Gauge>::default();
    for (labels, value) in rows {
        family.get_or_create(&labels).set(value);
    }
    all.register(name, help, family);
}

/// Registers a counter for each set of labels; the counts of one set are added up.
pub fn counters<const N: usize>(
    all: &mut Registry,
    name: &str,
    help: &str,
    rows: impl IntoIterator<Item = (Labels<N>, u64)>,
) {
    let family = Family::<Labels<N>, Counter<u64, AtomicU64>>::default();
    for (labels, count) in rows {
        family.get_or_create(&labels).inc_by(count);
    }
    all.register(name, help, family);
}

/// Registers a gauge without labels.
pub fn gauge(all: &mut Registry, name: &str, help: &str, value: i64) {
    let gauge = Gauge::<i64>::default();
    gauge.set(value);
    all.register(name, help, gauge);
}

/// Returns the count as a gauge holds it, at most `i64::MAX`.
pub fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// `callbridge_collector_up{pbx}`, which a sender shows among its own metrics.
pub fn collectors(all: &mut Registry, table: &FleetTable) {
    // Logins that make up names make no series with them.
    let many = (!table.floods.is_empty()).then_some(("too_many", false));
    let up = table.collectors().into_iter().chain(many);
    let rows = up.map(|(pbx, speaks)| ([("pbx", pbx.to_owned())], i64::from(speaks)));
    let help = "1 while a collector of the PBX reports, 0 once it was stopped or silent for 3 min";
    gauges(all, "collector_up", help, rows);
}

/// Renders the metrics that `fleet --listen` serves.
pub fn render(table: &FleetTable) -> String {
    let mut all = Registry::with_prefix("callbridge");
    collectors(&mut all, table);
    let mut members = BTreeMap::new();
    for it in &table.members {
        let kind = (it.word.role.word(), it.speech.word());
        *members.entry(kind).or_default() += 1;
    }
    let members = members
        .into_iter()
        .map(|((role, speech), count)| (labels([("role", role), ("speech", speech)]), count));
    let help = "Collectors and senders by whether they report: speaking, stopped, silent";
    gauges(&mut all, "fleet_members", help, members);
    let waiting = |figure: fn(&Backlog) -> u64| {
        table.tokens.iter().map(move |it| {
            let company = it.token.company.as_deref().unwrap_or_default();
            let labels = labels([("token", &it.token.print), ("company", company)]);
            (labels, signed(figure(&it.backlog)))
        })
    };
    let (calls, drain) = (waiting(|it| it.calls), waiting(|it| it.drain_sec));
    let help = "Calls that wait for a token";
    gauges(&mut all, "fleet_backlog_calls", help, calls);
    let help = "Time until they are sent, at the token's pace";
    gauges(&mut all, "fleet_backlog_drain_seconds", help, drain);
    let silent = (table.members.iter()).filter(|it| it.speech == Liveness::Silent);
    let help = "Collectors and senders that sent no report for 3 minutes";
    gauge(
        &mut all,
        "fleet_silent",
        help,
        signed(silent.count() as u64),
    );
    text_of(&all)
}

/// Encodes the registry as the OpenMetrics text of a scrape.
pub fn text_of(all: &Registry) -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = encode(&mut text, all);
    text
}
