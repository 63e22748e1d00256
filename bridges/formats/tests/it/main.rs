//! Tests of messages in the form that publishers write them.

mod documents;
mod round_trip;
mod wrong;
