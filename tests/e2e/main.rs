//! The real program from end to end: recorded calls in, and a CRM that holds to its document as
//! the judge.

mod audit;
mod audit_journal;
mod call_messages;
mod companies;
mod connecting;
mod consent;
mod crm;
mod dashboard;
mod deaf;
mod demo;
mod directory;
mod echoed_secrets;
mod echoes;
mod every_recording;
mod flood;
mod freeswitch;
mod freeswitch_cdr;
mod gaps;
mod hearing;
mod identity;
mod kills;
mod late;
mod leads;
mod log;
mod lookup;
mod missed;
mod notify;
mod old_files;
mod old_managers;
mod operations;
mod pauses;
mod people;
mod program;
mod prometheus;
mod recordings;
mod records;
mod refreshed;
mod restarts;
mod rights;
mod secrets;
mod stalled;
mod stopping;
mod stories;
mod survival;
mod unmatched;
mod webhooks;
mod written_files;

use callbridge_testbed::{
    agents, authority, broker, calls, cel_rows, expected, pbx, proxy, switch, wait,
};
