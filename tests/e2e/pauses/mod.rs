//! Tests that callbridge reports why it isn't sending, keeps each call, and continues
//! automatically.

mod reasons;
mod rights;
