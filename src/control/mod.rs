//! How commands speak to the running daemon, and never past it.
//!
//! Where no daemon runs, the commands open the spool themselves and ask the same desk.
//!
//! | module | what lives there |
//! |---|---|
//! | [`protocol`] | what can be asked |
//! | [`socket`] | carries it |
//! | [`desk`] | answers it, in the daemon or over the spool alone |
//! | [`lead_set`] | values for a lead's fields, given by hand |
//! | [`state_access`] | a state folder, through the daemon or opened here |
//! | [`patience`] | waits for the lock of a state folder |

pub mod desk;
pub mod lead_set;
pub mod patience;
pub mod protocol;
pub mod socket;
pub mod state_access;

pub use desk::CommandHandler;
pub use protocol::{CallsQuery, ControlReply, ControlRequest};
