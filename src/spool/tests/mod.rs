//! Tests of the spool, filed by the question they answer.

mod call;
mod disk;
mod durability;
mod finish;
mod letters;
mod model;
mod round_trip;
mod sender;
mod table;
