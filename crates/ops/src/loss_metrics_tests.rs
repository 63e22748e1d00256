//! Metrics of counters that can mean a lost call.

use crate::metrics::{Format, Observed, render};
use callbridge_model::status::{self, LOSS_COUNTERS};

#[test]
fn loss_counters_and_dropped_events_are_metrics() {
    let mut seen = Observed::default();
    for (name, _) in LOSS_COUNTERS {
        seen.counters.insert(name.to_owned(), 7);
    }
    seen.status.sources = vec![status::SourceStatus {
        label: "hq/ami".into(),
        too_long: 3,
        dropped: 4,
        ..Default::default()
    }];
    let text = render(&seen, Format::Open);
    for (name, _) in LOSS_COUNTERS {
        let line = format!("callbridge_losses_total{{cause=\"{name}\"}} 7");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
    for (result, count) in [("too_long", 3), ("dropped", 4)] {
        let labels = format!("source=\"hq/ami\",result=\"{result}\"");
        let line = format!("callbridge_source_events_total{{{labels}}} {count}");
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
}
