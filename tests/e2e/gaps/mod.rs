//! Tests that the time without a connection is filled or shown, and that each missing call is
//! found.

mod audit;
mod audit_journal;
mod catch_up;
mod hearing;
mod unmatched;
