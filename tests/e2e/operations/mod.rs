//! What do administrators, supervisors, and monitoring see?

mod dashboard;
mod demo;
mod log;
pub mod monitoring;
mod notify;
mod stories;
