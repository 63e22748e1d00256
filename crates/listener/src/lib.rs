//! HTTP listeners with limits, shared by `--listen`, `--webhook-listen`, and the other listeners.
//!
//! | module | content |
//! |---|---|
//! | [`accept`] | accepts connections, and pauses after a failed accept |
//! | [`places`] | open connections, and the choice of the one to cut if there are too many |
//! | [`serve`] | limits: number of connections, size and time of the head, time of the answer |
//! | [`unavailable`] | 503 with a reason |
//! | [`site`] | refuses requests that a foreign web page makes a browser send |
//! | [`body`] | the bodies of requests and answers |
//! | [`budget`] | a limit on the bytes that all clients together can hold in memory |
//! | [`descriptors`] | the number of file descriptors that one listener can use |

pub mod accept;
pub mod body;
pub mod budget;
pub mod descriptors;
pub mod held;
pub mod places;
pub mod serve;
pub mod site;
pub mod unavailable;

/// The HTTP library whose requests and answers [`serve`] uses.
pub use hyper;
