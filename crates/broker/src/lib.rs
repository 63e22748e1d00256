//! What leaves the spool for a broker: a collector's ready calls, what became of a sender's calls,
//! and notices of dead letters.
//!
//! Of calls: in come ready calls of the spool, out go messages (`docs/call-message.md`), each
//! confirmed before its call is forwarded. While no broker takes them they stay ready, and leave in
//! order later. One may be published again after a crash, and those that were confirmed last are
//! after a broker was lost: each is the same call by its uuid.
//!
//! | module | what lives there |
//! |---|---|
//! | [`message`] | a stored call to its message; pure |
//! | [`drain`] | the loop that keeps an outbox empty, for each of them |
//! | [`forwarder`] | ready calls, and those published once more after a loss of the broker |
//! | [`notices`] | notices of dead letters to a queue |
//! | [`outcomes`] | what became of its calls to a stream |

pub mod drain;
pub mod forwarder;
pub mod message;
pub mod notices;
pub mod outcomes;

pub use drain::Error;
pub use forwarder::{ForwardAgain, Forwarder};
pub use outcomes::OutcomePublisher;
