//! What each command does.
//!
//! | module | command |
//! |---|---|
//! | [`check`] | `check`: whether PBX, CRM and machine are as `run` needs them |
//! | [`connect`] | `connect` and `disconnect`: tokens by consent |
//! | [`demo`] | `demo`: recorded calls into the sandbox, shown as they go |
//! | [`explain`] | `explain`: a recording or a kept call, told step by step |

pub mod check;
pub mod connect;
pub mod demo;
pub mod explain;
