//! What each trunk took, and who waits for a call back.

use super::Observed;
use callbridge_fleet::metrics::{counters, gauges, signed};
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;

/// A series for each trunk of the flags, also where it is 0.
pub(super) fn trunks(all: &mut Registry, seen: &Observed) {
    let trunks = &seen.status.trunks;
    let calls = trunks
        .iter()
        .map(|it| ([("trunk", it.name.clone())], it.calls));
    counters(all, "trunk_calls", "Calls that a trunk took", calls);
    let mut missed = BTreeMap::new();
    for trunk in trunks {
        *missed.entry(&trunk.name).or_default() += signed(trunk.missed_waiting);
    }
    let missed = (missed.into_iter()).map(|(name, count)| ([("trunk", name.clone())], count));
    let help = "Customers who called, got nobody, and were not talked to since, by the trunk of \
                their last try";
    gauges(all, "missed_waiting", help, missed);
}

#[cfg(test)]
mod tests {
    use super::super::{Format, render};
    use super::*;
    use callbridge_model::status::TrunkStatus;

    #[test]
    fn each_trunk_has_its_calls_and_those_who_wait() {
        let mut seen = Observed::default();
        let trunk = |name: &str, pbx: &str, calls| TrunkStatus {
            name: name.to_owned(),
            pbx: Some(pbx.to_owned()),
            calls,
            missed_waiting: calls / 2,
            ..TrunkStatus::default()
        };
        seen.status.trunks = vec![
            trunk("city", "a", 4),
            trunk("city", "b", 2),
            trunk("gsm", "a", 0),
        ];
        let text = render(&seen, Format::Open);
        for line in [
            "callbridge_trunk_calls_total{trunk=\"city\"} 6\n",
            "callbridge_trunk_calls_total{trunk=\"gsm\"} 0\n",
            "callbridge_missed_waiting{trunk=\"city\"} 3\n",
            "callbridge_missed_waiting{trunk=\"gsm\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
}
