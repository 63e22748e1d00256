//! HTTP listeners with limits, shared by `--listen`, `--webhook-listen`, and the other listeners.
//!
//! | module | content |
//! |---|---|
//! | [`accept`] | accepts connections, and pauses after an accept fails |
//! | [`places`] | the open connections, and which one to close if there are too many |
//! | [`serve`] | limits on the number of connections, on the headers, and on the response time |
//! | [`unavailable`] | responds with 503 and a reason |
//! | [`site`] | rejects requests that a foreign web page makes a browser send |
//! | [`body`] | request and response bodies |
//! | [`budget`] | a limit on the bytes that all clients together may occupy in memory |
//! | [`descriptors`] | how many file descriptors a listener may use |

pub mod accept;
pub mod body;
pub mod budget;
pub mod descriptors;
pub mod held;
pub mod places;
pub mod serve;
pub mod site;
pub mod unavailable;

/// The HTTP library whose requests and responses [`serve`] uses.
pub use hyper;
