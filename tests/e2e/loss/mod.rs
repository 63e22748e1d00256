//! Tests that callbridge loses no call, and logs none twice, if it, the CRM, or its disk fails.

mod deaf;
mod frozen;
mod kills;
mod stopping;
mod survival;
