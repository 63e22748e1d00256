//! Tests what's shown to administrators, supervisors, and monitoring systems.

mod dashboard;
mod demo;
mod log;
pub mod monitoring;
mod notify;
mod stories;
