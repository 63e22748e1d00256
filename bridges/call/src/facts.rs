//! What's known about an open call and each of its channels. The assembler collects these facts,
//! and the resolver turns them into finished calls.

mod applications;
mod fact;
mod history;
mod leg;
mod legs;
mod open;
mod texts;
mod times;
mod traits;

pub(crate) use applications::{CONFERENCES, SeenDial};
pub(crate) use fact::{Fact, FactKind, Passage, any, is_holding, spans};
pub(crate) use history::Stamped;
pub(crate) use leg::{Effect, Leg, SeenVariable, is_stand_in};
pub(crate) use open::{LinkKeys, OpenCall, Parts, Renamings};
pub(crate) use texts::Texts;
pub(crate) use times::{CallProcess, SetBack, UnobservedTime};
