//! `demo`: recorded calls over a real WebSocket, a CRM on loopback, and everything between.
//!
//! | module | what lives there |
//! |---|---|
//! | [`recording`] | the recorded calls, moved to now |
//! | [`pbx`] | tells them over a WebSocket, as amiws does |
//! | [`view`] | what is shown |
//! | [`run`] | the course of it |

pub mod pbx;
pub mod recording;
pub mod run;
pub mod view;
