//! What is known of an open call and each of its channels: what the assembler gathers, and the
//! resolver makes finished calls of.

mod fact;
mod history;
mod leg;
mod open;
mod texts;
mod times;

pub(crate) use fact::{Fact, FactKind, Note, Passage, any, is_holding, spans};
pub(crate) use history::Stamped;
pub(crate) use leg::{Effect, Leg, SeenDial, SeenVariable, is_stand_in};
pub(crate) use open::{LinkKeys, OpenCall, Parts, Renamings};
pub(crate) use texts::Texts;
pub(crate) use times::{SetBack, UnobservedTime};
