//! The promise under hardship: the real program killed at each commit, on a disk that fails, is
//! full or goes away; and the spool alone killed while it writes.

#[path = "../e2e/crm.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod crm;
#[path = "../e2e/program.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod program;
#[path = "../e2e/recordings.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod recordings;

mod disk;
mod fault;
mod folder;
mod mounts;
mod points;
mod scenario;
mod spool;

use callbridge_testbed::{broker, cel_rows, expected, pbx, wait};
