//! What is known of an open call and each of its channels: what the assembler gathers, and the
//! resolver makes finished calls of.

pub(crate) mod applications;
pub(crate) mod fact;
pub(crate) mod gaps;
pub(crate) mod leg;
mod legs;
pub(crate) mod open;
pub(crate) mod renamings;
pub(crate) mod texts;
pub(crate) mod times;
mod traits;
