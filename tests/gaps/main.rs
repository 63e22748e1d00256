//! Nobody listens for a while: every recording with any part of it cut out.

#[path = "../support/cel_rows.rs"]
mod cel_rows;
mod cut;
mod filled;
mod recorded;
