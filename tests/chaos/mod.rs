//! Real processes, killed and cut off, and a judge outside of them: is every call journaled once,
//! and is no rule of the document broken, whatever happens?
//!
//! A short version of each scenario runs with every test run; `tests/run chaos` runs them as
//! long as the promise says: 300 calls, `kill -9` every 2 to 4 s, 60 requests in 6 s.

mod consent;
mod live;
mod outages;
mod rules_tests;
mod shapes;
mod stage;
mod tokens;
mod weather;
