//! Tests `init`. It asks questions, finds out settings, and writes flags and secrets only at the
//! end.
//!
//! | module | tests |
//! |---|---|
//! | `flags` | with only flags: the files are correct, and `check` and `run` accept them |
//! | `refused` | nothing is written if there is an error, and its fix is shown |
//! | `switch` | the same for a FreeSWITCH: gateways, phones, and its password |
//! | `typed` | on a terminal: seven questions, Ctrl-C, a second try |

mod flags;
mod refused;
mod stage;
mod switch;
mod typed;
