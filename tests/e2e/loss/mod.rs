//! Tests that callbridge loses no call, and logs no call twice, if callbridge, the CRM, or the disk
//! fails.

mod deaf;
mod frozen;
mod kills;
mod stopping;
mod survival;
