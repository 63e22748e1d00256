//! Sources: whether they are connected, what came from them, their gaps, and those of their
//! channels that no trunk takes in.

use super::{Observed, label};
use callbridge_fleet::metrics::{Labels, counters, gauges, labels};
use callbridge_model::status::{SourceGap, SourceState, SourceStatus};
use prometheus_client::registry::Registry;

fn of(source: &SourceStatus) -> Labels<1> {
    label("source", source.name())
}

pub(super) fn sources(all: &mut Registry, seen: &Observed) {
    let sources = &seen.status.sources;
    let up = |it: &SourceStatus| (of(it), i64::from(it.state != SourceState::Down));
    let help = "1 while the source is connected or read";
    gauges(all, "source_up", help, sources.iter().map(up));
    let receives = |it: &SourceStatus| {
        let silent = matches!(it.state, SourceState::Down | SourceState::Connected);
        (of(it), i64::from(!silent))
    };
    let help = "1 once an event was received since the source is connected, or while it is read";
    gauges(all, "source_heard", help, sources.iter().map(receives));
    let events = |it: &SourceStatus| {
        let results = [
            ("read", it.read),
            ("skipped", it.skipped),
            ("repaired", it.repaired),
            ("unreadable", it.unreadable),
        ];
        let source = it.name();
        results.map(|(word, count)| (labels([("source", source), ("result", word)]), count))
    };
    let help = "Messages of a source, by what became of them";
    counters(all, "source_events", help, sources.iter().flat_map(events));
    let last = (sources.iter()).filter_map(|it| Some((of(it), it.last_event_at?)));
    let help = "Arrival of the source's last event";
    gauges(all, "source_last_event_timestamp_seconds", help, last);
    let mut gaps: Vec<_> = seen.status.gaps.iter().collect();
    gaps.sort_by_key(|gap| gap.to);
    let name = |gap: &SourceGap| label("source", seen.status.name_of(&gap.source));
    let newest = gaps.into_iter().map(|gap| (name(gap), gap.to));
    let help = "End of the newest gap of a source, kept over restarts";
    gauges(all, "last_gap_timestamp_seconds", help, newest);
    let replaced = sources.iter().map(|it| (of(it), it.replaced));
    let help =
        "Times at which a stream was found to be another one than was read, or to lack a part";
    counters(all, "stream_recreated", help, replaced);
    let gaps = sources.iter().map(|it| (of(it), it.gaps));
    let help = "Times at which events of a source may have been missed";
    counters(all, "gaps", help, gaps);
}

/// Calls over channels that no trunk takes in. The source is the first of their PBX.
pub(super) fn unmatched(all: &mut Registry, seen: &Observed) {
    let channels = seen.status.unmatched.iter().map(|it| {
        let of_pbx = |source: &&SourceStatus| {
            let server = it.pbx.strip_prefix(source.pbx.as_str());
            !source.catch_up && server.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let source = seen.status.sources.iter().find(of_pbx);
        let source = source.map_or(it.pbx.as_str(), SourceStatus::name);
        (
            labels([("source", source), ("prefix", &it.prefix)]),
            it.calls,
        )
    });
    let help = "Calls with an outside number over channels that no trunk takes in, by what their \
                names have in common";
    counters(all, "unmatched_channels", help, channels);
}
