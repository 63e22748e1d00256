//! The promise under hardship: the real program killed at each commit, on a disk that fails, is
//! full or goes away; and the spool alone killed while it writes.

#[path = "../e2e/crm.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod crm;
#[path = "../support/expected.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod expected;
#[path = "../e2e/program.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod program;
#[path = "../e2e/recordings.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod recordings;
#[path = "../support/wait.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod wait;

#[path = "../support/authority.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod authority;
#[path = "../support/broker.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod broker;
#[path = "../support/cel_rows.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod cel_rows;
mod disk;
mod fault;
mod folder;
mod mounts;
#[path = "../support/pbx.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod pbx;
mod points;
mod scenario;
mod spool;
