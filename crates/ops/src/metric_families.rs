//! Families of metrics: sets of labels, each with a value.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::atomic::AtomicU64;

pub(crate) type Labels<const N: usize> = [(&'static str, String); N];

pub(crate) fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels<N> {
    pairs.map(|(name, value)| (name, value.to_owned()))
}

pub(crate) fn label(name: &'static str, value: &str) -> Labels<1> {
    labels([(name, value)])
}

/// Registers a gauge for each set of labels. If a set occurs twice, the last value counts.
pub(crate) fn gauges<const N: usize>(
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

/// Registers a counter for each set of labels. The counts of one set are added up.
pub(crate) fn counters<const N: usize>(
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

pub(crate) fn gauge(all: &mut Registry, name: &str, help: &str, value: i64) {
    let gauge = Gauge::<i64>::default();
    gauge.set(value);
    all.register(name, help, gauge);
}

/// Converts a count to the value of a gauge, at most `i64::MAX`.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Encodes the registry as OpenMetrics text.
pub(crate) fn text_of(all: &Registry) -> String {
    let mut text = String::new();
    // Writing into a String does not fail.
    let _ = encode(&mut text, all);
    text
}
