//! Tests that callbridge reports why it does not send, keeps each call, and continues
//! automatically.

mod reasons;
mod rights;
