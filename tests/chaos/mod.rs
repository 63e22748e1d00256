//! Tests real processes that are killed and cut off, with a judge outside of them. Whatever
//! happens, every call must be journaled once, and no rule of the document may be broken.
//!
//! A short version of each scenario runs with every test run. `tests/run chaos` runs them at the
//! promised length: 300 calls, `kill -9` every 2 to 4 s, 60 requests in 6 s.

mod consent;
mod live;
mod outages;
mod rules_tests;
mod shapes;
mod stage;
mod tokens;
mod weather;
