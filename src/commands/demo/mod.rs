//! `demo`: recorded calls over a real WebSocket, a CRM on loopback, and everything between.
//!
//! | module | what lives there |
//! |---|---|
//! | [`recording`] | the recorded calls, moved to now |
//! | [`pbx`] | tells them over a WebSocket, as amiws does |
//! | [`view`] | what is shown |
//! | [`run`] | the course of it |

pub(crate) mod pbx;
pub(crate) mod recording;
pub(crate) mod run;
pub(crate) mod view;
