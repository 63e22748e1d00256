//! Sources: whether they are heard, what came from them, their gaps, and channels of theirs that no
//! trunk takes in.

use super::{Counters, Gauges, Observed};
use callbridge_model::status::{SourceState, SourceStatus};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Channels {
    source: String,
    prefix: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Events {
    source: String,
    result: &'static str,
}

pub(super) fn sources(all: &mut Registry, seen: &Observed) {
    let (up, last) = (
        Gauges::<SourceLabels>::default(),
        Gauges::<SourceLabels>::default(),
    );
    let told = Gauges::<SourceLabels>::default();
    let replaced = Counters::<SourceLabels>::default();
    let (events, gaps) = (
        Counters::<Events>::default(),
        Counters::<SourceLabels>::default(),
    );
    for source in &seen.status.sources {
        let label = SourceLabels {
            source: source.name().to_owned(),
        };
        up.get_or_create(&label)
            .set(i64::from(source.state != SourceState::Down));
        let silent = matches!(source.state, SourceState::Down | SourceState::Connected);
        told.get_or_create(&label).set(i64::from(!silent));
        if let Some(at) = source.last_event_at {
            last.get_or_create(&label).set(at);
        }
        gaps.get_or_create(&label).inc_by(source.gaps);
        replaced.get_or_create(&label).inc_by(source.replaced);
        for (result, count) in [
            ("read", source.read),
            ("skipped", source.skipped),
            ("repaired", source.repaired),
            ("unreadable", source.unreadable),
        ] {
            let labels = Events {
                source: source.name().to_owned(),
                result,
            };
            events.get_or_create(&labels).inc_by(count);
        }
    }
    all.register("source_up", "1 while the source is connected or read", up);
    let help = "1 once an event was received since the source is connected, or while it is read";
    all.register("source_heard", help, told);
    all.register(
        "source_events",
        "Messages of a source, by what became of them",
        events,
    );
    let help = "Arrival of the source's last event";
    all.register("source_last_event_timestamp_seconds", help, last);
    let newest = Gauges::<SourceLabels>::default();
    for gap in &seen.status.gaps {
        let source = seen.status.name_of(&gap.source).to_owned();
        let gauge = newest.get_or_create(&SourceLabels { source });
        gauge.set(gauge.get().max(gap.to));
    }
    let help = "End of the newest gap of a source, kept over restarts";
    all.register("last_gap_timestamp_seconds", help, newest);
    let help =
        "Times at which a stream was found to be another one than was read, or to lack a part";
    all.register("stream_recreated", help, replaced);
    all.register(
        "gaps",
        "Times at which events of a source may have been missed",
        gaps,
    );
}

/// Calls over channels that no trunk takes in. The source is the first of their PBX.
pub(super) fn unmatched(all: &mut Registry, seen: &Observed) {
    let channels = Counters::<Channels>::default();
    for it in &seen.status.unmatched {
        let of_pbx = |source: &&SourceStatus| {
            let server = it.pbx.strip_prefix(source.pbx.as_str());
            !source.catch_up && server.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let source = seen.status.sources.iter().find(of_pbx);
        let labels = Channels {
            source: source.map_or_else(|| it.pbx.clone(), |source| source.name().to_owned()),
            prefix: it.prefix.clone(),
        };
        channels.get_or_create(&labels).inc_by(it.calls);
    }
    let help = "Calls with an outside number over channels that no trunk takes in, by what their \
                names have in common";
    all.register("unmatched_channels", help, channels);
}
