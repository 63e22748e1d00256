//! A story: several plots at once, and how they are told and heard.

use crate::plot::Plot;
use crate::switch::{Deeds, Micros};
use crate::telling::{Linkedids, Manner, Voice};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::fmt;

/// How the events arrive.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// From a file long after, rather than as it happens.
    pub late: bool,
    /// Up to 400 ms out of order, by these delays in milliseconds; none, in order.
    pub delays_ms: Vec<u16>,
    /// Every so many events, one arrives twice; 0, none does.
    pub doubled: usize,
    /// This one of the hang-ups arrives before all else, and the rest a while after it.
    pub overtakes: Option<usize>,
}

/// Calls that truly happened, and how they are told.
#[derive(Clone)]
pub struct Story {
    pub deeds: Deeds,
    pub manner: Manner,
    pub arrival: Arrival,
    pub traits: BTreeSet<&'static str>,
}

/// Any story.
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
        overtakes: overtakes.filter(|_| late),
    });
    (plots, manner, arrival).prop_map(|(plots, manner, arrival)| Story::of(&plots, manner, arrival))
}

impl Story {
    /// These plots, each beginning at its moment.
    pub fn of(plots: &[(Micros, Vec<u16>)], manner: Manner, arrival: Arrival) -> Self {
        let mut story = Self {
            deeds: Deeds::default(),
            manner,
            arrival,
            traits: BTreeSet::new(),
        };
        for (number, (begins, dice)) in plots.iter().enumerate() {
            let (deeds, traits) = Plot::new(number, *begins, dice).play();
            story.deeds.beside(deeds);
            story.traits.extend(traits);
        }
        // A source that reports links ties calls together by their room.
        if story.traits.contains("an agent's room") && story.manner.voice == Voice::Links {
            story.manner.voice = Voice::Both;
        }
        let manner = story.manner;
        let told = [
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
            .extend(told.iter().filter(|t| t.1).map(|t| t.0));
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
