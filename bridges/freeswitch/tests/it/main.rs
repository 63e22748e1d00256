//! Tests of the crate's public interface, both with recordings of a live switch and with events
//! that aren't in any recording.

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
mod phones;
mod recordings;
mod redialed;
mod scenes;
mod set_back;
mod splitting;
mod switch;
mod three_way;
