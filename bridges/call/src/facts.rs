//! The known facts of an open call and of each of its channels. The assembler collects them, and
//! the resolver makes finished calls from them.

mod applications;
mod fact;
mod history;
mod leg;
mod legs;
mod open;
mod texts;
mod times;
mod traits;

pub(crate) use applications::SeenDial;
pub(crate) use fact::{Fact, FactKind, Passage, any, is_holding, spans};
pub(crate) use history::Stamped;
pub(crate) use leg::{Effect, Leg, SeenVariable, is_stand_in};
pub(crate) use open::{LinkKeys, OpenCall, Parts, Renamings};
pub(crate) use texts::Texts;
pub(crate) use times::{CallProcess, SetBack, UnobservedTime};
