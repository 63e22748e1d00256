//! What was read of a recording, for stderr.

use crate::config::Config;
use callbridge_admin::explain::reading::{MessageCounts, Reading};
use callbridge_call::trunk::extension;
use callbridge_call::{FinishedCall, Role};
use callbridge_model::safe;
use std::collections::BTreeMap;

/// Endpoints that are named at most.
const NAMED_MAX: usize = 12;
/// Endpoints that are counted at most.
const KNOWN_MAX: usize = 4096;

/// The names of channels without their suffixes, with their counts: one of these is the trunk that
/// is missing.
#[derive(Debug, Default)]
pub(super) struct Endpoints(BTreeMap<String, u64>);

impl Endpoints {
    /// Counts those of a call.
    pub(super) fn of(&mut self, call: &FinishedCall) {
        let channels = call.timeline.iter().flat_map(|timeline| &timeline.channels);
        let real = channels.filter(|channel| channel.party != Role::Plumbing);
        for name in real.map(|channel| channel.name.as_str()) {
            let technology = name.split('/').next().unwrap_or_default();
            let Some(device) = extension(name) else {
                continue;
            };
            let endpoint = format!("{technology}/{device}");
            if self.0.len() < KNOWN_MAX || self.0.contains_key(&endpoint) {
                *self.0.entry(endpoint).or_default() += 1;
            }
        }
    }

    /// The most frequent ones: `PJSIP/city, PJSIP/101`.
    fn named(&self) -> String {
        let mut all: Vec<(&String, &u64)> = self.0.iter().collect();
        all.sort_by_key(|&(endpoint, count)| (std::cmp::Reverse(count), endpoint));
        let more = if all.len() > NAMED_MAX { ", …" } else { "" };
        let named = all.iter().take(NAMED_MAX);
        let named = named.map(|(endpoint, _)| safe(endpoint));
        named.collect::<Vec<_>>().join(", ") + more
    }
}

/// Returns the summary of a recording that was read to its end.
pub(super) fn of(reading: &Reading, endpoints: &Endpoints, config: &Config) -> String {
    let MessageCounts {
        read,
        skipped,
        repaired,
        unreadable,
        timeless,
    } = reading.counts();
    let mut lines = vec![format!(
        "{read} events read ({repaired} repaired), {skipped} not needed, {unreadable} unreadable"
    )];
    match reading.open_calls() {
        0 => {}
        1 => lines.push("1 call has no end in it and is not shown".to_owned()),
        open => lines.push(format!("{open} calls have no end in it and are not shown")),
    }
    if timeless > 0 {
        lines.push(format!(
            "seconds are not exact, for events carry no time ({timeless}): set timestampevents=yes"
        ));
    }
    if !reading.is_of_messages() && config.rules.trunks.is_empty() {
        lines.push("no --trunk is given, so every call looks internal".to_owned());
        if !endpoints.0.is_empty() {
            let named = endpoints.named();
            lines.push(format!("which of its endpoints are trunks? {named}"));
        }
    }
    lines.push(String::new());
    lines.join("\n")
}
