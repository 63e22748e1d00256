//! Tests the views of administrators, supervisors, and monitoring systems.

mod dashboard;
mod demo;
mod log;
pub mod monitoring;
mod notify;
mod stories;
