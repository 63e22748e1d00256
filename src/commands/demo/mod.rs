//! `demo`: recorded calls over a real socket, a CRM on loopback, and everything between.
//!
//! | module | what lives there |
//! |---|---|
//! | [`recording`] | the recorded calls, moved to now |
//! | [`pbx`] | tells them over a WebSocket, as amiws does |
//! | [`switch`] | tells them as an event socket of FreeSWITCH does |
//! | [`view`] | what is shown |
//! | [`run`] | the course of it |

pub(crate) mod pbx;
pub(crate) mod recording;
pub(crate) mod run;
pub(crate) mod switch;
pub(crate) mod view;
