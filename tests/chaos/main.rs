//! Real processes, killed and cut off, and a judge outside of them: is every call journaled once,
//! and is no rule of the document broken, whatever happens?
//!
//! A short version of each scenario runs with every test run; `tests/run soak --chaos` runs them as
//! long as the promise says: 300 calls, `kill -9` every 2 to 4 s, 60 requests in 6 s.

#[path = "../e2e/connecting.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod connecting;
mod consent;
mod crm;
mod judge;
mod live;
mod outages;
#[path = "../e2e/program.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod program;
#[path = "../e2e/recordings.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod recordings;
#[path = "judge/rules_tests.rs"]
mod rules_tests;
mod shapes;
mod spool;
mod stage;
mod tokens;
mod weather;

use callbridge_testbed::{cel_rows, expected, pbx, wait};
