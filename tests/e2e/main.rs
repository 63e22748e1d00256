//! The real program from end to end: recorded calls in, and a CRM that holds to its document as
//! the judge.

#[path = "../support/agents.rs"]
mod agents;
#[path = "../support/authority.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod authority;
#[path = "../support/broker.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod broker;
#[path = "../support/calls.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod calls;
#[path = "../support/cel_rows.rs"]
mod cel_rows;
mod companies;
mod consent;
mod crm;
mod deaf;
mod demo;
mod directory;
mod every_recording;
#[path = "../support/expected.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod expected;
mod flood;
mod gaps;
mod hearing;
mod identity;
mod kills;
mod leads;
mod log;
mod old_files;
mod old_managers;
mod operations;
mod pauses;
#[path = "../support/pbx.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod pbx;
mod people;
mod program;
#[path = "../support/proxy.rs"]
mod proxy;
mod recordings;
mod records;
mod refreshed;
mod rights;
mod root;
mod secrets;
mod stopping;
mod stories;
mod survival;
mod unmatched;
#[path = "../support/wait.rs"]
#[allow(dead_code, reason = "each test binary uses its own part of it")]
mod wait;
mod webhooks;
