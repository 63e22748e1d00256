//! Is the time without a connection filled or shown, and each missing call found?

mod audit;
mod audit_journal;
mod catch_up;
mod hearing;
mod unmatched;
