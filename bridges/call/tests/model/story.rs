//! A story, which consists of several simultaneous plots, how a PBX reports them, and how the
//! events arrive.

use crate::plot::Plot;
use crate::switch::{Deeds, Micros};
use crate::telling::{Linkedids, Manner, Voice};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt;

/// How the events arrive.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Whether the events come from a file a day later, as opposed to live.
    pub late: bool,
    /// Delays of the events in milliseconds, all below 400, which change the arrival order. If
    /// there are none, the events arrive in order.
    pub delays_ms: Vec<u16>,
    /// Every n-th event arrives twice, or none if this is 0.
    pub doubled: usize,
    /// Index of a hangup that arrives before all other events, which follow after a pause.
    pub overtakes: Option<usize>,
}

/// What really happened, and how it's reported.
#[derive(Clone)]
pub struct Story {
    pub deeds: Deeds,
    pub manner: Manner,
    pub arrival: Arrival,
    pub traits: BTreeSet<&'static str>,
}

/// Returns a strategy that generates random stories.
pub fn stories() -> impl Strategy<Value = Story> {
    let plots = prop::collection::vec(
        (0..8_000_000_i64, prop::collection::vec(any::<u16>(), 0..60)),
        1..4,
    );
    let voice = prop::sample::select(vec![Voice::Channel, Voice::Cel, Voice::Both, Voice::Links]);
    let linkedids =
        prop::sample::select(vec![Linkedids::AtOnce, Linkedids::Late, Linkedids::Never]);
    let manner = (voice, linkedids, 0..900_i64, any::<bool>());
    let manner = manner.prop_map(|(voice, linkedids, cel_behind, named)| Manner {
        voice,
        linkedids,
        cel_behind,
        named,
    });
    let delays_ms = prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::collection::vec(0..400_u16, 16),
    ];
    let arrival = (
        any::<bool>(),
        delays_ms,
        prop::sample::select(vec![0, 0, 1, 7]),
        prop::option::weighted(0.2, 0..100_usize),
    );
    let arrival = arrival.prop_map(|(late, delays_ms, doubled, overtakes)| Arrival {
        late,
        delays_ms,
        doubled,
        overtakes: if late { overtakes } else { None },
    });
    (plots, manner, arrival)
        .prop_map(|(plots, manner, arrival)| Story::play(&plots, manner, arrival))
}

impl Story {
    /// Plays plots simultaneously. Each item of `plots` is when a plot starts, along with its
    /// rolls.
    pub fn play(plots: &[(Micros, Vec<u16>)], manner: Manner, arrival: Arrival) -> Self {
        let mut story = Self {
            deeds: Deeds::default(),
            manner,
            arrival,
            traits: BTreeSet::new(),
        };
        for (number, (begins, dice)) in plots.iter().enumerate() {
            let (deeds, traits) = Plot::new(number, *begins, dice).play();
            story.deeds.merge(deeds);
            story.traits.extend(traits);
        }
        // With links, all calls in a room become a single call, so an agent's room has no true
        // calls.
        if story.traits.contains("an agent's room") && story.manner.voice == Voice::Links {
            story.manner.voice = Voice::Both;
        }
        let manner = story.manner;
        let traits = [
            ("several calls at once", plots.len() > 1),
            ("system name", manner.named),
            ("linkedids late", manner.linkedids == Linkedids::Late),
            (
                "linkedids never told anew",
                manner.linkedids == Linkedids::Never,
            ),
            ("events doubled", story.arrival.doubled > 0),
            ("events shuffled", !story.arrival.delays_ms.is_empty()),
            ("a hang-up overtakes all", story.arrival.overtakes.is_some()),
            ("CEL alone", manner.voice == Voice::Cel),
            ("links", manner.voice == Voice::Links),
        ];
        story
            .traits
            .extend(traits.iter().filter(|t| t.1).map(|t| t.0));
        story
    }
}

impl fmt::Debug for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?} {:?} {:?}", self.manner, self.arrival, self.traits)?;
        for deed in &self.deeds.deeds {
            let name = crate::telling::name(&self.deeds, deed.channel);
            let at = deed.at as f64 / 1e6;
            let (ch, linked) = (deed.channel, deed.linkedid);
            writeln!(f, "{at:10.6} {ch:3} l={linked:<3} {name} {:?}", deed.act)?;
        }
        Ok(())
    }
}
