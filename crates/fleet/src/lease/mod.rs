//! Which of several machines sends: the lease of `--standby NAME`.
//!
//! In come ticks of a queue and the time since boot, out goes leave to send
//! ([`callbridge_model::Permit`]), which the client of the CRM asks for directly before it
//! writes a request. `NAME` is a quorum queue with a single active consumer. Every process
//! publishes a tick every three seconds and consumes the queue; only the one whom the broker feeds
//! gets its own ticks back, and may send until ten seconds after the publishing of the last of
//! them.
//!
//! | module | what lives there |
//! |---|---|
//! | [`claim`] | the rules, and why two never send at once; pure |
//! | [`handover`] | when a holder that cannot send gives its turn away; pure |
//! | [`succession`] | when slots that another turn has left are ours; pure |
//! | [`tick`] | what a tick says |
//! | [`keeper`] | the shell: connection, consumer, confirms, reconnects |
//! | [`queue`] | the queue and the rights to it, refusals in words |

pub mod claim;
pub mod handover;
pub mod keeper;
pub mod queue;
pub mod succession;
pub mod tick;

pub use claim::{Claim, Delivered, Terms};
pub use keeper::LeaseKeeper;
pub use queue::Error;
