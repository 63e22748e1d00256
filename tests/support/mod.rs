//! Shared parts of the tests: the program under test, the CRM, the recorded calls, and the judge.

pub mod connecting;
pub mod crm;
pub mod crm_process;
pub mod judge;
pub mod live;
pub mod program;
pub mod prometheus;
pub mod recordings;
#[allow(dead_code, reason = "the simulation uses more of it")]
pub mod simulated_calls;
pub mod stored;
