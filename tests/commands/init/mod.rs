//! `init`: asks, finds out, writes a service's flags and secrets at the end, and nothing before.
//!
//! | module | its question |
//! |---|---|
//! | `flags` | with flags alone: is what is written right, and taken by `check` and `run`? |
//! | `refused` | is nothing written where something is wrong, and is the fix said? |
//! | `switch` | the same of a FreeSWITCH: gateways, telephones, its password |
//! | `typed` | on a terminal: seven questions, Ctrl-C, a second try |

mod flags;
mod refused;
mod stage;
mod switch;
mod typed;
