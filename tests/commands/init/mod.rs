//! Tests `init`, which asks questions, finds out settings, and writes flags and secrets only at the
//! end.
//!
//! | module | tests |
//! |---|---|
//! | `flags` | with only flags: the files are correct, and `check` and `run` accept them |
//! | `refused` | if there is an error, its fix is shown and nothing is written |
//! | `switch` | with a FreeSWITCH: gateways, phones, and the password |
//! | `typed` | on a terminal: seven questions, Ctrl-C, a second try |

mod flags;
mod refused;
mod stage;
mod switch;
mod typed;
