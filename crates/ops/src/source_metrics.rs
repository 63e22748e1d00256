//! Metrics of sources, their gaps, and the channels that no trunk matches.

use crate::metric_families::{Labels, counters, gauges, label, labels};
use callbridge_model::Status;
use callbridge_model::status::{SourceGap, SourceState, SourceStatus};
use prometheus_client::registry::Registry;

fn source_label(source: &SourceStatus) -> Labels<1> {
    label("source", source.name())
}

pub(crate) fn sources(all: &mut Registry, status: &Status) {
    let mut up = Vec::new();
    let mut receiving = Vec::new();
    let mut events = Vec::new();
    let mut last_events = Vec::new();
    let mut clocks = Vec::new();
    let mut gaps = Vec::new();
    for source in &status.sources {
        let is_up = source.state != SourceState::Down;
        up.push((source_label(source), i64::from(is_up)));
        let is_silent = matches!(source.state, SourceState::Down | SourceState::Connected);
        receiving.push((source_label(source), i64::from(!is_silent)));
        for (result, count) in [
            ("read", source.read),
            ("skipped", source.skipped),
            ("repaired", source.repaired),
            ("unreadable", source.unreadable),
            ("too_long", source.too_long),
            ("dropped", source.dropped),
        ] {
            let labels = labels([("source", source.name()), ("result", result)]);
            events.push((labels, count));
        }
        if let Some(at) = source.last_event_at {
            last_events.push((source_label(source), at));
        }
        if let Some(ahead_ms) = source.clock_ahead_ms {
            clocks.push((source_label(source), ahead_ms / 1_000));
        }
        gaps.push((source_label(source), source.gaps));
    }
    let help = "1 while the source is connected or read";
    gauges(all, "source_up", help, up);
    let help = "1 once the connected source has received an event, or while a file is read";
    gauges(all, "source_receiving", help, receiving);
    let help = "Messages of a source, by result";
    counters(all, "source_events", help, events);
    let help = "Arrival time of the source's last event";
    gauges(
        all,
        "source_last_event_timestamp_seconds",
        help,
        last_events,
    );
    let help = "Seconds by which the clock of the source's PBX is ahead of this machine's clock";
    gauges(all, "source_clock_ahead_seconds", help, clocks);
    // Of several gaps of a source, only the last gap is registered.
    let mut by_end: Vec<&SourceGap> = status.gaps.iter().collect();
    by_end.sort_by_key(|gap| gap.to);
    let newest = by_end.into_iter().map(|gap| {
        let source = status.name_of(&gap.source);
        (label("source", source), gap.to)
    });
    let help = "End of the newest gap of a source, kept over restarts";
    gauges(all, "last_gap_timestamp_seconds", help, newest);
    let help = "Times at which events of a source may have been missed";
    counters(all, "gaps", help, gaps);
}

/// Registers the calls on channels that no trunk matches. The label `source` is the first source of
/// the channel's PBX.
pub(crate) fn unmatched_channels(all: &mut Registry, status: &Status) {
    let channels = status.unmatched.iter().map(|unmatched| {
        let mut sources = status.sources.iter();
        let source = sources.find(|source| is_of_pbx(source, &unmatched.pbx));
        let name = source.map_or(unmatched.pbx.as_str(), SourceStatus::name);
        let labels = labels([("source", name), ("prefix", &unmatched.prefix)]);
        (labels, unmatched.calls)
    });
    let help = "Calls with an outside number over channels of no trunk, by the common part of the \
                channels' names";
    counters(all, "unmatched_channels", help, channels);
}

/// Returns `true` if this is a source of the PBX, and not a catch-up file. The PBX's id can end
/// with `/` and a server.
fn is_of_pbx(source: &SourceStatus, pbx: &str) -> bool {
    let server = pbx.strip_prefix(source.pbx.as_str());
    !source.catch_up && server.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
