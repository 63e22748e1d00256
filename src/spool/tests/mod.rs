//! Tests of the spool, filed by the question they answer.

mod acts;
mod acts_errands;
mod acts_listed;
pub mod call;
mod correct;
mod deliveries;
mod directory;
mod disk;
mod doubt;
mod durability;
mod errands;
mod fields;
mod finish;
mod frozen;
mod handle;
mod letters;
mod listed;
mod model;
mod plans;
mod restored;
mod round_trip;
mod search;
mod sender;
mod size;
mod table;
mod walk;
mod words;
