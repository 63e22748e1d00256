//! How commands speak to the running daemon, and never past it.
//!
//! Where no daemon runs, the commands open the spool themselves and ask the same handler.
//!
//! | module | what lives there |
//! |---|---|
//! | [`dead_letters`] | dead letters: chosen, sent again, shown |
//! | [`explain`] | a call as people read it |
//! | [`audit`] | a file of the PBX against what became of its calls |
//! | [`protocol`] | what can be asked |
//! | [`socket`] | carries it |
//! | [`command_handler`] | answers it, in the daemon or over the spool alone |
//! | `kept_call` | a call that the spool keeps |
//! | `refusal` | why something could not be done |
//! | [`state_access`] | a state folder, through the daemon or opened here; the wait for its lock |
//! | `user` | the names of Unix users, for what is told of whoever asked |

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
