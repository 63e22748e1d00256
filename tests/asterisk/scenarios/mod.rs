//! Every scenario with its story. The script is the truth: it says what happened as it makes it
//! happen.

mod conferences;
mod groups;
mod missed;
mod outages;
mod outbound;
mod routing;
mod tangles;
mod transfers;

use crate::stage::Stage;
use crate::truth::Truth;
use anyhow::Result;
use std::pin::Pin;

/// A scenario at play: the calls that it placed.
pub type Play<'a> = Pin<Box<dyn Future<Output = Result<Vec<Truth>>> + 'a>>;

/// A scenario.
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// What happens.
    pub story: &'static str,
    /// Makes it happen.
    pub play: for<'a> fn(&'a mut Stage) -> Play<'a>,
}

/// A scenario of the function of the same name.
macro_rules! scenario {
    ($name:ident, $story:expr) => {
        crate::scenarios::Scenario {
            name: stringify!($name),
            story: $story,
            play: |stage| Box::pin($name(stage)),
        }
    };
}
use scenario;

/// All of them.
pub fn all() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(transfers::SCENARIOS);
    all.extend(groups::SCENARIOS);
    all.extend(routing::SCENARIOS);
    all.extend(conferences::SCENARIOS);
    all.extend(missed::SCENARIOS);
    all.extend(outbound::SCENARIOS);
    all.extend(tangles::SCENARIOS);
    all.extend(outages::SCENARIOS);
    all
}
