//! Listening to whoever comes: one machinery for `--listen` and `--webhook-listen`.
//!
//! | module | what lives there |
//! |---|---|
//! | [`accept`] | a listener that goes on: an accept that fails waits, and is said once |
//! | [`places`] | who is connected, and who makes room when all places are taken |
//! | [`serve`] | connections with limits: their number, the head, one request, the whole time |
//! | [`unavailable`] | 503 with a reason |
//! | [`site`] | what a foreign web page makes a browser send, refused |
//! | [`body`] | the bodies of requests and answers |
//! | [`budget`] | bytes that clients may hold in memory together |
//! | [`descriptors`] | how many of the process's descriptors one listener may take |

pub mod accept;
pub mod body;
pub mod budget;
pub mod descriptors;
pub mod places;
pub mod serve;
pub mod site;
pub mod unavailable;

/// Requests and answers, as [`serve`] hands them on.
pub use hyper;
