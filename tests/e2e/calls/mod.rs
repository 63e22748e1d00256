//! Tests that each call is logged as it happened, no matter which source reports it.

mod call_messages;
mod echoes;
mod every_recording;
mod freeswitch;
pub mod freeswitch_cdr;
mod identity;
mod late;
mod old_files;
mod old_managers;
mod records;
mod restarts;
mod stalled;
mod written_files;
