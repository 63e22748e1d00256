//! Tests that callbridge neither loses a call nor logs one twice if callbridge, the CRM, or the
//! disk fails.

mod deaf;
mod frozen;
mod kills;
mod stopping;
mod survival;
