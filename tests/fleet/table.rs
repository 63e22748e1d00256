//! What befell the fleet, and what came of it, as a table.

use crate::fault::{FaultOutcome, FleetFault};
use crate::ledger::Verdicts;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// See the module.
#[derive(Default)]
pub struct FaultTable(Mutex<BTreeMap<FleetFault, Vec<FaultOutcome>>>);

impl FaultTable {
    /// Another fault is over.
    pub fn add(&self, fault: FleetFault, outcome: FaultOutcome) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(fault).or_default().push(outcome);
    }

    /// Those of `kinds` that never found a call in hand: what they do to one was not tried.
    pub fn unhit(&self, kinds: &[FleetFault]) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hit = |kind: &&FleetFault| {
            let outcomes = all.get(kind).into_iter().flatten();
            { outcomes }.any(|it| it.in_hand > 0)
        };
        (kinds.iter())
            .filter(|kind| !hit(kind))
            .map(|kind| format!("{} never met a call in hand", kind.words()))
            .collect()
    }

    /// The table.
    pub fn show(&self, found: Verdicts, fullest: u32) -> String {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = format!(
            "\n{:<32} {:>5} {:>10} {:>8} {:>18}\n",
            "fault", "times", "with calls", "calls", "recovered after"
        );
        for (fault, outcomes) in all.iter() {
            let with_calls = outcomes.iter().filter(|it| it.in_hand > 0).count();
            let calls: u64 = outcomes.iter().map(|it| it.in_hand).sum();
            let mut times: Vec<Duration> = outcomes.iter().map(|it| it.recovered).collect();
            times.sort_unstable();
            let seconds = |time: Option<&Duration>| time.map_or(0.0, Duration::as_secs_f64);
            let (middle, longest) = (seconds(times.get(times.len() / 2)), seconds(times.last()));
            let _ = writeln!(
                text,
                "{:<32} {:>5} {with_calls:>10} {calls:>8} {middle:>7.1} – {longest:.1} s",
                fault.words(),
                outcomes.len(),
            );
        }
        let _ = writeln!(
            text,
            "\ncalls {}, journaled {}, lost {}, doubled {}, invented {}, changed {}, \
             highest window {fullest}",
            found.given, found.journaled, found.lost, found.doubled, found.invented, found.changed
        );
        text
    }
}
