//! Tests that losing events never produces a wrong value.
//!
//! Every recording is played without one of its events, and without all events of a particular
//! kind. Each call must have the same values as with all events, or be `incomplete`, although its
//! number and its employee may become unknown. CI tries a fixed sample of the losses, and
//! `tests/run losses` tries them all and prints a table. `known.txt` lists the losses that still
//! result in a wrong value, such as that of a colleague's entry into a conference whose exit is
//! only reported after the customer's call.
//!
//! | module | what it does |
//! |---|---|
//! | `source` | the recordings by source, and their calls if messages are lost |
//! | `verdict` | compares the calls before and after a loss |

mod source;
mod verdict;

use source::{Message, Recording, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use verdict::Verdict;

/// CI tries one in this many losses.
const SAMPLE: usize = 23;

/// Losses that still result in a wrong value or lose a call, one per line: the result, the
/// recording, and the event.
const KNOWN: &str = include_str!("known.txt");

/// Event name prefixes, where all events with the same prefix are dropped by a single filter on an
/// account.
const FAMILIES: [&str; 3] = ["Bridge", "BRIDGE", "Dial"];

/// One source's counts.
#[derive(Debug, Default)]
struct Count {
    losses: usize,
    incomplete: usize,
    wrong: usize,
    lost: usize,
}

#[derive(Debug, Default)]
struct Campaign {
    counts: BTreeMap<Source, Count>,
    /// Number of complete calls if nothing is lost.
    complete: BTreeMap<Source, usize>,
    /// Faults that aren't listed in [`KNOWN`].
    faults: String,
    /// Entries in [`KNOWN`] that were seen.
    known: BTreeSet<&'static str>,
    /// Number of losses so far, including those that aren't in the sample.
    seen: usize,
    is_full: bool,
}

impl Campaign {
    /// Tries each of this recording's losses.
    fn try_recording(&mut self, recording: &Recording) {
        let before = recording.calls(|_, _| false);
        let complete = before.iter().filter(|call| call.incomplete.is_none());
        *self.complete.entry(recording.source).or_default() += complete.count();
        let judge = |is_lost: &dyn Fn(usize, &Message) -> bool| {
            verdict::judge(&before, &recording.calls(is_lost))
        };
        for (i, message) in recording.messages.iter().enumerate() {
            self.try_loss(recording, &message.event, || judge(&|place, _| place == i));
        }
        for event in recording.events() {
            self.try_loss(recording, event, || judge(&|_, lost| lost.event == event));
        }
        for family in FAMILIES {
            let is_of_family = |message: &Message| message.event.starts_with(family);
            if recording.messages.iter().any(is_of_family) {
                let what = format!("{family}*");
                self.try_loss(recording, &what, || judge(&|_, lost| is_of_family(lost)));
            }
        }
    }

    /// Tries one loss, unless it isn't in the sample.
    fn try_loss(&mut self, recording: &Recording, what: &str, judge: impl FnOnce() -> Verdict) {
        self.seen += 1;
        if !self.is_full && !self.seen.is_multiple_of(SAMPLE) {
            return;
        }
        let verdict = judge();
        let count = self.counts.entry(recording.source).or_default();
        count.losses += 1;
        count.incomplete += usize::from(verdict.incomplete > 0);
        count.wrong += usize::from(!verdict.wrong.is_empty());
        count.lost += usize::from(!verdict.lost.is_empty());
        if verdict.wrong.is_empty() && verdict.lost.is_empty() {
            return;
        }
        let result = match (verdict.wrong.is_empty(), verdict.lost.is_empty()) {
            (false, true) => "wrong",
            (true, _) => "lost",
            (false, false) => "wrong and lost",
        };
        let loss = format!("{result}: {} without {what}", recording.name);
        if let Some(known) = KNOWN.lines().find(|known| *known == loss) {
            self.known.insert(known);
            return;
        }
        for fault in &verdict.wrong {
            let _ = writeln!(self.faults, "{loss}: {fault}");
        }
        for call in &verdict.lost {
            let _ = writeln!(self.faults, "{loss}: lost {call}");
        }
    }

    fn table(&self) -> String {
        let mut table =
            "| source | losses | incomplete | wrong | lost |\n|---|---|---|---|---|\n".to_owned();
        for source in Source::ALL {
            if let Some(count) = self.counts.get(&source) {
                let Count {
                    losses,
                    incomplete,
                    wrong,
                    lost,
                } = count;
                let name = source.name();
                let _ = writeln!(
                    table,
                    "| {name} | {losses} | {incomplete} | {wrong} | {lost} |"
                );
            }
        }
        table
    }
}

/// Promise: Losing an event never produces a wrong value.
#[test]
fn losing_an_event_never_produces_a_wrong_value() {
    let mut campaign = Campaign {
        is_full: std::env::var_os("CALLBRIDGE_LOSSES_FULL").is_some(),
        ..Campaign::default()
    };
    for recording in source::recordings() {
        campaign.try_recording(&recording);
    }
    for source in Source::ALL {
        let complete = campaign.complete.get(&source).copied().unwrap_or(0);
        assert!(
            complete >= 20,
            "{complete} complete calls of {}",
            source.name()
        );
    }
    let table = campaign.table();
    println!("{table}");
    if campaign.is_full {
        let listed: BTreeSet<&str> = KNOWN.lines().collect();
        assert_eq!(listed, campaign.known, "losses that yield right values now");
    }
    assert!(campaign.faults.is_empty(), "\n{}{table}", campaign.faults);
}
