//! Tests of messages as publishers write them.

mod documents;
mod round_trip;
mod wrong;
