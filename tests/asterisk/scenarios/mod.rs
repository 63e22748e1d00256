//! All scenarios with their stories. The script is the truth, because it causes the events and
//! records them.

mod callers;
mod conferences;
mod groups;
mod missed;
mod outages;
mod outbound;
mod routing;
mod tangles;
mod transfers;

use crate::stage::Stage;
use crate::system::System;
use crate::truth::Truth;
use anyhow::Result;
use std::pin::Pin;

/// A scenario that is being played. Returns the calls that it placed.
pub type Play<'a> = Pin<Box<dyn Future<Output = Result<Vec<Truth>>> + 'a>>;

/// A requirement on Asterisk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// This release or a later one.
    Release(u32),
    /// This module, which can be in a separate package.
    Module(&'static str),
}

impl Need {
    /// Returns the reason why the scenario cannot be played with this Asterisk, or `None`.
    pub fn missing(self, system: &System) -> Option<String> {
        match self {
            Self::Release(since) => {
                (system.major < since).then(|| format!("it needs Asterisk {since}"))
            }
            Self::Module(module) => {
                (!system.has(module)).then(|| format!("it needs the module {module}"))
            }
        }
    }
}

pub struct Scenario {
    /// The scenario's name on the command line.
    pub name: &'static str,
    /// The events of the scenario.
    pub story: &'static str,
    /// The scenario's requirement on Asterisk, if not every Asterisk fulfills it.
    pub needs: Option<Need>,
    /// Plays the scenario.
    pub play: for<'a> fn(&'a mut Stage) -> Play<'a>,
}

/// Makes a scenario from the function of the same name.
macro_rules! scenario {
    ($name:ident, $story:expr) => {
        scenario!($name, $story, None)
    };
    ($name:ident, $story:expr, $needs:expr) => {
        crate::scenarios::Scenario {
            name: stringify!($name),
            story: $story,
            needs: $needs,
            play: |stage| Box::pin($name(stage)),
        }
    };
}
use scenario;

/// Returns all scenarios.
pub fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(transfers::SCENARIOS);
    all.extend(groups::SCENARIOS);
    all.extend(routing::SCENARIOS);
    all.extend(conferences::SCENARIOS);
    all.extend(missed::SCENARIOS);
    all.extend(callers::SCENARIOS);
    all.extend(outbound::SCENARIOS);
    all.extend(tangles::SCENARIOS);
    all.extend(outages::SCENARIOS);
    all
}
