//! Publishes notices of dead letters to a RabbitMQ queue.
//!
//! | module | contents |
//! |---|---|
//! | [`drain`] | the loop that keeps the outbox empty |
//! | [`notices`] | the messages, and the queue they go to |

pub mod drain;
pub mod notices;

pub use drain::Error;
