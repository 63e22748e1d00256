//! What is known of an open call and each of its channels: what the assembler gathers, and the
//! resolver makes finished calls of.

pub(crate) mod fact;
pub(crate) mod leg;
pub(crate) mod open;
pub(crate) mod texts;
pub(crate) mod times;
