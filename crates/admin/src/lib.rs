//! Carries the requests of commands to the running daemon. While a daemon runs, commands read and
//! change its state only through these requests.
//!
//! If no daemon runs, the commands open the spool themselves and use the same handler.
//!
//! | module | what it contains |
//! |---|---|
//! | [`dead_letters`] | dead letters: how they are selected, sent again, and shown |
//! | [`explain`] | shows a call as text, JSON, or a picture |
//! | [`audit`] | compares a file of the PBX with the state |
//! | [`protocol`] | the requests and replies |
//! | [`socket`] | the socket that carries requests and replies |
//! | [`command_handler`] | answers requests, in the daemon or directly over the spool |
//! | `kept_call` | a stored call, as commands receive it |
//! | `refusal` | an error with an exit code and a message |
//! | [`state_access`] | access to a state through the daemon or directly; the wait for its lock |
//! | `user` | the names of Unix users |

pub mod audit;
pub mod command_handler;
pub mod dead_letters;
pub mod explain;
mod kept_call;
pub mod protocol;
mod refusal;
pub mod socket;
pub mod state_access;
pub mod user;

pub use command_handler::{CommandHandler, LetterChange, LetterOutcome};
pub use kept_call::KeptCall;
pub use protocol::{ControlReply, ControlRequest, PageRole};
pub use refusal::Refusal;
pub use state_access::LockWait;
