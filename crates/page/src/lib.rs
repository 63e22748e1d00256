//! The page of the administrator: who may see it, what it shows, what can be done there.
//!
//! | module | what lives there |
//! |---|---|
//! | [`backend`] | what the page asks of the daemon, and the shapes of its answers |

pub mod backend;
