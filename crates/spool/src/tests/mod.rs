//! The spool's tests, with one file per topic. Those in `suite.rs` run on both engines.

mod archive;
pub mod call;
mod connection;
mod disk;
mod durability;
mod engines;
mod flood;
mod history;
mod intake;
mod lead;
pub mod place;
mod plans;
mod postgres;
mod postgres_plans;
mod reading;
mod restored;
mod server_faults;
mod size;
mod sqlite;
pub mod table;
mod transfer;
mod versions;
