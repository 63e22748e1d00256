//! The crate from outside: recordings of a live switch, what happened in each of them, and what no
//! recording holds.

mod cdr;
mod expected;
mod filtered;
mod forgotten;
mod gaps;
mod hostile;
mod journeys;
mod late;
mod metamorphic;
mod moments;
mod recordings;
mod scenes;
mod set_back;
mod splitting;
mod switch;
mod three_way;
