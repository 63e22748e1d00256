//! What each command does.
//!
//! | module | command |
//! |---|---|
//! | [`check`] | `check`: whether PBX, CRM and machine are as `run` needs them |
//! | [`connect`] | `connect` and `disconnect`: tokens by consent |
//! | [`control`] | `status`, `calls`, `dead …`, `lead …`: asks the daemon, and prints the answer |
//! | [`demo`] | `demo`: recorded calls into the sandbox, shown as they go |
//! | [`dispatch`] | each command to the part that does it |
//! | [`init`] | `init`: asks, finds out, and writes the flags and secrets of a service |
//! | [`scratch`] | (a folder for the time of one) |
//! | [`state`] | `state export`, `state import`: a state folder as one file |
//! | [`explain`] | `explain`: a recording or a kept call, told step by step |

pub(crate) mod audit;
pub(crate) mod check;
pub(crate) mod connect;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod dispatch;
pub(crate) mod explain;
pub(crate) mod init;
pub(crate) mod scratch;
pub(crate) mod state;
